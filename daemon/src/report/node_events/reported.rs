//! The conditions reported by Events and not yet as cleared, on disk, so that a restarted agent reports only what changed. If the
//! file is lost, standing conditions are reported once more.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use ipam::{read_state, write_atomically};
use serde::{Deserialize, Serialize};
use vcn::REPORTED_CONDITIONS_FILE;

use super::plan::{ConditionKey, ReportedEvent};

const VERSION: u32 = 1;

#[derive(Clone, Debug)]
pub(super) struct ReportedFile {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    version: u32,
    /// Their Node; those of another one are not used.
    node: String,
    conditions: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    key: ConditionKey,
    #[serde(flatten)]
    reported: ReportedEvent,
}

impl ReportedFile {
    /// The file in a directory that outlives a boot.
    pub(super) fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join(REPORTED_CONDITIONS_FILE) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What was reported about a Node. A reason that only another version has is an error, as a damaged file is.
    pub(super) fn read(&self, node: &str) -> io::Result<BTreeMap<ConditionKey, ReportedEvent>> {
        let document = match read_state(&self.path) {
            Ok(document) => document,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(error),
        };
        let document: Document = serde_json::from_slice(&document)?;
        let of_node = document.conditions.into_iter().filter(|_| document.node == node);
        Ok(of_node.map(|Entry { key, reported }| (key, reported)).collect())
    }

    pub(super) fn write(&self, node: &str, reported: &BTreeMap<ConditionKey, ReportedEvent>) -> io::Result<()> {
        let entry = |(key, reported): (&ConditionKey, &ReportedEvent)| Entry { key: key.clone(), reported: *reported };
        let conditions = reported.iter().map(entry).collect();
        let document = Document { version: VERSION, node: node.to_owned(), conditions };
        write_atomically(&self.path, &serde_json::to_vec(&document)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::facts::condition::Reason;

    #[test]
    fn next_agent_of_the_node_reads_what_was_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = ReportedFile::new(folder.path());
        assert_eq!(file.read("a").unwrap(), BTreeMap::new());
        let of_a_vnic = ConditionKey { reason: Reason::LinkMissing, subject: Some("ocid1.vnic.oc1.iad.a".into()) };
        let of_the_node = ConditionKey { reason: Reason::NoUsableAddress, subject: None };
        let reported = BTreeMap::from([
            (of_a_vnic, ReportedEvent { blocking: false, reported_unix_millis: 1_000 }),
            (of_the_node, ReportedEvent { blocking: true, reported_unix_millis: 7 }),
        ]);
        file.write("a", &reported).unwrap();
        assert_eq!(file.read("a").unwrap(), reported);
        assert_eq!(file.read("b").unwrap(), BTreeMap::new());
        fs::write(file.path(), "{\"version\": 1,").unwrap();
        assert!(file.read("a").is_err());
    }
}
