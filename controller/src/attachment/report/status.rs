//! The written status of an object, from the planned one. Earlier values stay while they are valid, so that nothing is
//! written while nothing changes. Only Ready has a message, and only if the reason needs one. The report of the node's agent
//! stays as the agent wrote it.

use api::condition::{Condition, ConditionType, MESSAGE_MAX, cut, find, set, stored};
use api::{ConditionStatus, NODE_NAME_MAX, Reason as _, VnicAttachment, VnicAttachmentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::attachment::report::attachment_status::{AttachmentStatus, StatusReason};
use crate::attachment::report::node_report;

/// The least space for a message before the request id.
const WORDS_LEAST: usize = 24;
/// Precedes the request id of a refused request, at the end of its message.
const REQUEST: &str = " [opc-request-id ";

/// The status to write; `None` if the object has it.
pub fn status(
    object: &VnicAttachment,
    planned_status: &AttachmentStatus,
    node: Option<&str>,
    now: &Time,
) -> Option<VnicAttachmentStatus> {
    let old = object.status.clone().unwrap_or_default();
    let ready = planned_status.ready.as_ref().unwrap_or(&planned_status.attached);
    let words = message(ready, find(&old.conditions, ConditionType::Ready));
    let mut conditions = old.conditions;
    for (kind, reason, message) in [
        (ConditionType::Attached, planned_status.attached.reason, ""),
        (ConditionType::Configured, node_report::configured(object), ""),
        (ConditionType::Ready, ready.reason, &words),
    ] {
        set(&mut conditions, Condition::new(kind, reason, message, now.clone()));
    }
    let new = VnicAttachmentStatus {
        observed_generation: object.metadata.generation,
        conditions,
        // The name of a Node that is gone stays: its instance may register again under the same name.
        node_name: node.and_then(node_name).map(str::to_owned).or(old.node_name),
        vnic_id: planned_status.facts.vnic_id.clone(),
        own_addresses: planned_status.facts.own_addresses.clone(),
        pod_addresses: planned_status.facts.pod_addresses.clone(),
        node: node_report::of(object).filter(|_| is_same_vnic(object, planned_status)).cloned(),
    };
    (object.status.as_ref() != Some(&new)).then_some(new)
}

/// What was reported of a VNIC says nothing of the one that replaced it.
fn is_same_vnic(object: &VnicAttachment, planned_status: &AttachmentStatus) -> bool {
    object.status.as_ref().and_then(|status| status.vnic_id.as_ref()) == planned_status.facts.vnic_id.as_ref()
}

/// A Node's name, unless it is longer than a Linux host name can be: cut off, it would name another Node.
pub fn node_name(name: &str) -> Option<&str> {
    (name.len() <= NODE_NAME_MAX).then_some(name)
}

/// Empty if the condition is True. A refusal keeps the id of its first request while its message is the same; an id that leaves
/// no room for the message is in the event only.
fn message(cause: &StatusReason, before: Option<&Condition>) -> String {
    if cause.reason.status() == ConditionStatus::True {
        return String::new();
    }
    let number = cause.request_id.as_ref().map(|id| format!("{REQUEST}{id}]"));
    let left = number.as_ref().map_or(0, |number| MESSAGE_MAX.saturating_sub(stored(number)));
    let Some(number) = number.filter(|_| left >= WORDS_LEAST) else { return cut(&cause.message, MESSAGE_MAX) };
    let words = cut(&cause.message, left);
    let same = before.filter(|before| {
        before.reason == cause.reason.as_str()
            && before.message.split_once(REQUEST).is_some_and(|(cause, _)| cause == words)
    });
    same.map_or_else(|| words + &number, |before| before.message.clone())
}

#[cfg(test)]
mod tests {
    use api::AttachmentReason as Reason;
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::attachment::sample::attachment;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn refused(words: &str, id: &str) -> AttachmentStatus {
        let cause = StatusReason { request_id: Some(id.to_owned()), ..StatusReason::new(Reason::LimitReached, words) };
        AttachmentStatus { attached: cause, ..AttachmentStatus::without_vnic(Reason::LimitReached, "") }
    }

    #[test]
    fn status_is_not_written_again_unless_it_changes() {
        let object = attachment("a", 1);
        let planned_status = AttachmentStatus::without_vnic(Reason::Attaching, "OCI is creating the VNIC");
        let first = status(&object, &planned_status, Some("node-a"), &at(1)).unwrap();
        let reported: Vec<(&str, &str, &str)> =
            first.conditions.iter().map(|it| (it.kind.as_str(), it.status.as_str(), it.reason.as_str())).collect();
        let expected = [
            ("Attached", "False", "Attaching"),
            ("Configured", "Unknown", "NotReported"),
            ("Ready", "False", "Attaching"),
        ];
        assert_eq!(reported, expected);
        let object = VnicAttachment { status: Some(first), ..object };
        assert_eq!(status(&object, &planned_status, Some("node-a"), &at(2)), None);
        assert_eq!(status(&object, &planned_status, None, &at(2)), None, "the Node's name stays");
    }

    #[test]
    fn refusal_keeps_first_request_id_while_message_is_unchanged() {
        let object = attachment("a", 1);
        let first = status(&object, &refused("400 LimitExceeded: no more", "A1"), None, &at(1)).unwrap();
        let messages: Vec<&str> = first.conditions.iter().map(|reported| reported.message.as_str()).collect();
        assert_eq!(
            messages,
            ["", "", "400 LimitExceeded: no more [opc-request-id A1]"],
            "the request id is written once"
        );
        let object = VnicAttachment { status: Some(first), ..object };
        let again = refused("400 LimitExceeded: no more", "B2");
        assert_eq!(status(&object, &again, None, &at(2)), None);
        let other = refused("400 QuotaExceeded: no more", "C3");
        let other = status(&object, &other, None, &at(3)).unwrap();
        assert_eq!(other.conditions[2].message, "400 QuotaExceeded: no more [opc-request-id C3]");
    }

    #[test]
    fn request_id_survives_a_long_message() {
        let object = attachment("a", 1);
        let reported = status(&object, &refused(&"x".repeat(500), &"F".repeat(32)), None, &at(1)).unwrap();
        let message = &reported.conditions[2].message;
        assert!(message.ends_with(&format!("… [opc-request-id {}]", "F".repeat(32))), "{message}");
        assert!(stored(message) <= MESSAGE_MAX, "{message}");
    }

    #[test]
    fn true_conditions_have_no_message() {
        let words = StatusReason::new(Reason::Ready, "the VNIC matches the spec");
        let planned_status = AttachmentStatus {
            ready: Some(words),
            ..AttachmentStatus::without_vnic(Reason::Attached, "the VNIC is there")
        };
        let reported = status(&attachment("a", 1), &planned_status, None, &at(1)).unwrap();
        let reported: Vec<(&str, &str)> =
            reported.conditions.iter().map(|it| (it.reason.as_str(), it.message.as_str())).collect();
        assert_eq!(reported, [("Attached", ""), ("NotReported", ""), ("Ready", "")]);
    }

    #[test]
    fn node_name_longer_than_a_host_name_is_left_out() {
        let planned_status = AttachmentStatus::without_vnic(Reason::Attaching, "");
        let reported = |name: &str| status(&attachment("a", 1), &planned_status, Some(name), &at(1)).unwrap().node_name;
        let (longest, longer) = ("n".repeat(64), "n".repeat(65));
        assert_eq!((reported(&longest), reported(&longer)), (Some(longest), None));
    }
}
