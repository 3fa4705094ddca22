//! The answer to a document, from what the comparison and the links' thread found. Pure.

use tunables::document::VERSION;
use tunables::files::FileComparison;
use tunables::{AnsweredPolicy, DocumentPolicy, ItemState, NodeAnswer, NodeDocument, PolicyState};

use super::apply::Outcome;
use super::links::LinkOutcome;

/// The answer; without an outcome of the links, policies that name links are being applied.
pub(super) fn answer(
    document: &NodeDocument,
    outcome: &Outcome,
    files: &FileComparison,
    links: Option<&LinkOutcome>,
) -> NodeAnswer {
    let mut items = outcome.reports.clone();
    items.extend(files.reports.iter().cloned());
    items.extend(links.iter().flat_map(|links| links.reports.clone()));
    let names_links = |index: usize| document.links.iter().any(|link| link.policy == index);
    let state = |index: usize, policy: &DocumentPolicy| {
        let has = |state: ItemState| items.iter().any(|it| it.policy == policy.name && it.state == state);
        match () {
            () if has(ItemState::Failed) || has(ItemState::RolledBack) => PolicyState::Failed,
            () if links.is_none() && names_links(index)
                || outcome.on_trial.contains(&policy.name)
                || files.changing.contains(&policy.name) =>
            {
                PolicyState::Applying
            }
            () if has(ItemState::Unconfirmed) => PolicyState::Unconfirmed,
            () => PolicyState::Applied,
        }
    };
    let policy = |(index, policy): (usize, &DocumentPolicy)| AnsweredPolicy {
        name: policy.name.clone(),
        uid: policy.uid.clone(),
        revision: policy.revision.clone(),
        mode: policy.mode,
        state: state(index, policy),
        on_delete: policy.on_delete,
    };
    let policies = document.policies.iter().enumerate().map(policy).collect();
    NodeAnswer {
        version: VERSION,
        document: document.revision.clone(),
        cluster: document.cluster.clone(),
        policies,
        in_sync: outcome.in_sync + files.in_sync + links.map_or(0, |links| links.in_sync),
        items,
        left_out: 0,
        baseline: document.baseline.clone(),
        files: files.answer.clone(),
    }
    .bounded()
}

#[cfg(test)]
mod tests {
    use tunables::{DesiredLink, DocumentMode, ItemReport};

    use super::*;
    use crate::node_policy::plan::tests::document;

    #[test]
    fn only_a_failed_item_fails_its_policy_and_links_are_awaited() {
        let mut sent = document(&[
            ("vm.swappiness", "10", DocumentMode::Apply),
            ("vm.dirty_ratio", "10", DocumentMode::Apply),
            ("vm.max_map_count", "1000000", DocumentMode::Report),
        ]);
        let link = serde_json::from_str(r#"{"select": {"primary": true}, "mtu": 9000}"#).unwrap();
        sent.links.push(DesiredLink { link, policy: 1 });
        let item = |policy: &str, state: ItemState| ItemReport {
            item: "x".to_owned(),
            policy: policy.to_owned(),
            state,
            current: String::new(),
            desired: String::new(),
            message: String::new(),
        };
        let states = |reports: &[ItemReport], links: Option<&LinkOutcome>| {
            let outcome = Outcome { reports: reports.to_vec(), in_sync: 1, ..Outcome::default() };
            let answer = answer(&sent, &outcome, &FileComparison::default(), links);
            answer.policies.iter().map(|policy| policy.state).collect::<Vec<_>>()
        };
        use PolicyState::{Applied, Applying, Failed, Unconfirmed};
        let done = LinkOutcome::default();
        assert_eq!(states(&[], None), [Applied, Applying, Applied]);
        assert_eq!(states(&[], Some(&done)), [Applied; 3]);
        let harmless = [ItemState::NotGranted, ItemState::Reverted, ItemState::Drifted].map(|state| item("p2", state));
        assert_eq!(states(&harmless, Some(&done)), [Applied; 3]);
        assert_eq!(states(&[item("p0", ItemState::Failed)], None), [Failed, Applying, Applied]);
        let links = LinkOutcome { reports: vec![item("p1", ItemState::Unconfirmed)], ..LinkOutcome::default() };
        assert_eq!(states(&[], Some(&links)), [Applied, Unconfirmed, Applied]);
        let outcome = Outcome { on_trial: ["p0".to_owned()].into(), ..Outcome::default() };
        assert_eq!(
            answer(&sent, &outcome, &FileComparison::default(), Some(&done)).policies[0].state,
            Applying,
            "until the leader confirms it"
        );
    }
}
