//! `installer.json`: read, kept, set aside when it is none.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::Record;
use crate::place::{NewFile, place};
use crate::{Error, kept};

/// What this version writes. Later ones only add fields, so that one version back can read them, and keeps them.
const VERSION: u32 = 1;
const FILE: &str = "installer.json";
const MODE: u32 = 0o600;

/// A disk's own error, should it have none.
const EIO: i32 = 5;

/// The record's file.
#[derive(Clone, Debug)]
pub(crate) struct RecordFile {
    data_dir: PathBuf,
    /// Why it cannot be read: then it is not replaced either.
    sealed: Option<i32>,
}

impl RecordFile {
    /// In the data directory. Touches nothing yet.
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self { data_dir: data_dir.to_owned(), sealed: None }
    }

    /// The directory that it is in.
    pub(crate) fn directory(&self) -> &Path {
        &self.data_dir
    }

    /// Where it is.
    pub(crate) fn path(&self) -> PathBuf {
        self.data_dir.join(FILE)
    }

    /// A record that was not read is not known to hold nothing: what was there before us would be forgotten with it. So
    /// nothing is kept in its place.
    pub(crate) fn seal(&mut self, error: &io::Error) {
        self.sealed = Some(error.raw_os_error().unwrap_or(EIO));
    }

    /// Whether it was there and could not be read.
    pub(crate) const fn is_sealed(&self) -> bool {
        self.sealed.is_some()
    }

    /// Those that were damaged and put out of the way.
    pub(crate) fn aside(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.data_dir).into_iter().flatten().flatten();
        let damaged = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_damaged));
        let mut paths: Vec<PathBuf> = damaged.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    }

    /// Reads it. No file is an empty record.
    pub(crate) fn read(&self) -> Result<Record, Error> {
        Ok(kept::read(&self.path())?.unwrap_or_default())
    }

    /// Puts a damaged one out of the way, beside its place.
    pub(crate) fn set_aside(&self) -> Result<(), Error> {
        let path = self.path();
        let aside = ipam::set_aside(&path).map(drop);
        aside.map_err(|source| Error::Place { target: path, action: "setting it aside", source })
    }

    /// Keeps a record.
    pub(crate) fn keep(&self, record: &Record) -> Result<(), Error> {
        self.write(record).map_err(|error| Error::Unremembered { path: self.path(), source: Box::new(error) })
    }

    fn write(&self, record: &Record) -> Result<(), Error> {
        let target = self.path();
        if let Some(code) = self.sealed {
            return Err(Error::Read { path: target, source: io::Error::from_raw_os_error(code) });
        }
        let record = Record { version: record.version.max(VERSION), ..record.clone() };
        let text = serde_json::to_vec_pretty(&record);
        let mut text = text.map_err(|source| Error::Record { path: target.clone(), source })?;
        text.push(b'\n');
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.data_dir);
        made.map_err(|source| Error::Place { target: target.clone(), action: "creating its directory", source })?;
        place(NewFile::ours(&target, &text, MODE))
    }
}

fn is_damaged(name: &str) -> bool {
    name.strip_prefix(FILE).and_then(|rest| rest.strip_prefix(".damaged")).is_some()
}
