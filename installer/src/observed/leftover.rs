//! Our configuration on a node where nothing is to be installed, and why it cannot be removed now.

use super::{ConfAt, ConfText, Contents};
use crate::decide::pods;
use crate::record::{ConfigurationRecord, Record};
use crate::settings::{OURS, Settings};

/// What is left of our configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// The file, by its contents when it was read.
    File(Vec<u8>),
    /// It cannot be removed now, and why.
    Blocked(String),
    /// Only the record of it: another program removed the file, or this program did and was killed.
    Record,
}

impl Leftover {
    /// Searches for it, and for pods.
    pub(crate) fn find(settings: &Settings, record: &Record) -> Option<Self> {
        let known = record.configurations.get(vcn::CONFLIST_FILE);
        match ConfAt::ours(&settings.conflist()) {
            ConfAt::File(file) if is_ours(&file, known) => {
                let pods = pods(settings).join("; ");
                Some(if pods.is_empty() { Self::File(file.contents) } else { Self::Blocked(pods) })
            }
            ConfAt::File(_) | ConfAt::Nothing => known.map(|_| Self::Record),
            ConfAt::Unread(why) => known.map(|_| Self::Blocked(format!("another program replaced it: {why}"))),
        }
    }
}

/// Whether a file with our configuration's name is our configuration: it names our plugin, or it is on record and damaged.
pub(crate) fn is_ours(found: &ConfText, known: Option<&ConfigurationRecord>) -> bool {
    match Contents::parse(&found.contents) {
        Contents::Plugins(kinds) => kinds.iter().any(|kind| OURS.contains(&kind.as_str())),
        _ => known.is_some(),
    }
}
