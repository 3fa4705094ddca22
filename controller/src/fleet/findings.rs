//! What the controller finds about a node in addition to its agent's answer: a kubelet that is not ready, VNICs that are not, and requests
//! of the node that cannot be met. They are shown and change no condition of the Node: the API server has them already. Pure.

use api::{AttachmentReason, ConditionType, Reason as _, condition};
use health::Area;
use health::fleet::{NODE_NOT_READY, VNIC_ATTACHMENT};
use health::report::Verdict;
use health::rules::{Action, Severity};
use health::summary::Check;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use crate::cluster::store::{Attachments, NodeIssues, NodeView};

/// The longest kept message, in characters.
const MESSAGE_MAX: usize = 200;

/// Those of a node.
pub(crate) fn findings(node: &NodeView, attachments: &Attachments, issues: &NodeIssues) -> Vec<Check> {
    let kubelet = node.kubelet.iter().map(|kubelet| Check {
        message: short(&format!("{}: {}", kubelet.reason, kubelet.message)),
        since_unix_millis: millis(kubelet.since),
        ..problem(NODE_NOT_READY, Severity::Critical)
    });
    let attachments = node.instance.iter().flat_map(|instance| attachments.of(instance));
    let vnics = attachments.filter_map(|object| {
        let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let ready = condition::find(conditions, ConditionType::Ready);
        if ready.is_some_and(|ready| ready.status == "True") {
            return None;
        }
        let reason = ready.map_or(AttachmentReason::Pending.as_str(), |ready| &ready.reason);
        Some(Check {
            subject: Some(format!("{VNIC_ATTACHMENT}{}", object.name_any())),
            message: short(ready.map(|ready| ready.message.as_str()).unwrap_or_default()),
            since_unix_millis: millis(ready.map(|ready| ready.last_transition_time.0)),
            ..problem(reason, Severity::Warning)
        })
    });
    let requests = issues.of(&node.name).iter().map(|issue| Check {
        message: short(&issue.note),
        since_unix_millis: millis(Some(issue.since)),
        ..problem(issue.reason, Severity::Warning)
    });
    kubelet.chain(vnics).chain(requests).collect()
}

fn problem(name: &str, severity: Severity) -> Check {
    Check {
        name: name.to_owned(),
        subject: None,
        area: Area::Host,
        verdict: Verdict::Problem,
        severity,
        action: Action::Report,
        message: String::new(),
        since_unix_millis: 0,
        not_measured: None,
        devices: Vec::new(),
    }
}

fn short(text: &str) -> String {
    vcn::excerpt(text, MESSAGE_MAX).into_owned()
}

fn millis(time: Option<Timestamp>) -> u64 {
    time.and_then(|time| u64::try_from(time.as_millisecond()).ok()).unwrap_or_default()
}
