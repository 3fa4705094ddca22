//! What a reboot depends on, as plain data.

use std::time::Duration;

use api::TaskReason;
use vcn::{Ocid, words};

use super::drain::Drain;
pub(crate) use crate::node_task::reboot_state::{Refusal, ResetState};

/// The step of a reboot, as the task's status has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RebootStep {
    /// Nothing was done yet.
    Started,
    Cordoning,
    Draining,
    Resetting,
    Proving,
}

words!(RebootStep: Started, Cordoning, Draining, Resetting, Proving);

/// What the task's status has of a reboot.
#[derive(Clone, Debug)]
pub(crate) struct RebootRun<'a> {
    pub step: RebootStep,
    /// For how long it has been in this step, by the wall clock.
    pub elapsed: Duration,
    /// For how long this leader has watched this step.
    pub watched: Duration,
    /// How long the drain may take.
    pub drain_limit: Duration,
    pub record: RebootRecord<'a>,
    /// Whether the task is being deleted.
    pub is_canceled: bool,
}

/// What the node was before the reset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RebootRecord<'a> {
    pub boot_id: &'a str,
    /// The OCID of its instance.
    pub instance: &'a str,
    /// Its critical problems; only [`UNKNOWN_PROBLEMS`] where its agent did not answer.
    pub problems: Vec<String>,
}

/// In place of problems that no agent reported.
pub(crate) const UNKNOWN_PROBLEMS: &str = "?";
/// No deadline ends a step before the leader has watched it for so long: a clock may jump, and a new leader knows no agent yet.
const WATCH_MIN: Duration = Duration::from_mins(3);

/// What is known at the moment.
#[derive(Clone, Debug)]
pub(crate) struct RebootFacts<'a> {
    /// The Node, if there is one of this name.
    pub node: Option<NodeFacts<'a>>,
    pub fleet: FleetReadiness,
    pub leader: LeaderPlace,
    /// The node that another task reboots first.
    pub other: Option<String>,
    /// Why it is not known whether OKE repairs nodes.
    pub unknown_repair: Option<String>,
    /// Its pods, while it is drained.
    pub drain: Result<Drain, String>,
    pub reset: ResetState,
    /// For how long the proof has held.
    pub proven_for: Option<Duration>,
    /// Whether the cluster's stop switch is on.
    pub is_stopped: bool,
    /// Whether reboots are enabled. They may be switched off in the middle.
    pub is_enabled: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct NodeFacts<'a> {
    /// Its instance, if its providerID names one.
    pub instance: Option<&'a Ocid>,
    pub is_bare_metal: bool,
    /// The boot id that its kubelet reported.
    pub boot_id: &'a str,
    pub is_ready: bool,
    pub cordon: Cordon,
    /// Whether another Node or the agent contradicts its providerID.
    pub is_disputed: bool,
    /// Why another program is at work on it.
    pub mark: Option<Mark>,
    pub agent: AgentBoot,
    /// What an operation started on the node, and its agent saw running: a growth of the root disk, whatever became of its Pod.
    pub operation: Option<&'a str>,
}

/// Another program's sign on a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub reason: TaskReason,
    pub message: String,
    /// Whether our own drain may be the cause: an empty node is a candidate for deletion.
    pub may_follow_drain: bool,
}

/// Whether a Node is unschedulable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cordon {
    Absent,
    /// With the annotation of this task.
    Own,
    /// The annotation of this task is left; another program or person uncordoned the node.
    Lifted,
    Foreign,
}

/// What the agent of the node answered last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentBoot {
    /// This leader has no report of it yet.
    Pending,
    /// The node has no agent.
    Missing,
    Silent,
    Answered {
        boot_id: String,
        problems: Vec<String>,
    },
}

/// How many nodes besides this one are not ready, or cordoned by a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetReadiness {
    pub others: usize,
    pub not_ready: usize,
}

/// Where this leader runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaderPlace {
    Unknown,
    Elsewhere,
    /// On the node; another replica can lead, or none.
    OnNode {
        has_successor: bool,
    },
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Wait(String),
    /// Write this step to the status; `is_recorded` is whether it also records the node as it is now.
    Enter {
        step: RebootStep,
        is_recorded: bool,
    },
    Do(Effect),
    End(End),
}

/// What a step does. Each effect can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Another replica of the controller leads from now on.
    HandOver,
    Cordon,
    /// Removes the annotation of a cordon that another program or person lifted: a later cordon is foreign.
    Unmark,
    /// Requests the eviction of the pods of the drain.
    Evict,
    Reset,
}

/// The end of a reboot. Before it, our cordon is removed, unless it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Succeeded,
    Failed(TaskReason, String),
    /// Like failed; the node stays cordoned.
    FailedCordoned(TaskReason, String),
    Skipped(TaskReason, String),
    Canceled,
}

impl RebootRun<'_> {
    /// Whether it has been in its step for longer than this.
    pub(crate) fn is_over(&self, limit: Duration) -> bool {
        self.elapsed > limit && self.watched >= WATCH_MIN.min(limit)
    }
}

impl FleetReadiness {
    /// Whether so many nodes are not ready that no other node may reboot.
    pub(crate) const fn is_bad(self) -> bool {
        self.not_ready * 10 > self.others
    }
}
