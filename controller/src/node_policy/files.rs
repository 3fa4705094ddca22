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
use pods::{LIMIT, START_LIMIT};

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use tunables::{ItemReport, ItemState, NodeAnswer};

use crate::operations::PodState;

/// The shortest time from the end of a Pod to the next Pod for the same order. The leader queries the agent in this time.
const ANSWER_DELAY: Duration = Duration::from_secs(30);
/// The node has failed after this many Pods that failed, or changed nothing.
const FAILURES_MAX: u32 = 3;
/// From then on, the time from the end of a Pod to the next: a node that never settles must not keep other failure domains waiting.
const FAILED_DELAY: Duration = Duration::from_secs(600);
/// How long a change may last without its Pod: its guard restores the files, and the agent answers that.
const CHANGE_MAX: Duration = Duration::from_secs(300);

/// What this leader remembers, by node. All times are of its own clock.
#[derive(Debug, Default)]
pub(crate) struct FilesMemory {
    ends: HashMap<String, EndedPods>,
    pods: HashMap<String, SeenPod>,
    /// When Pods were listed first.
    began: Option<Instant>,
    /// Whether no node has a Pod or needs one. A new leader lists Pods first.
    pub(crate) is_settled: bool,
}

/// The last Pod of a node.
#[derive(Debug)]
struct SeenPod {
    name: String,
    first: Instant,
    last: Instant,
    /// For how long after the first time its change may be in progress, by what was seen last.
    change_max: Duration,
}

#[derive(Debug)]
struct EndedPods {
    order: String,
    failures: u32,
    at: Instant,
    retry: Instant,
}

impl SeenPod {
    fn age(&self) -> Duration {
        self.last.saturating_duration_since(self.first)
    }
}

impl FilesMemory {
    /// Remembers the Pods, if they were listed.
    pub(crate) fn note_pods(&mut self, pods: Option<&[FilePod]>, now: Instant) {
        let Some(pods) = pods else { return };
        self.began.get_or_insert(now);
        let known = std::mem::take(&mut self.pods);
        for FilePod { name, node, state, .. } in pods {
            let first = known.get(node).filter(|seen| seen.name == *name).map_or(now, |seen| seen.first);
            let change_max = match state {
                PodState::Running => START_LIMIT,
                // It died: a guard may restore its files.
                PodState::Invalid(_) => LIMIT,
                _ => Duration::ZERO,
            };
            let seen = SeenPod { name: name.clone(), first, last: now, change_max };
            self.pods.insert(node.clone(), seen);
        }
        // The next Pod for the same order has the same name.
        let gone = known
            .into_iter()
            .map(|(node, seen)| (node, SeenPod { name: String::new(), change_max: Duration::ZERO, ..seen }));
        for (node, seen) in gone {
            self.pods.entry(node).or_insert(seen);
        }
    }

    /// Whether a change is in progress: the kubelet may be down, and its young Pod, or the one after it, reports how it ends.
    pub(crate) fn is_changing(&self, node: &str, now: Instant) -> bool {
        let has_next = |ends: &EndedPods| (1..FAILURES_MAX).contains(&ends.failures) && now < ends.retry + ANSWER_DELAY;
        self.pods.get(node).is_some_and(|seen| seen.age() < seen.change_max)
            || self.ends.get(node).is_some_and(has_next)
    }

    /// How long this leader has seen a Pod.
    fn age(&self, pod: &FilePod) -> Duration {
        self.pods.get(&pod.node).filter(|seen| seen.name == pod.name).map(SeenPod::age).unwrap_or_default()
    }

    /// Whether a change without a Pod can still be in progress. A node that says so for longer keeps no other node waiting.
    fn may_still_change(&self, node: &str, now: Instant) -> bool {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < CHANGE_MAX;
        self.began.is_none_or(is_recent) || self.pods.get(node).is_some_and(|seen| is_recent(seen.last))
    }

    /// Whether a Pod ended so recently that the agent may not have answered since.
    pub(crate) fn has_just_ended(&self, node: &str, now: Instant) -> bool {
        let ended = self.ends.get(node).map(|ends| now.saturating_duration_since(ends.at));
        ended.is_some_and(|since| since < ANSWER_DELAY)
    }

    /// Whether a Pod for this order may be created.
    fn may_start(&self, node: &str, order: &str, now: Instant) -> bool {
        self.ends.get(node).is_none_or(|ends| ends.order != order || ends.retry <= now)
    }

    /// A Pod ended, and is deleted.
    pub(crate) fn note_end(&mut self, end: &PodEnd, now: Instant) {
        let known = self.ends.remove(&end.node).filter(|known| known.order == end.order);
        // A second Pod of an order is there only because the first changed nothing.
        let failures = match known {
            Some(known) => known.failures.saturating_add(1),
            None => u32::from(end.failure.is_some()),
        };
        let delay = if failures < FAILURES_MAX { ANSWER_DELAY * failures.max(1) } else { FAILED_DELAY };
        let ended = EndedPods { order: end.order.clone(), failures, at: now, retry: now + delay };
        self.ends.insert(end.node.clone(), ended);
    }

    /// Whether the Pods of this order fail on a node.
    pub(crate) fn has_failed(&self, node: &str, order: &str) -> bool {
        self.ends.get(node).is_some_and(|ends| ends.failures >= FAILURES_MAX && order.starts_with(&ends.order))
    }

    /// Forgets nodes that are gone, and ends of Pods on nodes that have settled since.
    pub(crate) fn retain(&mut self, now: Instant, is_known: impl Fn(&str) -> bool, is_settled: impl Fn(&str) -> bool) {
        self.ends.retain(|node, ends| is_known(node) && !(ends.retry <= now && is_settled(node)));
        self.pods.retain(|node, _| is_known(node));
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

/// Whether a policy that is not in the node's document still has files there, and they will go.
pub(crate) fn leaves_files(answer: &NodeAnswer, uid: &str) -> bool {
    let files = answer.files.as_ref().filter(|files| files.state.is_unsettled());
    files.is_some_and(|files| files.owners.iter().any(|owner| owner == uid))
}
