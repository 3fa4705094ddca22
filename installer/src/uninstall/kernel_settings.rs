//! Kernel settings as they were before us, of the host and of VNICs' links: the agent notes one before it changes it, and
//! uninstalling restores it. A reboot restores them, too, so notes of another boot are void.

mod link_option;
mod of_policies;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ipam::BootId;
use netlink::{LinkChange, Socket, Sysctls};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tunables::value::{chosen, is_same};
use tunables::{LinkOption, keys};
use vcn::{IfName, Mtu};

use super::OtherNetworks;
use crate::error::Error;
use crate::files::{read_document, write_document};
use crate::uninstall::Removal;

pub use link_option::{read_link_option, write_link_option};
pub use of_policies::{PolicyMark, PolicySetting, forget_policy_settings, note_policy_settings, policy_settings};

pub(crate) const FILE: &str = "sysctls.json";

const VERSION: u32 = 1;

/// A setting that was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingChange {
    /// Its path below /proc/sys, `net/ipv4/ip_forward`; or of a link, `link/ens5/mtu`.
    pub key: String,
    /// Its value before us.
    pub before: String,
    /// The value that we set.
    pub set: String,
}

/// Where the kernel's settings are, as seen from here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRoots {
    /// In place of /proc/sys, which is read-only in a container.
    pub sysctl: PathBuf,
    /// The host's file system, with /sys.
    pub host: PathBuf,
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
    /// The node policy that set it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<PolicyMark>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

enum Setting<'a> {
    /// Its path below /proc/sys.
    Sysctl(&'a str),
    /// Its path below /sys/kernel/mm.
    HugePages(&'a str),
    /// Whether a link is up.
    LinkState(IfName),
    /// An option of a link, such as its MTU.
    LinkOption(IfName, LinkOption),
}

impl SettingChange {
    /// A change of a link's MTU.
    #[must_use]
    pub fn mtu(link: &IfName, before: Mtu, set: Mtu) -> Self {
        Self { key: format!("link/{link}/mtu"), before: before.0.to_string(), set: set.0.to_string() }
    }

    /// A link that was down.
    #[must_use]
    pub fn raised(link: &IfName) -> Self {
        Self { key: format!("link/{link}/state"), before: "down".to_owned(), set: "up".to_owned() }
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
    edit(data_dir, boot, |settings| {
        for SettingChange { key, before, set } in changes {
            let note = Note { before: before.clone(), set: set.clone(), policy: None, extra: Map::new() };
            settings.entry(key.clone()).or_insert(note).set.clone_from(set);
        }
    })
}

/// Changes the notes of this boot. Several threads of the agent do, one at a time.
fn edit(data_dir: &Path, boot: &BootId, change: impl FnOnce(&mut BTreeMap<String, Note>)) -> Result<(), Error> {
    static WRITER: Mutex<()> = Mutex::new(());
    let _writer = WRITER.lock().unwrap_or_else(PoisonError::into_inner);
    let path = data_dir.join(FILE);
    let old = match read_document::<Notes>(&path) {
        Ok(notes) => notes.filter(|notes| notes.boot_id.as_ref() == Some(boot)),
        Err(Error::Record { .. }) => None,
        Err(error) => return Err(error),
    };
    let mut notes = old.clone().unwrap_or_else(|| Notes { boot_id: Some(boot.clone()), ..Notes::default() });
    notes.version = notes.version.max(VERSION);
    change(&mut notes.settings);
    if old.as_ref() == Some(&notes) { Ok(()) } else { write_document(&path, &notes) }
}

/// The settings changed in this boot, by key.
fn changed(data_dir: &Path) -> Result<BTreeMap<String, Note>, Error> {
    let notes: Option<Notes> = read_document(&data_dir.join(FILE))?;
    let own = notes.filter(|notes| notes.boot_id.is_some() && notes.boot_id == BootId::current().ok());
    Ok(own.map(|notes| notes.settings).unwrap_or_default())
}

/// Restores the noted settings. One that another program changed since stays. Forwarding stays for another pod network, which
/// found it set and had no reason to set it, and so does `accept_ra`, which the host then needs for its default route. A link
/// that another program uses stays as it is, and keeps IPv6. Each of `others` counts: a program may have come since the first.
pub(super) fn restore(data_dir: &Path, roots: &KernelRoots, others: &[OtherNetworks], removal: &mut Removal) {
    let changed = changed(data_dir).unwrap_or_else(|error| {
        removal.failures.push(error);
        BTreeMap::new()
    });
    // Links last: a setting of a link that is down may be gone. Forwarding before `accept_ra`. Of an amount in bytes and in
    // percent the kernel refuses 0, and sets it when the other one is set.
    let mut changed: Vec<_> = changed.iter().collect();
    changed.sort_by_key(|(key, note)| (key.starts_with("link/"), note.before == "0" && note.policy.is_some()));
    for (key, note) in changed {
        let Some(setting) = Setting::parse(key, note) else {
            removal.left.push(format!("setting {key}: it is not a network setting"));
            continue;
        };
        let now = match setting.read(roots) {
            Ok(now) if is_same(&now, &note.before) => continue,
            Ok(now) => now,
            Err(error)
                if error.is_not_found() && note.policy.is_some() && setting.read(&KernelRoots::default()).is_ok() =>
            {
                removal.left.push(format!("setting {key}: its folder is not mounted here; a reboot restores it"));
                continue;
            }
            // Gone with its link, for example.
            Err(error) if error.is_not_found() => continue,
            Err(error) => {
                removal.failures.push(Error::kernel(format!("removing setting {key}"))(error));
                continue;
            }
        };
        match others.iter().find_map(|others| setting.kept_because(&now, note, others)) {
            Some(why) => removal.left.push(format!("setting {key}: {why}")),
            None => removal.step(format!("restore {key} to {}", note.before), || {
                setting.write(&note.before, roots).map_err(Error::kernel(format!("removing setting {key}")))
            }),
        }
    }
}

impl<'a> Setting<'a> {
    fn parse(key: &'a str, note: &Note) -> Option<Self> {
        let parts: Vec<&str> = key.split('/').collect();
        match parts[..] {
            ["link", name, "state"] => Some(Self::LinkState(name.parse().ok()?)),
            ["link", name, option] => Some(Self::LinkOption(name.parse().ok()?, option.parse().ok()?)),
            ["transparent_hugepage", "enabled"] => Some(Self::HugePages(key)),
            [first, ..] if parts.iter().all(|part| !part.is_empty() && *part != "..") => {
                let is_of_policy = || note.policy.is_some() && keys::is_never_allowed(&key.replace('/', ".")).is_none();
                (first == "net" || is_of_policy()).then_some(Self::Sysctl(key))
            }
            _ => None,
        }
    }

    /// Why it is not restored.
    fn kept_because(&self, now: &str, note: &Note, others: &OtherNetworks) -> Option<String> {
        if !is_same(now, &note.set) {
            return Some(format!("another program changed it to {now} since"));
        }
        match self {
            // A policy's value goes with the agent, although other programs use the link.
            Self::LinkOption(..) if note.policy.is_some() => None,
            Self::LinkState(link) | Self::LinkOption(link, _) => others.user_of_link(link),
            Self::HugePages(_) => None,
            Self::Sysctl(key) => match key.split('/').collect::<Vec<_>>()[..] {
                [.., "ip_forward" | "forwarding"] => others.network.clone(),
                // While forwarding is on, the kernel honors router advertisements only with 2.
                ["net", "ipv6", "conf", _, "accept_ra"] if now == "2" => others.network.clone(),
                // Every IPv6 address of the link would be removed. `all` and `default` are not links.
                ["net", "ipv6", "conf", name, "disable_ipv6"] => others.user_of_link(&name.parse().ok()?),
                _ => None,
            },
        }
    }

    fn read(&self, roots: &KernelRoots) -> Result<String, netlink::Error> {
        match self {
            Self::Sysctl(key) => Ok(roots.sysctls().read(key)?.trim().to_owned()),
            Self::HugePages(key) => Ok(chosen(&roots.memory().read(key)?).unwrap_or_default().to_owned()),
            Self::LinkState(name) => Ok(if Socket::open()?.link(name)?.up { "up" } else { "down" }.to_owned()),
            Self::LinkOption(name, option) => Ok(read_link_option(name, option, &roots.sysctls())?.unwrap_or_default()),
        }
    }

    fn write(&self, value: &str, roots: &KernelRoots) -> Result<(), netlink::Error> {
        match self {
            Self::Sysctl(key) => roots.sysctls().write(key, value).map(drop),
            Self::HugePages(key) => roots.memory().write(key, value).map(drop),
            // A link that was up before is not noted.
            Self::LinkState(name) if value == "down" => Socket::open()?.change_link_named(name, &[LinkChange::Down]),
            Self::LinkState(_) => Ok(()),
            Self::LinkOption(name, option) => write_link_option(name, option, value, &roots.sysctls()).map(drop),
        }
    }
}

impl Default for KernelRoots {
    fn default() -> Self {
        Self { sysctl: "/proc/sys".into(), host: "/".into() }
    }
}

impl KernelRoots {
    fn sysctls(&self) -> Sysctls {
        Sysctls::new(&self.sysctl)
    }

    fn memory(&self) -> Sysctls {
        Sysctls::new(&self.host.join("sys/kernel/mm"))
    }
}
