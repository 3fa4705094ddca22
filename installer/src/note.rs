//! Something that an operator should know, and that is not a failure.

use crate::observed::ProvidedNetwork;

/// A note for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// What it is about.
    pub kind: NoteKind,
    /// The plugin, file or directory.
    pub subject: String,
    /// One sentence without a full stop.
    pub message: String,
}

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    /// A listed plugin is left out of the chain.
    PluginLeftOut,
    /// A listed plugin gave no valid answer this time: it stays in the chain, or is not added.
    PluginUnanswered,
    /// A plugin that another program added may not work.
    PluginUnsure,
    /// A plugin that another program added has no binary: no pod starts by our configuration.
    PluginMissing,
    /// The runtime uses another configuration.
    SortsBefore {
        /// What pods get by it.
        gives: ProvidedNetwork,
    },
    /// A configuration before our configuration names plugins without a binary: no pod of containerd starts, and CRI-O skips it.
    LacksPlugins,
    /// A file before our configuration is not a valid one, or cannot be read from here: containerd refuses all because of it.
    UnusableBefore,
    /// A file in the folder of our network is not a valid one: runtimes refuse our configuration because of it.
    DropInRefused,
    /// Other programs added plugins to our configuration; they stay.
    Extended,
    /// `vnic-attach` is not chained to the pod network, although the setting says so.
    NotChained,
    /// The runtime uses another configuration in place of our copy with `vnic-attach`.
    SortsBeforeCopy {
        /// What pods get by it.
        gives: ProvidedNetwork,
    },
    /// Another pod network serves the node, and pods get none: no configuration gives them one, or the runtime uses one that does
    /// not.
    NoneThere,
    /// Our configuration is on a node where nothing is to be installed, and stays for now.
    LeftBehind {
        /// Whether another pod network is meant for sure.
        another: bool,
        /// Whether the runtime uses it.
        is_used: bool,
    },
}

impl Note {
    pub(crate) fn new(kind: NoteKind, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, subject: subject.into(), message: message.into() }
    }

    /// A stable word for reports and metrics.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self.kind {
            NoteKind::PluginLeftOut => "plugin-left-out",
            NoteKind::PluginUnanswered => "plugin-unanswered",
            NoteKind::PluginUnsure => "plugin-unsure",
            NoteKind::PluginMissing => "plugin-missing",
            NoteKind::SortsBefore { .. } => "sorts-before",
            NoteKind::LacksPlugins => "lacks-plugins",
            NoteKind::UnusableBefore => "unusable-before",
            NoteKind::DropInRefused => "drop-in-refused",
            NoteKind::Extended => "extended",
            NoteKind::NotChained => "not-chained",
            NoteKind::SortsBeforeCopy { .. } => "sorts-before-copy",
            NoteKind::NoneThere => "none-there",
            NoteKind::LeftBehind { .. } => "left-behind",
        }
    }
}
