//! Files of a simulated node, and the Pod that applies them: it restarts the kubelet, waits for the leader, or takes the change back.

use std::collections::BTreeMap;
use std::time::Duration;

use api::TaskReason;
use api::operation::OperationReport;
use tokio::time::Instant;
use tunables::files::FileOrder;
use tunables::{FilesAnswer, FilesState, NodeDocument};

use super::world::BAD;
use crate::node_policy::files::FilePod;
use crate::operations::PodState;

/// How long a Pod takes to restart units and to prove them, and to wait for the leader.
const RESTART: Duration = Duration::from_secs(11);
const CONFIRMATION: Duration = Duration::from_secs(85);

/// The files of a node.
#[derive(Debug, Default)]
pub(super) struct NodeFiles {
    /// Content and policy, by path: what the record has.
    pub(super) applied: BTreeMap<String, (String, String)>,
    /// Each content that was ever there.
    pub(super) ever: Vec<String>,
    rolled_back: String,
    pod: Option<Pod>,
    /// How often a Pod ran.
    pub(super) runs: usize,
}

#[derive(Debug)]
struct Pod {
    order: String,
    files: BTreeMap<String, (String, String)>,
    began: Instant,
    end: Option<PodState>,
}

fn files_of(order: &FileOrder) -> BTreeMap<String, (String, String)> {
    let file = |file: &tunables::files::OrderedFile| (file.path.clone(), (file.content.clone(), file.policy.clone()));
    order.files.iter().map(file).collect()
}

impl NodeFiles {
    /// Whether files change at the moment.
    pub(super) fn is_changing(&self) -> bool {
        self.pod.as_ref().is_some_and(|pod| pod.end.is_none())
    }

    /// Whether the kubelet does not work with its files.
    pub(super) fn is_broken(&self) -> bool {
        let is_bad = |pod: &Pod| pod.files.values().any(|(content, _)| content.contains(BAD));
        self.pod.as_ref().is_some_and(|pod| pod.end.is_none() && is_bad(pod))
    }

    /// The leader created a Pod.
    pub(super) fn create(&mut self, order: &str, document: &NodeDocument, now: Instant) {
        let (desired, (_, sha256)) = (FileOrder::of(document), FileOrder::of(document).to_text());
        assert_eq!(sha256, order, "the Pod has the agent's order");
        if self.pod.is_none() {
            self.runs += 1;
            self.ever.extend(desired.files.iter().map(|file| file.content.clone()));
            self.pod = Some(Pod { order: sha256, files: files_of(&desired), began: now, end: None });
        }
    }

    /// The leader deleted the Pod.
    pub(super) fn delete(&mut self) {
        self.pod = None;
    }

    /// The leader confirmed a change. Whether one waited for that.
    pub(super) fn confirm(&mut self, order: &str) -> bool {
        let Some(pod) = self.pod.as_mut().filter(|pod| pod.order == order && pod.end.is_none()) else { return false };
        pod.end = Some(PodState::Ended(OperationReport::new(TaskReason::Succeeded, "all files are applied")));
        self.applied = pod.files.clone();
        true
    }

    /// A second passes.
    pub(super) fn second(&mut self, now: Instant) {
        let Some(pod) = self.pod.as_mut().filter(|pod| pod.end.is_none()) else { return };
        if now.duration_since(pod.began) > CONFIRMATION {
            self.rolled_back.clone_from(&pod.order);
            pod.end = Some(PodState::Ended(OperationReport::new(TaskReason::OperationFailed, "rolled back")));
        }
    }

    /// The Pod, as a list has it.
    pub(super) fn pod(&self, node: &str) -> Option<FilePod> {
        let pod = self.pod.as_ref()?;
        let state = pod.end.clone().unwrap_or(PodState::Running);
        let order = pod.order[..16].to_owned();
        Some(FilePod { name: format!("files-{node}"), node: node.to_owned(), order, state })
    }

    /// What the agent answers about its files.
    pub(super) fn answer(&self, document: &NodeDocument, now: Instant) -> Option<FilesAnswer> {
        let desired = FileOrder::of(document);
        let (_, order) = desired.to_text();
        let running = self.pod.as_ref().filter(|pod| pod.end.is_none());
        let state = match running {
            Some(pod) if now.duration_since(pod.began) >= RESTART => FilesState::Confirmable,
            Some(_) => FilesState::Changing,
            None if files_of(&desired) == self.applied => FilesState::Applied,
            None if self.rolled_back == order => FilesState::RolledBack,
            None => FilesState::Due,
        };
        if desired.files.is_empty() && self.applied.is_empty() && state == FilesState::Applied {
            return None;
        }
        let owners: std::collections::BTreeSet<String> =
            self.applied.values().map(|(_, policy)| policy.clone()).collect();
        Some(FilesAnswer { order, state, owners: owners.into_iter().collect(), kubelet_started: None })
    }
}
