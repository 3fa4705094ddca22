//! The journal of links in a file that outlives a boot: an unfinished change with all that a restore needs, what was proven on this
//! node, and what was not. Its user is its only writer.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use installer::PolicySetting;
use ipam::{BootId, read_state, write_atomically};
use netlink::{Link, SavedNetwork};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tunables::{Item, ItemState};
use vcn::IfName;

const VERSION: u32 = 1;

/// The most items that are remembered of each sort.
pub(super) const ITEMS_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    pub(super) content: Content,
    is_read: bool,
}

/// What the file has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Content {
    version: u32,
    /// The instance whose links these are: a disk may be copied into another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    /// The uid of the cluster whose policies these were.
    cluster: String,
    /// The change in progress, or what an agent that was killed left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unfinished: Option<UnfinishedChange>,
    /// Values that were confirmed on this node.
    #[serde(deserialize_with = "api::lenient_list")]
    pub(super) proven: Vec<ProvenValue>,
    /// Values that were not, until the policy has another revision.
    #[serde(deserialize_with = "api::lenient_list")]
    pub(super) rejected: Vec<RejectedValue>,
}

/// A change that is not confirmed yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UnfinishedChange {
    pub(super) boot_id: BootId,
    /// The link first, then links that stand on it.
    pub(super) links: Vec<SavedLink>,
    pub(super) steps: Vec<JournalStep>,
    /// Why it is being undone, once it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<Verdict>,
}

/// Why a change is undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Verdict {
    pub(super) state: ItemState,
    pub(super) message: String,
}

/// A link before the change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SavedLink {
    pub(super) name: IfName,
    /// What identifies it: the permanent address, or without one the present.
    pub(super) mac: Option<String>,
    pub(super) index: u32,
    pub(super) mtu: u32,
    /// Its IPv6 settings by their paths below /proc/sys: the kernel forgets them with a small MTU.
    pub(super) settings: BTreeMap<String, String>,
    /// Addresses as the kernel listed them, in hexadecimal digits.
    pub(super) addresses: Vec<String>,
    pub(super) routes: Vec<String>,
}

/// A value that changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct JournalStep {
    /// As [`Item`] writes it.
    pub(super) item: String,
    pub(super) before: String,
    pub(super) set: String,
    /// The revision of its policy.
    pub(super) revision: String,
    /// What the record of earlier values had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) noted: Option<PolicySetting>,
}

/// A value that works on a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProvenValue {
    pub(super) item: String,
    pub(super) mac: Option<String>,
    pub(super) value: String,
}

/// A value that was undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RejectedValue {
    pub(super) item: String,
    pub(super) value: String,
    pub(super) revision: String,
    pub(super) state: ItemState,
    pub(super) attempts: u32,
    pub(super) message: String,
}

/// Why the journal cannot be read or written.
#[derive(Debug, Error)]
pub(super) enum JournalError {
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is damaged", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error("write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl Journal {
    /// An empty one, at its place.
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join(vcn::LINK_JOURNAL_FILE), content: Content::default(), is_read: false }
    }

    /// Reads the file once, if there is one. After an error of the disk it is read again: it may be the only copy of a link's
    /// addresses. A damaged file has no copy, and the next change begins another one.
    pub(super) fn read(&mut self) -> Result<(), JournalError> {
        if self.is_read {
            return Ok(());
        }
        let path = || self.path.clone();
        let text = match read_state(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.is_read = true;
                return Ok(());
            }
            Err(source) => {
                // A link or a pipe in its place stays one.
                self.is_read = source.kind() == io::ErrorKind::InvalidData;
                return Err(JournalError::Read { path: path(), source });
            }
            Ok(text) => text,
        };
        self.is_read = true;
        self.content =
            serde_json::from_slice(&text).map_err(|source| JournalError::Damaged { path: path(), source })?;
        Ok(())
    }

    /// Whether the file was read, or cannot be used. Nothing may change before.
    pub(super) const fn is_read(&self) -> bool {
        self.is_read
    }

    /// Writes a change of the content to the disk, or leaves both as they are.
    pub(super) fn update(&mut self, change: impl FnOnce(&mut Content)) -> Result<(), JournalError> {
        let mut content = self.content.clone();
        change(&mut content);
        content.version = content.version.max(VERSION);
        content.proven.drain(..content.proven.len().saturating_sub(ITEMS_MAX));
        content.rejected.drain(..content.rejected.len().saturating_sub(ITEMS_MAX));
        if content == self.content {
            return Ok(());
        }
        let text = serde_json::to_vec(&content).map_err(io::Error::from);
        let written = text.and_then(|text| write_atomically(&self.path, &text));
        written.map_err(|source| JournalError::Write { path: self.path.clone(), source })?;
        self.content = content;
        Ok(())
    }
}

impl Content {
    /// Whether a value works on a link.
    pub(super) fn is_proven(&self, item: &Item, mac: Option<&str>, value: &str) -> bool {
        let item = item.to_string();
        self.proven.iter().any(|it| it.item == item && it.mac.as_deref() == mac && it.value == value)
    }

    /// What became of a value earlier.
    pub(super) fn rejected(&self, item: &Item, value: &str, revision: &str) -> Option<&RejectedValue> {
        let item = item.to_string();
        self.rejected.iter().find(|it| it.item == item && it.value == value && it.revision == revision)
    }

    /// Forgets what is about another instance or another cluster's policies. Only the instance must be known.
    pub(super) fn keep_own(&mut self, instance: Option<&str>, cluster: &str) {
        let is_other = |known: Option<&str>, own: &str| known.is_some_and(|known| known != own);
        let is_other_instance = instance.is_some_and(|own| is_other(self.instance.as_deref(), own));
        let known_cluster = Some(&*self.cluster).filter(|known| !known.is_empty());
        if is_other_instance || is_other(known_cluster, cluster) {
            (self.proven, self.rejected) = Default::default();
        }
        self.instance = instance.map(str::to_owned).or(self.instance.take());
        cluster.clone_into(&mut self.cluster);
    }

    /// The link that a value was proven on has this address, or the value was not proven.
    pub(super) fn is_of_link(&self, item: &Item, mac: Option<&str>) -> bool {
        let item = item.to_string();
        self.proven.iter().filter(|it| it.item == item).all(|it| it.mac.as_deref() == mac)
    }

    /// The change is kept.
    pub(super) fn commit(&mut self) {
        let Some(UnfinishedChange { links, steps, .. }) = self.unfinished.take() else { return };
        let mac = links.into_iter().next().and_then(|link| link.mac);
        for JournalStep { item, set, .. } in steps {
            self.rejected.retain(|it| it.item != item);
            self.proven.retain(|it| it.item != item);
            self.proven.push(ProvenValue { item, mac: mac.clone(), value: set });
        }
    }

    /// The change is undone; without a verdict it is tried again as if it never was.
    pub(super) fn close(&mut self) {
        let Some(UnfinishedChange { steps, verdict: Some(Verdict { state, message }), .. }) = self.unfinished.take()
        else {
            return;
        };
        for JournalStep { item, set: value, revision, .. } in steps {
            let earlier = |it: &&RejectedValue| it.item == item && it.value == value && it.revision == revision;
            let attempts = self.rejected.iter().find(earlier).map_or(1, |it| it.attempts + 1);
            self.proven.retain(|it| it.item != item);
            self.rejected.retain(|it| it.item != item);
            self.rejected.push(RejectedValue { item, value, revision, state, attempts, message: message.clone() });
        }
    }
}

impl SavedLink {
    pub(super) fn new(link: &Link, settings: BTreeMap<String, String>, network: &SavedNetwork) -> Self {
        Self {
            name: link.name.clone(),
            mac: identity(link),
            index: link.index,
            mtu: link.mtu.0,
            settings,
            addresses: network.addresses.iter().map(|bytes| digits(bytes)).collect(),
            routes: network.routes.iter().map(|bytes| digits(bytes)).collect(),
        }
    }

    /// Its addresses and routes.
    pub(super) fn network(&self) -> SavedNetwork {
        let bytes = |all: &[String]| all.iter().filter_map(|text| bytes_of(text)).collect();
        SavedNetwork { addresses: bytes(&self.addresses), routes: bytes(&self.routes) }
    }

    /// Whether a link is this one, in the same boot.
    pub(super) fn is(&self, link: &Link) -> bool {
        self.name == link.name && self.mac == identity(link)
    }
}

/// What identifies a link from one boot to the next.
pub(super) fn identity(link: &Link) -> Option<String> {
    link.permanent_mac.or(link.mac).map(|mac| mac.to_string())
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}
