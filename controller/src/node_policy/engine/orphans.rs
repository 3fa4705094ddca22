//! Policies that no object has any more, on agents that were silent while it was deleted: they are undone in batches,
//! or kept, as the agent last received it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::node_policy::{PolicyMode, PolicyRemoval};
use api::{NodePolicy, NodePolicySpec, NodeSettings, POLICY_FINALIZER};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::{Engine, NodeMemory, World};
use crate::node_policy::select::CompiledPolicy;

/// The most orphans of a step: each is planned for every node, and agents name them.
const ORPHANS_MAX: usize = 100;

/// What agents report of orphans, by uid.
type Orphans<'a> = BTreeMap<&'a str, Orphan<'a>>;

/// A policy that no object has.
#[derive(Clone, Copy, Default)]
struct Orphan<'a> {
    /// Empty if it is only watched.
    name: &'a str,
    on_delete: PolicyRemoval,
}

impl Engine {
    /// One for each uid that agents name and no object has. Nodes with few come first, so that an agent that invents uids does not
    /// delay another node. A node whose orphans are left out gets no document meanwhile.
    pub(super) fn orphans(&self, world: &World<'_>) -> Vec<CompiledPolicy> {
        let objects = world.policies.objects.values().filter_map(|object| object.metadata.uid.as_deref());
        let known: BTreeSet<&str> = objects.chain(world.policies.unreadable.values().map(String::as_str)).collect();
        let of_nodes = self.nodes.iter().map(|(name, memory)| (memory.orphans(&known), name));
        let mut of_nodes: Vec<(Orphans<'_>, &String)> = of_nodes.filter(|(found, _)| !found.is_empty()).collect();
        of_nodes.sort_by_key(|(found, name)| (found.len(), *name));
        let mut orphans = Orphans::new();
        for (found, _) in of_nodes {
            let new = found.keys().filter(|uid| !orphans.contains_key(*uid)).count();
            if orphans.len() + new <= ORPHANS_MAX {
                found.into_iter().for_each(|(uid, orphan)| note(&mut orphans, uid, orphan));
            }
        }
        orphans.into_iter().map(|(uid, orphan)| CompiledPolicy::orphan(object(uid, orphan))).collect()
    }
}

impl NodeMemory {
    /// What the node has, or had until this leader removed it and watches it, of policies that are not known.
    fn orphans(&self, known: &BTreeSet<&str>) -> Orphans<'_> {
        let mut orphans = Orphans::new();
        let answered = self.answer.iter().flat_map(|known| &known.answer.policies);
        for policy in answered.filter(|policy| !known.contains(policy.uid.as_str())) {
            note(&mut orphans, &policy.uid, Orphan { name: &policy.name, on_delete: policy.on_delete });
        }
        for uid in self.clocks.policies().filter(|uid| !known.contains(uid)) {
            orphans.entry(uid).or_default();
        }
        orphans
    }
}

/// Of agents that differ, one that leaves the values as they are counts.
fn note<'a>(orphans: &mut Orphans<'a>, uid: &'a str, orphan: Orphan<'a>) {
    let known = orphans.entry(uid).or_insert(orphan);
    if known.on_delete != PolicyRemoval::Keep && (orphan.on_delete == PolicyRemoval::Keep || known.name.is_empty()) {
        *known = orphan;
    }
}

/// An object in the state of being deleted.
fn object(uid: &str, Orphan { name, on_delete }: Orphan<'_>) -> Arc<NodePolicy> {
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
