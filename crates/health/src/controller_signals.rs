//! The signals that the controller measures. It shows them among the checks and findings of nodes; no rule changes them.

use crate::signal::{Signal, Unit};

/// Judged by the controller, and shown among the checks of the node's summary.
pub const CLOUD_AGENT_PLUGINS: Signal = Signal {
    name: "cloud_agent_plugins",
    unit: Unit::Text,
    source: "the controller: plugins for RDMA that are ENABLED in the instance's `agentConfig`, and their states in the OCI API, on shapes with an RDMA network",
    why: "These plugins configure, authenticate and monitor the RDMA network, which does not work without them.",
    remedy: "See /var/log/oracle-cloud-agent on the node. Disable a plugin that the instance does not need. If the signal is Unknown, give the controller the permission (docs/iam.md) or set `PLUGIN_STATES=off`.",
};

/// When that signal is healthy.
const CLOUD_AGENT_PLUGINS_HEALTHY: &str = "all run (warning, 4 of 4 readings; no rule changes it)";

/// Reported by Oracle, and shown among the controller's findings about a node, as are the next two.
pub const HOST_FAULT: Signal = Signal {
    name: "host_fault",
    unit: Unit::Text,
    source: "the controller, where `HOST_HEALTH_TENANCY` is set: ListComputeHosts of the OCI API",
    why: "Oracle itself finds the bare-metal host unhealthy, or a component of it impaired.",
    remedy: "Run `oci compute compute-host get --compute-host-id OCID`: it names the component. Drain the node, and replace it or let Oracle repair the host.",
};

/// Maintenance of the instance.
pub const MAINTENANCE_SCHEDULED: Signal = Signal {
    name: "maintenance_scheduled",
    unit: Unit::Text,
    source: "the controller, where `MAINTENANCE_COMPARTMENTS` has the instance's compartment: ListInstanceMaintenanceEvents of the OCI API",
    why: "Oracle will reboot, stop or terminate the instance at the given time, with all pods on it.",
    remedy: "Drain the node before that time, or choose another one: `oci compute instance-maintenance-event update`.",
};

/// A node that OKE repairs.
pub const OKE_REPAIR: Signal = Signal {
    name: "oke_repair",
    unit: Unit::Text,
    source: "the controller, where `OKE_REPAIR_TAINT` or `OKE_REPAIR_CONFIGS` is set: the Node's taints, and OKE's NodeRepairConfigs",
    why: "OKE drains, restarts or replaces the node, or will do so when its own monitoring finds a fault.",
    remedy: "Leave the node to OKE: start no repair of your own.",
};

/// What the controller itself measures, and when each is healthy.
pub const CONTROLLER_SIGNALS: [(Signal, &str); 4] = [
    (CLOUD_AGENT_PLUGINS, CLOUD_AGENT_PLUGINS_HEALTHY),
    (HOST_FAULT, "HEALTHY without impaired components (UNHEALTHY is critical, else warning; no rule changes it)"),
    (MAINTENANCE_SCHEDULED, "none to come (warning; no rule changes it)"),
    (OKE_REPAIR, "no such taint, and no NodeRepairConfig selects the node (warning; no rule changes it)"),
];

/// When a signal of the controller is healthy.
pub fn controller_signal_healthy(name: &str) -> Option<&'static str> {
    CONTROLLER_SIGNALS.iter().find(|(signal, _)| signal.name == name).map(|(_, healthy)| *healthy)
}
