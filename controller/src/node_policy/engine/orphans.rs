//! Policies that no object has any more, on agents that were silent while it was deleted: they are undone in batches,
//! or kept, as the agent last received it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::node_policy::{PolicyMode, PolicyRemoval};
use api::{NodePolicy, NodePolicySpec, NodeSettings, POLICY_FINALIZER};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::{Engine, World};
use crate::node_policy::select::CompiledPolicy;

impl Engine {
    /// One for each uid that agents name and no object has.
    pub(super) fn orphans(&self, world: &World<'_>) -> Vec<CompiledPolicy> {
        let objects = world.policies.objects.values().filter_map(|object| object.metadata.uid.as_deref());
        let known: BTreeSet<&str> = objects.chain(world.policies.unreadable.values().map(String::as_str)).collect();
        let mut orphans: BTreeMap<&str, (&str, PolicyRemoval)> = BTreeMap::new();
        for memory in self.nodes.values() {
            let answered = memory.answer.iter().flat_map(|known| &known.answer.policies);
            for policy in answered.filter(|policy| !known.contains(policy.uid.as_str())) {
                orphans.insert(&policy.uid, (&policy.name, policy.on_delete));
            }
            // Watched after it was undone.
            for uid in memory.clocks.policies().filter(|uid| !known.contains(uid)) {
                orphans.entry(uid).or_default();
            }
        }
        let orphan = |(uid, (name, on_delete)): (&str, (&str, _))| CompiledPolicy::orphan(object(uid, name, on_delete));
        orphans.into_iter().map(orphan).collect()
    }
}

/// An object in the state of being deleted.
fn object(uid: &str, name: &str, on_delete: PolicyRemoval) -> Arc<NodePolicy> {
    let mut object = NodePolicy::new(
        name,
        NodePolicySpec {
            node_selector: None,
            all_nodes: false,
            priority: None,
            mode: PolicyMode::default(),
            paused: false,
            on_delete,
            settings: NodeSettings::default(),
            rollout: None,
        },
    );
    object.metadata.uid = Some(uid.to_owned());
    object.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    object.metadata.finalizers = Some(vec![POLICY_FINALIZER.to_owned()]);
    Arc::new(object)
}
