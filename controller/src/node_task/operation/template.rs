//! Which Pods the actions of NodeTasks have.

use std::time::Duration;

use api::node_task::{NodeUnit, TaskAction};
use k8s_openapi::api::core::v1::Pod;
use vcn::fnv1a_32;

use crate::operations::{OperationPod, PodPurpose};

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
    let pod = OperationPod {
        name: &owner.pod_name(),
        node: owner.node,
        purpose: PodPurpose::Task { name: owner.task, uid: owner.uid },
        arguments: &operation.arguments(),
        limit: operation.limit(),
    };
    pod.object(image)
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
