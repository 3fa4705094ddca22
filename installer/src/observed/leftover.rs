//! Our configuration where nothing is to be installed, and what stands against taking it away.

use std::path::PathBuf;

use super::At;
use crate::record::Record;
use crate::{Settings, uninstall};

/// It is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leftover {
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
        let (target, found) = match found.file() {
            Some(file) if uninstall::is_ours(file, known) => (file.target.clone(), Some(file.contents.clone())),
            Some(_) => return None,
            // Somebody moved ours, left a link to it, and it went: a runtime refuses every configuration for such a link.
            None if known.is_some() && found.leads_nowhere(&path) => (path.clone(), None),
            None => {
                let why = found.unread().filter(|_| known.is_some())?;
                let stays = Some(format!("it is not what we put there, {why}: look at it and remove it"));
                return Some(Self { target: path.clone(), path, found: None, stays });
            }
        };
        let pods = uninstall::pods(settings);
        let unnamed = uninstall::unnamed(settings, record);
        let stays = Some(pods.join("; ")).filter(|pods| !pods.is_empty()).or(damaged).or(unnamed);
        Some(Self { path, target, found, stays })
    }
}
