//! The state and the words of a task that is not finished.

use api::node_task::{TaskCounts, TaskState};
use api::{NodeTask, NodeTaskStatus, Reason as _, TaskReason};

use super::action::{ENDING, STARTED};

/// Whether nodes are left, and why the next one does not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodesLeft {
    None,
    /// They start when others are done.
    Some,
    /// The next one waits for this.
    Waiting(String),
}

/// Sets state, reason and message.
pub(crate) fn describe(
    object: &NodeTask,
    stopped: Option<&str>,
    status: &mut NodeTaskStatus,
    waiting: Option<String>,
    left: &NodesLeft,
) {
    let has_effect = status.running.iter().any(|running| running.step != STARTED);
    let is_waiting = matches!(left, NodesLeft::Waiting(_)) || !status.running.is_empty();
    let (state, reason) = match stopped {
        Some(_) if is_waiting && !has_effect => (TaskState::Stopped, TaskReason::StopSwitch),
        _ if status.running.is_empty() && status.cursor.is_empty() => (TaskState::Pending, TaskReason::Queued),
        _ => (TaskState::Running, TaskReason::Working),
    };
    status.state = Some(state);
    // The only node has its result already.
    if object.spec.node.is_some() && status.running.iter().any(|running| running.step == ENDING) {
        return;
    }
    let reason_of_next = match left {
        NodesLeft::Waiting(why) => Some(why.clone()),
        NodesLeft::None | NodesLeft::Some => None,
    };
    let detail = waiting.or(reason_of_next).or_else(|| stopped.map(str::to_owned)).unwrap_or_default();
    reason.as_str().clone_into(&mut status.reason);
    let counts = status.nodes.unwrap_or_default();
    status.message = match (object.spec.node.is_some(), detail.is_empty()) {
        (true, _) => detail,
        (false, true) => sum(counts),
        (false, false) => format!("{}; {detail}", sum(counts)),
    };
}

/// The counts in words.
pub(crate) fn sum(counts: TaskCounts) -> String {
    let TaskCounts { matched, succeeded, failed, skipped, .. } = counts;
    format!("{succeeded} of {matched} succeeded, {failed} failed, {skipped} skipped")
}

/// Whether a status differs in more than words and late nodes: such a one is written at once.
pub(crate) fn is_urgent(written: &NodeTaskStatus, status: &NodeTaskStatus) -> bool {
    let core = |status: &NodeTaskStatus| {
        let counts = status.nodes.map(|counts| TaskCounts { skipped: 0, late: 0, ..counts });
        NodeTaskStatus { message: String::new(), nodes: counts, ..status.clone() }
    };
    core(written) != core(status)
}
