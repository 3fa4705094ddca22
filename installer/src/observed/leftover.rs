//! Our configuration on a node where nothing is to be installed, and why it cannot be removed now.

use std::path::PathBuf;

use super::{ConfAt, ConfText, Contents};
use crate::Settings;
use crate::decide::pods;
use crate::record::{ConfigurationRecord, Record};
use crate::settings::OURS;

/// What is left of our configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// The file.
    File(OurConflist),
    /// Only the record of it: another program removed the file, or this program did and was killed.
    Record,
}

/// Our configuration's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OurConflist {
    /// Its path in the directory.
    pub(crate) path: PathBuf,
    /// The file; of a link within the directory the link's target.
    pub(crate) target: PathBuf,
    /// Its contents; `None` of a link to nothing.
    pub(crate) found: Option<Vec<u8>>,
    /// Why it cannot be removed now.
    pub(crate) blocked: Option<String>,
}

impl Leftover {
    /// Searches for it, and for pods.
    pub(crate) fn find(settings: &Settings, record: &Record) -> Option<Self> {
        let path = settings.conflist();
        let known = record.configurations.get(vcn::CONFLIST_FILE);
        let found = ConfAt::read(&path);
        let (target, found) = match &found {
            ConfAt::File(file) if is_ours(file, known) => (file.target.clone(), Some(file.contents.clone())),
            ConfAt::File(_) | ConfAt::Nothing => return known.map(|_| Self::Record),
            // The file that our link led to was removed: a runtime refuses every configuration because of such a link.
            _ if known.is_some() && found.leads_nowhere(&path) => (path.clone(), None),
            _ => {
                let why = found.unread().filter(|_| known.is_some())?;
                let blocked = Some(format!("another program replaced it, {why}: look at it and remove it"));
                return Some(Self::File(OurConflist { target: path.clone(), path, found: None, blocked }));
            }
        };
        let pods = pods(settings).join("; ");
        let blocked = Some(pods).filter(|pods| !pods.is_empty());
        Some(Self::File(OurConflist { path, target, found, blocked }))
    }
}

/// Whether a file with our configuration's name is our configuration: it names our plugin, or it is on record and damaged.
pub(crate) fn is_ours(found: &ConfText, known: Option<&ConfigurationRecord>) -> bool {
    match Contents::parse(&found.contents) {
        Contents::Plugins(kinds) => kinds.iter().any(|kind| OURS.contains(&kind.as_str())),
        _ => known.is_some(),
    }
}
