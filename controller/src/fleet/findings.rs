//! What the controller finds about a node in addition to its agent's answer. The kubelet or a VNIC is not ready, or a request of
//! the node cannot be met. The findings are shown and change no condition of the Node: the API server has them already. Pure.

use api::{AttachmentReason, ConditionType, Reason as _, condition};
use health::Area;
use health::fleet::{AGENT_ACCOUNT_MISSING, NODE_NOT_READY, VNIC_ATTACHMENT};
use health::report::Verdict;
use health::rules::{Action, Severity};
use health::summary::Check;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use crate::cluster::store::{Attachments, NodeIssues, NodeView};
use crate::fleet::account;

/// The longest kept message, in characters.
const MESSAGE_MAX: usize = 200;

/// How long a VnicAttachment may be in progress before that is a problem. An attach takes 5 to 60 s, OKE's pod network of a new
/// node a minute or two.
const PROGRESS_MAX_SECONDS: i64 = 180;

/// Reasons that end by themselves.
const IN_PROGRESS: [AttachmentReason; 8] = [
    AttachmentReason::Pending,
    AttachmentReason::Attaching,
    AttachmentReason::Detaching,
    AttachmentReason::InstanceBusy,
    AttachmentReason::PodNetworkPending,
    AttachmentReason::AddressesPending,
    AttachmentReason::ChangePending,
    AttachmentReason::NotReported,
];

/// What is known in addition to the Node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    pub attachments: &'a Attachments,
    pub issues: &'a NodeIssues,
    /// Since when the ServiceAccount of the agents is missing.
    pub no_account: Option<Timestamp>,
}

/// Those of a node.
pub(crate) fn findings(node: &NodeView, known: Known<'_>, now: Timestamp) -> Vec<Check> {
    let Known { attachments, issues, no_account } = known;
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
        let since = ready.map(|ready| &ready.last_transition_time).or(object.metadata.creation_timestamp.as_ref());
        let since = since.map(|since| since.0);
        let is_new = since.is_some_and(|since| now.as_second() - since.as_second() < PROGRESS_MAX_SECONDS);
        if is_new && AttachmentReason::from_word(reason).is_some_and(|reason| IN_PROGRESS.contains(&reason)) {
            return None;
        }
        Some(Check {
            subject: Some(format!("{VNIC_ATTACHMENT}{}", object.name_any())),
            message: short(ready.map(|ready| ready.message.as_str()).unwrap_or_default()),
            since_unix_millis: millis(since),
            ..problem(reason, Severity::Warning)
        })
    });
    let requests = issues.of(&node.name).iter().map(|issue| Check {
        message: short(&issue.note),
        since_unix_millis: millis(Some(issue.since)),
        ..problem(issue.reason, Severity::Warning)
    });
    // Only a node with an agent has our conditions.
    let account = no_account.filter(|_| !node.conditions.is_empty()).map(|since| Check {
        message: format!(
            "The ServiceAccount {} does not exist: the API server refuses the agent's token (401 Unauthorized), and the agent learns \
             of no change. Pods start as before.",
            account::NAME
        ),
        since_unix_millis: millis(Some(since)),
        ..problem(AGENT_ACCOUNT_MISSING, Severity::Warning)
    });
    kubelet.chain(account).chain(vnics).chain(requests).collect()
}

/// A problem of the host since an unknown time, without a message.
pub(crate) fn problem(name: &str, severity: Severity) -> Check {
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

/// Milliseconds since 1970, as a check has them.
pub(crate) fn millis(time: Option<Timestamp>) -> u64 {
    time.and_then(|time| u64::try_from(time.as_millisecond()).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::attachment::sample::{attachment, instance};
    use crate::cluster::node_condition::NodeCondition;

    /// The reasons of what is found `seconds` after a condition Ready of this reason began.
    fn found(reason: &str, seconds: i64) -> Vec<String> {
        let mut attachments = Attachments::default();
        let mut object = attachment("storage", 1);
        let ready = json!({
            "type": "Ready", "status": "False", "reason": reason, "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        object.status = Some(serde_json::from_value(json!({ "conditions": [ready] })).unwrap());
        attachments.apply(object);
        let node = NodeView { instance: Some(instance(1)), ..NodeView::default() };
        let now = Timestamp::from_second(1_767_225_600 + seconds).unwrap();
        let known = Known { attachments: &attachments, issues: &NodeIssues::default(), no_account: None };
        let found = findings(&node, known, now);
        found.into_iter().map(|check| check.name).collect()
    }

    #[test]
    fn missing_account_is_a_problem_of_nodes_with_an_agent() {
        let now = Timestamp::from_second(9).unwrap();
        let known =
            Known { attachments: &Attachments::default(), issues: &NodeIssues::default(), no_account: Some(now) };
        let condition = NodeCondition {
            area: Area::Network,
            status: api::ConditionStatus::True,
            reason: "NoCriticalProblem".to_owned(),
            since: None,
        };
        for (conditions, expected) in
            [(vec![], vec![]), (vec![condition], vec![(AGENT_ACCOUNT_MISSING.to_owned(), 9000)])]
        {
            let node = NodeView { conditions, ..NodeView::default() };
            let found = findings(&node, known, now).into_iter().map(|check| (check.name, check.since_unix_millis));
            assert_eq!(found.collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn vnic_in_progress_is_a_problem_only_when_it_lasts() {
        for reason in ["Pending", "Attaching", "Detaching", "PodNetworkPending"] {
            assert_eq!(found(reason, 60), [""; 0], "{reason}");
            assert_eq!(found(reason, 181), [reason]);
        }
        for reason in ["SubnetFull", "NotConfigured", "OfALaterVersion"] {
            assert_eq!(found(reason, 1), [reason]);
        }
    }
}
