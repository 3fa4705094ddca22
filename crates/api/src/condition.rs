//! Conditions of our resources: what is true of an object now, since when, and the stable reason.
//!
//! All conditions of an object are computed and written together, so `status.observedGeneration` applies to each; a copy in
//! each would only make objects larger.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

pub(crate) mod reason;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use vcn::{printable, words};

use crate::schema;

/// The most bytes of a message, as etcd holds it: conditions are most of an object's size.
pub const MESSAGE_MAX: usize = 160;

/// One condition, as stored. Its words are texts here, so that a version can read those of a later one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Which one: Attached, Configured or Ready; of a NodePolicy: Progressing or Applied; of a NodeTask: Complete or Failed.
    #[serde(rename = "type")]
    #[schemars(schema_with = "schema::word::<1, 32>")]
    pub kind: String,
    /// True, False or Unknown.
    #[schemars(schema_with = "schema::word::<1, 8>")]
    pub status: String,
    /// A stable reason: docs/resources.md.
    #[schemars(schema_with = "schema::word::<1, 64>")]
    pub reason: String,
    /// The reason in words, for people; absent if the reason alone is clear.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<160>")]
    pub message: String,
    /// When the status last changed.
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Time,
}

/// The types of conditions that our custom resources may have in their status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// The VNIC is on the instance.
    Attached,
    /// The node's agent has configured it.
    Configured,
    /// Everything is as requested.
    Ready,
    /// Nodes get the settings of a policy, or are about to.
    Progressing,
    /// All nodes of a policy have its settings.
    Applied,
    /// A task succeeded on its nodes.
    Complete,
    /// A task failed, or was refused.
    Failed,
}

/// Whether a condition holds, as Kubernetes writes it: `True`, `False` or `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionStatus {
    /// The condition holds; written as `True`.
    True,
    /// The condition does not hold.
    False,
    /// It cannot be determined.
    Unknown,
}

/// A stable reason why a condition holds or not; `reason.rs` has them all.
pub trait Reason: Copy {
    /// Its name in objects.
    fn as_str(self) -> &'static str;
    /// Whether a condition with this reason holds.
    fn status(self) -> ConditionStatus;
    /// The conditions that can have it.
    fn on(self) -> &'static [ConditionType];
    /// What it tells a user; the text of docs/resources.md.
    fn meaning(self) -> &'static str;
    /// The next step for a person.
    fn to_do(self) -> &'static str;
}

impl Condition {
    /// A condition with the status of its reason, as of `now`. A long message is cut.
    pub fn new(kind: ConditionType, reason: impl Reason, message: &str, now: Time) -> Self {
        Self {
            kind: kind.as_str().to_owned(),
            status: reason.status().as_str().to_owned(),
            reason: reason.as_str().to_owned(),
            message: cut(message, MESSAGE_MAX),
            last_transition_time: now,
        }
    }

    /// Whether the status is `True`. It is false for `Unknown` and for words of later versions.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True.as_str()
    }
}

/// The condition of a kind.
pub fn find(conditions: &[Condition], kind: ConditionType) -> Option<&Condition> {
    conditions.iter().find(|condition| condition.kind == kind.as_str())
}

/// Replaces the condition of this type. Keeps the time of the last transition if the status is the same. Returns whether
/// anything changed: if not, there is nothing to write.
pub fn set(conditions: &mut Vec<Condition>, mut new: Condition) -> bool {
    let Some(old) = conditions.iter_mut().find(|condition| condition.kind == new.kind) else {
        conditions.push(new);
        return true;
    };
    if old.status == new.status {
        new.last_transition_time = old.last_transition_time.clone();
    }
    let changed = *old != new;
    *old = new;
    changed
}

words!(ConditionType: Attached, Configured, Ready, Progressing, Applied, Complete, Failed);
words!(ConditionStatus: True, False, Unknown);

/// How many bytes a text takes in etcd, without its quotes: as JSON, in which the API server writes `<`, `>` and `&` in six
/// characters, as it does control characters.
pub fn stored(text: &str) -> usize {
    text.chars().map(stored_char).sum()
}

/// A text for a status: [`printable`], and cut to a number of bytes in etcd; an ellipsis marks the cut.
pub fn cut(text: &str, most: usize) -> String {
    const ELLIPSIS: char = '…';
    let text = &*printable(text);
    if stored(text) <= most {
        return text.to_owned();
    }
    let mut room = most.saturating_sub(stored_char(ELLIPSIS));
    let fits = |char: &char| {
        let rest = room.checked_sub(stored_char(*char));
        room = rest.unwrap_or(0);
        rest.is_some()
    };
    text.chars().take_while(fits).chain([ELLIPSIS]).collect()
}

const fn stored_char(char: char) -> usize {
    match char {
        '"' | '\\' => 2,
        '<' | '>' | '&' | '\0'..='\x1f' | '\u{2028}' | '\u{2029}' => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::reason::AttachmentReason::{self, Attached, Attaching, SubnetFull};

    fn at(second: i64) -> Time {
        Time(k8s_openapi::jiff::Timestamp::from_second(second).unwrap())
    }

    fn attached(reason: AttachmentReason, message: &str, second: i64) -> Condition {
        Condition::new(ConditionType::Attached, reason, message, at(second))
    }

    #[test]
    fn the_transition_time_stays_while_the_status_is_unchanged() {
        let mut conditions = Vec::new();
        assert!(set(&mut conditions, attached(Attaching, "", 100)), "it was not there");
        assert!(!set(&mut conditions, attached(Attaching, "", 200)), "nothing is another");
        assert!(set(&mut conditions, attached(SubnetFull, "no address", 300)), "another reason");
        assert_eq!(conditions, [attached(SubnetFull, "no address", 100)]);
        assert!(set(&mut conditions, attached(Attached, "", 400)), "another status");
        assert_eq!(conditions, [attached(Attached, "", 400)]);
    }

    #[test]
    fn a_long_message_is_cut_to_its_limit_in_etcd() {
        for (text, shown) in [("é", 78), ("<", 26), ("x", 157), ("\"", 78)] {
            let message = attached(SubnetFull, &text.repeat(500), 1).message;
            assert_eq!(message, format!("{}…", text.repeat(shown)));
            assert!(stored(&message) <= MESSAGE_MAX, "{message}");
        }
        assert_eq!(attached(SubnetFull, &"x".repeat(MESSAGE_MAX), 1).message, "x".repeat(MESSAGE_MAX));
        // The definition takes no control characters.
        let message = attached(SubnetFull, &"\n\u{200b}".repeat(500), 1).message;
        assert!(message.starts_with("\\n\\u{200b}\\n") && stored(&message) <= MESSAGE_MAX, "{message}");
    }

    #[test]
    fn condition_serializes_like_a_kubernetes_condition() {
        let written = serde_json::to_value(attached(Attaching, "requested", 0)).unwrap();
        let expected = serde_json::json!({
            "type": "Attached", "status": "False", "reason": "Attaching", "message": "requested",
            "lastTransitionTime": "1970-01-01T00:00:00Z"
        });
        assert_eq!(written, expected);
    }
}
