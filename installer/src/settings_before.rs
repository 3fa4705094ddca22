//! Kernel settings as they were before us, of the whole and of VNICs' links: noted by whoever is about to change one, set
//! again when we leave. A reboot brings its own, so notes of another boot are void.

mod link;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use ipam::BootId;
use netlink::Sysctls;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use vcn::{IfName, Mtu};

use crate::place::{NewFile, place};
use crate::uninstall::Others;
use crate::{Error, Removal};

/// The notes, in the data directory.
pub(crate) const FILE: &str = "sysctls.json";

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

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    before: String,
    set: String,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl SettingChange {
    /// A link's MTU.
    #[must_use]
    pub fn mtu(link: &IfName, before: Mtu, set: Mtu) -> Self {
        Self { key: link::key(link, link::MTU), before: before.0.to_string(), set: set.0.to_string() }
    }

    /// A link that was down.
    #[must_use]
    pub fn raised(link: &IfName) -> Self {
        Self { key: link::key(link, link::STATE), before: link::DOWN.to_owned(), set: link::UP.to_owned() }
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
    let mut notes = match read(&path) {
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

/// Sets them as they were, unless somebody changed one since. Where nothing was noted, nothing is known, and nothing is
/// changed. Forwarding stays where another pod network is there: it found that set, and has no reason to set it; and with
/// it that the host heeds router advertisements nevertheless. A link that others may live by stays as it is, and keeps
/// IPv6, without which it would have no addresses of it.
pub(crate) fn restore(data_dir: &Path, sysctl_root: &Path, others: &Others, removal: &mut Removal) {
    let notes = match read(&data_dir.join(FILE)) {
        Ok(Some(notes)) if notes.boot_id.is_some() && notes.boot_id == BootId::current().ok() => notes,
        Ok(_) => return,
        Err(error) => return removal.failures.push(error),
    };
    let sysctls = Sysctls::new(sysctl_root);
    // A link that goes down takes nothing along that is set before.
    let (links, plain): (Vec<_>, Vec<_>) =
        notes.settings.into_iter().partition(|(name, _)| name.starts_with(link::PREFIX));
    for (name, Note { before, set, .. }) in plain {
        set_again(&name, (&before, &set), (&sysctls, others), removal);
    }
    for (name, Note { before, set, .. }) in links {
        link::restore(&name, (&before, &set), others, removal);
    }
}

fn set_again(name: &str, (before, set): (&str, &str), (sysctls, others): (&Sysctls, &Others), removal: &mut Removal) {
    let failed = |source| Error::Network { what: format!("setting {name}"), source };
    let key: Vec<&str> = name.split('/').collect();
    if key.first() != Some(&"net") || key.iter().any(|part| part.is_empty() || *part == "..") {
        return removal.left.push(format!("setting {name}: it is not one of the network's"));
    }
    let now = match sysctls.read(&key) {
        // With its link, for example.
        Err(error) if error.is_not_found() => return,
        Err(source) => return removal.failures.push(failed(source)),
        Ok(now) => now,
    };
    match now.trim() {
        now if now == before => return,
        now if now != set => return removal.left.push(format!("setting {name}: somebody made it {now} since")),
        _ => {}
    }
    let used = match &key[..] {
        [.., "ip_forward" | "forwarding"] => Ok(others.network()),
        // Where forwarding stays on, the kernel heeds router advertisements only so: the host's default route is of one.
        ["net", "ipv6", "conf", _, "accept_ra"] if set == "2" => Ok(others.network()),
        // Every IPv6 address of the link would go with it.
        ["net", "ipv6", "conf", link, "disable_ipv6"] => link::user(link, others),
        _ => Ok(None),
    };
    match used {
        Err(source) => removal.failures.push(failed(source)),
        Ok(Some(used)) => removal.left.push(format!("setting {name}: {used}")),
        Ok(None) => removal
            .step(format!("set {name} to {before} again"), || sysctls.write(&key, before).map(drop).map_err(failed)),
    }
}

fn read(path: &Path) -> Result<Option<Notes>, Error> {
    match fs::read(path) {
        Ok(text) => {
            serde_json::from_slice(&text).map(Some).map_err(|source| Error::Record { path: path.to_owned(), source })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path: path.to_owned(), source }),
    }
}
