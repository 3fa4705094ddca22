//! What has to be done: a pure function of settings, decision and what was observed.

mod chain;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;

use crate::observed::{Binary, Found};
use crate::{Conflist, Contents, Decision, Digest, Error, Observed, Settings};

/// The mode of a plugin binary.
pub(crate) const BINARY_MODE: u32 = 0o755;

/// Steps in the order they are to be taken, and what is worth saying.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Binaries come before the configuration that names them.
    pub(crate) steps: Vec<Step>,
    /// What somebody should know.
    pub(crate) notes: Vec<Note>,
    /// How the configuration stands before the steps.
    pub(crate) conflist: Conflist,
    /// What makes part of the work impossible.
    pub(crate) failures: Vec<Error>,
}

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
        /// Whether there is another one now.
        replaces: bool,
    },
    /// Make a binary executable again.
    SetMode {
        /// The binary.
        target: PathBuf,
        /// Its permission bits now.
        was: u32,
    },
    /// Put the configuration in place.
    WriteConflist {
        /// The file.
        target: PathBuf,
        /// All of it.
        contents: Vec<u8>,
        /// Whether there is another one now.
        replaces: bool,
    },
}

/// Something that somebody should know and that is no failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A plugin that is not ours is left out of the chain.
    LeftOut {
        /// The plugin.
        plugin: String,
        /// Why.
        reason: String,
    },
    /// A plugin that is in the chain on disk gave no sound answer this time; the chain is left as it is.
    KeptInChain {
        /// The plugin.
        plugin: String,
        /// What it did.
        reason: String,
    },
    /// The runtime takes another configuration before ours.
    SortsBefore {
        /// The file.
        file: String,
    },
    /// A file before ours is no configuration; containerd refuses everything because of it.
    MalformedBefore {
        /// The file.
        file: String,
        /// The parser's complaint.
        reason: String,
    },
    /// Others added plugins to our configuration: it is left as they made it.
    Extended {
        /// The types of the plugins added.
        plugins: Vec<String>,
    },
    /// Our configuration is on a node where nothing is to be installed. It is not removed: pods may depend on it.
    LeftBehind,
}

/// Plans. After the steps the binaries are in place with their mode where the decision is to install, and so is the
/// configuration if an address is usable; nothing else has changed.
pub(crate) fn plan(settings: &Settings, decision: &Decision, observed: &Observed, usable: bool) -> Plan {
    let mut plan = Plan { steps: Vec::new(), notes: Vec::new(), conflist: Conflist::NotWanted, failures: Vec::new() };
    if !decision.install {
        if observed.conf_files.iter().any(|file| file.name == vcn::CONFLIST_FILE) {
            plan.notes.push(Note::LeftBehind);
        }
        return plan;
    }
    plan.steps.extend(observed.missing_directories.iter().cloned().map(Step::CreateDirectory));
    plan.steps.extend(observed.stale.iter().cloned().map(Step::RemoveStale));
    for binary in &observed.binaries {
        plan.binary(binary);
    }
    plan.conflist(settings, observed, usable);
    if plan.conflist != Conflist::Waiting {
        plan.notes.extend(before_ours(observed));
    }
    plan
}

impl Plan {
    fn binary(&mut self, binary: &Binary) {
        let Binary { source, target, digest, found } = binary;
        let replaces = match found {
            Found::Other => return self.failures.push(Error::NoFile { target: target.clone() }),
            Found::Nothing => false,
            Found::File { digest: present, mode } if present == digest => {
                if *mode != BINARY_MODE {
                    self.steps.push(Step::SetMode { target: target.clone(), was: *mode });
                }
                return;
            }
            Found::File { .. } => true,
        };
        self.steps.push(Step::InstallBinary {
            source: source.clone(),
            target: target.clone(),
            digest: *digest,
            replaces,
        });
    }

    fn conflist(&mut self, settings: &Settings, observed: &Observed, usable: bool) {
        let present = observed.conflist.as_deref();
        if !usable {
            // Never removed: the pods of before a restart of the agent, and their DEL, depend on it.
            self.conflist = if present.is_some() { Conflist::InPlace } else { Conflist::Waiting };
            return;
        }
        self.conflist = if present.is_some() { Conflist::InPlace } else { Conflist::Pending };
        let listed = present.map(Contents::parse);
        if let Some(plugins) = listed.as_ref().and_then(chain::additions) {
            self.notes.push(Note::Extended { plugins });
            return;
        }
        match chain::rendered(&observed.chain, listed.as_ref(), &mut self.notes) {
            Err(error) => self.failures.push(error),
            Ok(None) => {}
            Ok(Some(contents)) if present == Some(contents.as_slice()) => {}
            Ok(Some(contents)) => {
                self.conflist = Conflist::Pending;
                let (target, replaces) = (settings.conflist(), present.is_some());
                self.steps.push(Step::WriteConflist { target, contents, replaces });
            }
        }
    }
}

fn before_ours(observed: &Observed) -> impl Iterator<Item = Note> {
    let before = observed.conf_files.iter().take_while(|file| file.name.as_str() < vcn::CONFLIST_FILE);
    before.map(|file| match &file.contents {
        Contents::Plugins(_) => Note::SortsBefore { file: file.name.clone() },
        Contents::Malformed(reason) => Note::MalformedBefore { file: file.name.clone(), reason: reason.clone() },
    })
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = |replaces: &bool| if *replaces { "replace" } else { "install" };
        match self {
            Self::CreateDirectory(path) => write!(f, "create directory {}", path.display()),
            Self::RemoveStale(path) => write!(f, "remove stale {}", path.display()),
            Self::InstallBinary { source, target, replaces, .. } => {
                write!(f, "{} {} from {}", verb(replaces), target.display(), source.display())
            }
            Self::SetMode { target, was } => write!(f, "chmod {BINARY_MODE:04o} {} (was {was:04o})", target.display()),
            Self::WriteConflist { target, replaces, .. } => write!(f, "{} {}", verb(replaces), target.display()),
        }
    }
}

impl Note {
    /// A stable word for reports and metrics.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::LeftOut { .. } => "plugin-left-out",
            Self::KeptInChain { .. } => "plugin-kept",
            Self::SortsBefore { .. } => "sorts-before",
            Self::MalformedBefore { .. } => "malformed-before",
            Self::Extended { .. } => "extended",
            Self::LeftBehind => "left-behind",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeftOut { plugin, reason } => write!(f, "{plugin} is left out of the chain: {reason}"),
            Self::KeptInChain { plugin, reason } => write!(f, "{plugin} stays in the chain, although {reason}"),
            Self::SortsBefore { file } => write!(f, "{file} sorts before ours: the runtime uses that one"),
            Self::MalformedBefore { file, reason } => {
                write!(f, "{file} sorts before ours and is no configuration, so containerd refuses all: {reason}")
            }
            Self::Extended { plugins } => {
                write!(f, "our configuration was extended by {} and is left so", plugins.join(", "))
            }
            Self::LeftBehind => write!(f, "{} is there although nothing is to be installed", vcn::CONFLIST_FILE),
        }
    }
}
