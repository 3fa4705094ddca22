//! The Events about the Node: `kubectl describe node` shows them.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use resident::events::{EventContent, Level};

use super::plan::Transition;

/// The agent's name in Events; the admission policy accepts no other.
pub(super) const CONTROLLER: &str = "oke.oraclecloud.com/oke-node-agent";

/// How many Events of an agent exist at a time: the admission policy accepts only these names, so that a stolen token cannot
/// fill etcd. An Event exists for an hour (--event-ttl of the API server), in which an agent writes 40.
const NAMES: u64 = 100;

/// How many names are tried: twice as many as a burst just before may have taken.
const TRIES: u64 = 40;

/// How long a name is the first one to try. They rotate in an hour, so that the Event that had it before is gone.
const ROTATION_MILLIS: u64 = 3_600_000 / NAMES;

/// Names for an Event about a node, in the order to try.
pub(super) fn names(node: &str, unix_millis: u64) -> impl Iterator<Item = String> {
    let first = unix_millis / ROTATION_MILLIS;
    (first..first + TRIES).map(move |number| format!("{node}.agent-{:02}", number % NAMES))
}

pub(super) fn content(node: &str, transition: &Transition, unix_millis: u64) -> EventContent {
    let (reason, subject) = match transition {
        Transition::Raised { condition, .. } => (condition.reason, &condition.subject),
        Transition::Cleared { key, .. } => (key.reason, &key.subject),
    };
    let subject = subject.as_ref().map(|subject| format!("{subject}: ")).unwrap_or_default();
    let (level, action, note) = match transition {
        Transition::Raised { condition, others } => {
            let effect = if condition.blocks() { " No new pod can start on this node." } else { "" };
            let others = if *others > 0 {
                format!(" The condition is raised for {others} more objects of this node.")
            } else {
                String::new()
            };
            let message = condition.message.trim_end_matches('.');
            let note = format!("{subject}{message}.{effect}{others} {}", reason.next_step());
            (Level::Warning, "ConditionRaised", note)
        }
        Transition::Cleared { before, pods_start, .. } => {
            let after = Duration::from_millis(unix_millis.saturating_sub(before.reported_unix_millis)).as_secs();
            let effect = if *pods_start { " New pods can start on this node again." } else { "" };
            let note = format!("{subject}the condition is cleared, {after} s after it was reported.{effect}");
            (Level::Normal, "ConditionCleared", note)
        }
    };
    EventContent { regarding: reference(node), level, reason: reason.as_str(), action, note }
}

/// The Node, with its name as its uid, as kubelets refer to it: an agent may not read Nodes, and `kubectl describe node` lists
/// Events with either.
fn reference(node: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.to_owned()),
        uid: Some(node.to_owned()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{ConditionKey, ReportedEvent};
    use super::*;
    use crate::facts::condition::{Condition, Reason};

    #[test]
    fn raised_event_has_state_effect_and_next_step() {
        let condition = Condition::blocking(Reason::NftFailed, "table inet vcn-native: busy").about("nft");
        let event = content("a", &Transition::Raised { condition, others: 2 }, 0);
        let note = "nft: table inet vcn-native: busy. No new pod can start on this node. The condition is raised for 2 more objects of this node. ";
        assert_eq!(event.note, note.to_owned() + Reason::NftFailed.next_step());
        let about = (event.regarding.kind.as_deref(), event.regarding.name.as_deref(), event.regarding.uid.as_deref());
        assert_eq!(about, (Some("Node"), Some("a"), Some("a")));
        assert_eq!((event.level, event.reason, event.action), (Level::Warning, "NftFailed", "ConditionRaised"));
    }

    #[test]
    fn cleared_event_has_duration_and_effect() {
        let key = ConditionKey { reason: Reason::NoUsableAddress, subject: None };
        let before = ReportedEvent { blocking: true, reported_unix_millis: 1_000 };
        let event = content("a", &Transition::Cleared { key, before, pods_start: true }, 61_000);
        assert_eq!((event.level, event.reason, event.action), (Level::Normal, "NoUsableAddress", "ConditionCleared"));
        let note = "the condition is cleared, 60 s after it was reported. New pods can start on this node again.";
        assert_eq!(event.note, note);
    }

    #[test]
    fn hundred_names_rotate_in_an_hour() {
        let minute = 60_000;
        let at = |millis| names("10.0.0.2", millis).collect::<Vec<_>>();
        assert_eq!(at(59 * minute)[..3], ["10.0.0.2.agent-98", "10.0.0.2.agent-99", "10.0.0.2.agent-00"]);
        assert_eq!(at(60 * minute), at(0));
        let all: std::collections::BTreeSet<_> = (0..60).flat_map(|number| at(number * minute)).collect();
        assert_eq!((all.len(), at(0).len()), (100, 40));
    }
}
