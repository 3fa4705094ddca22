//! Which values this node has had while the leader reached it. Only these are set at a start: a value that cut the node off, or
//! ended the agent, does not come back with the next one. In a file that outlives a boot.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ipam::{read_state, write_atomically};
use resident::logging::chain;
use serde::{Deserialize, Serialize};
use tunables::{Item, NodeDocument};

use super::resolve::DesiredValue;

const VERSION: u32 = 1;

/// Attempts to set a value that the leader does not confirm. Then the value waits for another revision of its policy.
pub(super) const ATTEMPTS_MAX: u8 = 3;

/// The file, whose user is its only writer.
#[derive(Debug)]
pub(super) struct ProofStore {
    path: PathBuf,
    /// `None` until it is read.
    proofs: Option<Proofs>,
}

/// Of one cluster and one instance; others are void.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Proofs {
    version: u32,
    cluster: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    items: BTreeMap<String, Proof>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Proof {
    value: String,
    /// The revision of the policy that required it.
    revision: String,
    attempts: u8,
    is_proven: bool,
}

/// What is known of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// The node had it while the leader reached it.
    Proven,
    /// This many attempts failed with this revision of its policy.
    Tried(u8),
    /// It was never tried.
    Unknown,
}

impl Proofs {
    /// What is known of a value.
    pub(super) fn evidence(&self, item: &Item, desired: &DesiredValue) -> Evidence {
        match self.items.get(&item.to_string()).filter(|proof| proof.value == desired.value) {
            Some(proof) if proof.is_proven => Evidence::Proven,
            Some(proof) if proof.revision == desired.revision => Evidence::Tried(proof.attempts),
            _ => Evidence::Unknown,
        }
    }

    /// The value is tried.
    pub(super) fn note_attempt(&mut self, item: &Item, desired: &DesiredValue) {
        let attempts = match self.evidence(item, desired) {
            Evidence::Tried(attempts) => attempts.saturating_add(1),
            Evidence::Proven | Evidence::Unknown => 1,
        };
        self.note(item, desired, attempts, false);
    }

    /// The kernel refused the value, which proves nothing.
    pub(super) fn take_back_attempt(&mut self, item: &Item) {
        if let Some(proof) = self.items.get_mut(&item.to_string()) {
            proof.attempts = proof.attempts.saturating_sub(1);
        }
    }

    /// The leader reached the node while it had the value.
    pub(super) fn note_proven(&mut self, item: &Item, desired: &DesiredValue) {
        self.note(item, desired, 0, true);
    }

    /// Forgets items that no policy sets any more.
    pub(super) fn retain(&mut self, is_set: impl Fn(&Item) -> bool) {
        self.items.retain(|item, _| item.parse().is_ok_and(|item| is_set(&item)));
    }

    fn note(&mut self, item: &Item, desired: &DesiredValue, attempts: u8, is_proven: bool) {
        let (value, revision) = (desired.value.clone(), desired.revision.clone());
        self.items.insert(item.to_string(), Proof { value, revision, attempts, is_proven });
    }
}

impl ProofStore {
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join(vcn::NODE_POLICY_PROOFS_FILE), proofs: None }
    }

    /// The proofs of a document's cluster and instance. Nothing is proven by a damaged file.
    pub(super) fn of(&mut self, document: &NodeDocument) -> Proofs {
        let known = self.proofs.get_or_insert_with(|| read(&self.path));
        let is_same =
            known.version == VERSION && (&known.cluster, &known.instance) == (&document.cluster, &document.instance);
        if !is_same {
            let (cluster, instance) = (document.cluster.clone(), document.instance.clone());
            return Proofs { version: VERSION, cluster, instance, items: BTreeMap::new() };
        }
        known.clone()
    }

    /// Writes what is known now, if it is something new.
    pub(super) fn write(&mut self, proofs: &Proofs) -> Result<(), String> {
        let is_known = |known: &Proofs| known == proofs || known.items.is_empty() && proofs.items.is_empty();
        if self.proofs.as_ref().is_some_and(is_known) {
            return Ok(());
        }
        let written = serde_json::to_vec(proofs).map_err(std::io::Error::from);
        let written = written.and_then(|text| write_atomically(&self.path, &text));
        written.map_err(|error| format!("write {}: {}", self.path.display(), chain(&error)))?;
        self.proofs = Some(proofs.clone());
        Ok(())
    }
}

fn read(path: &Path) -> Proofs {
    match read_state(path) {
        Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|error| {
            tracing::warn!(event = "policy.proofs_unusable", path = %path.display(), %error, "no value counts as confirmed");
            Proofs::default()
        }),
        Err(_) => Proofs::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_is_of_a_value_on_one_instance_in_one_cluster() {
        let directory = tempfile::tempdir().unwrap();
        let of = |cluster: &str, instance: Option<&str>| NodeDocument {
            cluster: cluster.to_owned(),
            instance: instance.map(str::to_owned),
            ..NodeDocument::default()
        };
        let desired = |value: &str, revision: &str| DesiredValue {
            value: value.to_owned(),
            policy: "web".to_owned(),
            uid: "u".to_owned(),
            revision: revision.to_owned(),
        };
        let (item, here) = (Item::HugePages, of("c", Some("i")));
        let mut store = ProofStore::new(directory.path());
        let mut proofs = store.of(&here);
        for attempts in 1..=2 {
            proofs.note_attempt(&item, &desired("1", "a"));
            assert_eq!(proofs.evidence(&item, &desired("1", "a")), Evidence::Tried(attempts));
        }
        assert_eq!(proofs.evidence(&item, &desired("1", "b")), Evidence::Unknown, "another revision tries again");
        proofs.note_proven(&item, &desired("1", "a"));
        store.write(&proofs).unwrap();
        let again = |document: &NodeDocument| ProofStore::new(directory.path()).of(document);
        assert_eq!(again(&here).evidence(&item, &desired("1", "b")), Evidence::Proven);
        assert_eq!(again(&here).evidence(&item, &desired("2", "b")), Evidence::Unknown);
        for other in [of("d", Some("i")), of("c", Some("j")), of("c", None)] {
            assert_eq!(again(&other).evidence(&item, &desired("1", "a")), Evidence::Unknown, "{other:?}");
        }
        std::fs::write(directory.path().join(vcn::NODE_POLICY_PROOFS_FILE), "{").unwrap();
        assert_eq!(again(&here).evidence(&item, &desired("1", "a")), Evidence::Unknown);
    }
}
