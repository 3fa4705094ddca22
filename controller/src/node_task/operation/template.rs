//! Which Pods the actions of NodeTasks have.

use std::time::Duration;

use api::node_task::{LogCapture, NodeUnit, TaskAction};
use k8s_openapi::api::core::v1::Pod;
use vcn::fnv1a_32;

use crate::operations::{OperationPod, PodPurpose};

/// What a Pod of this version can do on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation<'a> {
    RestartUnit(NodeUnit),
    GrowRootDisk,
    /// Writes logs into the folder that the agent keeps for the task's capture.
    Logs(&'a LogCapture),
}

impl<'a> Operation<'a> {
    /// That of an action, if a Pod does it or a part of it.
    pub(crate) fn of(action: &'a TaskAction) -> Option<Self> {
        match (action.restart_unit, action.grow_root_disk, &action.capture) {
            (Some(restart), None, None) => Some(Self::RestartUnit(restart.unit)),
            (None, Some(_), None) => Some(Self::GrowRootDisk),
            (None, None, Some(capture)) => capture.logs.as_ref().map(Self::Logs),
            _ => None,
        }
    }

    /// The arguments of the program.
    fn arguments(self) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match self {
            Self::RestartUnit(unit) => words(&["operation", "restart-unit", unit.as_str()]),
            Self::GrowRootDisk => words(&["operation", "grow-root-disk"]),
            Self::Logs(logs) => {
                let hours = format!("--hours={}", logs.hours.unwrap_or(1));
                let units = logs.units.iter().map(String::as_str);
                words(&["operation", "logs", &hours].into_iter().chain(units).collect::<Vec<_>>())
            }
        }
    }

    /// Whether nothing is left half done when its Pod ends before it.
    pub(crate) const fn is_interruptible(self) -> bool {
        matches!(self, Self::Logs(_))
    }

    /// How long its Pod may run: longer than the program's own limits together.
    pub(crate) const fn limit(self) -> Duration {
        match self {
            Self::RestartUnit(_) => Duration::from_secs(120),
            Self::GrowRootDisk => Duration::from_secs(600),
            Self::Logs(_) => Duration::from_secs(180),
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
pub(super) fn pod(owner: &PodOwner<'_>, operation: Operation<'_>, image: &str) -> serde_json::Result<Pod> {
    let (arguments, PodOwner { task: name, uid, node }) = (operation.arguments(), *owner);
    let pod = OperationPod {
        name: &owner.pod_name(),
        node,
        purpose: match operation {
            Operation::Logs(_) => PodPurpose::Logs { name, uid },
            Operation::RestartUnit(_) | Operation::GrowRootDisk => PodPurpose::Task { name, uid },
        },
        arguments: &arguments.iter().map(String::as_str).collect::<Vec<_>>(),
        limit: operation.limit(),
    };
    pod.object(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: PodOwner<'_> =
        PodOwner { task: "restart", uid: "00000000-0000-4000-8000-000000000001", node: "node-a" };

    /// Tests of the policies on an API server, and the cases of tests/cluster, begin with these files.
    #[test]
    fn pods_are_those_that_other_tests_change() {
        let units = ["kubelet.service", "crio.service"].map(str::to_owned).to_vec();
        let logs = LogCapture { units, hours: None };
        for (name, operation) in [("pod", Operation::RestartUnit(NodeUnit::Kubelet)), ("logs", Operation::Logs(&logs))]
        {
            let path = format!("{}/golden/operation/{name}.json", env!("CARGO_MANIFEST_DIR"));
            let pod = pod(&OWNER, operation, "oke-node-manager").unwrap();
            let text = serde_json::to_string_pretty(&pod).unwrap() + "\n";
            if std::env::var_os("UPDATE_DOCS").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn name_differs_by_node_and_task_and_is_a_dns_label() {
        let name = OWNER.pod_name();
        assert!(name.len() <= 63, "{name}");
        assert_ne!(name, PodOwner { node: "node-b", ..OWNER }.pod_name());
        assert_ne!(name, PodOwner { uid: "00000000-0000-4000-8000-000000000002", ..OWNER }.pod_name());
    }
}
