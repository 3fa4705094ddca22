//! How long nodes have had their revisions, by the monotonic clock of this leader, and what it sent since. A new leader begins
//! with nothing, and so starts every soak again.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use tunables::{Baseline, DocumentMode, NodeAnswer, NodeDocument, PolicyState};

use super::facts::SentRevision;
use super::files::leaves_files;

/// The longest soak that a policy may have: what was undone longer ago is forgotten.
const SOAK_MAX: Duration = Duration::from_secs(86_400);

/// What this leader remembers of a node.
#[derive(Debug, Default)]
pub(crate) struct NodeClocks {
    /// The last document that the agent did not confirm yet.
    sent: Option<SentDocument>,
    /// By the policies' uids.
    policies: HashMap<String, Clock>,
}

#[derive(Debug)]
struct SentDocument {
    revision: String,
    /// Uid, revision and mode of each policy.
    policies: Vec<(String, String, DocumentMode)>,
    baseline: Baseline,
}

/// A revision on a node, or the absence of one that this leader removed.
#[derive(Clone, Debug, Default)]
struct Clock {
    revision: String,
    mode: DocumentMode,
    applied: Option<Instant>,
    is_soaked: bool,
    /// Whether this leader sent it.
    is_new: bool,
}

impl NodeClocks {
    /// A document is on its way. One that is sent again keeps what the node had before the first time.
    pub(crate) fn note_sent(&mut self, document: &NodeDocument) {
        if self.sent.as_ref().is_some_and(|sent| sent.revision == document.revision) {
            return;
        }
        let policies = document.policies.iter().map(|it| (it.uid.clone(), it.revision.clone(), it.mode)).collect();
        let (revision, baseline) = (document.revision.clone(), document.baseline.clone());
        self.sent = Some(SentDocument { revision, policies, baseline });
    }

    /// The agent refused it, and has what it had.
    pub(crate) fn note_refused(&mut self) {
        self.sent = None;
    }

    /// Records what an agent answered at some time.
    pub(crate) fn note(&mut self, answer: &NodeAnswer, at: Instant) {
        let is_confirmed = self.sent.as_ref().is_some_and(|sent| sent.revision == answer.document);
        if is_confirmed {
            self.sent = None;
        }
        let mut before = std::mem::take(&mut self.policies);
        for policy in &answer.policies {
            let clock = before.remove(&policy.uid);
            let was_applying =
                clock.as_ref().is_some_and(|clock| clock.mode == DocumentMode::Apply && !clock.revision.is_empty());
            let mut clock = clock.filter(|clock| clock.revision == policy.revision).unwrap_or_else(|| Clock {
                revision: policy.revision.clone(),
                mode: policy.mode,
                applied: None,
                // A report that replaces no value changes nothing.
                is_soaked: policy.mode != DocumentMode::Apply && !was_applying,
                is_new: is_confirmed,
            });
            clock.applied = match policy.state {
                PolicyState::Applied => clock.applied.or(Some(at)),
                _ => None,
            };
            self.policies.insert(policy.uid.clone(), clock);
        }
        for (uid, clock) in before {
            let is_undone = clock.revision.is_empty();
            let is_young = clock.applied.is_some_and(|applied| at.saturating_duration_since(applied) < SOAK_MAX);
            if is_undone && leaves_files(answer, &uid) {
                // It is watched from when its files are gone, too.
                self.policies.insert(uid, Clock { applied: Some(at), ..clock });
            } else if is_undone && is_young {
                self.policies.insert(uid, clock);
            } else if is_confirmed && clock.mode == DocumentMode::Apply && !is_undone {
                self.policies.insert(uid, Clock { applied: Some(at), ..Clock::default() });
            }
        }
    }

    /// What was sent of a policy, and is not confirmed.
    pub(crate) fn sent(&self, uid: &str) -> Option<SentRevision<'_>> {
        let sent = self.sent.as_ref()?;
        let of_policy = sent.policies.iter().find(|(policy, ..)| policy == uid);
        let held = self.policies.get(uid);
        match of_policy {
            Some((_, revision, mode)) if held.is_none_or(|held| held.revision != *revision || held.mode != *mode) => {
                Some(SentRevision { revision, mode: *mode })
            }
            None if held.is_some_and(|held| !held.revision.is_empty()) => {
                Some(SentRevision { revision: "", mode: DocumentMode::Keep })
            }
            _ => None,
        }
    }

    /// The baseline of the document that is not confirmed.
    pub(crate) fn sent_baseline(&self) -> Option<&Baseline> {
        self.sent.as_ref().map(|sent| &sent.baseline)
    }

    /// The baseline of a document, if it was sent before and not confirmed.
    pub(crate) fn baseline_of(&self, revision: &str) -> Option<&Baseline> {
        self.sent.as_ref().filter(|sent| sent.revision == revision).map(|sent| &sent.baseline)
    }

    /// For how long the agent has answered that the present revision is applied, at its last answer.
    pub(crate) fn applied_for(&self, uid: &str, answered: Option<Instant>) -> Option<Duration> {
        let applied = self.policies.get(uid)?.applied?;
        Some(answered?.saturating_duration_since(applied))
    }

    /// Whether it was watched long enough.
    pub(crate) fn is_soaked(&self, uid: &str) -> bool {
        self.policies.get(uid).is_some_and(|clock| clock.is_soaked)
    }

    /// Whether this leader sent it.
    pub(crate) fn is_new(&self, uid: &str) -> bool {
        self.policies.get(uid).is_some_and(|clock| clock.is_new)
    }

    /// It was watched long enough with its present revision.
    pub(crate) fn note_soaked(&mut self, uid: &str) {
        if let Some(clock) = self.policies.get_mut(uid) {
            clock.is_soaked = true;
        }
    }

    /// The policy was removed, and the node watched long enough.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.policies.remove(uid);
    }

    /// Policies that it has, or had until this leader removed them.
    pub(crate) fn policies(&self) -> impl Iterator<Item = &str> {
        let sent = self.sent.iter().flat_map(|sent| &sent.policies).map(|(uid, ..)| uid.as_str());
        self.policies.keys().map(String::as_str).chain(sent)
    }
}

#[cfg(test)]
mod tests {
    use tunables::AnsweredPolicy;

    use super::*;

    fn answer(document: &str, revision: &str, mode: DocumentMode, state: PolicyState) -> NodeAnswer {
        let policy = AnsweredPolicy {
            uid: "u".to_owned(),
            revision: revision.to_owned(),
            mode,
            state,
            ..AnsweredPolicy::default()
        };
        let policies = if revision.is_empty() { Vec::new() } else { vec![policy] };
        NodeAnswer { document: document.to_owned(), policies, ..NodeAnswer::default() }
    }

    fn document(revision: &str, policy: &str) -> NodeDocument {
        let of = tunables::DocumentPolicy {
            uid: "u".to_owned(),
            revision: policy.to_owned(),
            mode: DocumentMode::Apply,
            ..Default::default()
        };
        let policies = if policy.is_empty() { Vec::new() } else { vec![of] };
        NodeDocument { revision: revision.to_owned(), policies, ..NodeDocument::default() }
    }

    #[test]
    fn soak_begins_when_the_agent_answers_that_it_applied() {
        use DocumentMode::Apply;
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut clocks = NodeClocks::default();
        let seconds = |clocks: &NodeClocks, at| clocks.applied_for("u", Some(at)).map(|time| time.as_secs());
        clocks.note_sent(&document("d1", "a"));
        assert_eq!(clocks.sent("u"), Some(SentRevision { revision: "a", mode: Apply }));
        clocks.note(&answer("d1", "a", Apply, PolicyState::Applying), start);
        assert_eq!((clocks.sent("u"), seconds(&clocks, start)), (None, None));
        clocks.note(&answer("d1", "a", Apply, PolicyState::Applied), start + second);
        clocks.note(&answer("d1", "a", Apply, PolicyState::Applied), start + 3 * second);
        assert_eq!(seconds(&clocks, start + 5 * second), Some(4));
        clocks.note_soaked("u");
        assert!(clocks.is_soaked("u"));
        clocks.note(&answer("d1", "a", Apply, PolicyState::Failed), start + 6 * second);
        assert_eq!(seconds(&clocks, start + 6 * second), None, "it is watched from its start again");
        // Another revision is not soaked, and one that is undone is watched, too.
        clocks.note(&answer("d2", "b", Apply, PolicyState::Applied), start + 7 * second);
        assert!(!clocks.is_soaked("u"));
        clocks.note_sent(&document("d3", ""));
        assert_eq!(clocks.sent("u").map(|sent| sent.revision), Some(""));
        clocks.note(&answer("d3", "", Apply, PolicyState::Applied), start + 8 * second);
        assert_eq!((clocks.sent("u"), seconds(&clocks, start + 9 * second)), (None, Some(1)));
    }

    #[test]
    fn report_is_soaked_at_once_unless_it_ends_an_applied_revision() {
        use DocumentMode::{Apply, Report};
        let start = Instant::now();
        let mut clocks = NodeClocks::default();
        clocks.note(&answer("d1", "a", Report, PolicyState::Applied), start);
        assert!(clocks.is_soaked("u"));
        clocks.note(&answer("d2", "b", Apply, PolicyState::Applied), start);
        assert!(!clocks.is_soaked("u"), "nor an unknown one of a new leader");
        clocks.note(&answer("d3", "c", Report, PolicyState::Applied), start);
        assert!(!clocks.is_soaked("u"));
    }

    #[test]
    fn node_that_lost_a_policy_by_itself_is_not_watched() {
        let start = Instant::now();
        let mut clocks = NodeClocks::default();
        clocks.note(&answer("d1", "a", DocumentMode::Apply, PolicyState::Applied), start);
        // It was replaced under the same name.
        clocks.note(&NodeAnswer::default(), start);
        assert_eq!((clocks.applied_for("u", Some(start)), clocks.policies().count()), (None, 0));
    }
}
