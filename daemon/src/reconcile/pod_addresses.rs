//! The stage that reports whether pods can get addresses. Plugins assign addresses without the agent, so after each run of a
//! plugin [`PodAddresses::has_changed`] finds out whether another reconcile would report something else.

use std::collections::BTreeSet;

use api::npn::NpnVnic;
use vcn::Family;

use super::StageReport;
use super::context::Context;
use super::node_state::NodeState;
use crate::decide::pools;
use crate::decide::usage::size;
use crate::facts::condition::{Condition, Reason};
use crate::facts::node_facts::NodeFacts;

/// The stage, and whether the last reconcile found all addresses held.
#[derive(Debug, Default)]
pub(super) struct PodAddresses {
    is_exhausted: bool,
}

impl PodAddresses {
    /// Whether a reconcile would report something else than the last one did.
    pub(super) fn has_changed(&self, node: &NodeState, is_ours: bool) -> bool {
        is_ours && exhausted(node).is_some() != self.is_exhausted
    }

    pub(super) fn run(&mut self, context: &Context<'_>, stages: &mut StageReport) {
        let installs = stages.pod_network.as_ref().is_some_and(|pod_network| pod_network.install);
        let exhausted = if installs { exhausted(context.node) } else { None };
        if !context.is_preview() || !installs {
            self.is_exhausted = exhausted.is_some();
        }
        let missing = if installs { missing(context.facts, stages) } else { Vec::new() };
        stages.conditions.extend(missing.into_iter().chain(exhausted));
    }
}

/// Whether pods hold every address. Files that cannot be read are reported by other stages.
fn exhausted(node: &NodeState) -> Option<Condition> {
    let pools = node.pools().ok()?;
    let held = node.store.held().ok()?;
    if !pools.are_exhausted(&held) {
        return None;
    }
    let count = |family: &Family| {
        let pools = || pools.for_pods().filter_map(|vnic| vnic.families.of(*family));
        let total = pools().map(size).fold(0, u64::saturating_add);
        let held = held.iter().filter(|address| pools().any(|pool| pool.contains(**address))).count();
        format!("{family}: {held} of {total}")
    };
    let counts: Vec<String> = pools.families().iter().map(count).collect();
    let mut message = format!("no VNIC has a free address of each family that pods get; held: {}", counts.join(", "));
    if let Some(reason) = &pools.reason {
        message = format!("{message}; {reason}");
    }
    Some(Condition::blocking(Reason::AddressesExhausted, message))
}

/// Why pods get no addresses, or not the newest.
fn missing(facts: &NodeFacts, stages: &StageReport) -> Vec<Condition> {
    let is_blocked = stages.conditions.iter().any(Condition::blocks);
    match pools::pending(facts) {
        Some((reason, message)) if stages.offers_addresses => {
            let degraded = Condition::degraded(reason, message);
            [Some(degraded), unconnected(stages).filter(|_| !is_blocked)].into_iter().flatten().collect()
        }
        Some((reason, message)) => vec![Condition::blocking(reason, message)],
        // What keeps the addresses from being published is reported already.
        None if is_blocked => Vec::new(),
        None if stages.offers_addresses => unconnected(stages).into_iter().collect(),
        None => vec![reserved_for_resources(facts).unwrap_or_else(|| {
            let message = "no configured VNIC of the NativePodNetwork has addresses for pods";
            Condition::blocking(Reason::NoUsableAddress, message)
        })],
    }
}

fn unconnected(stages: &StageReport) -> Option<Condition> {
    let message = "there are addresses, but the host's network is not in sync";
    (!stages.is_usable()).then(|| Condition::blocking(Reason::NoUsableAddress, message))
}

/// Why no pod can start although OKE has finished: all VNICs are for pods that request an application resource.
fn reserved_for_resources(facts: &NodeFacts) -> Option<Condition> {
    let vnics = &facts.npn()?.vnics;
    if vnics.iter().any(NpnVnic::serves_all_pods) {
        return None;
    }
    let resources: BTreeSet<&str> =
        vnics.iter().flat_map(|vnic| &vnic.application_resources).map(String::as_str).collect();
    let message = format!(
        "all {} VNIC(s) of the NativePodNetwork are reserved for application resources ({}); no pod gets their addresses",
        vnics.len(),
        resources.into_iter().collect::<Vec<_>>().join(", ")
    );
    Some(Condition::blocking(Reason::ApplicationResourcesOnly, message))
}
