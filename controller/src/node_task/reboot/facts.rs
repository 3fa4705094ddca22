//! What a reboot depends on, as plain data.

use std::time::Duration;

use api::TaskReason;
use vcn::{Ocid, words};

use super::drain::Drain;

/// The step of a reboot, as the task's status has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RebootStep {
    /// Nothing was done yet.
    Waiting,
    Cordoning,
    Draining,
    Resetting,
    Proving,
}

words!(RebootStep: Waiting, Cordoning, Draining, Resetting, Proving);

/// What the task's status has of a reboot.
#[derive(Clone, Debug)]
pub(crate) struct RebootRun<'a> {
    pub step: RebootStep,
    /// For how long it has been in this step.
    pub elapsed: Duration,
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
    /// Its critical problems.
    pub problems: Vec<String>,
}

/// What is known at the moment.
#[derive(Clone, Debug)]
pub(crate) struct RebootFacts<'a> {
    /// The Node, if there is one of this name.
    pub node: Option<NodeFacts<'a>>,
    pub fleet: FleetReadiness,
    pub leader: LeaderPlace,
    /// Its pods, while it is drained.
    pub drain: Result<Drain, String>,
    pub reset: ResetState,
    /// For how long the proof has held.
    pub proven_for: Option<Duration>,
    /// Whether the cluster's stop switch is on.
    pub is_stopped: bool,
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
    /// Why another program is at work on it.
    pub mark: Option<Mark>,
    pub agent: AgentBoot,
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
    /// This leader has not heard of it yet.
    Pending,
    /// The node has no agent.
    Missing,
    Silent,
    Answered {
        boot_id: String,
        /// Its critical problems.
        problems: Vec<String>,
    },
}

/// How many nodes besides this one are not ready.
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

/// What this leader knows about the request to OCI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResetState {
    /// Nothing of it reached OCI: this leader began the step, and what it sent was refused, with this answer.
    Unsent {
        refusal: Option<Refusal>,
    },
    /// OCI may have it: another leader began the step, or an answer was lost.
    Uncertain,
    Accepted,
}

/// Why OCI refused a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub message: String,
    /// Whether another request may be accepted.
    pub is_transient: bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Wait(String),
    /// Write this step to the status; `record` says whether with the node as it is now.
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

impl FleetReadiness {
    /// Whether so many are not ready that no node may be taken away.
    pub(crate) const fn is_bad(self) -> bool {
        self.not_ready * 10 > self.others
    }
}
