//! One change to the node's files, as data.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::BINARY_MODE;
use crate::decide::Signal;
use crate::settings::VNIC_ATTACH;

/// One change. Display is its line in the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Create a directory of the runtime.
    CreateDirectory(PathBuf),
    /// Remove a temporary file of a killed installer.
    RemoveStale(PathBuf),
    /// Install a binary.
    InstallBinary { source: PathBuf, target: PathBuf, replaces: bool },
    /// Make a binary executable again.
    SetMode { target: PathBuf, was: u32 },
    /// Write a configuration.
    ChangeConf(Box<ConfChange>),
    /// Remove our configuration from a node whose pod network is another; what was there before it comes back.
    RemoveConflist {
        path: PathBuf,
        /// Its contents when it was read; it is removed only if they are still the same.
        found: Vec<u8>,
        /// Whether every runtime uses it.
        first: bool,
        /// The signal that says that the pod network is another.
        decided_by: Signal,
    },
    /// Remove our copy of another network's configuration.
    RemoveCopy { path: PathBuf, found: Vec<u8> },
    /// Delete a configuration from the record: it is gone.
    Forget { path: PathBuf },
}

/// A configuration that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfChange {
    pub(crate) target: PathBuf,
    pub(crate) contents: Vec<u8>,
    /// Its permission bits.
    pub(crate) mode: u32,
    /// Its contents when it was read; it is written only if they are still the same.
    pub(crate) found: Option<Vec<u8>>,
    /// Our part of it.
    pub(crate) wanted: Value,
    /// Whether what is there is another program's and is copied before.
    pub(crate) backup: bool,
    pub(crate) purpose: Purpose,
    /// What another program changed since we last wrote it.
    pub(crate) reverted: Option<String>,
}

/// What a configuration is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It is our own configuration.
    Ours,
    /// It is our copy of another network's.
    Copy,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = |replaces: bool| if replaces { "replace" } else { "install" };
        match self {
            Self::CreateDirectory(path) => write!(f, "create directory {}", path.display()),
            Self::RemoveStale(path) => write!(f, "remove stale {}", path.display()),
            Self::InstallBinary { source, target, replaces, .. } => {
                write!(f, "{} {} from {}", verb(*replaces), target.display(), source.display())
            }
            Self::SetMode { target, was } => {
                write!(f, "chmod {BINARY_MODE:04o} {} (was {was:04o})", target.display())
            }
            Self::ChangeConf(change) => {
                let ConfChange { target, found, purpose, reverted, .. } = change.as_ref();
                let target = target.display();
                match purpose {
                    Purpose::Ours => write!(f, "{} {target}", verb(found.is_some()))?,
                    Purpose::Copy => write!(f, "write {target} with {VNIC_ATTACH}")?,
                }
                reverted.as_ref().map_or(Ok(()), |reverted| write!(f, " ({reverted})"))
            }
            Self::RemoveConflist { path, decided_by, .. } => {
                write!(f, "remove {}: the pod network is another ({decided_by})", path.display())
            }
            Self::RemoveCopy { path, .. } => write!(f, "remove {}", path.display()),
            Self::Forget { path } => {
                let name = path.file_name().map(Path::new).unwrap_or(path).display();
                write!(f, "delete {name} from the record")
            }
        }
    }
}
