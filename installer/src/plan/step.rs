//! One change to the node's files, as data that can be shown and taken.

use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

use super::BINARY_MODE;
use crate::{Digest, Signal};

/// One change. Display reads as an operator would say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make a directory of the runtime's.
    CreateDirectory(PathBuf),
    /// Remove what an installer that was killed left.
    RemoveStale(PathBuf),
    /// Put a binary in place.
    InstallBinary {
        /// From here.
        source: PathBuf,
        /// To here.
        target: PathBuf,
        /// What the source held when it was looked at.
        digest: Digest,
        /// What there is now, if anything.
        replaces: Option<Replaced>,
    },
    /// Make a binary executable again.
    SetMode {
        /// The binary.
        target: PathBuf,
        /// What it holds.
        digest: Digest,
        /// Its permission bits now.
        was: u32,
    },
    /// Put a configuration in place.
    WriteConflist(Box<Writing>),
    /// Take our configuration off a node whose pod network is another: what was there before it comes back.
    TakeOut(Box<Leaving>),
    /// Remember a configuration no more: ours is not there any more, or we are not chained into somebody's.
    Forget {
        /// The configuration's name.
        name: String,
    },
}

/// What a binary takes the place of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Another file.
    File(Digest),
    /// A link, wherever it leads.
    Link,
}

/// The writing of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writing {
    /// Its name in the directory.
    pub name: String,
    /// The file.
    pub target: PathBuf,
    /// All of it.
    pub contents: String,
    /// Its permission bits.
    pub mode: u32,
    /// What the file held when it was looked at; it is written only if it still does.
    pub found: Option<Vec<u8>>,
    /// The link that is there in place of the file, where it is none to follow: the file replaces it.
    pub link: Option<PathBuf>,
    /// What we want in it; of others' configurations only our entry.
    pub wanted: Value,
    /// What for.
    pub purpose: Purpose,
    /// What somebody had done to our part since we last wrote it.
    pub disturbed: Vec<String>,
}

/// Our configuration, on its way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Its place in the directory.
    pub path: PathBuf,
    /// The file: another one where a link leads to it.
    pub target: PathBuf,
    /// What it held when it was looked at; it goes only if it still does. Nothing where only a link to nothing is left.
    pub found: Option<Vec<u8>>,
    /// Whether the runtime takes it before all others.
    pub first: bool,
    /// What decided that the pod network is another.
    pub decided_by: Signal,
}

/// What a configuration is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// It is ours.
    Ours,
    /// Our plugin is chained into somebody else's.
    Chain,
    /// Our plugin is taken out of somebody else's.
    Unchain,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = |replaces: bool| if replaces { "replace" } else { "install" };
        match self {
            Self::CreateDirectory(path) => write!(f, "create directory {}", path.display()),
            Self::RemoveStale(path) => write!(f, "remove stale {}", path.display()),
            Self::InstallBinary { source, target, replaces, .. } => {
                write!(f, "{} {} from {}", verb(replaces.is_some()), target.display(), source.display())
            }
            Self::SetMode { target, was, .. } => {
                write!(f, "chmod {BINARY_MODE:04o} {} (was {was:04o})", target.display())
            }
            Self::WriteConflist(writing) => {
                let Writing { target, found, wanted, purpose, disturbed, .. } = writing.as_ref();
                let plugin = wanted.get("type").and_then(Value::as_str).unwrap_or_default();
                match purpose {
                    Purpose::Ours => {
                        write!(f, "{} {}", verb(found.is_some() || writing.link.is_some()), target.display())?;
                    }
                    Purpose::Chain => write!(f, "chain {plugin} into {}", target.display())?,
                    Purpose::Unchain => write!(f, "take {plugin} out of {}", target.display())?,
                }
                if let Some(link) = &writing.link {
                    write!(f, " in place of a link to {}", link.display())?;
                }
                if disturbed.is_empty() { Ok(()) } else { write!(f, " ({})", disturbed.join("; ")) }
            }
            Self::TakeOut(leaving) => {
                let Leaving { path, decided_by, .. } = leaving.as_ref();
                write!(f, "take {} away: the pod network is another ({decided_by})", path.display())
            }
            Self::Forget { name } if name == vcn::CONFLIST_FILE => write!(f, "remember no more that {name} was there"),
            Self::Forget { name } => write!(f, "remember no more that we were chained into {name}"),
        }
    }
}
