//! The desired network of the host. Pure. A VNIC that cannot be configured has a condition and affects no other.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use api::NativePodNetwork;
use api::npn::NpnVnic;
use datapath::Object;
use datapath::host::{self, HostNetwork, HostVnic, Placement, PodServices, place};
use ipnetwork::IpNetwork;
use vcn::{Family, Mtu, Ocid, PerFamily, Purpose, SubnetAddressing, TableId, Vnic, vnic_mark};

use crate::decide::exclusive::ExclusiveVnic;
use crate::decide::host_address::{self, AddressHints};
use crate::decide::host_facts::HostFacts;
use crate::decide::host_routes;
use crate::decide::requests::VnicRequest;
use crate::decide::slots::Slots;
use crate::facts::condition::{Condition, Reason};
use crate::facts::node_facts::npn_vnic;
use crate::facts::reconcile_report::UnmanagedReason;
use crate::settings::Ports;

/// What the operator and the owner of the pod network decide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy<'a> {
    pub ports: &'a Ports,
    pub pods_may_use_metadata: bool,
    /// Whether pods may send from addresses of others.
    pub pods_may_spoof: bool,
    /// Whether our pod network is the one of this node. If not, the host does nothing for pods, and the VNICs of the
    /// NativePodNetwork belong to its owner.
    pub ours: bool,
    /// If it is another: whether OKE's own CNI may own it. That attaches VNICs first and names them in the NativePodNetwork
    /// when it has finished; until then an unnamed VNIC may be one of them.
    pub oke: bool,
    /// If it is another: whether running pods may use what this agent configured for them.
    pub lived: bool,
}

/// The desired network, and why parts of it are missing.
#[derive(Clone, Debug, Default)]
pub(crate) struct DesiredState {
    /// The host's network; `None` while the primary VNIC is unknown or has no link.
    pub network: Option<HostNetwork>,
    /// Objects that stay although they are not wanted: pods may still use them. A reason to hand the pod network over may come
    /// and go while they run.
    pub spared: Vec<Object>,
    /// VNICs of another pod network, or possibly so.
    pub left_alone: BTreeMap<Ocid, UnmanagedReason>,
    /// Those that possibly are and have a link.
    pub undecided: Vec<HostVnic>,
    /// VNICs that one pod at a time has.
    pub exclusive: Vec<ExclusiveVnic>,
    /// Why something is missing.
    pub conditions: Vec<Condition>,
}

/// The VNICs to configure: all but the primary one, which is the operating system's (promise P2).
pub(crate) fn secondary(vnics: &[Vnic]) -> impl Iterator<Item = &Ocid> {
    vnics.iter().skip(1).map(|vnic| &vnic.id)
}

/// The primary VNIC, and the others with an address.
pub(crate) fn addressed(vnics: &[Vnic], npn: Option<&NativePodNetwork>) -> Vec<Vnic> {
    let secondary = vnics.iter().skip(1).filter(|vnic| is_addressed(vnic, npn));
    vnics.iter().take(1).chain(secondary).cloned().collect()
}

/// Whether any address of a VNIC is known. One in an OCI VLAN has none, and gets no table.
pub(crate) fn is_addressed(vnic: &Vnic, npn: Option<&NativePodNetwork>) -> bool {
    vnic.addressing.iter().next().is_some() || npn_vnic(npn, &vnic.id).is_some()
}

pub(crate) fn desired_state(facts: HostFacts<'_>, slots: &Slots, policy: Policy<'_>) -> DesiredState {
    let Some(first) = facts.vnics.first() else { return DesiredState::default() };
    let primary = match placement(first, facts, policy) {
        Ok(placement) => placement.link().clone(),
        Err(error) => {
            let condition = Condition::blocking(Reason::PrimaryLinkMissing, error).about(&first.id);
            return DesiredState { conditions: vec![condition], ..DesiredState::default() };
        }
    };
    let mut desired = DesiredState::default();
    let (mut vnics, mut foreign): (Vec<HostVnic>, Vec<HostVnic>) = Default::default();
    let for_pods = host_address::for_pods(facts);
    for vnic in facts.vnics.iter().skip(1).filter(|vnic| is_addressed(vnic, facts.npn)) {
        if facts.unexplained.contains(&vnic.id) {
            desired.left_alone.insert(vnic.id.clone(), UnmanagedReason::PurposeUnknown);
            continue;
        }
        let left_alone = left_alone(vnic, facts, policy);
        desired.left_alone.extend(left_alone.map(|why| (vnic.id.clone(), why)));
        let placement = match placement(vnic, facts, policy) {
            Ok(placement) if *placement.link() == primary => {
                Err(format!("it is on the primary VNIC's link {primary}, which is never changed"))
            }
            placement => placement,
        };
        let request = facts.requests.get(&vnic.id);
        if request.is_some_and(VnicRequest::is_exclusive) {
            desired.keep_for_one_pod(vnic, placement, slots, facts);
            continue;
        }
        let missing = |error: &String| Condition::degraded(Reason::LinkMissing, error.as_str()).about(&vnic.id);
        desired.conditions.extend(placement.as_ref().err().filter(|_| left_alone.is_none()).map(missing));
        // A VNIC without a table is configured as soon as slots can be written.
        let (Ok(placement), Some(table)) = (placement, slots.table(&vnic.id)) else { continue };
        let host = host_vnic(vnic, HostLink { placement, table }, facts, &for_pods);
        desired.undecided.extend((left_alone == Some(UnmanagedReason::Undecided)).then(|| host.clone()));
        if left_alone.is_some() { foreign.push(host) } else { vnics.push(host) }
    }
    let refused = vnics.iter_mut().filter_map(|host| host_routes::refuse(host, facts.needed, &first.addressing));
    desired.conditions.extend(refused);
    // A VLAN's port may be a VNIC itself; it must be configured first.
    vnics.sort_by_key(|vnic| matches!(vnic.placement, Placement::Vlan { .. }));
    desired.conditions.extend(incomplete(&vnics, facts, policy));
    let services = PodServices {
        may_use_metadata: policy.pods_may_use_metadata,
        may_spoof: policy.pods_may_spoof,
        ipv6: speaks_ipv6(facts),
    };
    let all_of = |vnics| host::desired(&HostNetwork { primary: primary.clone(), vnics, pods: Some(services) });
    desired.spared = match (policy.ours, is_finished(facts) && !policy.lived) {
        (true, _) => Vec::new(),
        (false, false) => all_of([foreign, vnics.clone()].concat()),
        // What was configured for pods that never came, on VNICs of another network, goes. A VLAN link stays: foreign links may
        // be on it, in namespaces of pods, where they cannot be seen.
        (false, true) => all_of(foreign).into_iter().filter(Object::is_vlan).collect(),
    };
    // Pods that share a VNIC need the same on a node whose pod network is another program's.
    let is_shared = |host: &HostVnic| facts.requests.get(&host.vnic.id).is_some_and(VnicRequest::is_shared);
    let serves_pods = policy.ours || vnics.iter().any(is_shared);
    desired.network = Some(HostNetwork { primary, vnics, pods: serves_pods.then_some(services) });
    desired
}

/// Where a VNIC is on the host.
struct HostLink {
    placement: Placement,
    table: TableId,
}

/// A VNIC with its addresses, and what its VnicAttachment or NativePodNetwork requests.
fn host_vnic(vnic: &Vnic, at: HostLink, facts: HostFacts<'_>, for_pods: &[IpNetwork]) -> HostVnic {
    let request = facts.requests.get(&vnic.id);
    let entry = npn_vnic(facts.npn, &vnic.id);
    let own = entry.and_then(|entry| entry.addressing.ipv6.as_ref()?.host);
    let own = own.or_else(|| request.and_then(|request| request.own(Family::Ipv6)));
    let addressing = addressing(vnic, entry, AddressHints::of(facts, own, at.table, for_pods));
    let ipv6 = addressing.ipv6.filter(|_| facts.ipv6);
    let vnic = Vnic { addressing: PerFamily { ipv6, ..addressing }, ..vnic.clone() };
    let shared = || request.filter(|it| it.is_shared()).map(|_| subnets(&vnic));
    let pod_blocks = entry.map(|entry| blocks(&vnic, entry)).or_else(shared).unwrap_or_default();
    let mtu = request.map_or(Mtu::VCN, |request| request.mtu);
    let routes = request.filter(|it| it.purpose == Purpose::Host).map(|it| it.offer.routes.clone()).unwrap_or_default();
    let on_link = request.filter(|it| it.subnet_route).map(|_| subnets(&vnic)).unwrap_or_default();
    let HostLink { placement, table } = at;
    HostVnic { vnic, placement, table, mtu, pod_blocks, on_link, routes }
}

impl DesiredState {
    /// Takes in a VNIC that one pod at a time has.
    fn keep_for_one_pod(
        &mut self,
        vnic: &Vnic,
        placement: Result<Placement, String>,
        slots: &Slots,
        facts: HostFacts<'_>,
    ) {
        let Some(table) = slots.table(&vnic.id) else { return };
        let (exclusive, condition) = ExclusiveVnic::of(vnic, placement, table, facts);
        let why = if exclusive.is_in_pod { UnmanagedReason::InPod } else { UnmanagedReason::ForOnePod };
        self.left_alone.insert(vnic.id.clone(), why);
        self.conditions.extend(condition);
        self.exclusive.push(exclusive);
    }
}

/// The link of a VNIC, or why there is none.
fn placement(vnic: &Vnic, facts: HostFacts<'_>, policy: Policy<'_>) -> Result<Placement, String> {
    match facts.devices.renumbered(vnic, facts.vnics, facts.links, facts.nics) {
        Some(link) => Ok(Placement::Device { link: link.name.clone() }),
        None => {
            let port = |index| policy.ports.named(index);
            place(vnic, facts.vnics, facts.links, facts.nics, port).map_err(|error| error.to_string())
        }
    }
}

/// Why a VNIC is not configured although it has a link.
fn left_alone(vnic: &Vnic, facts: HostFacts<'_>, policy: Policy<'_>) -> Option<UnmanagedReason> {
    let is_requested = |request: &VnicRequest| request.purpose != Purpose::Pods;
    if policy.ours || facts.requests.get(&vnic.id).is_some_and(is_requested) {
        None
    } else if npn_vnic(facts.npn, &vnic.id).is_some() {
        Some(UnmanagedReason::AnotherNetwork)
    } else {
        (policy.oke && !is_finished(facts)).then_some(UnmanagedReason::Undecided)
    }
}

/// What the configured VNICs lack, and which VNICs are lacking.
fn incomplete(vnics: &[HostVnic], facts: HostFacts<'_>, policy: Policy<'_>) -> Vec<Condition> {
    let unlisted = unlisted(facts).filter(|_| policy.ours).map(|vnic| {
        let message = "the NativePodNetwork names it, the metadata service does not list it (yet)";
        Condition::degraded(Reason::VnicNotListed, message).about(&vnic.vnic_id)
    });
    let lacking = vnics.iter().filter(|_| policy.ours && is_finished(facts)).filter(|host| {
        let of = |family| npn_vnic(facts.npn, &host.vnic.id)?.addressing.of(family).filter(|it| !it.pods.is_empty());
        host.vnic.addressing.ipv6.is_some() && of(Family::Ipv4).is_some() && of(Family::Ipv6).is_none()
    });
    let lacking = lacking.map(|host| {
        let message =
            "it has IPv6 addresses, and the NativePodNetwork lists only IPv4 addresses of it: its pods get no IPv6";
        Condition::degraded(Reason::PodFamilyNotListed, message).about(&host.vnic.id)
    });
    let taken = vnics.iter().flat_map(|it| host_address::taken(&it.vnic, facts.held));
    let unmarked = vnics.iter().filter(|vnic| policy.ours && vnic_mark(vnic.table).is_none()).map(|vnic| {
        let message = "the node has more than eight VNICs: a NodePort or hostPort is not reachable at this VNIC's \
                       own address";
        Condition::degraded(Reason::ReturnPathMissing, message).about(&vnic.vnic.id)
    });
    unlisted.chain(lacking).chain(taken).chain(unmarked).collect()
}

fn is_finished(facts: HostFacts<'_>) -> bool {
    facts.npn.is_some_and(NativePodNetwork::usable)
}

/// Whether the list of VNICs seems to be incomplete: it lacks one that the NativePodNetwork names and whose device is here, as
/// far as that can be seen. Stale objects may then be in use by pods, and an agent that has just started never saw the VNIC
/// listed.
pub(crate) fn is_incomplete(facts: HostFacts<'_>) -> bool {
    let bare_metal = facts.vnics.iter().any(|vnic| vnic.nic_index.is_some());
    unlisted(facts).any(|vnic| bare_metal || facts.links.iter().any(|link| link.mac == Some(vnic.mac)))
}

/// What the NativePodNetwork names and the metadata service does not.
fn unlisted<'a>(facts: HostFacts<'a>) -> impl Iterator<Item = &'a NpnVnic> {
    let named = facts.npn.into_iter().flat_map(|npn| &npn.vnics);
    named.filter(move |named| !facts.vnics.iter().any(|vnic| vnic.id == named.vnic_id))
}

/// The CIDR blocks of a VNIC's subnet that the metadata service names.
fn subnets(vnic: &Vnic) -> Vec<IpNetwork> {
    vnic.addressing.iter().map(|(_, at)| at.subnet).collect()
}

/// The known CIDR blocks of a VNIC's subnet, of each family that the VNIC has here. Only `subnetCidrs` can name several.
fn blocks(vnic: &Vnic, npn: &NpnVnic) -> Vec<IpNetwork> {
    let of = |(family, at): (Family, &SubnetAddressing)| {
        let named = npn.addressing.of(family).into_iter().flat_map(|it| it.subnet.iter().chain(&it.subnets));
        [at.subnet].into_iter().chain(named.copied()).collect::<Vec<_>>()
    };
    vnic.addressing.iter().flat_map(of).collect()
}

/// The VNIC's addressing. The metadata service can lag behind; a family that it lacks comes from the NativePodNetwork.
fn addressing(vnic: &Vnic, npn: Option<&NpnVnic>, hints: AddressHints<'_>) -> PerFamily<SubnetAddressing> {
    let mut addressing = vnic.addressing.clone();
    // For IPv4, the metadata service names the host's address.
    if let Some(at) = &mut addressing.ipv6 {
        at.address = host_address::choose(at, &hints);
        at.others.clear();
    }
    for family in Family::ALL {
        let known = npn.and_then(|npn| npn.addressing.of(family));
        if addressing.of(family).is_none()
            && let Some(npn) = known
            && let (Some(subnet), Some(router), Some(address)) = (npn.subnet, npn.router, npn.host)
        {
            *addressing.slot(family) = Some(SubnetAddressing { subnet, router, address, others: Vec::new() });
        }
    }
    addressing
}

fn speaks_ipv6(facts: HostFacts<'_>) -> bool {
    let listed = facts.vnics.iter().any(|vnic| vnic.addressing.ipv6.is_some());
    let offered = || facts.npn.is_some_and(|npn| npn.vnics.iter().any(|vnic| vnic.addressing.ipv6.is_some()));
    facts.ipv6 && (listed || offered())
}
