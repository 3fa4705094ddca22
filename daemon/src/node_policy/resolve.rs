//! What a document requires of this node, item by item: what may be set here, what is only compared, and what is refused. Pure.

use std::collections::{BTreeMap, BTreeSet};

use installer::PolicyMark;
use tunables::{DocumentMode, DocumentPolicy, Item, ItemReport, ItemState, NodeDocument, Refusal, keys};

/// Items but for those of links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) apply: BTreeMap<Item, DesiredValue>,
    pub(super) report: BTreeMap<Item, DesiredValue>,
    /// What a policy may not set.
    pub(super) refused: Vec<ItemReport>,
}

/// A value, and the policy that requires it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredValue {
    pub(super) value: String,
    pub(super) policy: String,
    pub(super) uid: String,
    pub(super) revision: String,
}

/// An entry of a document.
struct Candidate<'a> {
    item: Item,
    value: &'a str,
    /// The index of the policy.
    policy: usize,
    refusal: Option<Refusal>,
}

/// Checks each item again: the controller does so, too, and is not trusted with what would stop a node.
pub(super) fn resolve(document: &NodeDocument, added: &BTreeSet<String>) -> Resolved {
    let mut resolved = Resolved::default();
    for desired in &document.sysctls {
        let item = Item::Sysctl(desired.key.clone());
        let refusal = keys::check(&desired.key, &desired.value, added).err();
        resolved.add(document, Candidate { item, value: desired.value.trim(), policy: desired.policy, refusal });
    }
    for desired in &document.huge_pages {
        let (item, value) = (Item::HugePages, desired.enabled.as_str());
        resolved.add(document, Candidate { item, value, policy: desired.policy, refusal: None });
    }
    resolved
}

fn refused(item: &Item, desired: &DesiredValue, refusal: Refusal) -> ItemReport {
    report(item, desired, "", ItemState::Refused, refusal.to_string())
}

/// A report about an item.
pub(super) fn report(
    item: &Item,
    desired: &DesiredValue,
    current: &str,
    state: ItemState,
    message: String,
) -> ItemReport {
    ItemReport {
        item: item.to_string(),
        policy: desired.policy.clone(),
        state,
        current: current.to_owned(),
        desired: desired.value.clone(),
        message,
    }
}

impl DesiredValue {
    /// A value that a policy of a document requires.
    pub(super) fn new(value: &str, policy: &DocumentPolicy) -> Self {
        let DocumentPolicy { name, uid, revision, .. } = policy;
        let [value, policy, uid, revision] = [value, name, uid, revision].map(str::to_owned);
        Self { value, policy, uid, revision }
    }

    /// What the record says about the value: its policy, and `previous`, the value before an unconfirmed change.
    pub(super) fn mark(&self, document: &NodeDocument, previous: Option<String>) -> PolicyMark {
        PolicyMark {
            policy: self.uid.clone(),
            cluster: document.cluster.clone(),
            instance: document.instance.clone(),
            requested: self.value.clone(),
            previous,
        }
    }
}

impl Resolved {
    /// Refuses what this node must not have.
    pub(super) fn refuse(&mut self, check: impl Fn(&Item, &DesiredValue) -> Result<(), Refusal>) {
        for items in [&mut self.apply, &mut self.report] {
            items.retain(|item, desired| match check(item, desired) {
                Ok(()) => true,
                Err(refusal) => {
                    self.refused.push(refused(item, desired, refusal));
                    false
                }
            });
        }
    }

    fn add(&mut self, document: &NodeDocument, candidate: Candidate<'_>) {
        let Candidate { item, value, policy, refusal } = candidate;
        let Some(policy) = document.policy(policy) else { return };
        let desired = DesiredValue::new(value, policy);
        if let Some(refusal) = refusal {
            return self.refused.push(refused(&item, &desired, refusal));
        }
        let items = match policy.mode {
            DocumentMode::Apply => &mut self.apply,
            DocumentMode::Report => &mut self.report,
            DocumentMode::Keep => return,
        };
        // The first of a document has the highest precedence.
        items.entry(item).or_insert(desired);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_policy::plan::tests::document;

    #[test]
    fn agent_refuses_what_a_controller_should_not_have_sent() {
        let sent = document(&[
            ("vm.max_map_count", "262144", DocumentMode::Apply),
            ("vm.max_map_count", "300000", DocumentMode::Apply),
            ("kernel.core_pattern", "|/bin/sh", DocumentMode::Apply),
            ("net.ipv4.ip_forward", "0", DocumentMode::Apply),
            ("../../etc/passwd", "x", DocumentMode::Apply),
            ("vm.swappiness", "a lot", DocumentMode::Report),
            ("vm.dirty_ratio", "20", DocumentMode::Keep),
        ]);
        let added = BTreeSet::from(["kernel.core_pattern".to_owned()]);
        let resolved = resolve(&sent, &added);
        let applied: Vec<String> = resolved.apply.iter().map(|(item, it)| format!("{item}={}", it.value)).collect();
        assert_eq!(applied, ["vm.max_map_count=262144"]);
        assert!(resolved.report.is_empty());
        let refused: Vec<&str> = resolved.refused.iter().map(|report| report.item.as_str()).collect();
        assert_eq!(refused, ["kernel.core_pattern", "net.ipv4.ip_forward", "../../etc/passwd", "vm.swappiness"]);
    }

    #[test]
    fn node_adds_keys_and_an_index_without_policy_is_left_out() {
        let mut sent = document(&[("dev.raid.speed_limit_max", "1", DocumentMode::Apply)]);
        assert_eq!(resolve(&sent, &BTreeSet::new()).refused.len(), 1);
        let added = BTreeSet::from(["dev.raid.speed_limit_max".to_owned()]);
        assert_eq!(resolve(&sent, &added).apply.len(), 1);
        sent.policies.clear();
        assert_eq!(resolve(&sent, &added), Resolved::default());
    }
}
