//! `NodeTask`: one action on one node, or on the nodes that a selector matches. Operators create it; the controller carries it out
//! and writes the status.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

mod action;
mod capture;
mod status;

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use crate::node_policy::selector_size;
use crate::schema;

pub use action::{GrowRootDisk, NodeUnit, Reboot, RestartUnit, TaskAction, TaskVerb};
pub use capture::{Capture, LogCapture, PacketCapture, PacketProtocol};
pub use status::{
    FAILURES_MAX, FailedNode, NodeTaskStatus, OBJECT_MAX, PROBLEM_MAX, PROBLEMS_MAX, RunningNode, TaskCounts, TaskState,
};

/// The action, the nodes and the order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "oke.oraclecloud.com",
    version = "v1alpha1",
    kind = "NodeTask",
    plural = "nodetasks",
    shortname = "ntask",
    category = "oke",
    status = "NodeTaskStatus",
    derive = "PartialEq",
    doc = "One action on nodes: restart a unit, grow the root disk, reboot, or capture.",
    validation = Rule::new("size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')").message("a NodeTask's name is a DNS label"),
    validation = Rule::new("!has(oldSelf.status) || !has(oldSelf.status.state) || !(oldSelf.status.state in ['Succeeded', 'Failed', 'Refused']) || (has(self.status) && has(self.status.state) && self.status.state == oldSelf.status.state && (!has(self.status.running) || (has(oldSelf.status.running) && size(self.status.running) <= size(oldSelf.status.running))))").message("a finished NodeTask stays finished: create another one")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
#[x_kube(
    validation = Rule::new("self == oldSelf").message("cannot be changed: create another NodeTask"),
    validation = Rule::new("has(self.node) != (has(self.nodeSelector) && ((has(self.nodeSelector.matchLabels) && size(self.nodeSelector.matchLabels) > 0) || (has(self.nodeSelector.matchExpressions) && size(self.nodeSelector.matchExpressions) > 0))) && !(has(self.node) && has(self.nodeSelector))")
        .message("a task needs node, or a nodeSelector with a label or an expression")
        .field_path(".nodeSelector"),
    validation = Rule::new(selector_size(SELECTOR_MAX).as_str())
        .message("is too large: names and values of a nodeSelector take at most 256 characters")
        .field_path(".nodeSelector"),
    validation = Rule::new("!has(self.nodeSelector) || has(self.action.restartUnit) || has(self.action.growRootDisk)")
        .message("reboot and capture are for one node: name it in node")
        .field_path(".nodeSelector"),
    validation = Rule::new("!has(self.action.reboot) || !has(self.deadlineMinutes)")
        .message("is not for reboot, which has drainMinutes and then at least 30 minutes to become healthy")
        .field_path(".deadlineMinutes"),
    validation = Rule::new("!has(self.action.growRootDisk) || !has(self.deadlineMinutes) || self.deadlineMinutes >= 15")
        .message("is at least 15 for growRootDisk, which must not be interrupted")
        .field_path(".deadlineMinutes")
)]
pub struct NodeTaskSpec {
    /// A Node's name. The field nodeSelector is used if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::some_text::<253>")]
    pub node: Option<String>,
    /// Selects Nodes by their labels when the task starts: at least one label or expression, 256 characters at most. Nodes that
    /// match only later are skipped. The field node is used if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// What happens on each node: exactly one of restartUnit, growRootDisk, reboot and capture.
    pub action: TaskAction,
    /// How many nodes at once, 1 to 16; 1 if absent. Nodes start in the order of their names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 16>")]
    pub concurrency: Option<u8>,
    /// How many nodes may fail before no further node starts, 0 to 1000; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<0, 1000>")]
    pub max_failures: Option<u16>,
    /// How many minutes a node may take, 1 to 180; for growRootDisk at least 15. 5 for restartUnit if absent, and 30
    /// for growRootDisk and capture. Not for reboot, which has drainMinutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 180>")]
    pub deadline_minutes: Option<u16>,
    /// Seconds after which a finished task is deleted, 0 to 86400, with its captures. 3600 for capture if absent; other tasks then stay,
    /// because a program that applies them again would repeat the action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<0, 86400>")]
    pub ttl_seconds_after_finished: Option<u32>,
}

/// The most characters of a selector's names and values.
const SELECTOR_MAX: u16 = 256;

impl NodeTaskSpec {
    /// How many nodes at once.
    pub fn concurrency(&self) -> usize {
        self.concurrency.unwrap_or(1).clamp(1, 16).into()
    }

    /// How many nodes may fail before no further node starts.
    pub fn max_failures(&self) -> u32 {
        self.max_failures.unwrap_or(0).into()
    }

    /// How long a node may take; `None` of a reboot, which has deadlines of its own.
    pub fn deadline(&self) -> Option<Duration> {
        let minutes = match self.action.verb()? {
            TaskVerb::Reboot => return None,
            TaskVerb::RestartUnit => 5,
            TaskVerb::GrowRootDisk | TaskVerb::Capture => 30,
        };
        Some(Duration::from_mins(self.deadline_minutes.unwrap_or(minutes).into()))
    }

    /// How long a finished task stays; without end if `None`.
    pub fn ttl(&self) -> Option<Duration> {
        let default = self.action.capture.as_ref().map(|_| 3600);
        self.ttl_seconds_after_finished.or(default).map(|seconds| Duration::from_secs(seconds.into()))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}
