//! From a verdict to the status of an object: what was said before stays where nothing is another, so that nothing is
//! written while nothing changes. It takes few bytes: words stand on Ready alone, and only where the reason leaves some to say;
//! fewer where the object has no room for them.

use api::AttachmentReason as Reason;
use api::condition::{Condition, ConditionType, MESSAGE_MAX, cut, find, set, stored};
use api::{ConditionStatus, NODE_NAME_MAX, Reason as _, VnicAttachment, VnicAttachmentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::size::excess;
use super::verdict::{Said, Verdict};

/// What may be left out of a status.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dispensable {
    /// The condition: what nobody has reported is unknown without it, too.
    Configured,
    /// The Node's name: its providerID names the instance.
    NodeName,
}

/// What is left out where the object has no room, one after the other, and the least bytes that are left to words then.
const CROWDED: [(&[Dispensable], usize); 3] = [
    (&[Dispensable::Configured], MESSAGE_MAX),
    (&[Dispensable::Configured], 48),
    (&[Dispensable::Configured, Dispensable::NodeName], 24),
];
/// The least bytes of words before a request's number.
const WORDS_LEAST: usize = 24;
/// Ends a message that is about a refused request; behind it is the request's number.
const REQUEST: &str = " [opc-request-id ";

/// What is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The status, unless it is there already.
    pub new: Option<VnicAttachmentStatus>,
    /// Whether words had to be left out, or should have been: the object is too large for them.
    pub is_crowded: bool,
}

/// The status that says this, based on `before`.
#[must_use]
pub fn status(
    object: &VnicAttachment,
    before: Option<&VnicAttachmentStatus>,
    verdict: &Verdict,
    node: Option<&str>,
    now: &Time,
) -> Told {
    let old = before.cloned().unwrap_or_default();
    let ready = verdict.ready.as_ref().unwrap_or(&verdict.attached);
    let told = find(&old.conditions, ConditionType::Ready);
    let facts = &verdict.facts;
    let says = |room: usize, left_out: &[Dispensable]| {
        let silent = left_out.contains(&Dispensable::Configured);
        let mut conditions = old.conditions.clone();
        conditions.retain(|condition| !silent || condition.kind != ConditionType::Configured.as_str());
        let words = message(ready, told, room);
        for (kind, reason, message) in [
            (ConditionType::Attached, verdict.attached.reason, ""),
            // Nobody asks agents yet.
            (ConditionType::Configured, Reason::NotReported, ""),
            (ConditionType::Ready, ready.reason, &words),
        ] {
            if !silent || kind != ConditionType::Configured {
                set(&mut conditions, Condition::new(kind, reason, message, now.clone()));
            }
        }
        // A Node that left is remembered: its instance may come back under the same name.
        let node = node.and_then(node_name).map(str::to_owned).or(old.node_name.clone());
        VnicAttachmentStatus {
            observed_generation: object.metadata.generation,
            conditions,
            node_name: node.filter(|_| !left_out.contains(&Dispensable::NodeName)),
            vnic_id: facts.vnic_id.clone(),
            own_addresses: facts.own_addresses.clone(),
        }
    };
    let mut new = says(MESSAGE_MAX, &[]);
    let mut is_crowded = false;
    for (left_out, least) in CROWDED {
        if excess(object, &new) == 0 {
            break;
        }
        new = says(MESSAGE_MAX, left_out);
        let excess = excess(object, &new);
        is_crowded |= least < MESSAGE_MAX;
        if is_crowded && excess > 0 {
            let words = find(&new.conditions, ConditionType::Ready).map_or(0, |ready| stored(&ready.message));
            new = says(words.saturating_sub(excess).max(least), left_out);
        }
    }
    Told { new: (before != Some(&new)).then_some(new), is_crowded }
}

/// A Node's name, if it is one to be written: Linux has no longer host names, and what is cut off would be another Node's.
#[must_use]
pub fn node_name(name: &str) -> Option<&str> {
    (name.len() <= NODE_NAME_MAX).then_some(name)
}

/// Nothing where all is well, else words of so many bytes. A refusal keeps the number of its first request as long as its words
/// are the same; where it leaves no room for words, it is left to the event.
fn message(said: &Said, before: Option<&Condition>, room: usize) -> String {
    if said.reason.status() == ConditionStatus::True {
        return String::new();
    }
    let number = said.request_id.as_ref().map(|id| format!("{REQUEST}{id}]"));
    let left = number.as_ref().map_or(0, |number| room.saturating_sub(stored(number)));
    let Some(number) = number.filter(|_| left >= WORDS_LEAST) else { return cut(&said.message, room) };
    let words = cut(&said.message, left);
    let same = before.filter(|before| {
        before.reason == said.reason.as_str()
            && before.message.split_once(REQUEST).is_some_and(|(said, _)| said == words)
    });
    same.map_or_else(|| words + &number, |before| before.message.clone())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::attachment::sample::attachment;
    use crate::profile::stamp::object_name;

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
        let first = status(&object, None, &verdict, Some("node-a"), &at(1)).new.unwrap();
        let told: Vec<(&str, &str, &str)> =
            first.conditions.iter().map(|it| (it.kind.as_str(), it.status.as_str(), it.reason.as_str())).collect();
        let expected = [
            ("Attached", "False", "Attaching"),
            ("Configured", "Unknown", "NotReported"),
            ("Ready", "False", "Attaching"),
        ];
        assert_eq!(told, expected);
        assert_eq!(status(&object, Some(&first), &verdict, Some("node-a"), &at(2)).new, None);
        assert_eq!(status(&object, Some(&first), &verdict, None, &at(2)).new, None, "the Node's name stays");
    }

    #[test]
    fn a_refusal_keeps_the_number_of_its_first_request_as_long_as_it_is_the_same() {
        let object = attachment("a", 1);
        let first = status(&object, None, &refused("400 LimitExceeded: no more", "A1"), None, &at(1)).new.unwrap();
        let messages: Vec<&str> = first.conditions.iter().map(|told| told.message.as_str()).collect();
        assert_eq!(messages, ["", "", "400 LimitExceeded: no more [opc-request-id A1]"], "it is said once");
        let again = refused("400 LimitExceeded: no more", "B2");
        assert_eq!(status(&object, Some(&first), &again, None, &at(2)).new, None);
        let other = refused("400 QuotaExceeded: no more", "C3");
        let other = status(&object, Some(&first), &other, None, &at(3)).new.unwrap();
        assert_eq!(other.conditions[2].message, "400 QuotaExceeded: no more [opc-request-id C3]");
    }

    #[test]
    fn the_number_survives_a_long_story() {
        let object = attachment("a", 1);
        let told = status(&object, None, &refused(&"x".repeat(500), &"F".repeat(32)), None, &at(1)).new.unwrap();
        let message = &told.conditions[2].message;
        assert!(message.ends_with(&format!("… [opc-request-id {}]", "F".repeat(32))), "{message}");
        assert!(stored(message) <= MESSAGE_MAX, "{message}");
    }

    #[test]
    fn where_all_is_well_the_word_says_it() {
        let words = Said::new(Reason::Ready, "the VNIC is as asked");
        let verdict = Verdict { ready: Some(words), ..Verdict::without_vnic(Reason::Attached, "the VNIC is there") };
        let told = status(&attachment("a", 1), None, &verdict, None, &at(1)).new.unwrap();
        let told: Vec<(&str, &str)> =
            told.conditions.iter().map(|it| (it.reason.as_str(), it.message.as_str())).collect();
        assert_eq!(told, [("Attached", ""), ("NotReported", ""), ("Ready", "")]);
    }

    #[test]
    fn a_name_longer_than_a_host_name_can_be_is_left_out() {
        let verdict = Verdict::without_vnic(Reason::Attaching, "");
        let told = |name: &str| status(&attachment("a", 1), None, &verdict, Some(name), &at(1)).new.unwrap().node_name;
        let (longest, longer) = ("n".repeat(64), "n".repeat(65));
        assert_eq!((told(&longest), told(&longer)), (Some(longest), None));
    }

    /// Somebody applied it, with so many bytes of labels.
    fn labelled(bytes: usize) -> VnicAttachment {
        let mut object = attachment("a", 1);
        let labels =
            FieldsV1(format!("{{\"f:metadata\":{{\"f:labels\":{{\"f:{}\":{{}}}}}}}}", "l".repeat(bytes)).into());
        object.metadata.managed_fields =
            Some(vec![ManagedFieldsEntry { fields_v1: Some(labels), ..ManagedFieldsEntry::default() }]);
        object
    }

    /// How many conditions, how many bytes of words, whether they have a request's number, whether there is a Node's name.
    fn shape(told: &Told) -> (usize, usize, bool, bool) {
        let new = told.new.as_ref().unwrap();
        let message = &find(&new.conditions, ConditionType::Ready).unwrap().message;
        (new.conditions.len(), stored(message), message.contains(REQUEST), new.node_name.is_some())
    }

    #[test]
    fn a_large_object_says_less_the_less_room_it_has_and_the_same_again() {
        let node = "n".repeat(NODE_NAME_MAX);
        let verdict = refused(&"x".repeat(500), &"F".repeat(32));
        let said = |bytes: usize| {
            let object = labelled(bytes);
            let told = status(&object, None, &verdict, Some(&node), &at(1));
            let again = status(&object, told.new.as_ref(), &verdict, Some(&node), &at(2));
            assert_eq!(again, Told { new: None, is_crowded: told.is_crowded }, "{bytes}");
            (told.is_crowded, shape(&told))
        };
        let mut all: Vec<_> = (0..1200).map(said).collect();
        all.dedup();
        assert_eq!(all.first(), Some(&(false, (3, 160, true, true))));
        assert_eq!(all.get(1), Some(&(false, (2, 160, true, true))), "what nobody reports goes first");
        assert_eq!(all.get(2), Some(&(true, (2, 159, true, true))), "then words");
        // 24 of them have room before the number, or it goes.
        assert!(all.contains(&(true, (2, 74, true, true))) && all.contains(&(true, (2, 73, false, true))), "{all:?}");
        assert!(
            all.contains(&(true, (2, 48, false, true))),
            "then the Node's name, which has more bytes than they: {all:?}"
        );
        assert_eq!(all.last(), Some(&(true, (2, 24, false, false))));
    }

    #[test]
    fn what_a_profile_made_says_everything() {
        let mut object = labelled(2000);
        object.metadata.name = Some(object_name("p", &object.spec.vnic.name, &object.spec.instance_id));
        object.metadata.labels = Some([(api::PROFILE_LABEL.to_owned(), "p".to_owned())].into());
        let told = status(&object, None, &refused("no more", "A1"), Some("node-a"), &at(1));
        assert_eq!((told.is_crowded, shape(&told)), (false, (3, 27, true, true)));
    }
}
