//! From a verdict to the status of an object: what was said before stays where nothing is another, so that nothing is
//! written while nothing changes. It takes few bytes: words stand on Ready alone, and only where the reason leaves some to say.

use api::AttachmentReason as Reason;
use api::condition::{Condition, ConditionType, MESSAGE_MAX, cut, find, set, stored};
use api::{ConditionStatus, NODE_NAME_MAX, Reason as _, VnicAttachment, VnicAttachmentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::verdict::{Said, Verdict};

/// Ends a message that is about a refused request; behind it is the request's number.
const REQUEST: &str = " [opc-request-id ";

/// The status that says this, based on `before`. `None` when it says it already.
#[must_use]
pub fn status(
    object: &VnicAttachment,
    before: Option<&VnicAttachmentStatus>,
    verdict: &Verdict,
    node: Option<&str>,
    now: &Time,
) -> Option<VnicAttachmentStatus> {
    let generation = object.metadata.generation;
    let old = before.cloned().unwrap_or_default();
    let mut conditions = old.conditions.clone();
    let attached = &verdict.attached;
    let ready = verdict.ready.as_ref().unwrap_or(attached);
    let message = message(ready, find(&old.conditions, ConditionType::Ready));
    for (kind, reason, message) in [
        (ConditionType::Attached, attached.reason, ""),
        // Nobody asks agents yet.
        (ConditionType::Configured, Reason::NotReported, ""),
        (ConditionType::Ready, ready.reason, &message),
    ] {
        set(&mut conditions, Condition::new(kind, reason, message, now.clone()));
    }
    let facts = &verdict.facts;
    let new = VnicAttachmentStatus {
        observed_generation: generation,
        conditions,
        // A Node that left is remembered: its instance may come back under the same name.
        node_name: node.and_then(node_name).map(str::to_owned).or(old.node_name.clone()),
        vnic_id: facts.vnic_id.clone(),
        own_addresses: facts.own_addresses.clone(),
    };
    (before != Some(&new)).then_some(new)
}

/// A Node's name, if it is one to be written: Linux has no longer host names, and what is cut off would be another Node's.
#[must_use]
pub fn node_name(name: &str) -> Option<&str> {
    (name.len() <= NODE_NAME_MAX).then_some(name)
}

/// Nothing where all is well. A refusal keeps the number of its first request as long as its words are the same.
fn message(said: &Said, before: Option<&Condition>) -> String {
    if said.reason.status() == ConditionStatus::True {
        return String::new();
    }
    let Some(id) = &said.request_id else { return said.message.clone() };
    let room = MESSAGE_MAX.saturating_sub(REQUEST.len() + stored(id) + 1);
    let words = cut(&said.message, room);
    let same = before.filter(|before| {
        before.reason == said.reason.as_str()
            && before.message.split_once(REQUEST).is_some_and(|(said, _)| said == words)
    });
    same.map_or_else(|| format!("{words}{REQUEST}{id}]"), |before| before.message.clone())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::attachment::sample::attachment;

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn refused(words: &str, id: &str) -> Verdict {
        let said = Said { request_id: Some(id.to_owned()), ..Said::new(Reason::LimitReached, words) };
        Verdict { attached: said, ..Verdict::without_vnic(Reason::LimitReached, "") }
    }

    #[test]
    fn what_is_said_already_is_not_written_again() {
        let object = attachment("a", 1);
        let verdict = Verdict::without_vnic(Reason::Attaching, "the cloud is making the VNIC");
        let first = status(&object, None, &verdict, Some("node-a"), &at(1)).unwrap();
        let told: Vec<(&str, &str, &str)> =
            first.conditions.iter().map(|it| (it.kind.as_str(), it.status.as_str(), it.reason.as_str())).collect();
        let expected = [
            ("Attached", "False", "Attaching"),
            ("Configured", "Unknown", "NotReported"),
            ("Ready", "False", "Attaching"),
        ];
        assert_eq!(told, expected);
        assert_eq!(status(&object, Some(&first), &verdict, Some("node-a"), &at(2)), None);
        assert_eq!(status(&object, Some(&first), &verdict, None, &at(2)), None, "the Node's name stays");
    }

    #[test]
    fn a_refusal_keeps_the_number_of_its_first_request_as_long_as_it_is_the_same() {
        let object = attachment("a", 1);
        let first = status(&object, None, &refused("400 LimitExceeded: no more", "A1"), None, &at(1)).unwrap();
        let messages: Vec<&str> = first.conditions.iter().map(|told| told.message.as_str()).collect();
        assert_eq!(messages, ["", "", "400 LimitExceeded: no more [opc-request-id A1]"], "it is said once");
        let again = refused("400 LimitExceeded: no more", "B2");
        assert_eq!(status(&object, Some(&first), &again, None, &at(2)), None);
        let other = refused("400 QuotaExceeded: no more", "C3");
        let other = status(&object, Some(&first), &other, None, &at(3)).unwrap();
        assert_eq!(other.conditions[2].message, "400 QuotaExceeded: no more [opc-request-id C3]");
    }

    #[test]
    fn the_number_survives_a_long_story() {
        let object = attachment("a", 1);
        let told = status(&object, None, &refused(&"x".repeat(500), &"F".repeat(32)), None, &at(1)).unwrap();
        let message = &told.conditions[2].message;
        assert!(message.ends_with(&format!("… [opc-request-id {}]", "F".repeat(32))), "{message}");
        assert!(stored(message) <= MESSAGE_MAX, "{message}");
    }

    #[test]
    fn where_all_is_well_the_word_says_it() {
        let words = Said::new(Reason::Ready, "the VNIC is as asked");
        let verdict = Verdict { ready: Some(words), ..Verdict::without_vnic(Reason::Attached, "the VNIC is there") };
        let told = status(&attachment("a", 1), None, &verdict, None, &at(1)).unwrap();
        let told: Vec<(&str, &str)> =
            told.conditions.iter().map(|it| (it.reason.as_str(), it.message.as_str())).collect();
        assert_eq!(told, [("Attached", ""), ("NotReported", ""), ("Ready", "")]);
    }

    #[test]
    fn a_name_longer_than_a_host_name_can_be_is_left_out() {
        let verdict = Verdict::without_vnic(Reason::Attaching, "");
        let told = |name: &str| status(&attachment("a", 1), None, &verdict, Some(name), &at(1)).unwrap().node_name;
        let (longest, longer) = ("n".repeat(64), "n".repeat(65));
        assert_eq!((told(&longest), told(&longer)), (Some(longest), None));
    }
}
