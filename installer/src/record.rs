//! What this program wrote into configurations, kept across reboots, and how often another program reverted that. Without it
//! everything still works, but a plugin that a setting no longer lists is taken for another program's. Our binaries need no
//! record: they have a mark.

pub(crate) mod backup;
mod rewrite_limiter;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(crate) use rewrite_limiter::{RewriteLimiter, WINDOW};

use crate::error::Error;
use crate::files::{read_document, write_document};

/// The format's number. Later versions only add fields, so that one version back can read them, and keeps them.
const VERSION: u32 = 1;

/// The record, in the data directory.
pub(crate) const FILE: &str = "installer.json";

/// The record. Unknown fields, of a later version, are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Record {
    /// The format's number.
    pub(crate) version: u32,
    /// Configurations by name: our own, and those that our plugin is chained into.
    pub(crate) configurations: BTreeMap<String, ConfigurationRecord>,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

/// A configuration that we write or add to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ConfigurationRecord {
    /// Our part of it as last written: header and plugins of our own, or the entry in another program's configuration.
    pub(crate) wanted: Option<Value>,
    /// The plugins that we put in. While a write is under way these are the old ones and the new ones, because a kill may
    /// leave either.
    pub(crate) plugins: BTreeSet<String>,
    /// When another program had reverted it and we repaired it.
    #[serde(skip_serializing_if = "RewriteLimiter::is_empty")]
    pub(crate) rewrites: RewriteLimiter,
    #[serde(flatten)]
    extra: Map<String, Value>,
}

impl ConfigurationRecord {
    /// Whether our part was ever in place. A kill before the first write leaves an entry that says no.
    pub(crate) const fn is_written(&self) -> bool {
        self.wanted.is_some()
    }
}

/// The record's file.
#[derive(Clone, Debug)]
pub(crate) struct RecordFile {
    path: PathBuf,
    /// Set after a failed read: the record may say more than what is known, so it is not replaced.
    pub(crate) is_unreadable: bool,
}

impl RecordFile {
    /// In a data directory. Reads nothing yet.
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self { path: data_dir.join(FILE), is_unreadable: false }
    }

    pub(crate) fn exists(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok()
    }

    /// Reads it. No file is an empty record.
    pub(crate) fn read(&self) -> Result<Record, Error> {
        match read_document(&self.path) {
            Ok(record) => Ok(record.unwrap_or_default()),
            Err(damaged @ Error::Record { .. }) => Err(damaged),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Renames a damaged one, so that a person can look at it.
    pub(crate) fn set_aside(&self) -> Result<(), Error> {
        let renamed = ipam::set_aside(&self.path).map(drop);
        renamed.map_err(|source| Error::Place { target: self.path.clone(), action: "setting it aside", source })
    }

    /// Writes it, unless it could not be read, which is reported already.
    pub(crate) fn write(&self, record: &Record) -> Result<(), Error> {
        if self.is_unreadable {
            return Ok(());
        }
        let record = Record { version: record.version.max(VERSION), ..record.clone() };
        write_document(&self.path, &record).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: Error) -> Error {
        Error::NotRecorded { path: self.path.clone(), source: Box::new(error) }
    }
}
