//! What is told, as an event about the Node: everything that the agent tells concerns it, and `kubectl describe node` is where
//! whoever is paged looks first.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use resident::events::{Level, News};

use super::plan::{Name, Telling, What};

/// As events call us; the admission policy lets an agent call itself nothing else.
pub(super) const CONTROLLER: &str = "oke.oraclecloud.com/oke-node-agent";

/// How many events of an agent there can be at a time. The admission policy takes no other names than these, so that a token
/// that was stolen cannot fill etcd. An event lives for an hour (the API server's --event-ttl), in which 40 are written.
const NAMES: u64 = 100;

/// So many names are tried: twice as many as may be taken by a burst that was written just now.
const TRIES: u64 = 40;

/// How long a name is the first to be tried: they go round in an hour, so that the event that had it before is gone.
const TURN_MILLIS: u64 = 3_600_000 / NAMES;

/// Names for an event about a node, the one to be tried first in front.
pub(super) fn names(node: &str, unix_millis: u64) -> impl Iterator<Item = String> {
    let first = unix_millis / TURN_MILLIS;
    (first..first + TRIES).map(move |number| format!("{node}.agent-{:02}", number % NAMES))
}

/// The news.
pub(super) fn news(node: &str, telling: &Telling, unix_millis: u64) -> News {
    let Telling { name, what } = telling;
    let (level, action, note) = match what {
        What::Raised { condition, others } => {
            let mut note = format!("{}{}.", subject(name), trimmed(&condition.message));
            if condition.blocks() {
                note.push_str(" No new pod can start here.");
            }
            if *others > 0 {
                note.push_str(&format!(" The same of {others} more."));
            }
            note.push(' ');
            note.push_str(name.reason.next_step());
            (Level::Warning, "ConditionRaised", note)
        }
        What::Over { before, ready } => {
            let after = Duration::from_millis(unix_millis.saturating_sub(before.told_unix_millis)).as_secs();
            let ready = if *ready { " New pods can start here again." } else { "" };
            let note = format!("{}this is over, {after} s after it was told.{ready}", subject(name));
            (Level::Normal, "ConditionCleared", note)
        }
    };
    News { regarding: reference(node), level, reason: name.reason.word(), action, note }
}

/// The Node, with its name for its uid, as kubelets do it: an agent may not read Nodes, and `kubectl describe node` asks for
/// events with either.
fn reference(node: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.to_owned()),
        uid: Some(node.to_owned()),
        ..ObjectReference::default()
    }
}

fn subject(name: &Name) -> String {
    name.subject.as_ref().map(|subject| format!("{subject}: ")).unwrap_or_default()
}

fn trimmed(message: &str) -> &str {
    message.trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use super::super::plan::Standing;
    use super::*;
    use crate::report::condition::{Condition, Reason};

    #[test]
    fn what_is_raised_says_what_is_the_matter_and_what_next_step() {
        let condition = Condition::blocking(Reason::NftFailed, "table inet vcn-native: busy").about("nft");
        let name = Name { reason: Reason::NftFailed, subject: Some("nft".to_owned()) };
        let told = news("a", &Telling { name, what: What::Raised { condition, others: 2 } }, 0);
        let expected = format!(
            "nft: table inet vcn-native: busy. No new pod can start here. The same of 2 more. {}",
            Reason::NftFailed.next_step()
        );
        let about = (told.regarding.kind.as_deref(), told.regarding.name.as_deref(), told.regarding.uid.as_deref());
        assert_eq!(about, (Some("Node"), Some("a"), Some("a")));
        assert_eq!((told.level, told.reason, told.action), (Level::Warning, "NftFailed", "ConditionRaised"));
        assert_eq!(told.note, expected);
    }

    #[test]
    fn what_is_over_says_since_when_and_whether_pods_can_start_again() {
        let name = Name { reason: Reason::NoUsableAddress, subject: None };
        let before = Standing { blocking: true, told_unix_millis: 1_000 };
        let told = news("a", &Telling { name, what: What::Over { before, ready: true } }, 61_000);
        assert_eq!((told.level, told.reason, told.action), (Level::Normal, "NoUsableAddress", "ConditionCleared"));
        assert_eq!(told.note, "this is over, 60 s after it was told. New pods can start here again.");
    }

    #[test]
    fn names_are_a_hundred_and_go_round_in_an_hour() {
        let minute = 60_000;
        let at = |millis| names("10.0.0.2", millis).collect::<Vec<_>>();
        assert_eq!(at(59 * minute)[..3], ["10.0.0.2.agent-98", "10.0.0.2.agent-99", "10.0.0.2.agent-00"]);
        assert_eq!(at(60 * minute), at(0));
        let all: std::collections::BTreeSet<_> = (0..60).flat_map(|number| at(number * minute)).collect();
        assert_eq!((all.len(), at(0).len()), (100, 40));
    }

    #[test]
    fn every_word_is_what_the_condition_is_called_everywhere() {
        for reason in Reason::ALL {
            assert_eq!(reason.word(), reason.to_string());
        }
    }
}
