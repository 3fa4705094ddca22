//! The document in a file that outlives a boot. It is of one machine: a copy of the disk in another one is void.

use std::io;
use std::path::{Path, PathBuf};

use ipam::{BootId, read_state, write_atomically};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tunables::NodeDocument;

const VERSION: u32 = 1;

/// The file. Its user is its only writer.
#[derive(Clone, Debug)]
pub(super) struct DocumentStore {
    path: PathBuf,
    boot: BootId,
}

/// What the file has.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredDocument {
    version: u32,
    /// The boot in which it was received.
    boot_id: Option<BootId>,
    /// The instance that received it, if it was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instance: Option<String>,
    pub(super) document: NodeDocument,
}

/// Why the document cannot be read or kept.
#[derive(Debug, Error)]
pub(crate) enum StoreError {
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is damaged; no setting changes until the controller sends the document again", path.display())]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error("{} has format version {version}, this build reads {VERSION}; no setting changes until the controller sends it again", path.display())]
    Version { path: PathBuf, version: u32 },
    #[error("write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

impl DocumentStore {
    pub(super) fn new(data_dir: &Path, boot: BootId) -> Self {
        Self { path: data_dir.join(vcn::NODE_POLICY_FILE), boot }
    }

    /// The stored document; `None` if there is no file.
    pub(super) fn read(&self) -> Result<Option<StoredDocument>, StoreError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let path = || self.path.clone();
        let text = match read_state(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|source| StoreError::Read { path: path(), source })?,
        };
        let damaged = |source| StoreError::Damaged { path: path(), source };
        let Version { version } = serde_json::from_slice(&text).map_err(damaged)?;
        if version != VERSION {
            return Err(StoreError::Version { path: path(), version });
        }
        let stored: StoredDocument = serde_json::from_slice(&text).map_err(damaged)?;
        match stored.document.version {
            tunables::document::VERSION => Ok(Some(stored)),
            version => Err(StoreError::Version { path: path(), version }),
        }
    }

    /// Replaces the document. It is on the disk afterwards, or the earlier one stays.
    pub(super) fn write(&self, document: &NodeDocument, instance: Option<&str>) -> Result<(), StoreError> {
        let instance = instance.map(str::to_owned);
        let stored =
            StoredDocument { version: VERSION, boot_id: Some(self.boot.clone()), instance, document: document.clone() };
        let written = serde_json::to_vec(&stored).map_err(io::Error::from);
        let written = written.and_then(|text| write_atomically(&self.path, &text));
        written.map_err(|source| StoreError::Write { path: self.path.clone(), source })
    }
}

impl StoredDocument {
    /// Whether it is of this machine. Without an answer of the metadata service, the boot says so.
    pub(super) fn is_of(&self, instance: Option<&str>, boot: &BootId) -> bool {
        let own = self.document.instance.as_deref().or(self.instance.as_deref());
        match own.zip(instance) {
            Some((own, instance)) => own == instance,
            None => self.boot_id.as_ref() == Some(boot),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn boot(last: u8) -> BootId {
        BootId::from_text(&last.to_string())
    }

    fn document_of(instance: Option<&str>) -> NodeDocument {
        let instance = instance.map(str::to_owned);
        NodeDocument { version: 1, revision: "a".to_owned(), instance, ..NodeDocument::default() }
    }

    #[test]
    fn stored_document_is_of_its_machine_only() {
        let of = |document: Option<&str>, receiver: Option<&str>| StoredDocument {
            version: 1,
            boot_id: Some(boot(1)),
            instance: receiver.map(str::to_owned),
            document: document_of(document),
        };
        assert!(of(Some("a"), None).is_of(Some("a"), &boot(2)), "after a reboot");
        assert!(of(None, Some("a")).is_of(Some("a"), &boot(2)), "after a reboot, without a provider ID");
        assert!(of(Some("a"), None).is_of(None, &boot(1)), "while the metadata service is silent");
        assert!(!of(Some("a"), None).is_of(None, &boot(2)), "a copied disk, while the metadata service is silent");
        assert!(!of(Some("a"), None).is_of(Some("b"), &boot(1)), "another instance");
        assert!(!of(None, Some("a")).is_of(Some("b"), &boot(1)), "another instance");
    }

    #[test]
    fn damaged_file_is_an_error_and_never_an_empty_document() {
        let directory = tempfile::tempdir().unwrap();
        let store = DocumentStore::new(directory.path(), boot(1));
        assert!(store.read().unwrap().is_none());
        store.write(&document_of(None), Some("a")).unwrap();
        assert_eq!(store.read().unwrap().unwrap().document, document_of(None));
        let path = directory.path().join(vcn::NODE_POLICY_FILE);
        for text in ["", "{}", "{\"version\": 1}", "{\"version\": 1, \"document\": {\"version\": 1, \"sysctls\": 7}}"] {
            fs::write(&path, text).unwrap();
            assert!(matches!(store.read(), Err(StoreError::Damaged { .. })), "{text}");
        }
        for text in ["{\"version\": 2}", "{\"version\": 1, \"bootId\": null, \"document\": {}}"] {
            fs::write(&path, text).unwrap();
            assert!(matches!(store.read(), Err(StoreError::Version { .. })), "{text}");
        }
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert!(matches!(store.read(), Err(StoreError::Read { .. })));
    }
}
