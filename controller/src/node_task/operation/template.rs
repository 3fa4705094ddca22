//! What the Pod of an operation is. The policy in manifests/tasks/operation-pods.yaml refuses every other one.

use std::time::Duration;

use api::node_task::{NodeUnit, TaskAction};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use vcn::fnv1a_32;

/// The name of its account, and its label.
const NAME: &str = "oke-node-task";
/// The name of its container.
pub(super) const CONTAINER: &str = "operation";

/// What a Pod of this version can do on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    RestartUnit(NodeUnit),
    GrowRootDisk,
}

impl Operation {
    /// That of an action, if a Pod does it.
    pub(crate) const fn of(action: &TaskAction) -> Option<Self> {
        match (action.restart_unit, action.grow_root_disk) {
            (Some(restart), None) => Some(Self::RestartUnit(restart.unit)),
            (None, Some(_)) => Some(Self::GrowRootDisk),
            _ => None,
        }
    }

    /// The arguments of the program.
    fn arguments(self) -> Vec<&'static str> {
        match self {
            Self::RestartUnit(unit) => vec!["operation", "restart-unit", unit.as_str()],
            Self::GrowRootDisk => vec!["operation", "grow-root-disk"],
        }
    }

    /// How long its Pod may run: longer than the program's own limits together.
    pub(crate) const fn limit(self) -> Duration {
        match self {
            Self::RestartUnit(_) => Duration::from_secs(120),
            Self::GrowRootDisk => Duration::from_secs(600),
        }
    }
}

/// For which task and node a Pod is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodOwner<'a> {
    pub task: &'a str,
    pub uid: &'a str,
    pub node: &'a str,
}

impl PodOwner<'_> {
    /// The name of the Pod: one per task and node, so that it is created once.
    pub(crate) fn pod_name(&self) -> String {
        format!("{}-{:08x}", self.uid, fnv1a_32(self.node.bytes()))
    }
}

/// The Pod of an operation.
pub(super) fn pod(owner: &PodOwner<'_>, operation: Operation, image: &str) -> serde_json::Result<Pod> {
    serde_json::from_value(json!({
        "metadata": {
            "name": owner.pod_name(),
            "labels": { "app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "oke-node-manager" },
            // If the task goes without its end, the Pod goes, too.
            "ownerReferences": [
                { "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodeTask", "name": owner.task, "uid": owner.uid },
            ],
        },
        "spec": {
            "nodeName": owner.node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": operation.limit().as_secs(),
            "terminationGracePeriodSeconds": 0,
            "serviceAccountName": NAME,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "dnsPolicy": "Default",
            // A kubelet without disk space admits no other Pod.
            "priorityClassName": "system-node-critical",
            "tolerations": [{ "operator": "Exists" }],
            "securityContext": {
                "runAsUser": 0, "runAsGroup": 0, "seccompProfile": { "type": "RuntimeDefault" },
                // Under SELinux container_t may not connect to the bus.
                "seLinuxOptions": { "type": "spc_t" },
            },
            // The socket can be used although the mount is read-only.
            "volumes": [{ "name": "bus", "hostPath": { "path": "/run/dbus", "type": "Directory" } }],
            "containers": [{
                "name": CONTAINER,
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/usr/local/bin/oke-node-agent"],
                "args": operation.arguments(),
                "resources": { "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "memory": "64Mi" } },
                "securityContext": {
                    "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                },
                "volumeMounts": [{ "name": "bus", "mountPath": "/run/dbus", "readOnly": true }],
            }],
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: PodOwner<'_> =
        PodOwner { task: "restart", uid: "00000000-0000-4000-8000-000000000001", node: "node-a" };

    /// tests of the policies on an API server, and the cases of tests/cluster, begin with this file.
    #[test]
    fn pod_is_the_one_that_other_tests_change() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/operation/pod.json");
        let pod = pod(&OWNER, Operation::RestartUnit(NodeUnit::Kubelet), "oke-node-manager").unwrap();
        let text = serde_json::to_string_pretty(&pod).unwrap() + "\n";
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), text);
    }

    #[test]
    fn name_differs_by_node_and_task_and_is_a_dns_label() {
        let name = OWNER.pod_name();
        assert!(name.len() <= 63, "{name}");
        assert_ne!(name, PodOwner { node: "node-b", ..OWNER }.pod_name());
        assert_ne!(name, PodOwner { uid: "00000000-0000-4000-8000-000000000002", ..OWNER }.pod_name());
    }
}
