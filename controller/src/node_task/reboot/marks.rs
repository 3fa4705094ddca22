//! Signs of other programs that are about to delete, repair or change a node.

use api::TaskReason;

use super::facts::Mark;
use crate::cluster::store::NodeView;

/// Taints of programs that delete nodes, and whether a drained node gets them.
const DELETION_TAINTS: [(&str, &str, bool); 4] = [
    ("ToBeDeletedByClusterAutoscaler", "Cluster Autoscaler deletes it", false),
    ("DeletionCandidateOfClusterAutoscaler", "Cluster Autoscaler is about to delete it", true),
    ("karpenter.sh/disrupted", "Karpenter replaces it", false),
    // Before version 1 of Karpenter.
    ("karpenter.sh/disruption", "Karpenter replaces it", false),
];
/// With which a NodeOperationRule of OKE selects the nodes that it reboots or whose boot volumes it replaces.
const NODE_OPERATION_LABEL: &str = "oke.oraclecloud.com/node_operation";

impl Mark {
    /// Of a Node. `repair` says how a repair of OKE is known, if there is one.
    pub(crate) fn of(node: &NodeView, repair: Option<&str>) -> Option<Self> {
        let has_taint = |key: &str| node.taints.iter().any(|taint| &**taint == key);
        let mark = |reason, message: &str, may_follow_drain| {
            Some(Self { reason, message: message.to_owned(), may_follow_drain })
        };
        if node.leaving {
            return mark(TaskReason::Deleting, "the Node is being deleted", false);
        }
        if let Some(repair) = repair {
            return mark(TaskReason::OtherOperation, &format!("OKE repairs it: {repair}"), false);
        }
        if node.labels.map().contains_key(NODE_OPERATION_LABEL) {
            let message = format!("a node operation of OKE selects it with the label {NODE_OPERATION_LABEL}");
            return mark(TaskReason::OtherOperation, &message, false);
        }
        let taint = DELETION_TAINTS.iter().find(|(key, ..)| has_taint(key));
        taint.and_then(|(_, message, may_follow_drain)| mark(TaskReason::Deleting, message, *may_follow_drain))
    }
}
