//! What people were told of and not yet that it is over, on disk: an agent that takes over from another one tells nothing
//! again, and what ended meanwhile it tells. One that is lost or damaged costs an event or two.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use ipam::{read_state, write_atomically};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use vcn::TOLD_FILE;

use super::plan::{Name, Standing};
use crate::report::condition::Reason;

const VERSION: u32 = 1;

/// The file.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    version: u32,
    /// The Node that was told about: what is known of another one is of no use.
    node: String,
    /// One by one: another version may have words that this one lacks.
    told: Vec<Value>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    reason: Reason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    blocking: bool,
    told_unix_millis: u64,
}

impl Kept {
    /// The one in a directory that outlives a boot.
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join(TOLD_FILE) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What people know about this Node.
    pub(super) fn look(&self, node: &str) -> io::Result<BTreeMap<Name, Standing>> {
        let document = match read_state(&self.path) {
            Ok(document) => document,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
        };
        let document: Document = serde_json::from_slice(&document)?;
        let told = document.told.into_iter().filter(|_| document.node == node);
        let entries = told.filter_map(|entry| serde_json::from_value::<Entry>(entry).ok());
        let known = entries.map(|Entry { reason, subject, blocking, told_unix_millis }| {
            (Name { reason, subject }, Standing { blocking, told_unix_millis })
        });
        Ok(known.collect())
    }

    /// Replaces it.
    pub(super) fn write(&self, node: &str, standing: &BTreeMap<Name, Standing>) -> io::Result<()> {
        let entry = |(name, standing): (&Name, &Standing)| {
            let Name { reason, subject } = name.clone();
            let Standing { blocking, told_unix_millis } = *standing;
            serde_json::to_value(Entry { reason, subject, blocking, told_unix_millis })
        };
        let told = standing.iter().map(entry).collect::<Result<_, _>>()?;
        write_atomically(&self.path, &serde_json::to_vec(&Document { version: VERSION, node: node.to_owned(), told })?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_told_is_known_to_the_next_agent_of_the_same_node() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(folder.path());
        assert_eq!(kept.look("a").unwrap(), BTreeMap::new());
        let of_a_vnic = Name { reason: Reason::LinkMissing, subject: Some("ocid1.vnic.oc1.iad.a".into()) };
        let known = BTreeMap::from([
            (of_a_vnic, Standing { blocking: false, told_unix_millis: 1_000 }),
            (Name { reason: Reason::NoUsableAddress, subject: None }, Standing { blocking: true, told_unix_millis: 7 }),
        ]);
        kept.write("a", &known).unwrap();
        assert_eq!(kept.look("a").unwrap(), known);
        assert_eq!(kept.look("b").unwrap(), BTreeMap::new());
    }

    #[test]
    fn a_word_of_another_version_is_passed_over_and_a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(folder.path());
        let newer = serde_json::json!({ "version": 2, "node": "a", "more": 1, "told": [
            { "reason": "NotInventedYet", "blocking": true, "toldUnixMillis": 1 },
            { "reason": "NftFailed", "blocking": true, "toldUnixMillis": 1, "more": 1 },
        ]});
        fs::write(kept.path(), newer.to_string()).unwrap();
        let known = Name { reason: Reason::NftFailed, subject: None };
        let expected = BTreeMap::from([(known, Standing { blocking: true, told_unix_millis: 1 })]);
        assert_eq!(kept.look("a").unwrap(), expected);
        fs::write(kept.path(), "{\"version\": 1,").unwrap();
        assert!(kept.look("a").is_err());
    }
}
