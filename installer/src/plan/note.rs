//! Something that an operator should know and that is no failure.

use std::fmt;

use crate::observed::{ConfFile, ProvidedNetwork};
use crate::versions::Version;

/// A note. Display is its message.
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
    /// The runtime may use another configuration.
    SortsBefore {
        /// What pods get by it.
        gives: ProvidedNetwork,
        /// Which runtime uses it.
        uses: RuntimeUsage,
        /// Whether one of its plugins has no binary.
        lacks_plugins: bool,
    },
    /// A file before our configuration is not a valid one; containerd refuses all because of it.
    MalformedBefore,
    /// A file before our configuration cannot be read from here.
    UnreadBefore,
    /// Other programs added plugins to our configuration; they stay.
    Extended,
    /// `vnic-attach` is not chained to the pod network, although the setting says so.
    NotChained,
    /// The runtime uses another configuration in place of our copy with `vnic-attach`.
    SortsBeforeCopy {
        /// What pods get by it.
        gives: ProvidedNetwork,
    },
    /// OKE's own CNI serves the node, and no configuration gives pods a network.
    NoneThere,
    /// Our configuration is on a node where nothing is to be installed, and stays for now.
    LeftBehind {
        /// Whether another pod network is meant for sure.
        another: bool,
        /// Which runtime uses our configuration.
        uses: RuntimeUsage,
    },
}

/// Which runtime uses a configuration that has all its plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeUsage {
    /// Every one: no usable one sorts before it.
    Always,
    /// CRI-O, which skips those without a binary.
    IfCriO,
    /// None.
    Never,
}

impl RuntimeUsage {
    /// Of a configuration that is, or is not, the first usable one.
    pub(crate) const fn of_first(first: bool) -> Self {
        if first { Self::Always } else { Self::Never }
    }
}

impl Note {
    fn new(kind: NoteKind, subject: &str, message: String) -> Self {
        Self { kind, subject: subject.to_owned(), message }
    }

    pub(super) fn unsure(plugin: &str, reason: &str) -> Self {
        let version = Version::CONFIGURATION;
        let message =
            format!("{plugin}, which another program added to our chain, may fail for CNI {version}: {reason}");
        Self::new(NoteKind::PluginUnsure, plugin, message)
    }

    pub(super) fn missing_in_chain(plugin: &str) -> Self {
        let message = format!(
            "{plugin}, which another program added to our chain, has no binary, so no pod starts by our configuration"
        );
        Self::new(NoteKind::PluginMissing, plugin, message)
    }

    pub(super) fn extended(plugins: &[&str]) -> Self {
        let plugins = plugins.join(", ");
        let message = format!("other programs added {plugins} to our configuration; they stay there");
        Self::new(NoteKind::Extended, &plugins, message)
    }

    pub(super) fn not_chained(file: &str, reason: &str) -> Self {
        let message = format!("no pod gets extra interfaces by vnic-attach, {file} is not written: {reason}");
        Self::new(NoteKind::NotChained, file, message)
    }

    pub(super) fn sorts_before_copy(file: &ConfFile) -> Self {
        let (copy, gives, file) = (vcn::COPIED_CONFLIST_FILE, file.gives(), &file.name);
        let instead = match gives {
            ProvidedNetwork::CalledNetwork => "request extra interfaces by a NetworkAttachmentDefinition",
            ProvidedNetwork::Network | ProvidedNetwork::Nothing => "rename it so that it sorts later",
        };
        let annotation = vcn::INTERFACES_ANNOTATION;
        let message =
            format!("{file} sorts before {copy}, so the annotation {annotation} of pods has no effect: {instead}");
        Self::new(NoteKind::SortsBeforeCopy { gives }, file, message)
    }

    pub(super) fn sorts_before(file: &ConfFile, uses: RuntimeUsage, missing: &[String]) -> Self {
        let (gives, lacks_plugins) = (file.gives(), !missing.is_empty());
        let effect = match uses {
            RuntimeUsage::Always => " sorts before our configuration: the runtime uses that one",
            RuntimeUsage::IfCriO if !lacks_plugins => {
                " also sorts before our configuration: CRI-O uses that one, because those before it lack plugins"
            }
            RuntimeUsage::IfCriO | RuntimeUsage::Never => " also sorts before our configuration",
        };
        let nothing =
            if gives == ProvidedNetwork::Nothing { ", which gives pods a loopback link and no network" } else { "" };
        let mut message = format!("{}{effect}{nothing}", file.name);
        if lacks_plugins {
            let lacks = if uses == RuntimeUsage::Always { "although it" } else { "and" };
            message += &format!(", {lacks} names plugins without a binary: {}", missing.join(", "));
        }
        Self::new(NoteKind::SortsBefore { gives, uses, lacks_plugins }, &file.name, message)
    }

    pub(super) fn malformed_before(file: &str, reason: &str) -> Self {
        let message = format!(
            "{file} sorts before our configuration and is not a valid one, so containerd refuses all: {reason}"
        );
        Self::new(NoteKind::MalformedBefore, file, message)
    }

    pub(super) fn unread_before(file: &str, reason: &str) -> Self {
        let message = format!(
            "{file} sorts before our configuration and cannot be read from here: {reason}; if the runtime cannot read it either, \
             containerd refuses all"
        );
        Self::new(NoteKind::UnreadBefore, file, message)
    }

    pub(crate) fn left_behind(another: bool, uses: RuntimeUsage, reason: &str) -> Self {
        let what = if uses == RuntimeUsage::Always { "is what the runtime uses" } else { "is there" };
        let file = vcn::CONFLIST_FILE;
        let message = format!("{file} {what} although our pod network is not to be installed: {reason}");
        Self::new(NoteKind::LeftBehind { another, uses }, file, message)
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
            NoteKind::MalformedBefore => "malformed-before",
            NoteKind::UnreadBefore => "unread-before",
            NoteKind::Extended => "extended",
            NoteKind::NotChained => "not-chained",
            NoteKind::SortsBeforeCopy { .. } => "sorts-before-copy",
            NoteKind::NoneThere => "none-there",
            NoteKind::LeftBehind { .. } => "left-behind",
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
