//! The policies as they are evaluated: by precedence, at most [`POLICIES_MAX`] (the oldest), each with its selector and its revision.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use api::{NodePolicy, PolicyReason};
use kube::ResourceExt as _;
use kube::core::{Selector, SelectorExt as _};
use tunables::document::POLICIES_MAX;
use tunables::revision;

use crate::cluster::store::NodeView;

/// A policy that can be evaluated, or why it cannot.
#[derive(Debug)]
pub(crate) struct CompiledPolicy {
    pub object: Arc<NodePolicy>,
    pub name: String,
    pub uid: String,
    /// When it was created, in seconds since 1970.
    pub created: i64,
    /// The revision of its spec.
    pub target: String,
    /// Whether no object has it any more.
    pub is_orphan: bool,
    /// Its place among those that select nodes.
    bit: Option<u32>,
    matcher: Result<Selector, (PolicyReason, String)>,
}

/// Which policies select a node, as long as neither changes: labels of ten thousand nodes are not compared at every step.
#[derive(Debug, Default)]
pub(crate) struct Selection {
    key: Option<(u64, u64)>,
    policies: u64,
}

impl Selection {
    /// Compares the node's labels, if they or the policies changed.
    pub(crate) fn update(&mut self, node: &NodeView, policies: &[CompiledPolicy], policies_key: u64) {
        let mut hasher = DefaultHasher::new();
        node.labels.hash(&mut hasher);
        let key = Some((hasher.finish(), policies_key));
        if self.key == key {
            return;
        }
        let labels = node.labels.map();
        let selecting = policies.iter().filter(|policy| policy.selects(&labels)).filter_map(|policy| policy.bit);
        *self = Self { key, policies: selecting.fold(0, |all, bit| all | 1 << bit) };
    }

    /// Whether the policy selects the node.
    pub(crate) fn has(&self, policy: &CompiledPolicy) -> bool {
        policy.bit.is_some_and(|bit| self.policies & (1 << bit) != 0)
    }
}

impl CompiledPolicy {
    fn of(object: Arc<NodePolicy>) -> Self {
        let spec = &object.spec;
        let matcher = match &spec.node_selector {
            _ if spec.all_nodes => Ok(Selector::default()),
            Some(selector) => {
                Selector::try_from(selector.clone()).map_err(|error| (PolicyReason::InvalidSelector, error.to_string()))
            }
            None => Err((PolicyReason::InvalidSelector, "the spec has neither nodeSelector nor allNodes".to_owned())),
        };
        Self {
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            created: object.creation_timestamp().map_or(i64::MAX, |time| time.0.as_second()),
            target: revision::of_policy(spec.mode, spec.priority(), &spec.settings),
            is_orphan: false,
            bit: None,
            matcher,
            object,
        }
    }

    /// One that no object has any more: it selects nothing.
    pub(crate) fn orphan(object: Arc<NodePolicy>) -> Self {
        Self { is_orphan: true, matcher: Ok(Selector::default()), ..Self::of(object) }
    }

    /// Why the policy is for no node at all: they keep what they have of it.
    pub(crate) fn problem(&self) -> Option<(PolicyReason, &str)> {
        self.matcher.as_ref().err().map(|(reason, message)| (*reason, message.as_str()))
    }

    /// Whether it is for a node with these labels.
    fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matcher.as_ref().is_ok_and(|selector| selector.matches(labels))
    }
}

/// All policies, the highest precedence first.
pub(crate) fn compile<'a>(objects: impl Iterator<Item = &'a Arc<NodePolicy>>) -> Vec<CompiledPolicy> {
    let mut policies: Vec<CompiledPolicy> = objects.map(|object| CompiledPolicy::of(object.clone())).collect();
    let mut by_age: Vec<(i64, &str)> = policies.iter().map(|policy| (policy.created, policy.name.as_str())).collect();
    by_age.sort_unstable();
    let beyond: BTreeSet<String> = by_age.iter().skip(POLICIES_MAX).map(|(_, name)| (*name).to_owned()).collect();
    for policy in policies.iter_mut().filter(|policy| beyond.contains(&policy.name)) {
        let message = format!("the cluster has more than {POLICIES_MAX} policies");
        policy.matcher = Err((PolicyReason::TooMany, message));
    }
    policies.sort_by(|a, b| {
        let key = |it: &CompiledPolicy| (Reverse(it.object.spec.priority()), it.created);
        (key(a), &a.name).cmp(&(key(b), &b.name))
    });
    let selecting = policies.iter_mut().filter(|policy| policy.matcher.is_ok());
    for (bit, policy) in (0..).zip(selecting) {
        policy.bit = Some(bit);
    }
    policies
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn policy(name: &str, created: u32, priority: u32) -> Arc<NodePolicy> {
        let created = format!("2026-11-01T00:00:{created:02}Z");
        let value = json!({ "metadata": { "name": name, "creationTimestamp": created },
            "spec": { "nodeSelector": { "matchLabels": { "pool": "web" } }, "priority": priority, "settings": {} } });
        Arc::new(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn youngest_policies_beyond_the_bound_select_nothing() {
        let objects: Vec<_> = (0..=50).map(|number| policy(&format!("p{number}"), number, 1000 - number)).collect();
        let compiled = compile(objects.iter());
        assert_eq!(compiled[0].name, "p0");
        let refused: Vec<&str> =
            compiled.iter().filter(|it| it.problem().is_some()).map(|it| it.name.as_str()).collect();
        assert_eq!(refused, ["p50"]);
        let labels = |pool: &str| [("pool".to_owned(), pool.to_owned())].into_iter().collect();
        let mut selection = Selection::default();
        for (pool, expected) in [("web", [true, false]), ("db", [false, false]), ("web", [true, false])] {
            selection.update(&NodeView { labels: labels(pool), ..NodeView::default() }, &compiled, 1);
            assert_eq!([&compiled[0], &compiled[50]].map(|policy| selection.has(policy)), expected, "{pool}");
        }
    }
}
