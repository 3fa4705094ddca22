//! Files of the nodes: which of them need a Pod now, from the agents' answers and the rollouts.

use std::collections::{BTreeMap, BTreeSet};

use api::NodeSettings;
use tunables::{DocumentMode, FilesAnswer, FilesState, NodeAnswer};

use super::{Actions, Engine, KnownAnswer, NodeMemory, World};
use crate::cluster::store::NodeView;
use crate::node_policy::facts::AgentState;
use crate::node_policy::files::{FileBudget, FileNode, FileOwner, FilesInput, PodEnd, plan};
use crate::node_policy::node_input::NodeInput;

/// Labels of the domains in which nodes fail together: the second one separates nodes in a region with one zone.
const DOMAIN_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "oci.oraclecloud.com/fault-domain"];

impl Engine {
    /// Whether Pods must be listed before the next step.
    pub(crate) const fn needs_pods(&self) -> bool {
        !self.files.is_settled
    }

    /// A Pod ended, and was deleted.
    pub(crate) fn note_pod_deleted(&mut self, end: &PodEnd, now: tokio::time::Instant) {
        self.files.note_end(end, now);
    }

    /// A change could not be confirmed yet.
    pub(crate) fn note_unconfirmed(&mut self, node: &str) {
        self.note_dropped(node, false);
    }

    /// Plans the Pods, and polls the agents that change files.
    pub(super) fn plan_files(&mut self, world: &World<'_>, actions: &mut Actions) {
        let nodes: Vec<FileNode<'_>> = world.nodes.iter().filter_map(|node| self.file_node(node)).collect();
        let unsettled: BTreeSet<String> =
            nodes.iter().filter(|node| node.state.is_unsettled()).map(|node| node.name.to_owned()).collect();
        let pods = world.pods.unwrap_or_default();
        let is_settled = unsettled.is_empty() && world.pods.is_some_and(<[_]>::is_empty);
        if let Some(pods) = world.pods {
            let budgets: BTreeMap<&str, FileBudget<'_>> =
                self.plans.iter().map(|planned| planned.file_budget()).collect();
            let is_of_pod = |node: &&NodeInput<'_>| pods.iter().any(|pod| pod.node == node.name());
            let of_pods = world.nodes.iter().filter(is_of_pod);
            let domains = of_pods.map(|node| (node.name().to_owned(), domain(node.view))).collect();
            let (budgets, domains, is_stopped) = (&budgets, &domains, world.stopped.is_some());
            let input = FilesInput { nodes: &nodes, pods, domains, budgets, is_stopped, now: world.now };
            actions.files = plan(&input, &self.files);
        }
        // Those that only wait for their turn are polled as all others.
        let is_moving = |node: &&FileNode<'_>| {
            let is_changing = node.state.is_unsettled() && node.state != FilesState::Due;
            is_changing || self.files.has_just_ended(node.name, world.now)
        };
        actions.due_summaries.extend(nodes.iter().filter(is_moving).map(|node| node.name.to_owned()));
        actions.due_summaries.extend(pods.iter().map(|pod| pod.node.clone()));
        actions.due_summaries.extend(actions.files.create.iter().map(|request| request.node.clone()));
        self.files.retain(world.now, |node| self.nodes.contains_key(node), |node| !unsettled.contains(node));
        let waiting: Vec<String> = actions.files.confirm.iter().map(|confirm| confirm.node.clone()).collect();
        for node in waiting {
            self.nodes.entry(node).or_default().is_in_request = true;
        }
        self.files.is_settled = is_settled || pods.is_empty() && unsettled.is_empty() && world.grants.is_empty();
    }

    /// A node whose agent answers about files.
    fn file_node<'a>(&'a self, node: &NodeInput<'a>) -> Option<FileNode<'a>> {
        let memory = self.nodes.get(node.name())?;
        let KnownAnswer { answer, .. } = memory.answer.as_ref()?;
        let files = answer.files.as_ref()?;
        if node.view.leaving || node.state(true) != AgentState::Answered {
            return None;
        }
        Some(FileNode {
            name: &node.view.name,
            domain: domain(node.view),
            order: memory.order(answer, files),
            state: files.state,
            kubelet_started: files.kubelet_started,
            owners: self.file_owners(node.name(), answer, files),
            is_ready: node.is_ready(),
            is_busy: memory.is_in_request,
        })
    }

    /// The policies that have files on a node: by the document, and those that left it. Of what an agent says it holds, only the policies
    /// that are due there count: it must not prove or reject a revision for others.
    fn file_owners<'a>(&'a self, node: &str, answer: &'a NodeAnswer, files: &'a FilesAnswer) -> Vec<FileOwner<'a>> {
        let held = answer.policies.iter().filter(|held| held.mode == DocumentMode::Apply);
        let is_due = |uid: &str| {
            let planned = self.plans.iter().find(|planned| planned.policy.uid == uid);
            planned.is_some_and(|planned| planned.plan.due.contains_key(node))
        };
        let with_files = held.filter(|held| is_due(&held.uid) && self.needs_files(&held.uid, &held.revision));
        let mut owners: Vec<FileOwner<'_>> =
            with_files.map(|held| FileOwner { uid: &held.uid, revision: &held.revision }).collect();
        for uid in &files.owners {
            if owners.iter().all(|owner| owner.uid != uid) {
                owners.push(FileOwner { uid, revision: "" });
            }
        }
        if owners.is_empty() {
            owners.push(FileOwner { uid: "", revision: "" });
        }
        owners
    }

    /// Whether a revision of a policy has files.
    pub(super) fn needs_files(&self, uid: &str, revision: &str) -> bool {
        let planned = self.plans.iter().find(|planned| planned.policy.uid == uid);
        planned.and_then(|planned| planned.settings_of(revision)).is_some_and(NodeSettings::has_files)
    }

    /// Whether the Pods of a node's files fail again and again.
    pub(super) fn has_failed_pods(&self, node: &str, answer: &NodeAnswer) -> bool {
        let files = answer.files.as_ref().filter(|files| files.state.is_unsettled());
        files.is_some_and(|files| self.files.has_failed(node, &files.order))
    }
}

impl NodeMemory {
    /// The node's order, if its agent has that of the document that this leader would send.
    fn order<'a>(&self, answer: &NodeAnswer, files: &'a FilesAnswer) -> Option<&'a str> {
        let is_own = self.rendered.has(&answer.document, &files.order);
        is_own.then_some(files.order.as_str())
    }
}

/// The failure domain of a node; empty without labels.
fn domain(node: &NodeView) -> String {
    let labels = node.labels.map();
    DOMAIN_LABELS.map(|key| labels.get(key).map(String::as_str).unwrap_or_default()).join("/")
}
