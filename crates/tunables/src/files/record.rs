//! What a node knows about files of policies: what was there before, what was applied last, and a change that nothing confirmed yet.
//! Pure; the caller stores it, and the copies that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use api::node_policy::{HostUnit, KubeletReservations};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::document::is_default;
use crate::files::reservations;
use crate::report::ItemState;

/// The version of the record. A reader refuses later ones.
pub const VERSION: u32 = 1;

/// What a node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileRecord {
    /// The number of the format: [`VERSION`].
    pub version: u32,
    /// Of which cluster; another one voids the record.
    pub cluster: String,
    /// Of which instance, if it is known; another one voids the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Files that policies have, by path.
    pub files: BTreeMap<String, RecordedFile>,
    /// Units that the policies let us restart. They hold for the undo, too.
    #[serde(skip_serializing_if = "is_default")]
    pub restart: BTreeSet<HostUnit>,
    /// Units that must restart, unless they did since: what a killed program leaves to the next one.
    #[serde(skip_serializing_if = "is_default")]
    pub owed: BTreeSet<HostUnit>,
    /// A change that is not confirmed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingChange>,
    /// The order that was rolled back last: it is not tried again.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rejected: String,
    /// Why it was rolled back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejection: Option<Rejection>,
    /// What became of reservations of the kubelet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<RecordedReservations>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// Why an order was rolled back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rejection {
    /// In words, such as `kubelet.service is failed`.
    pub message: String,
    /// Uids of the policies whose files it changed.
    pub policies: BTreeSet<String>,
}

/// Reservations that a program tried last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedReservations {
    /// The hash of their drop-in.
    pub sha256: String,
    /// Why the node cannot have them; none if it has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ItemState>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// A file of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedFile {
    /// What was there before any policy.
    pub original: Original,
    /// What was applied last.
    pub applied: FileState,
    /// The uid of its policy.
    pub policy: String,
}

/// What was at a path before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Original {
    /// There was no file at the path.
    Absent,
    /// A file, of which a copy is kept.
    Kept(FileState),
}

/// What distinguishes a file of root's from another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileState {
    /// The hash of its content, in hexadecimal digits.
    pub sha256: String,
    /// The permission bits of the file.
    pub mode: u32,
}

/// A change that is not confirmed, with what brings the earlier state back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PendingChange {
    /// The order whose change is not confirmed yet.
    pub order: String,
    /// What the changed paths had: a file of which a copy is kept, or nothing.
    pub before: BTreeMap<String, Option<FileState>>,
    /// The earlier entries of these and other paths that the change touches.
    pub records: BTreeMap<String, Option<RecordedFile>>,
    /// The units that restart: again, when the files come back.
    pub units: BTreeSet<HostUnit>,
    /// Those of them that had failed before the change: the earlier files do not bring them back.
    #[serde(skip_serializing_if = "is_default")]
    pub failed: BTreeSet<HostUnit>,
    /// Whether systemd reads its units again.
    pub reload: bool,
    /// The earlier value in the record.
    pub restart: BTreeSet<HostUnit>,
    /// The earlier value in the record.
    pub owed: BTreeSet<HostUnit>,
    /// Whether the units stayed active after their restart, so that the leader may confirm the change.
    pub is_proven: bool,
    /// When the kubelet was about to restart, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet_started: Option<i64>,
}

impl RecordedReservations {
    /// Of reservations that the node has.
    pub fn new(reservations: &KubeletReservations) -> Self {
        let FileState { sha256, .. } = FileState::of(reservations::drop_in(reservations).as_bytes(), 0);
        Self { sha256, state: None, message: String::new() }
    }

    /// Whether these were tried.
    pub fn is_of(&self, reservations: &KubeletReservations) -> bool {
        self.sha256 == Self::new(reservations).sha256
    }
}

impl FileState {
    /// The state of a file.
    pub fn of(content: &[u8], mode: u32) -> Self {
        Self { sha256: format!("{:x}", Sha256::digest(content)), mode }
    }
}

/// For people who compare it with `stat` and `sha256sum`.
impl fmt::Display for FileState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o} {}", self.mode, self.sha256.get(..12).unwrap_or_default())
    }
}

/// The name of a copy of the file at a path.
pub fn copy_name(path: &str) -> String {
    format!("{:x}", Sha256::digest(path.as_bytes())).chars().take(32).collect()
}

impl FileRecord {
    /// Whether the record is of this cluster and instance. An unknown instance is taken as this one.
    pub fn is_of(&self, cluster: &str, instance: Option<&str>) -> bool {
        let is_same_instance = self.instance.as_deref().zip(instance).is_none_or(|(own, other)| own == other);
        self.cluster == cluster && is_same_instance
    }

    /// The record after everything is done and confirmed: units that restarted are not owed any more.
    #[must_use]
    pub fn confirm(&self) -> Self {
        let mut next = self.clone();
        if let Some(pending) = next.pending.take() {
            next.owed.retain(|unit| !pending.units.contains(unit));
        }
        next.rejected.clear();
        next.rejection = None;
        next
    }

    /// What the unconfirmed change wrote to a path: a policy's content, or what was there before any policy. `None` if it removed the file.
    pub fn written(&self, path: &str) -> Option<&FileState> {
        if let Some(file) = self.files.get(path) {
            return Some(&file.applied);
        }
        match self.pending.as_ref()?.records.get(path)?.as_ref()?.original {
            Original::Kept(ref state) => Some(state),
            Original::Absent => None,
        }
    }

    /// The record once the units of a change stayed active.
    #[must_use]
    pub fn prove(&self, kubelet_started: Option<i64>) -> Self {
        let mut next = self.clone();
        if let Some(pending) = &mut next.pending {
            (pending.is_proven, pending.kubelet_started) = (true, kubelet_started);
        }
        next
    }

    /// The record after the files came back, and why.
    #[must_use]
    pub fn roll_back(&self, reason: &str) -> Self {
        let mut next = self.clone();
        let Some(pending) = next.pending.take() else { return next };
        let policy = |(path, before): (&String, &Option<RecordedFile>)| {
            self.files.get(path).or(before.as_ref()).map(|file| file.policy.clone())
        };
        let policies = pending.records.iter().filter_map(policy).collect();
        next.rejection = Some(Rejection { message: reason.to_owned(), policies });
        // Whether the node has them is not known any more.
        next.kubelet = None;
        for (path, record) in pending.records {
            match record {
                Some(record) => drop(next.files.insert(path, record)),
                None => drop(next.files.remove(&path)),
            }
        }
        next.restart = pending.restart;
        next.owed = pending.owed;
        next.rejected = pending.order;
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_keeps_fields_of_a_later_version() {
        let text = r#"{"version":1,"cluster":"c","files":{},"later":{"a":1}}"#;
        let record: FileRecord = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
    }

    #[test]
    fn record_of_another_machine_is_void() {
        let record = FileRecord { cluster: "c".to_owned(), instance: Some("i".to_owned()), ..FileRecord::default() };
        for (cluster, instance, is_of) in
            [("c", Some("i"), true), ("c", None, true), ("c", Some("j"), false), ("d", Some("i"), false)]
        {
            assert_eq!(record.is_of(cluster, instance), is_of, "{cluster} {instance:?}");
        }
    }

    #[test]
    fn copies_of_two_paths_have_two_names() {
        assert_ne!(copy_name("/etc/sysctl.d/a.conf"), copy_name("/etc/sysctl.d/b.conf"));
        assert!(copy_name("/etc/sysctl.d/a.conf").bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
