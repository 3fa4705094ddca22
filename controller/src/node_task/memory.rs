//! What the leader remembers between two steps. Everything that the next leader needs is in the statuses.

use std::collections::{HashMap, HashSet};

use api::node_task::RunningNode;
use api::{NodeTask, NodeTaskStatus};
use kube::ResourceExt as _;
use tokio::time::{Duration, Instant};

use super::results::Outcome;

/// A step of a node of a task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct StepKey {
    pub uid: String,
    pub node: String,
    pub step: String,
    /// When the step began, in seconds: the same step may come again.
    since: i64,
}

/// A status that this leader wrote.
#[derive(Debug)]
struct Written {
    status: NodeTaskStatus,
    at: Instant,
    /// The version that the watch had delivered, and the one that the write made of it.
    base: Option<String>,
    version: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    written: HashMap<String, Written>,
    /// Versions whose status another program changed meanwhile.
    outdated: HashMap<String, Option<String>>,
    /// Outcomes that are not in a status yet.
    outcomes: HashMap<StepKey, Outcome>,
    /// Steps that this leader observed, and those that it applied.
    observed: HashSet<StepKey>,
    applied: HashSet<StepKey>,
    /// Nodes of ended tasks on which nothing is left, and how often it was not possible to find out.
    undone: HashSet<(String, String)>,
    failures: HashMap<(String, String), u32>,
}

impl StepKey {
    pub(crate) fn new(uid: &str, running: &RunningNode) -> Self {
        let since = running.since.as_ref().map_or(0, |time| time.0.as_second());
        Self { uid: uid.to_owned(), node: running.node.clone(), step: running.step.clone(), since }
    }
}

impl Memory {
    /// Forgets what no object needs.
    pub(crate) fn retain(&mut self, uids: &HashSet<String>) {
        self.written.retain(|uid, _| uids.contains(uid));
        self.outdated.retain(|uid, _| uids.contains(uid));
        self.outcomes.retain(|key, _| uids.contains(&key.uid));
        self.observed.retain(|key| uids.contains(&key.uid));
        self.applied.retain(|key| uids.contains(&key.uid));
        self.undone.retain(|(uid, _)| uids.contains(uid));
        self.failures.retain(|(uid, _), _| uids.contains(uid));
    }

    /// The status that counts: what this leader wrote while the watch is behind that, and what the watch delivered otherwise. `None`
    /// where there is none. An error while another program's change of it is not known yet.
    pub(crate) fn status<'a>(&'a self, object: &'a NodeTask) -> Result<Option<&'a NodeTaskStatus>, ()> {
        if self.outdated.get(&object.uid().unwrap_or_default()) == Some(&object.metadata.resource_version) {
            return Err(());
        }
        Ok(self.last_status(object))
    }

    /// The last status that is known, whether or not another program changed it.
    pub(crate) fn last_status<'a>(&'a self, object: &'a NodeTask) -> Option<&'a NodeTaskStatus> {
        self.own(object).map(|written| &written.status).or(object.status.as_ref())
    }

    /// The version that a write replaces: the last one that is known. A status of another leader is never overwritten unread.
    pub(crate) fn version(&self, object: &NodeTask) -> Option<String> {
        let own = self.own(object).and_then(|written| written.version.clone());
        own.or_else(|| object.metadata.resource_version.clone())
    }

    /// What this leader wrote, if the delivered object is older.
    fn own(&self, object: &NodeTask) -> Option<&Written> {
        let written = self.written.get(&object.uid().unwrap_or_default())?;
        let number = |version: &Option<String>| version.as_ref()?.parse::<u64>().ok();
        let delivered = &object.metadata.resource_version;
        let is_older = number(delivered).zip(number(&written.version)).is_some_and(|(old, new)| old < new);
        (written.base == *delivered || is_older).then_some(written)
    }

    /// How long ago this leader wrote the status.
    pub(crate) fn age(&self, uid: &str) -> Option<Duration> {
        self.written.get(uid).map(|written| written.at.elapsed())
    }

    pub(crate) fn note_written(&mut self, object: &NodeTask, status: NodeTaskStatus, version: Option<String>) {
        let uid = object.uid().unwrap_or_default();
        let base = object.metadata.resource_version.clone();
        self.written.insert(uid, Written { status, at: Instant::now(), base, version });
    }

    /// Another program wrote the object: nothing follows until the watch delivers that.
    pub(crate) fn note_conflict(&mut self, object: &NodeTask) {
        let uid = object.uid().unwrap_or_default();
        self.written.remove(&uid);
        self.outdated.insert(uid, object.metadata.resource_version.clone());
    }

    pub(crate) fn note_outcome(&mut self, key: StepKey, outcome: Outcome) {
        if let Outcome::Undone(Ok(true)) = outcome {
            self.undone.insert((key.uid.clone(), key.node.clone()));
        }
        self.observed.insert(key.clone());
        self.outcomes.insert(key, outcome);
    }

    /// Counts a call without a result. Returns how many there were for this node.
    pub(crate) fn note_failure(&mut self, key: &StepKey) -> u32 {
        let failures = self.failures.entry((key.uid.clone(), key.node.clone())).or_default();
        *failures += 1;
        *failures
    }

    /// The step that was just written is applied without being observed first.
    pub(crate) fn note_begun(&mut self, key: StepKey) {
        self.observed.insert(key);
    }

    /// A failed one is observed before it is repeated.
    pub(crate) fn note_applied(&mut self, key: StepKey, is_applied: bool) {
        if is_applied {
            self.applied.insert(key);
        } else {
            self.observed.remove(&key);
        }
    }

    /// Whether this leader observed the step.
    pub(crate) fn is_known(&self, key: &StepKey) -> bool {
        self.observed.contains(key)
    }

    /// Whether an outcome of it is not in a status yet.
    pub(crate) fn has_outcome(&self, key: &StepKey) -> bool {
        self.outcomes.contains_key(key)
    }

    /// Whether the step has to be applied now.
    pub(crate) fn is_due(&self, key: &StepKey) -> bool {
        self.observed.contains(key) && !self.applied.contains(key)
    }

    /// Whether this leader applied the step.
    pub(crate) fn is_applied(&self, key: &StepKey) -> bool {
        self.applied.contains(key)
    }

    pub(crate) fn is_undone(&self, uid: &str, node: &str) -> bool {
        self.undone.contains(&(uid.to_owned(), node.to_owned()))
    }

    /// Takes the outcome of a step.
    pub(crate) fn take_outcome(&mut self, key: &StepKey) -> Option<Outcome> {
        self.outcomes.remove(key)
    }
}
