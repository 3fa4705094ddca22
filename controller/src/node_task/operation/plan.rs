//! What follows for a node on which an operation runs. Pure.

use std::time::Duration;

use api::TaskReason;
use api::node_task::RunningNode;
use api::operation::OperationReport;

use super::template::Operation;
use crate::node_task::action::{Next, STARTED};
use crate::operations::PodState;

/// The steps: the Pod is created, its container runs, the Node must show the growth.
pub(crate) const CREATING: &str = "Creating";
pub(crate) const RUNNING: &str = "Running";
const PROVING: &str = "Proving";
/// How long a kubelet and a runtime that work take to start a container, many times over.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long the end of a Pod may be unknown: the kubelet may be the one that restarts.
const END_LIMIT: Duration = Duration::from_secs(60);
/// How long a leader watches a step before it finds that it takes too long.
const WATCH_MIN: Duration = Duration::from_secs(60);
/// How long the kubelet takes to report its capacity after its restart.
const PROOF_LIMIT: Duration = Duration::from_mins(3);

#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub pod: PodState,
    /// For how long this leader has known the Pod: the step is older where the API server refused the Pod, or a leader died.
    pub pod_watched: Duration,
    /// The Node's ephemeral-storage in bytes.
    pub capacity: Option<u64>,
    /// How long ago the step began.
    pub age: Duration,
    /// For how long this leader has watched the step.
    pub watched: Duration,
}

impl Facts {
    /// Whether the step takes longer than this; a new leader watches it for a while first.
    fn is_late(&self, limit: Duration) -> bool {
        self.age >= limit && self.watched >= WATCH_MIN
    }
}

/// The next step of a node.
pub(super) fn next(operation: Operation<'_>, running: &RunningNode, facts: &Facts) -> Next {
    let go = |step: &str| Next::Go(RunningNode { step: step.to_owned(), ..running.clone() });
    match running.step.as_str() {
        STARTED => Next::Go(RunningNode {
            step: CREATING.to_owned(),
            before: facts.capacity.map(|bytes| bytes.to_string()).unwrap_or_default(),
            ..running.clone()
        }),
        CREATING => match &facts.pod {
            PodState::Absent => Next::Wait("its Pod is being created".to_owned()),
            PodState::Waiting(reason) if facts.pod_watched >= START_LIMIT => Next::Failed(
                TaskReason::NotStarted,
                format!("its Pod has not started after {} s: {reason}", START_LIMIT.as_secs()),
            ),
            PodState::Waiting(reason) => Next::Wait(format!("its Pod starts: {reason}")),
            PodState::Pulling(reason) => Next::Wait(format!("its Pod waits for the image: {reason}")),
            PodState::NeverRan(reason) => {
                Next::Failed(TaskReason::NotStarted, format!("its Pod did not start: {reason}"))
            }
            // Written down first: a Pod that is gone from now on was not merely late.
            PodState::Running | PodState::Ended(_) | PodState::Invalid(_) => go(RUNNING),
        },
        RUNNING => match &facts.pod {
            PodState::Absent => {
                Next::Failed(TaskReason::ResultInvalid, "its Pod was deleted before it ended".to_owned())
            }
            PodState::Invalid(text) | PodState::NeverRan(text) => Next::Failed(TaskReason::ResultInvalid, text.clone()),
            PodState::Ended(report) => judge(operation, report, facts, go),
            PodState::Running | PodState::Waiting(_) | PodState::Pulling(_)
                if facts.is_late(operation.limit() + END_LIMIT) =>
            {
                Next::Failed(TaskReason::ResultInvalid, "the kubelet does not report the end of its Pod".to_owned())
            }
            PodState::Running | PodState::Waiting(_) | PodState::Pulling(_) => {
                Next::Wait("the operation runs".to_owned())
            }
        },
        PROVING => match &facts.pod {
            PodState::Ended(report) => prove(report, running, facts),
            _ => Next::Failed(TaskReason::ResultInvalid, "its Pod was deleted before the growth was proven".to_owned()),
        },
        step => Next::Failed(TaskReason::Unreadable, format!("the step {step} is unknown")),
    }
}

fn judge(operation: Operation<'_>, report: &OperationReport, facts: &Facts, go: impl Fn(&str) -> Next) -> Next {
    match (report.reason, operation) {
        (TaskReason::Succeeded, Operation::GrowRootDisk) => go(PROVING),
        (TaskReason::Succeeded, Operation::RestartUnit(_) | Operation::Logs(_)) => {
            Next::Succeeded(report.message.clone())
        }
        (TaskReason::NotGrown, _) => {
            let is_stale = report.file_system.is_some_and(|bytes| !has_capacity(facts.capacity, bytes));
            let hint = if is_stale { "; the kubelet reports a smaller size: restart kubelet.service" } else { "" };
            Next::Skipped(TaskReason::NotGrown, format!("{}{hint}", report.message))
        }
        (reason, _) => Next::Failed(reason, report.message.clone()),
    }
}

/// The kubelet's file system grew, and the Node shows that.
fn prove(report: &OperationReport, running: &RunningNode, facts: &Facts) -> Next {
    let before = running.before.parse::<u64>().unwrap_or_default();
    let capacity = facts.capacity.unwrap_or_default();
    let is_shown = report.file_system.is_some_and(|bytes| has_capacity(facts.capacity, bytes));
    if is_shown && capacity > before {
        let sizes = format!("{} to {}", gibibytes(before), gibibytes(capacity));
        return Next::Succeeded(format!("the Node's ephemeral-storage grew from {sizes}"));
    }
    if !facts.is_late(PROOF_LIMIT) {
        return Next::Wait("the kubelet has not reported the growth yet".to_owned());
    }
    let sizes = format!(
        "{}, and the Node's ephemeral-storage {}",
        gibibytes(report.file_system.unwrap_or_default()),
        gibibytes(capacity)
    );
    Next::Failed(TaskReason::NotGrown, format!("the kubelet's file system has {sizes}"))
}

/// Whether the Node shows a file system of this size: kubelets may round it.
fn has_capacity(capacity: Option<u64>, file_system: u64) -> bool {
    capacity.is_some_and(|capacity| capacity >= file_system - file_system / 100)
}

fn gibibytes(bytes: u64) -> String {
    let tenths = u128::from(bytes) * 10 / (1 << 30);
    format!("{}.{} GiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use api::node_task::NodeUnit;

    use super::*;

    const GIB: u64 = 1 << 30;
    const RESTART: Operation<'_> = Operation::RestartUnit(NodeUnit::Crio);

    fn at(step: &str) -> RunningNode {
        RunningNode {
            node: "node-a".to_owned(),
            step: step.to_owned(),
            before: (46 * GIB).to_string(),
            ..RunningNode::default()
        }
    }

    fn facts(pod: PodState, seconds: u64) -> Facts {
        let age = Duration::from_secs(seconds);
        Facts { pod, pod_watched: age, capacity: Some(46 * GIB), age, watched: age }
    }

    fn step(next: &Next) -> &str {
        match next {
            Next::Go(running) => &running.step,
            other => panic!("{other:?}"),
        }
    }

    fn reason(next: &Next) -> TaskReason {
        match next {
            Next::Failed(reason, _) | Next::Skipped(reason, _) => *reason,
            other => panic!("{other:?}"),
        }
    }

    fn ended(reason: TaskReason, file_system: Option<u64>) -> PodState {
        PodState::Ended(OperationReport { file_system, ..OperationReport::new(reason, "done") })
    }

    #[test]
    fn step_is_written_before_the_pod_is_created_and_after_it_started() {
        let started = next(RESTART, &at(STARTED), &facts(PodState::Absent, 0));
        assert_eq!(step(&started), CREATING);
        assert!(matches!(next(RESTART, &at(CREATING), &facts(PodState::Absent, 300)), Next::Wait(_)));
        assert_eq!(step(&next(RESTART, &at(CREATING), &facts(PodState::Running, 3))), RUNNING);
        let gone = next(RESTART, &at(RUNNING), &facts(PodState::Absent, 3));
        assert_eq!(reason(&gone), TaskReason::ResultInvalid);
    }

    #[test]
    fn pod_that_does_not_start_fails_after_a_minute_and_a_pull_waits() {
        let creating =
            |seconds| next(RESTART, &at(CREATING), &facts(PodState::Waiting("ContainerCreating".to_owned()), seconds));
        assert!(matches!(creating(59), Next::Wait(_)));
        assert_eq!(reason(&creating(60)), TaskReason::NotStarted);
        let waiting = PodState::Waiting("ContainerCreating".to_owned());
        // The API server refused it for a minute, or a former leader created it.
        let young = Facts { pod_watched: Duration::from_secs(59), ..facts(waiting, 3600) };
        assert!(matches!(next(RESTART, &at(CREATING), &young), Next::Wait(_)));
        let pulling = facts(PodState::Pulling("ErrImagePull".to_owned()), 200);
        assert!(matches!(next(RESTART, &at(CREATING), &pulling), Next::Wait(_)));
        let refused = facts(PodState::NeverRan("OutOfpods".to_owned()), 1);
        assert_eq!(reason(&next(RESTART, &at(CREATING), &refused)), TaskReason::NotStarted);
    }

    #[test]
    fn report_of_a_restart_is_the_result() {
        let succeeded = next(RESTART, &at(RUNNING), &facts(ended(TaskReason::Succeeded, None), 12));
        assert_eq!(succeeded, Next::Succeeded("done".to_owned()));
        let failed = next(RESTART, &at(RUNNING), &facts(ended(TaskReason::UnitNotActive, None), 70));
        assert_eq!(reason(&failed), TaskReason::UnitNotActive);
        let running = |seconds| next(RESTART, &at(RUNNING), &facts(PodState::Running, seconds));
        assert!(matches!(running(179), Next::Wait(_)));
        assert_eq!(reason(&running(180)), TaskReason::ResultInvalid);
    }

    #[test]
    fn growth_is_proven_by_the_capacity_of_the_node() {
        let grow = |step: &str, pod, capacity, seconds| {
            next(Operation::GrowRootDisk, &at(step), &Facts { capacity: Some(capacity), ..facts(pod, seconds) })
        };
        let grown = || ended(TaskReason::Succeeded, Some(96 * GIB));
        assert_eq!(step(&grow(RUNNING, grown(), 46 * GIB, 20)), PROVING);
        assert!(matches!(grow(PROVING, grown(), 46 * GIB, 20), Next::Wait(_)));
        let proven = grow(PROVING, grown(), 96 * GIB - 4096, 20);
        assert_eq!(proven, Next::Succeeded("the Node's ephemeral-storage grew from 46.0 GiB to 95.9 GiB".to_owned()));
        assert_eq!(reason(&grow(PROVING, grown(), 46 * GIB, 180)), TaskReason::NotGrown);
        // A report alone proves nothing.
        assert_eq!(reason(&grow(PROVING, ended(TaskReason::Succeeded, None), 96 * GIB, 180)), TaskReason::NotGrown);
        let nothing = grow(RUNNING, ended(TaskReason::NotGrown, Some(46 * GIB)), 46 * GIB, 20);
        assert_eq!(nothing, Next::Skipped(TaskReason::NotGrown, "done".to_owned()));
    }

    #[test]
    fn new_leader_looks_for_a_minute_before_it_finds_an_operation_late() {
        let at_step = |step: &str, pod: PodState, seconds| {
            let watched = Duration::from_secs(seconds);
            let facts = Facts { watched, pod_watched: watched, ..facts(pod, 3600) };
            next(Operation::GrowRootDisk, &at(step), &facts)
        };
        for (from, pod) in [
            (CREATING, PodState::Waiting("ContainerCreating".to_owned())),
            (RUNNING, PodState::Running),
            (PROVING, ended(TaskReason::Succeeded, Some(96 * GIB))),
        ] {
            assert!(matches!(at_step(from, pod.clone(), 59), Next::Wait(_)), "{from}");
            assert!(matches!(at_step(from, pod, 60), Next::Failed(..)), "{from}");
        }
    }
}
