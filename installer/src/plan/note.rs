//! Something that somebody should know and that is no failure.

use std::fmt;
use std::path::PathBuf;

use crate::Gives;
use crate::versions::Version;

/// What a plugin does that is being asked.
pub(super) const AWAITED: &str = "it has not answered yet which versions it speaks";

/// A remark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A plugin that is not ours is left out of the chain.
    LeftOut {
        /// The plugin.
        plugin: String,
        /// Why.
        reason: String,
    },
    /// The same: its binary is there, and did not answer as it should this time.
    Unanswered {
        /// The plugin.
        plugin: String,
        /// What it did.
        reason: String,
    },
    /// A plugin that is in the chain on disk gave no sound answer this time; it stays.
    KeptInChain {
        /// The plugin.
        plugin: String,
        /// What it did.
        reason: String,
    },
    /// A plugin that others put into the chain may not work there.
    Unsure {
        /// The plugin.
        plugin: String,
        /// Why.
        reason: String,
    },
    /// A plugin that others put into the chain has no binary: nothing that the runtime starts by it works.
    MissingInChain {
        /// The plugin.
        plugin: String,
    },
    /// Plugins are being asked which versions they speak; the configuration stays as it is until they answer.
    Awaited {
        /// The plugins.
        plugins: Vec<String>,
    },
    /// Others have put plugins into the chain that the settings list too: theirs stay, ours are not added.
    Provided {
        /// The plugins.
        plugins: Vec<String>,
    },
    /// The runtime takes another configuration before ours.
    SortsBefore {
        /// The file.
        file: String,
        /// What pods get by it.
        gives: Gives,
        /// Which runtime takes it, by what sorts before it.
        taken: Taken,
        /// Those of its plugins that have no binary.
        missing: Vec<String>,
    },
    /// A file before ours is no configuration; containerd refuses everything because of it.
    MalformedBefore {
        /// The file.
        file: String,
        /// The parser's complaint.
        reason: String,
    },
    /// What a file before ours holds cannot be told from here.
    UnreadBefore {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
    /// Others added plugins to our configuration: they stay where they were put.
    Extended {
        /// The types of the plugins added.
        plugins: Vec<String>,
    },
    /// Our plugin is not chained into the configuration that the setting names.
    NotChained {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
    /// Our plugin is to leave somebody's configuration, which cannot be looked at.
    StillChained {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
    /// The node is left to OKE's own CNI, and no configuration gives pods a network.
    NoneThere {
        /// The runtime's directory.
        directory: PathBuf,
        /// Why nothing of ours is installed.
        reason: String,
    },
    /// Our configuration is on a node where nothing is to be installed, and stays for now.
    LeftBehind {
        /// Whether it is known that another pod network is meant here.
        another: bool,
        /// Whether the runtime takes it before all others.
        first: bool,
        /// Why it stays.
        reason: String,
    },
}

/// Which runtime takes a configuration, if it has all its plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Every one: none that could be used sorts before it.
    First,
    /// One that passes over what lacks a binary (CRI-O), as all do that sort before it.
    Next,
    /// None.
    Never,
}

impl Note {
    /// A stable word for reports and metrics.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::LeftOut { .. } => "plugin-left-out",
            Self::Unanswered { .. } => "plugin-unanswered",
            Self::KeptInChain { .. } => "plugin-kept",
            Self::Unsure { .. } => "plugin-unsure",
            Self::MissingInChain { .. } => "plugin-missing",
            Self::Awaited { .. } => "plugin-awaited",
            Self::Provided { .. } => "plugin-provided",
            Self::SortsBefore { .. } => "sorts-before",
            Self::MalformedBefore { .. } => "malformed-before",
            Self::UnreadBefore { .. } => "unread-before",
            Self::Extended { .. } => "extended",
            Self::NotChained { .. } => "not-chained",
            Self::StillChained { .. } => "still-chained",
            Self::NoneThere { .. } => "none-there",
            Self::LeftBehind { .. } => "left-behind",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeftOut { plugin, reason } => write!(f, "{plugin} is left out of the chain: {reason}"),
            Self::Unanswered { plugin, reason } => {
                write!(f, "{plugin} is left out of the chain until it answers: {reason}")
            }
            Self::KeptInChain { plugin, reason } => write!(f, "{plugin} stays in the chain, although {reason}"),
            Self::Unsure { plugin, reason } => {
                let version = Version::CONFIGURATION;
                write!(f, "{plugin}, which others chained behind ours, may fail for CNI {version}: {reason}")
            }
            Self::MissingInChain { plugin } => {
                write!(
                    f,
                    "{plugin}, which others chained behind ours, has no binary, so no pod starts by our configuration"
                )
            }
            Self::Awaited { plugins } => {
                let plugins = plugins.join(", ");
                write!(f, "the configuration stays as it is until it is known which versions these speak: {plugins}")
            }
            Self::Provided { plugins } => {
                write!(f, "others have put {} into our configuration, and theirs stays", plugins.join(", "))
            }
            Self::SortsBefore { file, gives, taken, missing } => {
                match taken {
                    Taken::First => write!(f, "{file} sorts before ours: the runtime uses that one")?,
                    Taken::Next if missing.is_empty() => {
                        write!(
                            f,
                            "{file} sorts before ours, too: CRI-O uses that one, for what comes before lacks plugins"
                        )?;
                    }
                    Taken::Next | Taken::Never => write!(f, "{file} sorts before ours, too")?,
                }
                if *gives == Gives::Nothing {
                    f.write_str(", which gives pods a loopback link and no network")?;
                }
                let lacks = if *taken == Taken::First { "although it" } else { "and" };
                match missing.as_slice() {
                    [] => Ok(()),
                    missing => write!(f, ", {lacks} names plugins without a binary: {}", missing.join(", ")),
                }
            }
            Self::MalformedBefore { file, reason } => {
                write!(f, "{file} sorts before ours and is no configuration, so containerd refuses all: {reason}")
            }
            Self::UnreadBefore { file, reason } => {
                write!(
                    f,
                    "{file} sorts before ours, and what it holds cannot be told from here: {reason}; where the runtime cannot \
                     read it either, containerd refuses all"
                )
            }
            Self::Extended { plugins } => {
                write!(f, "our configuration was extended by {}, which stays there", plugins.join(", "))
            }
            Self::NotChained { file, reason } => write!(f, "nothing of ours is chained into {file}: {reason}"),
            Self::StillChained { file, reason } => write!(f, "what is ours cannot be taken out of {file}: {reason}"),
            Self::NoneThere { directory, reason } => {
                let directory = directory.display();
                write!(
                    f,
                    "{directory} holds no CNI configuration that gives pods a network, and nothing of ours is installed: {reason}"
                )
            }
            Self::LeftBehind { first, reason, .. } => {
                let what = if *first { "is what the runtime takes" } else { "is there" };
                write!(f, "{} {what} although nothing of ours is to be installed: {reason}", vcn::CONFLIST_FILE)
            }
        }
    }
}
