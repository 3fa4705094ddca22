//! The secondary VNICs as they were known last, on disk: an agent that starts while the metadata service's list is short
//! knows of them, too. It is a copy: one that is lost or damaged is made anew by the next list.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ipam::write_atomically;
use serde::{Deserialize, Serialize};
use vcn::{VNICS_COPY_FILE, Vnic};

const VERSION: u32 = 1;

/// The copy.
#[derive(Clone, Debug)]
pub struct VnicsSeen {
    path: PathBuf,
    /// What was last read, written or tried to: a broken disk is complained of once per list.
    known: Option<Vec<Vnic>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    version: u32,
    vnics: Vec<Vnic>,
}

impl VnicsSeen {
    /// The one in a directory that outlives a boot.
    #[must_use]
    pub fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join(VNICS_COPY_FILE), known: None }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The VNICs; none where there is no copy.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or another version's.
    pub fn read(&mut self) -> io::Result<Vec<Vnic>> {
        let bytes = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let Document { version, vnics } = serde_json::from_slice(&bytes)?;
        if version > VERSION {
            let text = format!("it has format version {version}, this build reads up to {VERSION}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.known = Some(vnics.clone());
        Ok(vnics)
    }

    /// Replaces it where it says something else.
    ///
    /// # Errors
    /// When the disk is full, broken or read-only; the copy is then as it was.
    pub fn note(&mut self, vnics: &[Vnic]) -> io::Result<()> {
        if self.known.as_deref() == Some(vnics) {
            return Ok(());
        }
        self.known = Some(vnics.to_vec());
        write_atomically(&self.path, &serde_json::to_vec(&Document { version: VERSION, vnics: vnics.to_vec() })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::vm_vnics;

    #[test]
    fn what_was_noted_is_read_again_and_written_only_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let mut seen = VnicsSeen::new(folder.path());
        assert_eq!(seen.read().unwrap(), []);
        seen.note(&vm_vnics()).unwrap();
        assert_eq!(VnicsSeen::new(folder.path()).read().unwrap(), vm_vnics());
        fs::remove_file(seen.path()).unwrap();
        seen.note(&vm_vnics()).unwrap();
        assert!(!seen.path().exists());
        seen.note(&[]).unwrap();
        assert!(seen.path().exists());
    }

    #[test]
    fn a_damaged_copy_or_a_later_versions_is_an_error_and_is_replaced_by_the_next_list() {
        let folder = tempfile::tempdir().unwrap();
        let mut seen = VnicsSeen::new(folder.path());
        for text in ["{\"version\": 1,", "{\"version\": 2, \"vnics\": []}"] {
            fs::write(seen.path(), text).unwrap();
            seen.read().unwrap_err();
        }
        seen.note(&vm_vnics()).unwrap();
        assert_eq!(VnicsSeen::new(folder.path()).read().unwrap(), vm_vnics());
    }
}
