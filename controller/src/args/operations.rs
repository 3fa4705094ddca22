//! Switches of what changes nodes by Pods. Each comes with rights or mounts, by a component of manifests.

use clap::Args;
use resident::args::Toggle;

/// The switches; all are off by default.
#[derive(Clone, Debug, Args)]
pub(crate) struct OperationOptions {
    /// Whether NodeTasks run: restart a unit, grow the root disk, capture. It needs the rights in manifests/tasks; without it, tasks are
    /// refused
    #[arg(long, global = true, env = "TASKS", value_enum, default_value = "off", value_name = "WHAT")]
    pub tasks: Toggle,
    /// Whether NodeTasks may reboot nodes, too. It needs TASKS, the rights in manifests/reboot and a permission in OCI
    #[arg(long, global = true, env = "TASK_REBOOTS", value_enum, default_value = "off", value_name = "WHAT")]
    pub task_reboots: Toggle,
    /// Whether NodePolicies may have files that configure programs of the host. It needs the Pods of manifests/operations and the agents'
    /// mounts of manifests/host-files
    #[arg(long, global = true, env = "HOST_FILES", value_enum, default_value = "off", value_name = "WHAT")]
    pub host_files: Toggle,
    /// Whether NodePolicies may have files that run programs of the host as root, and reservations of the kubelet. It needs the Pods of
    /// manifests/operations and the agents' mounts of manifests/host-code
    #[arg(long, global = true, env = "HOST_CODE", value_enum, default_value = "off", value_name = "WHAT")]
    pub host_code: Toggle,
}
