//! Which of a VNIC's IPv6 addresses is the host's own. The metadata service lists all that the VNIC has, pods' addresses too, in
//! an order that nobody promises; given to the host, a pod's address is dead for the pod.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::net::IpAddr;

use api::npn::NpnVnic;
use ipnetwork::IpNetwork;
use vcn::{Family, SubnetAddressing, TableId, Vnic};

use super::Facts;
use crate::reconcile::host::Own;
use crate::report::condition::{Condition, Reason};

/// What speaks for an address, and against it.
#[derive(Clone, Debug)]
pub(super) struct Signs<'a> {
    /// The host's on this VNIC, as the NativePodNetwork has it.
    host: Option<IpAddr>,
    /// The host's on this VNIC until now.
    before: Vec<IpAddr>,
    /// For pods, as the NativePodNetwork has it, of whatever VNIC.
    pods: &'a [IpNetwork],
    /// Somebody's.
    held: &'a HashSet<IpAddr>,
}

impl<'a> Signs<'a> {
    /// About a VNIC, by its entry in the NativePodNetwork, its table and what is for pods.
    pub(super) fn of(facts: Facts<'a>, entry: Option<&NpnVnic>, table: TableId, pods: &'a [IpNetwork]) -> Self {
        // A rule alone may be one of a pod's address, which the host did not get.
        let counts = |own: &&Own| own.table == table && (own.had || !is_in(pods, own.address));
        let before = facts.own.iter().filter(counts).map(|own| own.address).collect();
        let host = entry.and_then(|entry| entry.addressing.ipv6.as_ref()?.host);
        Self { host, before, pods, held: facts.held }
    }
}

/// The IPv6 addresses for pods, of all VNICs.
pub(super) fn for_pods(facts: Facts<'_>) -> Vec<IpNetwork> {
    let vnics = facts.npn.into_iter().flat_map(|npn| &npn.vnics);
    vnics.filter_map(|vnic| vnic.addressing.ipv6.as_ref()).flat_map(|at| at.pods.iter().copied()).collect()
}

/// The host's own: as OKE made it, as it was, or the first that is no pod's. Of several that it was, one that is for no pod comes
/// first: another may have taken its place for want of it. One that is not listed only where nothing else that
/// is could be the host's; one that somebody holds only where there is no other: it is then not given to the host.
pub(super) fn choose(at: &SubnetAddressing, Signs { host, before, pods, held }: &Signs<'_>) -> IpAddr {
    let free = |address: &IpAddr| !held.contains(address);
    let for_pods = |address| is_in(pods, address);
    let was = |pods: bool| before.iter().filter(move |address| for_pods(**address) == pods);
    let known = || host.iter().chain(was(false)).chain(was(true)).copied().filter(free);
    let mut listed_and_known = known().filter(|known| at.listed().any(|address| address == *known));
    listed_and_known
        .next()
        .or_else(|| at.listed().find(|address| free(address) && !for_pods(*address)))
        .or_else(|| known().next())
        .or_else(|| at.listed().find(free))
        .unwrap_or(at.address)
}

/// The families of which the host gets no address at a VNIC: whatever could be its own is held.
pub(super) fn taken(vnic: &Vnic, held: &HashSet<IpAddr>) -> impl Iterator<Item = Condition> {
    let own = |family| vnic.addressing.of(family).as_ref().map(|at| (family, at.address));
    let taken = Family::ALL.into_iter().filter_map(own).filter(|(_, address)| held.contains(address));
    taken.map(|(family, address)| {
        let message = format!(
            "whatever {family} address could be the host's own is held by pods ({address}, say): the host has none there"
        );
        Condition::degraded(Reason::HostAddressTaken, message).about(&vnic.id)
    })
}

fn is_in(pods: &[IpNetwork], address: IpAddr) -> bool {
    pods.iter().any(|range| range.contains(address))
}
