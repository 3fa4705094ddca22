//! Events about policies: one when the rollout reaches another stage, with the policy's creator.

use api::condition::{ConditionType, find};
use api::{NodePolicy, NodePolicyStatus, PolicyReason, Reason as _};
use kube::Resource as _;

use crate::cluster::events::{EventContent, Level};

/// The Event of a status that replaces another one, if the stage differs.
pub(crate) fn event(object: &NodePolicy, before: &NodePolicyStatus, status: &NodePolicyStatus) -> Option<EventContent> {
    let reason = |status: &NodePolicyStatus| {
        let found = find(&status.conditions, ConditionType::Progressing)?;
        Some((PolicyReason::from_word(&found.reason)?, found.message.clone()))
    };
    let (stage, message) = reason(status)?;
    let is_rejected = !status.rejected.is_empty() && before.rejected != status.rejected;
    if !is_rejected && reason(before).is_some_and(|(before, _)| before == stage) {
        return None;
    }
    let level = match stage {
        _ if is_rejected => Level::Warning,
        PolicyReason::RollingBack | PolicyReason::Rejected | PolicyReason::Stopped | PolicyReason::Unanswered => {
            Level::Warning
        }
        _ => Level::Normal,
    };
    let by = if status.created_by.is_empty() { String::new() } else { format!(" (created by {})", status.created_by) };
    let failed = status.failing.first().filter(|_| is_rejected);
    let failed = failed.map(|it| format!("; {} on {}: {}", it.reason, it.node, it.item)).unwrap_or_default();
    let revision = &status.target;
    Some(EventContent {
        regarding: object.object_ref(&()),
        level,
        reason: stage.as_str(),
        action: "RollOut",
        note: format!("revision {revision}: {message}{failed}{by}").replace(": ;", ";"),
    })
}

#[cfg(test)]
mod tests {
    use api::node_policy::FailingNode;
    use api::{Condition, NodePolicy};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn status(reason: PolicyReason, rejected: &str) -> NodePolicyStatus {
        let now = Time(Timestamp::UNIX_EPOCH);
        NodePolicyStatus {
            conditions: vec![Condition::new(ConditionType::Progressing, reason, "n7", now)],
            created_by: "alice".to_owned(),
            target: "abc".to_owned(),
            rejected: rejected.to_owned(),
            failing: vec![FailingNode::new("n7", "vm.swappiness", "Failed")],
            ..NodePolicyStatus::default()
        }
    }

    #[test]
    fn event_names_stage_and_creator_once() {
        let object: NodePolicy =
            serde_json::from_value(serde_json::json!({ "metadata": { "name": "web" }, "spec": { "settings": {} } }))
                .unwrap();
        let blank = NodePolicyStatus::default();
        let note = |before: &NodePolicyStatus, after: &NodePolicyStatus| {
            event(&object, before, after).map(|it| (it.reason, it.note))
        };
        let canary = status(PolicyReason::Canary, "");
        let expected = ("Canary", "revision abc: n7 (created by alice)".to_owned());
        assert_eq!(note(&blank, &canary), Some(expected));
        assert_eq!(note(&canary, &canary), None);
        let rejected = status(PolicyReason::RollingBack, "abc");
        let expected = "revision abc: n7; Failed on n7: vm.swappiness (created by alice)".to_owned();
        assert_eq!(note(&canary, &rejected), Some(("RollingBack", expected)));
        assert_eq!(note(&rejected, &rejected), None);
    }
}
