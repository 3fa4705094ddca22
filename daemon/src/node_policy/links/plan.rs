//! What to change of links: the plan of all settings, taken apart by link, without values that were undone before. Pure.

use std::collections::{BTreeMap, BTreeSet};

use tunables::links::LinkChoice;
use tunables::{DocumentMode, Item, ItemReport, ItemState, NodeDocument};

use super::journal::Content;
use crate::node_policy::plan::{self, Facts, Step};
use crate::node_policy::resolve::{DesiredValue, Resolved};

/// Attempts to set a value that is not confirmed.
const ATTEMPTS_MAX: u32 = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkPlan {
    /// By link: what to set together.
    pub(super) changes: BTreeMap<String, LinkSteps>,
    /// Values that no policy names any more.
    pub(super) restores: Vec<Step>,
    /// What else the plan has; without steps.
    pub(super) rest: plan::Plan,
}

/// Steps of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkSteps {
    pub(super) steps: Vec<Step>,
    /// Whether one of the values is new to this node.
    pub(super) needs_leader: bool,
}

/// What a choice requires.
pub(super) fn resolve(document: &NodeDocument, choice: LinkChoice) -> Resolved {
    let name = |index: usize| document.policy(index).map_or(String::new(), |policy| policy.name.clone());
    let mut resolved = Resolved::default();
    for (values, all) in [(choice.apply, &mut resolved.apply), (choice.report, &mut resolved.report)] {
        for value in values {
            let Some(policy) = document.policy(value.policy) else { continue };
            let desired = DesiredValue::new(&value.value, policy);
            all.insert(Item::Link { link: value.link, option: value.option }, desired);
        }
    }
    let without_value = |item: String, policy: usize, state: ItemState, message: String| {
        let (current, desired) = Default::default();
        ItemReport { item, policy: name(policy), state, current, desired, message }
    };
    let is_kept = |index: usize| document.policy(index).is_some_and(|it| it.mode == DocumentMode::Keep);
    for refused in choice.refused.into_iter().filter(|it| !is_kept(it.policy)) {
        let message = refused.refusal.to_string();
        let item = refused.item.to_string();
        resolved.refused.push(without_value(item, refused.policy, ItemState::Refused, message));
    }
    for conflict in choice.conflicts {
        let message = format!("the older policy {} of the same priority sets it", name(conflict.rival));
        resolved.refused.push(without_value(conflict.item.to_string(), conflict.policy, ItemState::Conflict, message));
    }
    for unmatched in choice.unmatched.into_iter().filter(|it| !is_kept(it.policy)) {
        let (item, message) = (format!("link/{}", unmatched.selector), "this node has no such link".to_owned());
        resolved.refused.push(without_value(item, unmatched.policy, ItemState::NoLink, message));
    }
    resolved
}

/// What else a plan of links needs to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkHistory<'a> {
    pub(super) journal: &'a Content,
    /// What identifies each link.
    pub(super) macs: &'a BTreeMap<String, Option<String>>,
    /// Whether a request of the leader arrived after the last change that it did not confirm.
    pub(super) has_leader: bool,
    /// Options that the agent itself sets now.
    pub(super) owned: &'a BTreeSet<Item>,
}

pub(super) fn plan(facts: Facts<'_>, links: LinkHistory<'_>) -> LinkPlan {
    let LinkHistory { journal, macs, has_leader, owned } = links;
    let mut planned = LinkPlan { rest: plan::plan(facts), ..LinkPlan::default() };
    for step in std::mem::take(&mut planned.rest.steps) {
        let Some(desired) = step.desired() else {
            let mac = link_of(&step.item).and_then(|link| macs.get(link)).and_then(Option::as_deref);
            // The agent's value replaces an earlier one, and another device of the same name never had it.
            match owned.contains(&step.item) || !journal.is_of_link(&step.item, mac) {
                true => planned.rest.forget.push(step.item),
                false => planned.restores.push(step),
            }
            continue;
        };
        let Some(link) = link_of(&step.item) else { continue };
        let earlier = journal.rejected(&step.item, &desired.value, &desired.revision);
        match earlier {
            Some(it) if it.state == ItemState::Failed || it.attempts >= ATTEMPTS_MAX => {
                let message = format!("{}; not tried again until the policy changes", it.message);
                planned.rest.reports.extend(step.report(it.state, message));
            }
            Some(it) if !has_leader => {
                let message = format!("{}; retried after the next request of the leader", it.message);
                planned.rest.reports.extend(step.report(it.state, message));
            }
            _ => {
                let mac = macs.get(link).and_then(Option::as_deref);
                let is_proven = journal.is_proven(&step.item, mac, &desired.value);
                let change = planned.changes.entry(link.to_owned()).or_default();
                change.needs_leader |= !is_proven;
                change.steps.push(step);
            }
        }
    }
    planned
}

fn link_of(item: &Item) -> Option<&str> {
    match item {
        Item::Link { link, .. } => Some(link),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
