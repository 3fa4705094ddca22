//! The actions of a NodeTask. Each has a verb on `nodetasks`, which its creator needs.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

use std::time::Duration;

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vcn::words;

use super::capture::Capture;
use super::is_false;
use crate::schema;

/// Exactly one action.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.restartUnit), has(self.growRootDisk), has(self.reboot), has(self.capture)].filter(x, x).size() == 1")
        .message("needs exactly one of restartUnit, growRootDisk, reboot and capture")
)]
pub struct TaskAction {
    /// Restarts a unit of systemd. Proof: systemd reports a new start of the unit that is active for 10 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_unit: Option<RestartUnit>,
    /// Grows the root partition and its file system to the boot volume's size, and restarts the kubelet. Proof: the Node's
    /// ephemeral-storage grew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grow_root_disk: Option<GrowRootDisk>,
    /// Cordons, drains and reboots the node, and uncordons it when it is healthy. Its pods leave as with `kubectl drain
    /// --ignore-daemonsets`, by evictions only: mirror pods and pods of DaemonSets stay. A pod without a controller or with an emptyDir
    /// volume stops the drain before the first eviction, unless evictBarePods or deleteEmptyDirData is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot: Option<Reboot>,
    /// Captures state, packets or logs of the node for support.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<Capture>,
}

/// Which unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct RestartUnit {
    /// The unit.
    pub unit: NodeUnit,
}

/// The units that a task may restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum NodeUnit {
    /// The kubelet.
    #[serde(rename = "kubelet.service")]
    Kubelet,
    /// CRI-O.
    #[serde(rename = "crio.service")]
    Crio,
    /// containerd.
    #[serde(rename = "containerd.service")]
    Containerd,
    /// Oracle Cloud Agent.
    #[serde(rename = "oracle-cloud-agent.service")]
    OracleCloudAgent,
    /// The clock's synchronization.
    #[serde(rename = "chronyd.service")]
    Chronyd,
}

words!(NodeUnit: Kubelet = "kubelet.service", Crio = "crio.service", Containerd = "containerd.service", OracleCloudAgent = "oracle-cloud-agent.service", Chronyd = "chronyd.service");

/// The growth of the root disk has no options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
pub struct GrowRootDisk {}

/// How a node is rebooted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reboot {
    /// How many minutes the eviction of its pods may take, 1 to 120; 15 if absent. Then the node is uncordoned without a reboot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 120>")]
    pub drain_minutes: Option<u8>,
    /// If true, pods with emptyDir volumes are evicted, which loses the data in them; false if absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub delete_empty_dir_data: bool,
    /// If true, pods without a controller are evicted, which nothing recreates; false if absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub evict_bare_pods: bool,
}

impl Reboot {
    /// How long the drain may take.
    pub fn drain_limit(&self) -> Duration {
        Duration::from_mins(self.drain_minutes.unwrap_or(15).into())
    }
}

/// What the creator of a task needs besides `create`: this verb on `nodetasks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskVerb {
    /// Restarts a unit of a node.
    RestartUnit,
    /// Grows the root disk.
    GrowRootDisk,
    /// Drains a node and reboots it.
    Reboot,
    /// Captures; with payload, `capture-payload` in addition.
    Capture,
}

words!(TaskVerb: RestartUnit = "restart-unit", GrowRootDisk = "grow-root-disk", Reboot = "reboot", Capture = "capture");

impl TaskAction {
    /// Its verb; `None` if it is not exactly one action, which the API server refuses.
    pub fn verb(&self) -> Option<TaskVerb> {
        match (self.restart_unit, self.grow_root_disk, self.reboot, &self.capture) {
            (Some(_), None, None, None) => Some(TaskVerb::RestartUnit),
            (None, Some(_), None, None) => Some(TaskVerb::GrowRootDisk),
            (None, None, Some(_), None) => Some(TaskVerb::Reboot),
            (None, None, None, Some(_)) => Some(TaskVerb::Capture),
            _ => None,
        }
    }
}
