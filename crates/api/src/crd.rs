//! The CustomResourceDefinitions of our resources, with the columns that `kubectl get` shows. manifests/base/crds.yaml has them
//! as text.

#[cfg(test)]
mod documents;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition,
};
use kube::CustomResourceExt;

use crate::network_test::NetworkTest;
use crate::node_policy::NodePolicy;
use crate::node_task::NodeTask;
use crate::vnic_attachment::VnicAttachment;
use crate::vnic_profile::VnicProfile;

/// A column: its heading, type, place in the object, meaning, and whether `-o wide` alone shows it.
type Column = (&'static str, &'static str, &'static str, &'static str, Width);

/// When a column is shown.
#[derive(Clone, Copy)]
enum Width {
    Always,
    Wide,
}
use Width::{Always, Wide};

const READY: &str = r#".status.conditions[?(@.type=="Ready")].status"#;
const REASON: &str = r#".status.conditions[?(@.type=="Ready")].reason"#;
const MESSAGE: &str = r#".status.conditions[?(@.type=="Ready")].message"#;
const PROGRESS: &str = r#".status.conditions[?(@.type=="Progressing")].reason"#;
const PROGRESS_MESSAGE: &str = r#".status.conditions[?(@.type=="Progressing")].message"#;
const APPLIED: &str = r#".status.conditions[?(@.type=="Applied")].status"#;
const NOT_APPLIED: &str = r#".status.conditions[?(@.type=="Applied")].reason"#;
const CREATED: &str = ".metadata.creationTimestamp";

const ATTACHMENT_COLUMNS: &[Column] = &[
    ("Node", "string", ".status.nodeName", "The Node that the instance is, as far as there is one.", Always),
    ("VNIC-Name", "string", ".spec.name", "What the VNIC is called on the instance.", Always),
    ("Address", "string", ".status.ownAddresses[0]", "The VNIC's own address.", Always),
    ("Ready", "string", READY, "Whether the VNIC is as requested.", Always),
    ("Reason", "string", REASON, "Why, or why not.", Always),
    ("Subnet-Route", "boolean", ".spec.subnetRoute", "Whether the host reaches the subnet through the VNIC.", Wide),
    ("VNIC", "string", ".status.vnicId", "The VNIC's OCID.", Wide),
    ("Subnet", "string", ".spec.subnetId", "The subnet's OCID.", Wide),
    ("Instance", "string", ".spec.instanceId", "The instance's OCID.", Wide),
    ("Message", "string", MESSAGE, "The reason in words.", Wide),
    ("Age", "date", CREATED, "When it was requested.", Always),
];

const PROFILE_COLUMNS: &[Column] = &[
    ("Ready", "string", READY, "Whether every node has its VNICs.", Always),
    ("Reason", "string", REASON, "Why, or why not.", Always),
    ("Matched", "integer", ".status.summary.matched", "Nodes that are to have the VNICs.", Always),
    ("Attached", "integer", ".status.summary.attached", "Of those, nodes with all VNICs attached.", Always),
    ("Nodes-Ready", "integer", ".status.summary.ready", "Of those, nodes with all VNICs ready.", Always),
    ("Failed", "integer", ".status.summary.failed", "Of those, nodes where something must be done first.", Always),
    ("Paused", "boolean", ".spec.paused", "Whether nothing is made, changed or removed.", Wide),
    ("Message", "string", MESSAGE, "The reason in words.", Wide),
    ("Age", "date", CREATED, "When it was made.", Always),
];

const TEST_COLUMNS: &[Column] = &[
    ("State", "string", ".status.state", "Whether probes are being sent.", Always),
    ("Pairs", "integer", ".status.counts.pairs", "Pairs of source, target and probe.", Always),
    ("Failed", "integer", ".status.counts.failed", "Nodes on which the action failed.", Always),
    ("Lost", "integer", ".status.counts.lost", "Packets or requests without an answer.", Always),
    ("Worst", "string", ".status.worstVerdict", "The worst verdict.", Always),
    ("Every", "integer", ".spec.intervalSeconds", "Seconds between two runs.", Wide),
    ("Message", "string", ".status.message", "Why the test was refused or ended early.", Wide),
    ("Age", "date", CREATED, "When it was created.", Always),
];

const POLICY_COLUMNS: &[Column] = &[
    ("Mode", "string", ".spec.mode", "Apply, or Report if empty.", Always),
    ("Progress", "string", PROGRESS, "What the rollout does.", Always),
    ("Applied", "string", APPLIED, "Whether all nodes have the settings.", Always),
    ("Reason", "string", NOT_APPLIED, "Why, or why not.", Always),
    ("Nodes", "integer", ".status.nodes.matched", "Nodes that the policy selects.", Always),
    ("Target", "integer", ".status.nodes.target", "Of those, nodes that have the present revision.", Always),
    ("Failed", "integer", ".status.nodes.failed", "Nodes that failed with it.", Always),
    ("Drifted", "integer", ".status.nodes.driftedItems", "Values that differ on the nodes.", Always),
    ("Priority", "integer", ".spec.priority", "Which policy applies; 100 if empty.", Wide),
    ("Created-By", "string", ".status.createdBy", "The user or program that created it.", Wide),
    ("Message", "string", PROGRESS_MESSAGE, "The progress in words.", Wide),
    ("Age", "date", CREATED, "When it was created.", Always),
];

const TASK_COLUMNS: &[Column] = &[
    ("State", "string", ".status.state", "Whether the action runs, and how it ended.", Always),
    ("Reason", "string", ".status.reason", "Why.", Always),
    ("Node", "string", ".spec.node", "The node; empty if the task has a selector.", Always),
    ("Nodes", "integer", ".status.nodes.matched", "Nodes of the task.", Always),
    ("Succeeded", "integer", ".status.nodes.succeeded", "Nodes on which the action succeeded.", Always),
    ("Failed", "integer", ".status.nodes.failed", "Nodes on which the action failed.", Always),
    ("Skipped", "integer", ".status.nodes.skipped", "Skipped nodes.", Wide),
    ("Created-By", "string", ".status.createdBy", "The user or program that created it.", Wide),
    ("Message", "string", ".status.message", "The reason in words.", Wide),
    ("Age", "date", CREATED, "When it was created.", Always),
];

/// All of them, by name.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        with(NetworkTest::crd(), TEST_COLUMNS),
        with(NodePolicy::crd(), POLICY_COLUMNS),
        with(NodeTask::crd(), TASK_COLUMNS),
        with(VnicAttachment::crd(), ATTACHMENT_COLUMNS),
        with(VnicProfile::crd(), PROFILE_COLUMNS),
    ]
}

/// The columns stand here and not in the derive's attributes: as a table they can be read.
fn with(mut crd: CustomResourceDefinition, columns: &[Column]) -> CustomResourceDefinition {
    let columns = columns.iter().map(|&(name, type_, path, description, width)| CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: type_.to_owned(),
        json_path: path.to_owned(),
        description: Some(description.to_owned()),
        priority: matches!(width, Wide).then_some(1),
        format: None,
    });
    let columns: Vec<_> = columns.collect();
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(columns.clone());
    }
    crd
}

#[cfg(test)]
mod tests;
