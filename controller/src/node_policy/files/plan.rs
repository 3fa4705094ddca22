//! On which nodes a Pod starts, which Pods are deleted, and which changes are confirmed. Pure.
//!
//! Afterwards all nodes that change are in one failure domain, and of each policy no more nodes change or are unavailable than its
//! `maxUnavailable`, but always one may.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use tunables::FilesState;

use super::{FilePod, FilesMemory, LIMIT, START_LIMIT};
use crate::operations::PodState;

/// How long a kubelet may take to end a Pod at its limit, and to report that.
const END_MARGIN: Duration = Duration::from_secs(60);

/// A node whose agent answers about files.
#[derive(Clone, Debug)]
pub(crate) struct FileNode<'a> {
    pub name: &'a str,
    /// Nodes of one domain fail together: its zone and OCI's fault domain.
    pub domain: String,
    /// The order that it must have, if its agent has that one.
    pub order: Option<&'a str>,
    pub state: FilesState,
    /// When the kubelet restarted, in seconds since 1970 by the node's clock.
    pub kubelet_started: Option<i64>,
    /// The policies that have files there.
    pub owners: Vec<FileOwner<'a>>,
    pub is_ready: bool,
    /// Whether a request to the agent is in flight.
    pub is_busy: bool,
}

/// A policy on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileOwner<'a> {
    pub uid: &'a str,
    /// Its revision; empty if the policy left the node, and its files are still there.
    pub revision: &'a str,
}

/// What the rollout of a policy permits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileBudget<'a> {
    pub max_unavailable: usize,
    pub max_failures: usize,
    /// Nodes that are unavailable without a change.
    pub unavailable: &'a BTreeSet<String>,
}

/// What the plan depends on.
pub(crate) struct FilesInput<'a> {
    pub nodes: &'a [FileNode<'a>],
    pub pods: &'a [FilePod],
    /// The domains of nodes with Pods, by name: their agents may not have answered yet.
    pub domains: &'a BTreeMap<String, String>,
    /// By the policies' uids.
    pub budgets: &'a BTreeMap<&'a str, FileBudget<'a>>,
    pub is_stopped: bool,
    pub now: Instant,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileActions {
    pub create: Vec<PodRequest>,
    pub delete: Vec<PodEnd>,
    pub confirm: Vec<Confirmation>,
}

/// A Pod to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodRequest {
    pub node: String,
    pub order: String,
}

/// A Pod that ended, or does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodEnd {
    pub pod: String,
    pub node: String,
    /// The beginning of its order's hash, from the Pod's name.
    pub order: String,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

/// A change whose agent waits for the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Confirmation {
    pub node: String,
    pub order: String,
    pub kubelet_started: Option<i64>,
}

pub(crate) fn plan(input: &FilesInput<'_>, memory: &FilesMemory) -> FileActions {
    let mut actions = FileActions::default();
    let mut pods: BTreeSet<&str> = BTreeSet::new();
    let mut running: BTreeSet<&str> = BTreeSet::new();
    for pod in input.pods {
        pods.insert(&pod.node);
        match pod.end(memory.age(pod)) {
            Some(end) => actions.delete.push(end),
            None => drop(running.insert(&pod.node)),
        }
    }
    // A Pod that died reads no confirmation.
    let is_waiting = |node: &&FileNode<'_>| node.state == FilesState::Confirmable && running.contains(node.name);
    for node in input.nodes.iter().filter(is_waiting).filter(|node| !node.is_busy) {
        if let Some(order) = node.order {
            let order = order.to_owned();
            actions.confirm.push(Confirmation {
                node: node.name.to_owned(),
                order,
                kubelet_started: node.kubelet_started,
            });
        }
    }
    if input.is_stopped {
        return actions;
    }
    let is_changing = |node: &&FileNode<'_>| {
        matches!(node.state, FilesState::Changing | FilesState::Confirmable)
            && memory.may_still_change(node.name, input.now)
    };
    running.extend(input.nodes.iter().filter(is_changing).map(|node| node.name));
    let mut budgets = Budgets::new(input, running);
    for node in input.nodes {
        let Some(order) = node.order.filter(|_| needs_pod(node, &pods)) else { continue };
        if memory.may_start(node.name, pod_order(order), input.now) && budgets.take(node) {
            actions.create.push(PodRequest { node: node.name.to_owned(), order: order.to_owned() });
        }
    }
    actions
}

/// Whether a node needs a Pod and can run one. A change without a Pod is one whose Pod died: the next Pod undoes it.
fn needs_pod(node: &FileNode<'_>, pods: &BTreeSet<&str>) -> bool {
    node.state.is_unsettled() && node.is_ready && !node.is_busy && !pods.contains(node.name)
}

/// The part of an order's hash that is in the name of its Pod.
pub(crate) fn pod_order(order: &str) -> &str {
    order.get(..16).unwrap_or(order)
}

impl FilePod {
    /// How it ended, if it did, or should have: on a dead node, nothing ends it.
    fn end(&self, age: Duration) -> Option<PodEnd> {
        let failure = match &self.state {
            PodState::Ended(report) if report.reason == api::TaskReason::Succeeded => None,
            PodState::Ended(report) => Some(report.message.clone()),
            PodState::NeverRan(reason) | PodState::Invalid(reason) => Some(reason.clone()),
            PodState::Waiting(reason) | PodState::Pulling(reason) if age > START_LIMIT => {
                Some(format!("it has not started: {reason}"))
            }
            PodState::Running if age > LIMIT + END_MARGIN => Some("it did not end in time".to_owned()),
            PodState::Waiting(_) | PodState::Pulling(_) | PodState::Running | PodState::Absent => return None,
        };
        Some(PodEnd { pod: self.name.clone(), node: self.node.clone(), order: self.order.clone(), failure })
    }
}

/// What is left of the budgets.
struct Budgets<'a> {
    input: &'a FilesInput<'a>,
    running: BTreeSet<&'a str>,
    /// The domains of nodes that change.
    domains: BTreeSet<&'a str>,
    /// Nodes that change, by the policies' uids. Without one: nodes whose agents have not answered, which may have any policy.
    changing: BTreeMap<&'a str, usize>,
    unknown: usize,
    /// Nodes by the result of a revision.
    applied: BTreeSet<FileOwner<'a>>,
    rolled_back: BTreeMap<FileOwner<'a>, usize>,
}

impl<'a> Budgets<'a> {
    fn new(input: &'a FilesInput<'a>, running: BTreeSet<&'a str>) -> Self {
        let of_pods = input.domains.iter().filter(|(node, _)| running.contains(node.as_str()));
        let domains = of_pods.map(|(_, domain)| domain.as_str()).collect();
        let (changing, applied, rolled_back) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let mut budgets = Self { input, unknown: running.len(), running, domains, changing, applied, rolled_back };
        for node in input.nodes {
            if budgets.running.contains(node.name) {
                budgets.unknown -= 1;
                budgets.count(node);
            }
            match node.state {
                FilesState::Applied => budgets.applied.extend(&node.owners),
                FilesState::RolledBack => {
                    node.owners.iter().for_each(|owner| *budgets.rolled_back.entry(*owner).or_default() += 1);
                }
                _ => {}
            }
        }
        budgets
    }

    fn count(&mut self, node: &'a FileNode<'a>) {
        self.domains.insert(&node.domain);
        node.owners.iter().for_each(|owner| *self.changing.entry(owner.uid).or_default() += 1);
    }

    /// Takes a place for a node, if each of its policies has one left and no other domain changes.
    fn take(&mut self, node: &'a FileNode<'a>) -> bool {
        if self.running.contains(node.name) {
            return true;
        }
        let is_own_domain = self.domains.iter().all(|domain| *domain == node.domain);
        if !is_own_domain || !node.owners.iter().all(|owner| self.has_place(*owner)) {
            return false;
        }
        self.running.insert(node.name);
        self.count(node);
        true
    }

    fn has_place(&self, owner: FileOwner<'_>) -> bool {
        let changing = self.unknown + self.changing.get(owner.uid).copied().unwrap_or_default();
        let Some(budget) = self.input.budgets.get(owner.uid) else { return changing == 0 };
        // The rollout judges the nodes to which it sent a document. Nodes that get the files without a new document are judged here.
        let is_leaving = owner.revision.is_empty();
        let rolled_back = self.rolled_back.get(&owner).copied().unwrap_or_default();
        if !is_leaving && rolled_back > budget.max_failures {
            return false;
        }
        let is_proven = is_leaving || self.applied.contains(&owner);
        let limit = if is_proven { budget.max_unavailable } else { 1 };
        let unavailable = || budget.unavailable.iter().filter(|name| !self.running.contains(name.as_str())).count();
        changing == 0 || changing + unavailable() < limit
    }
}
