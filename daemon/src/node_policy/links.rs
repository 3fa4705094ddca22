//! Options of links: one change at a time, with a journal, kept only if the node can still be reached.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ipam::BootId;
use tunables::{ItemReport, NodeDocument};

use super::contact::LeaderContact;
use crate::facts::node_facts::NodeFacts;
use crate::settings::Settings;

/// What changes links. It is called from one thread at a time.
#[derive(Debug)]
pub(super) struct LinkApplier {
    #[expect(dead_code, reason = "options of links are applied by a later commit")]
    settings: Arc<Settings>,
    #[expect(dead_code, reason = "likewise")]
    boot: BootId,
}

/// What it needs to know.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "options of links are applied by a later commit")]
pub(super) struct LinkContext {
    pub(super) document: Arc<NodeDocument>,
    pub(super) facts: NodeFacts,
    pub(super) occasion: Occasion,
    pub(super) contact: LeaderContact,
    pub(super) stop: StopFlag,
}

/// When links are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// Before the agent is ready: only what was proven on this node before, without waiting for the leader.
    Start,
    /// Later.
    Running,
}

/// Set when the agent ends: a change that waits for its confirmation is left to the next agent's journal.
#[derive(Clone, Debug, Default)]
pub(super) struct StopFlag(Arc<AtomicBool>);

/// What became of links.
#[derive(Clone, Debug, Default)]
pub(super) struct LinkOutcome {
    /// Options that are not as the document says; each names its policy.
    pub(super) reports: Vec<ItemReport>,
    /// How many are.
    pub(super) in_sync: u32,
}

impl StopFlag {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    #[expect(dead_code, reason = "options of links are applied by a later commit")]
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl LinkApplier {
    pub(super) const fn new(settings: Arc<Settings>, boot: BootId) -> Self {
        Self { settings, boot }
    }

    /// Restores an unfinished change of an earlier agent. Called once, before everything else.
    pub(super) fn recover(&mut self) {
        let _ = self;
    }

    /// Brings links in sync with a document, also with one that names none. It may wait for minutes: it has a thread of its own.
    pub(super) fn apply(&mut self, context: &LinkContext) -> LinkOutcome {
        let _ = (self, context);
        LinkOutcome::default()
    }
}
