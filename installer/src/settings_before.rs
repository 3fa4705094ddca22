//! Kernel settings as they were before us, of the whole and of VNICs' links: noted by whoever is about to change one, set
//! again when we leave (`uninstall/settings_before.rs`). A reboot brings its own, so notes of another boot are void.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ipam::BootId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use vcn::{IfName, Mtu};

use crate::place::{NewFile, place};
use crate::{Error, kept};

/// The notes, in the data directory.
pub(crate) const FILE: &str = "sysctls.json";

/// How keys of links begin, and what is noted of a link.
pub(crate) const LINK: &str = "link/";
pub(crate) const MTU: &str = "mtu";
pub(crate) const STATE: &str = "state";
pub(crate) const UP: &str = "up";
pub(crate) const DOWN: &str = "down";

const VERSION: u32 = 1;
const MODE: u32 = 0o600;

/// A setting that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChange {
    /// Its path below /proc/sys, `net/ipv4/ip_forward`; or of a link, `link/ens5/mtu`.
    pub key: String,
    /// Its value before.
    pub before: String,
    /// The value that it was given.
    pub set: String,
}

/// The file. Unknown fields, a later version's, are kept.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Notes {
    version: u32,
    boot_id: Option<BootId>,
    settings: BTreeMap<String, Note>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// What is known of a setting.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Note {
    /// Its value before us.
    pub(crate) before: String,
    /// The value that it was given last.
    pub(crate) set: String,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl SettingChange {
    /// A link's MTU.
    #[must_use]
    pub fn mtu(link: &IfName, before: Mtu, set: Mtu) -> Self {
        Self { key: key(link, MTU), before: before.0.to_string(), set: set.0.to_string() }
    }

    /// A link that was down.
    #[must_use]
    pub fn raised(link: &IfName) -> Self {
        Self { key: key(link, STATE), before: DOWN.to_owned(), set: UP.to_owned() }
    }
}

/// Notes what is about to be changed in this boot. The first value of a setting is the one from before us, whatever becomes of it
/// later. Nothing is written when nothing is new; notes that are damaged are begun anew.
///
/// # Errors
/// When the notes cannot be kept.
pub fn note_settings(data_dir: &Path, boot: &BootId, changes: &[SettingChange]) -> Result<(), Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let path = data_dir.join(FILE);
    let mut notes = match kept::read::<Notes>(&path) {
        Ok(Some(notes)) if notes.boot_id.as_ref() == Some(boot) => notes,
        Ok(_) | Err(Error::Record { .. }) => Notes { boot_id: Some(boot.clone()), ..Notes::default() },
        Err(error) => return Err(error),
    };
    notes.version = notes.version.max(VERSION);
    let old = serde_json::to_value(&notes).ok();
    for SettingChange { key, before, set } in changes {
        let note = Note { before: before.clone(), set: set.clone(), extra: Map::new() };
        notes.settings.entry(key.clone()).or_insert(note).set.clone_from(set);
    }
    let record = |source| Error::Record { path: path.clone(), source };
    let new = serde_json::to_value(&notes).map_err(record)?;
    if path.exists() && Some(&new) == old.as_ref() {
        return Ok(());
    }
    let made = fs::create_dir_all(data_dir);
    made.map_err(|source| Error::Place { target: path.clone(), action: "creating its directory", source })?;
    place(NewFile::ours(&path, format!("{new:#}\n").as_bytes(), MODE))
}

/// What was changed in this boot, by its key. Nothing where nothing was noted.
///
/// # Errors
/// When the notes cannot be read.
pub(crate) fn changed(data_dir: &Path) -> Result<BTreeMap<String, Note>, Error> {
    let notes: Option<Notes> = kept::read(&data_dir.join(FILE))?;
    let own = notes.filter(|notes| notes.boot_id.is_some() && notes.boot_id == BootId::current().ok());
    Ok(own.map(|notes| notes.settings).unwrap_or_default())
}

/// `link/ens5/mtu`.
fn key(link: &IfName, what: &str) -> String {
    format!("{LINK}{link}/{what}")
}
