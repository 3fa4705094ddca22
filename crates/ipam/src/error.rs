//! Errors of address management: each names the pool, the state and the next step.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::Error as _;
use thiserror::Error;
use vcn::Family;

use crate::Allocations;

/// A failure of address management.
#[derive(Debug, Error)]
pub enum Error {
    /// A state file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file that cannot be read.
        path: PathBuf,
        /// The answer of the system.
        #[source]
        source: io::Error,
    },
    /// A state file could not be written; the old one is intact.
    #[error("cannot write {} (the previous content is intact)", path.display())]
    Write {
        /// The file that cannot be written.
        path: PathBuf,
        /// The answer of the system.
        #[source]
        source: io::Error,
    },
    /// The lock could not be had.
    #[error("cannot lock {}", path.display())]
    Lock {
        /// The path of the lock file.
        path: PathBuf,
        /// The answer of the system.
        #[source]
        source: io::Error,
    },
    /// A state file is not what we write.
    #[error("{} is damaged", path.display())]
    Damaged {
        /// The file that is damaged.
        path: PathBuf,
        /// What the parser says.
        #[source]
        source: serde_json::Error,
    },
    /// A state file was written by a version whose format we do not know.
    #[error("{} has format version {found}, this build reads up to {known}", path.display())]
    TooNew {
        /// The file that a later version wrote.
        path: PathBuf,
        /// The number of its format.
        found: u32,
        /// The newest we read.
        known: u32,
    },
    /// There are no pools of this boot: the agent has not written them yet.
    #[error("{} is missing or older than the last reboot: the node agent has not published pod addresses yet", path.display())]
    NoPools {
        /// The file looked for.
        path: PathBuf,
    },
    /// No address is to be had.
    #[error("no address is free: {0}")]
    Exhausted(Shortage),
    /// No VNIC has addresses of a family that every pod gets.
    #[error(
        "OKE assigned {} pod addresses to this node, and no usable VNIC has one now{}",
        names(families),
        because(reason)
    )]
    FamilyMissing {
        /// The families without an address.
        families: Vec<Family>,
        /// What the agent says of the pools, where it says something.
        reason: Option<String>,
    },
    /// The attachment has no allocation.
    #[error("no allocation for {0}")]
    NoAllocation(String),
    /// Two attachments would have the same record.
    #[error("{} is the record of {holder}, so {key} can have none", path.display())]
    Collision {
        /// The path of the record.
        path: PathBuf,
        /// The attachment that the record is of.
        holder: String,
        /// The attachment that was requested.
        key: String,
    },
    /// The boot clock could not be read.
    #[error("cannot read the boot clock")]
    Clock {
        /// The answer of the system.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Whether the disk is full.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull)
    }

    /// Why a file was not read. Anything but a regular file in its place counts as damage, as wrong content does.
    pub(crate) fn unread(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::InvalidData => Self::Damaged { path, source: serde_json::Error::custom(source) },
            _ => Self::Read { path, source },
        }
    }

    /// Why a file cannot be understood. A newer format may have another shape altogether; its version is then all that can
    /// be read.
    pub(crate) fn not_ours(path: &Path, bytes: &[u8], source: serde_json::Error) -> Self {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let path = path.to_owned();
        match serde_json::from_slice(bytes) {
            Ok(Version { version }) if version > Allocations::VERSION => {
                Self::TooNew { path, found: version, known: Allocations::VERSION }
            }
            _ => Self::Damaged { path, source },
        }
    }
}

/// Why no address was free: the numbers behind "failed to assign an IP address".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    /// VNICs that serve pods.
    pub vnics: usize,
    /// Families every VNIC must offer, and of each the addresses that pods hold.
    pub in_use: Vec<(Family, usize)>,
    /// Those of which no VNIC has a free one. None, when there are some of each, but not on one VNIC.
    pub lacking: Vec<Family>,
    /// What the agent says of the pools, where it says something.
    pub reason: Option<String>,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.vnics {
            0 => f.write_str("no VNIC of this node serves pods")?,
            n => {
                let held: Vec<_> = self.in_use.iter().map(|(family, held)| format!("{held} {family}")).collect();
                write!(f, "{n} VNIC(s) serve pods, {} address(es) in use", held.join(" and "))?;
            }
        }
        match self.lacking.as_slice() {
            [] if self.vnics > 0 => f.write_str(", and no VNIC has a free one of each family")?,
            lacking if lacking.len() < self.in_use.len() => write!(f, ", and no {} is left", names(lacking))?,
            _ => {}
        }
        f.write_str(&because(&self.reason))
    }
}

fn names(families: &[Family]) -> String {
    families.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
}

fn because(reason: &Option<String>) -> String {
    reason.as_ref().map(|reason| format!("; {reason}")).unwrap_or_default()
}
