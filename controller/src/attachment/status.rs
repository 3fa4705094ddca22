//! From a verdict to the status of an object: what was said before stays where nothing is another, so that nothing is
//! written while nothing changes.

use api::AttachmentReason as Reason;
use api::condition::{Condition, ConditionType, find, set};
use api::{VnicAttachment, VnicAttachmentStatus};
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
    // Nobody asks agents yet.
    let configured = Said::new(Reason::NotReported, "");
    for (kind, said) in
        [(ConditionType::Attached, attached), (ConditionType::Configured, &configured), (ConditionType::Ready, ready)]
    {
        let message = message(said, find(&old.conditions, kind));
        set(&mut conditions, Condition::new(kind, said.reason, &message, now.clone()));
    }
    let facts = &verdict.facts;
    let new = VnicAttachmentStatus {
        observed_generation: generation,
        conditions,
        // A Node that left is remembered: its instance may come back under the same name.
        node_name: node.map(str::to_owned).or(old.node_name.clone()),
        vnic_id: facts.vnic_id.clone(),
        mac_address: facts.mac_address,
        vlan_tag: facts.vlan_tag,
        own_addresses: facts.own_addresses.clone(),
        ipv4_count: facts.ipv4_count,
        ipv6_count: facts.ipv6_count,
    };
    (before != Some(&new)).then_some(new)
}

/// A refusal keeps the number of its first request as long as its words are the same.
fn message(said: &Said, before: Option<&Condition>) -> String {
    let Some(id) = &said.request_id else { return said.message.clone() };
    let room = api::condition::MESSAGE_MAX.saturating_sub(REQUEST.len() + id.chars().count() + 1);
    let words: String = said.message.chars().take(room).collect();
    let same = before.filter(|before| {
        before.reason == api::Reason::as_str(said.reason)
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
        assert_eq!(first.conditions[0].message, "400 LimitExceeded: no more [opc-request-id A1]");
        let again = refused("400 LimitExceeded: no more", "B2");
        assert_eq!(status(&object, Some(&first), &again, None, &at(2)), None);
        let other = refused("400 QuotaExceeded: no more", "C3");
        let other = status(&object, Some(&first), &other, None, &at(3)).unwrap();
        assert_eq!(other.conditions[0].message, "400 QuotaExceeded: no more [opc-request-id C3]");
    }

    #[test]
    fn the_number_survives_a_long_story() {
        let object = attachment("a", 1);
        let told = status(&object, None, &refused(&"x".repeat(500), &"F".repeat(32)), None, &at(1)).unwrap();
        let message = &told.conditions[0].message;
        assert!(message.ends_with(&format!("[opc-request-id {}]", "F".repeat(32))), "{message}");
        assert!(message.chars().count() <= api::condition::MESSAGE_MAX);
    }
}
