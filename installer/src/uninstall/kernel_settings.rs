//! Kernel settings as they were before us, of the host and of VNICs' links: the agent notes one before it changes it, and
//! uninstalling restores it. A reboot restores them, too, so notes of another boot are void.

mod restore;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use ipam::BootId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use vcn::{IfName, Mtu};

pub(super) use restore::restore;

use super::OtherNetworks;
use crate::error::Error;
use crate::files::{read_document, write_document};
use crate::uninstall::Removal;

pub(crate) const FILE: &str = "sysctls.json";

/// The prefix of links' keys, and their values.
const LINK: &str = "link/";
const MTU: &str = "mtu";
const STATE: &str = "state";
const UP: &str = "up";
const DOWN: &str = "down";

const VERSION: u32 = 1;

/// A setting that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChange {
    /// Its path below /proc/sys, `net/ipv4/ip_forward`; or of a link, `link/ens5/mtu`.
    pub key: String,
    /// Its value before us.
    pub before: String,
    /// Its new value.
    pub set: String,
}

/// The file. Unknown fields, of a later version, are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Notes {
    version: u32,
    boot_id: Option<BootId>,
    settings: BTreeMap<String, Note>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Note {
    /// Its value before us.
    before: String,
    /// The value that we set last.
    set: String,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl SettingChange {
    /// A link's MTU.
    #[must_use]
    pub fn mtu(link: &IfName, before: Mtu, set: Mtu) -> Self {
        Self { key: format!("{LINK}{link}/{MTU}"), before: before.0.to_string(), set: set.0.to_string() }
    }

    /// A link that was down.
    #[must_use]
    pub fn raised(link: &IfName) -> Self {
        Self { key: format!("{LINK}{link}/{STATE}"), before: DOWN.to_owned(), set: UP.to_owned() }
    }
}

/// Notes changes before they are made in this boot. The first value of a setting is the one from before us. Nothing is written
/// if nothing is new; damaged notes are replaced.
///
/// # Errors
/// When the notes cannot be written.
pub fn note_settings(data_dir: &Path, boot: &BootId, changes: &[SettingChange]) -> Result<(), Error> {
    if changes.is_empty() {
        return Ok(());
    }
    let path = data_dir.join(FILE);
    let old = match read_document::<Notes>(&path) {
        Ok(notes) => notes.filter(|notes| notes.boot_id.as_ref() == Some(boot)),
        Err(Error::Record { .. }) => None,
        Err(error) => return Err(error),
    };
    let mut notes = old.clone().unwrap_or_else(|| Notes { boot_id: Some(boot.clone()), ..Notes::default() });
    notes.version = notes.version.max(VERSION);
    for SettingChange { key, before, set } in changes {
        let note = Note { before: before.clone(), set: set.clone(), extra: Map::new() };
        notes.settings.entry(key.clone()).or_insert(note).set.clone_from(set);
    }
    if old.as_ref() == Some(&notes) { Ok(()) } else { write_document(&path, &notes) }
}

/// The settings changed in this boot, by key.
fn changed(data_dir: &Path) -> Result<BTreeMap<String, Note>, Error> {
    let notes: Option<Notes> = read_document(&data_dir.join(FILE))?;
    let own = notes.filter(|notes| notes.boot_id.is_some() && notes.boot_id == BootId::current().ok());
    Ok(own.map(|notes| notes.settings).unwrap_or_default())
}
