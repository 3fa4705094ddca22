//! The rollouts of all policies: what is sent to which agent now, and what the policies' statuses say. Synchronous, without input
//! and output, so that a test can be the world; the time is a parameter.
//!
//! ```text
//!   NodePolicies ─▶ select ─┐             ┌─▶ documents to send, agents to poll
//!   Nodes, roster ──────────┼─▶ rollouts ─┼─▶ statuses, finalizers
//!   answers, clocks ────────┘             └─▶ views
//! ```

mod files;
mod growth;
mod orphans;
mod policies;
mod views;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use api::{NodePolicy, NodePolicyStatus};
use health::summary::NodePolicyState;
use tokio::time::Instant;
use tunables::files::FileGrant;
use tunables::merge::Conflict;
use tunables::{LeaderTerm, NodeAnswer, NodeDocument};

use self::growth::RootDisk;
pub(crate) use self::growth::{GrowthRequest, GrowthWorld};
use super::clocks::NodeClocks;
use super::facts::AgentState;
use super::files::{FileActions, FilePod, FilesMemory};
use super::node_input::NodeInput;
use super::render::{PlannedPolicy, RenderedDocument, Renderer};
use super::select::{Selection, compile};

/// The poll interval of an agent whose node changes.
pub(crate) const POLL: Duration = Duration::from_secs(10);
/// The time after which a failed request to an agent is retried.
const RETRY: Duration = Duration::from_secs(10);
/// How long an agent's error keeps others waiting for it, when a new leader does not know yet what it has.
const PATIENCE: u32 = 5;
/// More silent agents than this, and more than [`SILENT_PERCENT`] of all: then the leader is probably cut off.
const SILENT_MIN: usize = 2;
const SILENT_PERCENT: usize = 10;

/// The policies as the watch has them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyObjects {
    pub objects: BTreeMap<String, Arc<NodePolicy>>,
    /// The uids of those of a later version that this one cannot read, by name.
    pub unreadable: BTreeMap<String, String>,
}

/// What the leader knows at some time.
pub(crate) struct World<'a> {
    pub policies: &'a PolicyObjects,
    pub nodes: &'a [NodeInput<'a>],
    /// Why nothing may be sent, while the stop switch is on.
    pub stopped: Option<&'a str>,
    /// The cluster's uid, for documents.
    pub cluster: &'a str,
    /// This leader's term, for documents.
    pub term: &'a LeaderTerm,
    /// What the cluster's owner permits of files.
    pub grants: &'a [FileGrant],
    /// The Pods that apply files, if they were listed.
    pub pods: Option<&'a [FilePod]>,
    /// What is known of growths of root disks.
    pub growth: GrowthWorld<'a>,
    pub now: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Actions {
    pub send: Vec<(String, NodeDocument)>,
    /// Agents whose answer is to be read.
    pub read: Vec<String>,
    /// Agents whose summary is to be read soon, because they change.
    pub due_summaries: Vec<String>,
    /// Pods that apply files, and changes that wait for this leader.
    pub files: FileActions,
    /// Growths of root disks to create.
    pub grow: Vec<GrowthRequest>,
    pub statuses: Vec<StatusUpdate>,
    pub finalizers: Vec<FinalizerUpdate>,
}

/// A status that differs from the written one.
#[derive(Clone, Debug)]
pub(crate) struct StatusUpdate {
    pub object: Arc<NodePolicy>,
    pub status: NodePolicyStatus,
    /// Whether more than counts and words changed.
    pub is_urgent: bool,
}

/// A finalizer to add or to remove.
#[derive(Clone, Debug)]
pub(crate) struct FinalizerUpdate {
    pub object: Arc<NodePolicy>,
    pub is_removed: bool,
}

/// What the leader remembers.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    nodes: HashMap<String, NodeMemory>,
    /// Statuses that the API server acknowledged, by uid: the watch delivers them later.
    acknowledged: HashMap<String, NodePolicyStatus>,
    /// Policies of which this leader knew each node once.
    known: BTreeSet<String>,
    /// What the last step decided, the highest precedence first.
    plans: Vec<PlannedPolicy>,
    /// Nodes that change, by the policies' uids.
    moving: BTreeMap<String, BTreeSet<String>>,
    /// Canaries that this leader chose and sent nothing since, by the policies' uids.
    unsent: BTreeMap<String, BTreeSet<String>>,
    /// Versions of policies that the API server has replaced, by uid.
    outdated: BTreeMap<String, Option<String>>,
    conflicts: BTreeMap<String, (u32, Conflict)>,
    stopped: Option<String>,
    files: FilesMemory,
    /// Tasks that this leader created, by name, until the watch delivers them.
    requested_growths: BTreeMap<String, Instant>,
}

#[derive(Debug, Default)]
struct NodeMemory {
    answer: Option<KnownAnswer>,
    clocks: NodeClocks,
    selection: Selection,
    rendered: RenderedDocument,
    /// Whether a request is in flight.
    is_in_request: bool,
    /// When the next request may be sent after failures, and how many there were.
    retry: Option<Instant>,
    failures: u32,
    error: Option<String>,
    /// By the uid of the policy that names it.
    root_disks: BTreeMap<String, RootDisk>,
}

#[derive(Debug)]
struct KnownAnswer {
    state: NodePolicyState,
    answer: NodeAnswer,
    at: Instant,
}

/// What all policies of a step have in common, and what one of them must leave alone.
#[derive(Clone, Copy)]
struct PolicyStep<'a> {
    world: &'a World<'a>,
    /// Nodes that other policies change.
    busy: &'a BTreeSet<String>,
    is_cut_off: bool,
}

/// Why an agent did not take a document.
#[derive(Clone, Debug)]
pub(crate) struct SendProblem {
    /// Whether it answered, and has what it had. Otherwise it may have taken the document.
    pub is_refused: bool,
    pub message: String,
}

impl Engine {
    /// One step. The caller carries the actions out, and reports what became of them.
    pub(crate) fn step(&mut self, world: &World<'_>) -> Actions {
        let mut actions = Actions::default();
        self.observe(world, &mut actions);
        self.files.note_pods(world.pods, world.now);
        let mut policies = compile(world.policies.objects.values());
        self.select(&mut policies, world);
        policies.extend(self.orphans(world));
        self.note_growths(&policies, world);
        let is_cut_off = is_cut_off(world.nodes, &self.moving);
        // Of this step, and of the last one for policies that come later.
        let mut moving = std::mem::take(&mut self.moving);
        moving.retain(|uid, _| policies.iter().any(|policy| policy.uid == *uid));
        let mut plans = Vec::new();
        for policy in policies {
            let others = moving.iter().filter(|(uid, _)| **uid != policy.uid);
            let busy: BTreeSet<String> = others.flat_map(|(_, nodes)| nodes).cloned().collect();
            let step = PolicyStep { world, busy: &busy, is_cut_off };
            let planned = self.plan(policy, step, &mut actions);
            let changing = self.changing(&planned).map(str::to_owned);
            let nodes = planned.plan.in_flight.iter().cloned().chain(changing).collect();
            moving.insert(planned.policy.uid.clone(), nodes);
            plans.push(planned);
        }
        (self.plans, self.moving) = (plans, moving);
        self.stopped = world.stopped.map(str::to_owned);
        self.send(world, &mut actions);
        self.plan_files(world, &mut actions);
        self.plan_growths(world, is_cut_off, &mut actions);
        let moving = self.moving.values().flatten().cloned().chain(std::mem::take(&mut actions.due_summaries));
        actions.due_summaries = moving.collect::<BTreeSet<_>>().into_iter().collect();
        actions
    }

    /// An agent took a document and answered, or why it did not.
    pub(crate) fn note_sent(&mut self, node: &str, result: Result<NodeAnswer, SendProblem>, now: Instant) {
        let memory = self.nodes.entry(node.to_owned()).or_default();
        if result.as_ref().is_err_and(|problem| problem.is_refused) {
            memory.clocks.note_refused();
        }
        self.note_read(node, result.map_err(|problem| problem.message), now);
    }

    /// An agent answered, or why it did not.
    pub(crate) fn note_read(&mut self, node: &str, result: Result<NodeAnswer, String>, now: Instant) {
        let memory = self.nodes.entry(node.to_owned()).or_default();
        memory.is_in_request = false;
        match result {
            Ok(answer) => {
                memory.clocks.note(&answer, now);
                let (document, answer_digest) = (answer.document.clone(), answer.digest());
                let state = NodePolicyState { document, answer: answer_digest, ..NodePolicyState::default() };
                memory.answer = Some(KnownAnswer { state, answer, at: now });
                (memory.retry, memory.failures, memory.error) = (None, 0, None);
            }
            Err(error) => {
                memory.failures = memory.failures.saturating_add(1);
                (memory.retry, memory.error) = (Some(now + RETRY), Some(error));
            }
        }
    }

    /// The API server has a status. Returns the one before, if this leader wrote it.
    pub(crate) fn note_written(
        &mut self,
        uid: &str,
        before: &NodePolicyStatus,
        status: NodePolicyStatus,
    ) -> Option<NodePolicyStatus> {
        let known = self.acknowledged.get(uid).unwrap_or(before);
        let is_new = |name: &&String| known.target != status.target || !known.canaries.contains(name);
        let unsent = self.unsent.entry(uid.to_owned()).or_default();
        unsent.extend(status.canaries.iter().filter(is_new).cloned());
        unsent.retain(|name| status.canaries.contains(name));
        self.acknowledged.insert(uid.to_owned(), status)
    }

    /// The API server has another version than this leader knows: the policy waits until the watch delivers it.
    pub(crate) fn note_conflict(&mut self, object: &NodePolicy) {
        let uid = object.metadata.uid.clone().unwrap_or_default();
        self.acknowledged.remove(&uid);
        self.outdated.insert(uid, object.metadata.resource_version.clone());
    }

    /// The API server refused a status, for example because of a stable revision that it no longer has: the next status follows the
    /// stored one.
    pub(crate) fn note_refused(&mut self, uid: &str) {
        self.acknowledged.remove(uid);
    }

    /// A request to an agent was not sent.
    pub(crate) fn note_dropped(&mut self, node: &str, is_document: bool) {
        if let Some(memory) = self.nodes.get_mut(node) {
            memory.is_in_request = false;
            if is_document {
                memory.clocks.note_refused();
            }
        }
    }

    /// How many nodes change at the moment.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        let nodes: BTreeSet<&String> = self.plans.iter().flat_map(|planned| &planned.plan.in_flight).collect();
        nodes.len()
    }

    /// How many policies the last step planned, with those that no object has.
    #[cfg(test)]
    pub(crate) const fn planned(&self) -> usize {
        self.plans.len()
    }

    /// Compares summaries with known answers, and requests the answers that differ.
    fn observe(&mut self, world: &World<'_>, actions: &mut Actions) {
        let names: BTreeSet<&str> = world.nodes.iter().map(NodeInput::name).collect();
        self.nodes.retain(|name, memory| memory.is_in_request || names.contains(name.as_str()));
        let uids: BTreeSet<&str> =
            world.policies.objects.values().filter_map(|it| it.metadata.uid.as_deref()).collect();
        self.acknowledged.retain(|uid, _| uids.contains(uid.as_str()));
        self.known.retain(|uid| uids.contains(uid.as_str()));
        self.unsent.retain(|uid, _| uids.contains(uid.as_str()));
        self.outdated.retain(|uid, _| uids.contains(uid.as_str()));
        for node in world.nodes {
            let Some(state) = node.policy_state() else { continue };
            let memory = self.nodes.entry(node.name().to_owned()).or_default();
            // An answer that is younger than the summary says more.
            let is_same =
                |known: &NodePolicyState| (&known.document, &known.answer) == (&state.document, &state.answer);
            let is_known = |known: &KnownAnswer| is_same(&known.state) || Some(known.at) >= node.answered;
            if memory.answer.as_ref().is_some_and(is_known) || memory.is_in_request {
                continue;
            }
            if state.document.is_empty() {
                let (state, answer, at) = (state.clone(), NodeAnswer::default(), world.now);
                memory.clocks.note(&answer, at);
                memory.answer = Some(KnownAnswer { state, answer, at });
            } else if memory.retry.is_none_or(|retry| retry <= world.now) {
                memory.is_in_request = true;
                actions.read.push(node.name().to_owned());
            }
        }
    }

    /// Renders the documents of all nodes, and sends those that differ from what the agents have.
    fn send(&mut self, world: &World<'_>, actions: &mut Actions) {
        let planned: BTreeSet<&str> = self.plans.iter().map(|planned| planned.policy.uid.as_str()).collect();
        let mut renderer = Renderer::new(&self.plans, world.cluster, world.grants);
        for node in world.nodes {
            let Some(memory) = self.nodes.get_mut(node.name()) else { continue };
            let Some(known) = &memory.answer else { continue };
            // One of a later version, or one too many that no object has.
            let is_held = known.answer.policies.iter().any(|policy| !planned.contains(policy.uid.as_str()));
            let is_ready = !memory.is_in_request && memory.retry.is_none_or(|retry| retry <= world.now);
            // A Node that is being deleted keeps what it has.
            if is_held || !is_ready || node.view.leaving || node.state(true) != AgentState::Answered {
                continue;
            }
            let document = renderer.document(node, &known.answer, &mut memory.rendered);
            let Some(mut document) = document.filter(|_| world.stopped.is_none()) else { continue };
            if let Some(baseline) = memory.clocks.baseline_of(&document.revision) {
                document.baseline = baseline.clone();
            }
            document.term = world.term.clone();
            memory.is_in_request = true;
            memory.clocks.note_sent(&document);
            for unsent in self.unsent.values_mut() {
                unsent.remove(node.name());
            }
            actions.send.push((node.name().to_owned(), document));
        }
        self.conflicts = renderer.conflicts();
    }

    /// The last answer of a node's agent.
    fn answer(&self, node: &str) -> Option<&NodeAnswer> {
        self.nodes.get(node)?.answer.as_ref().map(|known| &known.answer)
    }
}

/// Whether so many agents are silent that the leader is probably cut off. Nodes that change say nothing about that: their change may
/// have silenced them.
fn is_cut_off(nodes: &[NodeInput<'_>], moving: &BTreeMap<String, BTreeSet<String>>) -> bool {
    let others = nodes.iter().filter(|node| !moving.values().any(|moving| moving.contains(node.name())));
    let (mut silent, mut all) = (0, 0);
    for node in others.filter(|node| node.has_agent()) {
        all += 1;
        silent += usize::from(node.is_silent());
    }
    silent > SILENT_MIN && silent * 100 > all * SILENT_PERCENT
}
