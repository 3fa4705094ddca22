//! Files of NodePolicies: the leader starts a Pod on each node whose agent answers that files differ, and confirms a change when the node
//! is Ready after it. The document and the rollout decide which node may have which files; this decides when its Pod runs.
//!
//! ```text
//!   answers, Pods ─▶ plan (pure): one failure domain, maxUnavailable ─▶ create, delete ─▶ pods
//!                                                                    └▶ confirm: Node Ready since the restart ─▶ agent
//! ```

mod plan;
mod pods;
#[cfg(test)]
mod tests;

pub(crate) use plan::{Confirmation, FileActions, FileBudget, FileNode, FileOwner, FilesInput, PodEnd, plan};
pub(crate) use pods::{FilePod, FilePods};

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::operations::PodState;
use tokio::time::Instant;
use tunables::{FilesState, ItemReport, ItemState, NodeAnswer};

/// The shortest time from the end of a Pod to the next Pod for the same order. The leader queries the agent in this time.
const ANSWER_DELAY: Duration = Duration::from_secs(30);
/// The node has failed after this many failed Pods.
const FAILURES_MAX: u32 = 3;

/// What this leader remembers about Pods that ended, by node.
#[derive(Debug, Default)]
pub(crate) struct FilesMemory {
    ends: HashMap<String, EndedPods>,
    /// Whether no node has a Pod or needs one. A new leader lists Pods first.
    pub(crate) is_settled: bool,
    /// Nodes with a Pod that may still take its change back.
    changing: BTreeSet<String>,
}

#[derive(Debug)]
struct EndedPods {
    order: String,
    failures: u32,
    retry: Instant,
}

impl FilesMemory {
    /// Remembers which nodes have a young Pod, if Pods were listed.
    pub(crate) fn note_pods(&mut self, pods: Option<&[FilePod]>) {
        let Some(pods) = pods else { return };
        let is_young = |pod: &&FilePod| pod.state == PodState::Running && !pod.is_late;
        self.changing = pods.iter().filter(is_young).map(|pod| pod.node.clone()).collect();
    }

    /// Whether a change is in progress: its kubelet may be down, and the Pod reports how it ends.
    pub(crate) fn is_changing(&self, node: &str) -> bool {
        self.changing.contains(node)
    }

    /// Whether a Pod for this order may be created.
    fn may_start(&self, node: &str, order: &str, now: Instant) -> bool {
        self.ends.get(node).is_none_or(|ends| ends.order != order || ends.retry <= now)
    }

    /// A Pod ended, and is deleted.
    pub(crate) fn note_end(&mut self, end: &PodEnd, now: Instant) {
        let known = self.ends.remove(&end.node).filter(|known| known.order == end.order);
        let failures = match &end.failure {
            Some(_) => known.map_or(0, |known| known.failures).saturating_add(1),
            None => 0,
        };
        let retry = now + ANSWER_DELAY * failures.clamp(1, 10);
        self.ends.insert(end.node.clone(), EndedPods { order: end.order.clone(), failures, retry });
    }

    /// Whether the Pods of this order fail on a node.
    pub(crate) fn has_failed(&self, node: &str, order: &str) -> bool {
        self.ends.get(node).is_some_and(|ends| ends.failures >= FAILURES_MAX && order.starts_with(&ends.order))
    }

    /// Forgets nodes that are gone.
    pub(crate) fn retain(&mut self, is_known: impl Fn(&str) -> bool) {
        self.ends.retain(|node, _| is_known(node));
    }
}

/// What is wrong on a node whose agent is from a release that knows no files.
pub(crate) fn unknown_files(policy: &str) -> ItemReport {
    ItemReport {
        item: "files".to_owned(),
        policy: policy.to_owned(),
        state: ItemState::Unsupported,
        current: String::new(),
        desired: String::new(),
        message: "the agent's release knows no files. Update the agent.".to_owned(),
    }
}

/// Whether a node's files change, or must.
pub(crate) const fn is_unsettled(state: FilesState) -> bool {
    matches!(state, FilesState::Due | FilesState::Changing | FilesState::Confirmable)
}

/// Whether a policy that is not in the node's document still has files there, and they will go.
pub(crate) fn leaves_files(answer: &NodeAnswer, uid: &str) -> bool {
    let files = answer.files.as_ref().filter(|files| is_unsettled(files.state));
    files.is_some_and(|files| files.owners.iter().any(|owner| owner == uid))
}
