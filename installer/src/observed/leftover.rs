//! Our configuration where nothing is to be installed, and what stands against taking it away.

use std::path::PathBuf;

use super::{At, ConfText, Contents};
use crate::entry::OURS;
use crate::record::{Configuration, Record, unnamed};
use crate::{Settings, pods};

/// What is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    /// It is there.
    There(There),
    /// Nothing but our memory of it: it was taken away, by us who could not say so any more, or by somebody.
    Remembered,
}

/// Our configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct There {
    /// Its place.
    pub(crate) path: PathBuf,
    /// The file; of a link within the directory, what it leads to.
    pub(crate) target: PathBuf,
    /// What it holds; nothing where it is a link to nothing.
    pub(crate) found: Option<Vec<u8>>,
    /// Why it cannot go now.
    pub(crate) stays: Option<String>,
}

impl Leftover {
    /// Looks for it, and for pods. `damaged` says what is wrong with the record.
    pub(crate) fn look(settings: &Settings, record: &Record, damaged: Option<String>) -> Option<Self> {
        let path = settings.conflist();
        let known = record.configurations.get(vcn::CONFLIST_FILE);
        let found = At::look(&path);
        // As long as what was there before us is to be given back, it is remembered.
        let owed = known.and_then(|known| known.before.as_ref()).is_some_and(|before| !before.is_at(&path));
        let remembered = || (known.is_some() && !owed).then_some(Self::Remembered);
        let (target, found) = match found.file() {
            Some(file) if is_ours(file, known) => (file.target.clone(), Some(file.contents.clone())),
            Some(_) => return remembered(),
            None if found == At::Nothing => return remembered(),
            // Somebody moved ours, left a link to it, and it went: a runtime refuses every configuration for such a link.
            None if known.is_some() && found.leads_nowhere(&path) => (path.clone(), None),
            None => {
                let why = found.unread().filter(|_| known.is_some())?;
                let stays = Some(format!("it is not what we put there, {why}: look at it and remove it"));
                return Some(Self::There(There { target: path.clone(), path, found: None, stays }));
            }
        };
        let pods = pods(settings);
        let unnamed = unnamed::told(settings, &unnamed::copies(settings, record));
        let stays = Some(pods.join("; ")).filter(|pods| !pods.is_empty()).or(damaged).or(unnamed);
        Some(Self::There(There { path, target, found, stays }))
    }
}

/// Whether it is ours: by our plugin in it, or because it is what we wrote and somebody damaged.
pub(crate) fn is_ours(found: &ConfText, known: Option<&Configuration>) -> bool {
    match Contents::parse(&found.contents) {
        Contents::Plugins(kinds) => kinds.iter().any(|kind| OURS.contains(&kind.as_str())),
        _ => known.is_some(),
    }
}
