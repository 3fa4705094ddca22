//! Devices by address: those that a node has, and those of them that a signal found faulty.

use serde::{Deserialize, Serialize};

use super::events::Problem;
use super::messages::{Advice, FaultLevel, Subsystem};

/// A device that a signal found faulty. It is sent to the controller, 24 of them in a summary of 4 KiB, so names are short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FaultyDevice {
    /// Its PCI address, or the name of a memory module or disk; empty where no message names one.
    #[serde(rename = "at")]
    pub address: String,
    /// A reason for the Node's condition that is more precise than the signal's name, such as `XidNodeReboot`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is wrong, such as `Xid 79 (with Xid 154)`.
    #[serde(rename = "is", skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// What it takes, a word of [`Advice`]; absent where the signal's remedy is all that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Since when, in milliseconds since 1970, where that is earlier than the signal's problem.
    #[serde(rename = "since", skip_serializing_if = "Option::is_none")]
    pub since_unix_millis: Option<u64>,
}

/// A device that a node has. What no collector read is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// The device's PCI address.
    pub address: String,
    /// Whether it is a GPU; otherwise it is a port of the RDMA network.
    pub is_gpu: bool,
    /// Its number in the shape's list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<usize>,
    /// A GPU's UUID by the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// A port's RDMA device and link, such as `mlx5_3 rdma3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<String>,
    /// The NUMA node that it is near to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<i32>,
    /// What a port's files report, such as `ACTIVE 200 Gb/sec`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_state: Option<String>,
    /// The code of the last kernel message about it, whether it was a fault or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_event: Option<String>,
    /// When that was, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_event_unix_millis: Option<u64>,
}

/// First parts of reasons: what reported the fault.
const REPORTERS: [(Subsystem, &str); 6] = [
    (Subsystem::Nvidia, "Nvidia"),
    (Subsystem::Nvswitch, "Sxid"),
    (Subsystem::Amdgpu, "Amd"),
    (Subsystem::Mlx5, "RdmaAdapter"),
    (Subsystem::Pcie, "Pcie"),
    (Subsystem::Machine, "Hardware"),
];

/// The first part of the reason of an Xid.
const XID: &str = "Xid";

/// Last parts of reasons: what the device needs, and what that means.
const NEEDS: [(&str, &str); 7] = [
    ("HostReplacement", "Drain the node, report the host to Oracle and replace the node."),
    ("NodeReboot", "Drain the node, reboot it and uncordon it; if it happens again, report the host to Oracle."),
    ("FabricReset", "Drain the node, then reset all GPUs and switches together, or reboot the node."),
    ("GpuReset", "End the GPU's jobs and reset it, for example with `nvidia-smi --gpu-reset`, or reboot the node."),
    ("PeerDrain", "End the jobs that use peer-to-peer access to this GPU."),
    ("ImexRecovery", "Restart the IMEX domain of the node."),
    ("Warning", "Run `kubectl oke-node node NAME` to see what the device needs; it works."),
];

impl FaultyDevice {
    /// One of which an address and a state are known.
    pub(crate) fn new(address: impl ToString, state: impl Into<String>) -> Self {
        Self { address: address.to_string(), state: state.into(), ..Self::default() }
    }

    /// The device of a problem that the kernel logged. `booted` is the time of the boot in milliseconds since 1970.
    pub(crate) fn of_problem(problem: &Problem, booted: Option<u64>) -> Self {
        Self {
            address: problem.device.clone(),
            reason: Some(reason(problem)),
            state: problem.names(),
            action: Some(problem.advice.as_str().to_owned()),
            since_unix_millis: booted.map(|booted| booted + millis(problem.since)),
        }
    }

    /// What it takes, in words.
    pub fn need(&self) -> Option<&'static str> {
        self.action.as_deref().and_then(Advice::from_word).map(Advice::text)
    }

    /// State and need behind the effect of the signal's problem.
    pub fn sentence(&self, effect: &str) -> String {
        let parts = [self.state.as_str(), self.need().unwrap_or_default()];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        if parts.is_empty() { effect.to_owned() } else { format!("{effect} {}.", parts.join(": ")) }
    }

    /// Cuts its texts, which come from the kernel and from files.
    pub(crate) fn shorten(&mut self, max: usize) {
        for text in [&mut self.address, &mut self.state] {
            *text = vcn::excerpt(text, max).into_owned();
        }
    }

    /// The device and its fault, in one line.
    pub fn describe(&self) -> String {
        let parts = [self.address.as_str(), &self.state, self.need().unwrap_or_default()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    }
}

impl Device {
    /// Takes what another collector knows of the same device.
    pub(crate) fn merge(&mut self, other: Self) {
        self.is_gpu |= other.is_gpu;
        self.slot = self.slot.or(other.slot);
        self.numa = self.numa.or(other.numa);
        self.last_event_unix_millis = self.last_event_unix_millis.or(other.last_event_unix_millis);
        for (own, its) in [
            (&mut self.uuid, other.uuid),
            (&mut self.names, other.names),
            (&mut self.port_state, other.port_state),
            (&mut self.last_event, other.last_event),
        ] {
            if own.is_none() {
                *own = its;
            }
        }
    }
}

/// Milliseconds of seconds of the log's clock.
pub(crate) fn millis(seconds: f64) -> u64 {
    std::time::Duration::try_from_secs_f64(seconds).map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(0))
}

/// The reason of a problem: what reported it, and what the device needs.
pub fn reason(problem: &Problem) -> String {
    let is_xid = problem.subsystem == Subsystem::Nvidia && problem.is_numbered();
    let reporter = REPORTERS.iter().find(|(subsystem, _)| *subsystem == problem.subsystem);
    let reporter = if is_xid { XID } else { reporter.map_or("Hardware", |(_, word)| word) };
    let need = match problem.advice {
        _ if problem.level < FaultLevel::Fatal => "Warning",
        Advice::ReplaceHost | Advice::ContactSupport | Advice::CheckMechanicals => "HostReplacement",
        Advice::ResetFabric => "FabricReset",
        Advice::DrainP2p => "PeerDrain",
        Advice::RecoverImex => "ImexRecovery",
        Advice::NodeReboot | Advice::RestartBm | Advice::RestartVm => "NodeReboot",
        _ if matches!(problem.subsystem, Subsystem::Nvidia | Subsystem::Nvswitch | Subsystem::Amdgpu) => "GpuReset",
        _ => "NodeReboot",
    };
    format!("{reporter}{need}")
}

/// All reasons that a device can have, and what to do.
pub fn reasons() -> impl Iterator<Item = (String, &'static str)> {
    let reporters = REPORTERS.iter().map(|(_, reporter)| *reporter).chain([XID]);
    reporters.flat_map(|reporter| {
        let is_gpu = matches!(reporter, "Nvidia" | "Sxid" | "Amd" | XID);
        let can_need =
            move |need: &&(&str, &str)| is_gpu || matches!(need.0, "HostReplacement" | "NodeReboot" | "Warning");
        NEEDS.iter().filter(can_need).map(move |(need, step)| (format!("{reporter}{need}"), *step))
    })
}
