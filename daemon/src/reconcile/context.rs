//! What is known before the stages of a reconcile run: the desired network of the host, and what it was computed from.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Instant;

use api::NativePodNetwork;
use datapath::host::HostVnic;
use netlink::Link;
use resident::logging::chain;
use vcn::{Ocid, Vnic};

use super::node_state::NodeState;
use super::ownership::{Owner, Ownership};
use super::{Reconciler, StageReport, host, sources};
use crate::decide::desired::{self, DesiredState, Policy};
use crate::decide::devices;
use crate::decide::exclusive;
use crate::decide::host_facts::{HostAddress, HostFacts};
use crate::decide::host_routes;
use crate::decide::requests::{self, Requests};
use crate::decide::usage::Usage;
use crate::facts::condition::{Condition, Reason};
use crate::facts::node_facts::{NodeFacts, npn_vnic};
use crate::facts::reconcile_report::{Cause, VnicState};
use crate::settings::{HostNetworking, Permission};

/// What the stages of one reconcile read.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) cause: Cause,
    pub(super) node: &'a NodeState,
    pub(super) facts: &'a NodeFacts,
    pub(super) ownership: Ownership,
    pub(super) links: Vec<Link>,
    pub(super) has_ipv6: bool,
    /// Addresses that pods hold; the host never gets them.
    pub(super) held: HashSet<IpAddr>,
    pub(super) requests: Requests,
    pub(super) desired: DesiredState,
    /// Whether our objects that are no longer desired are removed.
    pub(super) removes_stale: bool,
}

impl Context<'_> {
    pub(super) fn is_preview(&self) -> bool {
        self.cause == Cause::Preview
    }

    /// Whether this node has our pod network.
    pub(super) fn is_ours(&self) -> bool {
        self.ownership == Ownership::Ours
    }

    /// The secondary VNICs that are to be configured.
    pub(super) fn vnics(&self) -> &[HostVnic] {
        self.desired.network.as_ref().map(|network| network.vnics.as_slice()).unwrap_or_default()
    }

    pub(super) fn index_of(&self, vnic: &HostVnic) -> Option<u32> {
        self.links.iter().find(|link| link.name == *vnic.placement.link()).map(|link| link.index)
    }

    /// Whether a VNIC is set up as it is requested: on the host, or in a pod or ready for one.
    fn is_configured(&self, id: &Ocid, stages: &StageReport) -> Option<bool> {
        // Without its own file the agent cannot say what pods are offered.
        let is_lost = |it: &Condition| it.reason == Reason::StateFailed && it.subject.as_deref() == Some("pools.json");
        if self.node.settings.host_networking == HostNetworking::Off || stages.conditions.iter().any(is_lost) {
            return None;
        }
        let prevents = |it: &Condition| {
            let is_so = matches!(it.reason, Reason::RouteRefused | Reason::LinkNotReturned);
            is_so && it.subject.as_deref() == Some(id.as_str())
        };
        if stages.conditions.iter().any(prevents) {
            return Some(false);
        }
        let is_on_host = || stages.configured.iter().flatten().any(|host| host.vnic.id == *id);
        let exclusive = exclusive::find(&self.desired.exclusive, id);
        Some(exclusive.map_or_else(is_on_host, |it| it.is_in_pod || it.link.is_some()))
    }

    pub(super) fn vnic_states(&self, stages: &StageReport) -> Vec<VnicState> {
        let primary = self.desired.network.as_ref().map(|network| &network.primary);
        let state = |(at, vnic): (usize, &Vnic)| {
            let host = self.vnics().iter().find(|host| host.vnic.id == vnic.id);
            let mut conditions = stages.conditions.iter();
            let addressing = host.map_or(&vnic.addressing, |host| &host.vnic.addressing);
            let entry = npn_vnic(self.facts.npn(), &vnic.id);
            let exclusive = exclusive::find(&self.desired.exclusive, &vnic.id);
            let request = self.requests.get(&vnic.id);
            VnicState {
                id: vnic.id.clone(),
                mac: vnic.mac,
                primary: at == 0,
                link: match exclusive {
                    _ if at == 0 => primary.cloned(),
                    Some(exclusive) => exclusive.link.clone(),
                    None => host.map(|host| host.placement.link().clone()),
                },
                table: host.map(|host| host.table),
                addresses: addressing.iter().map(|(_, at)| at.address).collect(),
                application_resources: entry.map(|entry| entry.application_resources.clone()).unwrap_or_default(),
                unmanaged: self.desired.left_alone.get(&vnic.id).copied(),
                name: request.map(|request| request.offer.name.clone()),
                purpose: request.map(|request| request.purpose),
                generation: request.and_then(|request| request.generation),
                configured: request.and_then(|_| self.is_configured(&vnic.id, stages)),
                trouble: conditions
                    .find(|condition| condition.subject.as_deref() == Some(vnic.id.as_str()))
                    .map(|condition| condition.reason),
            }
        };
        self.facts.vnics().iter().enumerate().map(state).collect()
    }
}

impl Reconciler {
    /// Reads the kernel and computes what the host's network must be.
    pub(super) fn context<'a>(
        &mut self,
        node: &'a NodeState,
        facts: &'a NodeFacts,
        cause: Cause,
        stages: &mut StageReport,
    ) -> Context<'a> {
        let (settings, is_preview) = (&*node.settings, cause == Cause::Preview);
        stages.conditions.extend(sources::conditions(facts, Instant::now()));
        let nics = settings.nics();
        let links = host::links_in_use_first(facts.vnics(), &nics).unwrap_or_else(|error| {
            stages.conditions.push(Condition::blocking(Reason::HostNetworkFailed, chain(&error)));
            Vec::new()
        });
        stages.conditions.extend(devices::shared_addresses(facts.vnics(), &links, &nics));
        let addressed = desired::addressed(facts.vnics(), facts.npn());
        let (slots, conditions) = self.tables.assign(node, &addressed, is_preview);
        stages.conditions.extend(conditions);
        let Owner { ownership, oke } = self.installation.owner(settings, facts, cause);
        // In doubt nothing is removed; and files are read only if their content matters.
        let is_finished = facts.npn().is_some_and(NativePodNetwork::usable);
        let lived = ownership != Ownership::Other || !is_finished || may_have_pods(node);
        let policy = Policy {
            ports: &settings.ports,
            pods_may_use_metadata: settings.pods_may_use_metadata == Permission::Allow,
            pods_may_spoof: settings.pods_may_spoof == Permission::Allow,
            ours: ownership == Ownership::Ours,
            oke,
            lived,
        };
        let (own, held) = addresses(node);
        // With `ipv6.disable=1` the settings are missing as well.
        let has_ipv6 = settings.sysctl_root.join("net/ipv6").exists();
        let requests = requests::requests(facts);
        let unexplained = self.new_vnics.unexplained(facts, &requests, &links, Instant::now());
        let needed = host_routes::needed(facts.instance.value.as_ref(), facts.npn(), resident::api_server::address());
        let known = HostFacts {
            vnics: facts.vnics(),
            npn: facts.npn(),
            links: &links,
            nics: &nics,
            devices: &self.devices,
            ipv6: has_ipv6,
            own: &own,
            held: &held,
            requests: &requests,
            unexplained: &unexplained,
            needed: &needed,
        };
        let mut desired = slots.map(|slots| desired::desired_state(known, &slots, policy)).unwrap_or_default();
        // A young agent has not seen that a list of VNICs is incomplete: what it lacks may be there a moment later.
        let removes_stale =
            is_preview || self.created.elapsed() >= settings.detach_grace && !desired::is_incomplete(known);
        if let Some(network) = &desired.network {
            let secondary = network.vnics.iter().map(|host| (&host.vnic.id, host.placement.link()));
            let primary = facts.vnics().first().map(|vnic| (&vnic.id, &network.primary));
            self.devices.note(secondary.chain(primary), &links);
        }
        if facts.npn.is_pending() {
            // The conditions of the sources say why.
            desired.undecided.clear();
        }
        stages.conditions.extend(sources::undecided(facts, &desired.undecided));
        // A VNIC with an unusable entry is listed.
        let is_unusable = |it: &Condition| it.subject.as_deref().is_some_and(|subject| facts.is_unusable(subject));
        desired.conditions.retain(|it| it.reason != Reason::VnicNotListed || !is_unusable(it));
        stages.conditions.append(&mut desired.conditions);
        Context { cause, node, facts, ownership, links, has_ipv6, held, requests, desired, removes_stale }
    }
}

/// Whether pods may depend on what this agent configured in this boot, on a node with another pod network: there are
/// such pods, or addresses for them are published.
fn may_have_pods(node: &NodeState) -> bool {
    let is_published = match node.pools() {
        Ok(pools) => Usage::offers_any(&pools),
        Err(error) => !matches!(error, ipam::Error::NoPools { .. }),
    };
    is_published || !installer::pods(&node.settings.installer).is_empty()
}

/// The host's own addresses until now, and the addresses that pods hold. If the index of allocations is lost, unreadable or of
/// a newer version, the addresses that routes lead to pods count as held. Errors are reported by the stages that read the same.
fn addresses(node: &NodeState) -> (Vec<HostAddress>, HashSet<IpAddr>) {
    let held = node.store.held().ok().filter(|held| !held.is_empty());
    let held = held.unwrap_or_else(|| host::pods().unwrap_or_default());
    (host::own().unwrap_or_default(), held)
}
