//! One change to the node's files, as data.

use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

use super::NoteKind;
use crate::files::name;
use crate::observed::{BINARY_MODE, Binary, BinaryFound, ConfText};
use crate::settings::VNIC_ATTACH;

/// One change. Display is its line in the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    InstallBinary(Binary),
    ChangeConf(Box<ConfChange>),
    /// Remove one of our configurations; what was there before it comes back.
    RemoveConf {
        path: PathBuf,
        /// Its contents when it was read; it is removed only if they are still the same.
        found: Vec<u8>,
        /// Of our own configuration, why it is removed, and the note if that fails.
        leftover: Option<(String, NoteKind)>,
    },
    /// Delete a configuration from the record: it is gone.
    Forget {
        path: PathBuf,
    },
}

/// A configuration that is to be written: our own one, or our copy of another network's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfChange {
    pub(crate) target: PathBuf,
    pub(crate) document: Value,
    /// The file when it was read; it is written only if that is still the same.
    pub(crate) found: Option<ConfText>,
    /// Our part of it.
    pub(crate) wanted: Value,
    /// Whether what is there is another program's and is copied before.
    pub(crate) backup: bool,
    /// What another program changed since we last wrote it.
    pub(crate) reverted: Option<String>,
}

impl ConfChange {
    pub(crate) fn is_conflist(&self) -> bool {
        self.target.ends_with(vcn::CONFLIST_FILE)
    }

    /// Its permission bits. Readable by root alone, as the CIS benchmark asks; the runtime is root. A mode that was changed
    /// since stays.
    pub(crate) fn mode(&self) -> u32 {
        self.found.as_ref().map_or(0o600, |found| found.mode)
    }

    pub(crate) fn text(&self) -> String {
        format!("{:#}\n", self.document)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = |replaces: bool| if replaces { "replace" } else { "install" };
        match self {
            Self::InstallBinary(Binary { target, found: BinaryFound::Mode(was), .. }) => {
                write!(f, "chmod {BINARY_MODE:04o} {} (was {was:04o})", target.display())
            }
            Self::InstallBinary(Binary { source, target, found }) => {
                let verb = verb(*found != BinaryFound::Nothing);
                write!(f, "{verb} {} from {}", target.display(), source.display())
            }
            Self::ChangeConf(change) => {
                let target = change.target.display();
                if change.is_conflist() {
                    write!(f, "{} {target}", verb(change.found.is_some()))?;
                } else {
                    write!(f, "write {target} with {VNIC_ATTACH}")?;
                }
                change.reverted.as_ref().map_or(Ok(()), |reverted| write!(f, " ({reverted})"))
            }
            Self::RemoveConf { path, leftover, .. } => {
                write!(f, "remove {}", path.display())?;
                leftover.as_ref().map_or(Ok(()), |(reason, _)| write!(f, ": {reason}"))
            }
            Self::Forget { path } => write!(f, "delete {} from the record", name(path)),
        }
    }
}
