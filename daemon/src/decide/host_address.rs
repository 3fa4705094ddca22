//! Which of a VNIC's IPv6 addresses is the host's own. The metadata service lists all that the VNIC has, pods' addresses
//! included, in no documented order. A pod's address that is assigned to the host does not work for the pod.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use vcn::{Family, SubnetAddressing, TableId, Vnic};

use crate::decide::host_facts::{HostAddress, HostFacts};
use crate::facts::condition::{Condition, Reason};

/// What speaks for and against an address.
#[derive(Clone, Debug)]
pub(super) struct AddressHints<'a> {
    /// The host's on this VNIC, according to the NativePodNetwork or the VnicAttachment.
    host: Option<IpAddr>,
    /// The host's on this VNIC until now.
    before: Vec<IpAddr>,
    /// Those for pods of any VNIC, according to the NativePodNetwork.
    pods: &'a [IpNetwork],
    /// Those that pods hold.
    held: &'a HashSet<IpAddr>,
}

impl<'a> AddressHints<'a> {
    /// About a VNIC, by the host's address in its request, its table and what is for pods.
    pub(super) fn of(facts: HostFacts<'a>, host: Option<IpAddr>, table: TableId, pods: &'a [IpNetwork]) -> Self {
        // A rule alone may be about a pod's address, which the host did not get.
        let counts = |own: &&HostAddress| own.table == table && (own.is_assigned || !is_in(pods, own.address));
        let before = facts.own.iter().filter(counts).map(|own| own.address).collect();
        Self { host, before, pods, held: facts.held }
    }
}

/// The IPv6 addresses for pods, of all VNICs.
pub(super) fn for_pods(facts: HostFacts<'_>) -> Vec<IpNetwork> {
    let vnics = facts.npn.into_iter().flat_map(|npn| &npn.vnics);
    vnics.filter_map(|vnic| vnic.addressing.ipv6.as_ref()).flat_map(|at| at.pods.iter().copied()).collect()
}

/// The host's own address, in this order: as OKE made it, as it was before, the first that is for no pod. Of several that it
/// had before, one that is for no pod comes first: another may have replaced it while it was not listed. An address that is not
/// listed is chosen only if no listed one could be the host's. A held one is chosen only if there is no other: the host then gets
/// none.
pub(super) fn choose(at: &SubnetAddressing, AddressHints { host, before, pods, held }: &AddressHints<'_>) -> IpAddr {
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

/// The families in which the host gets no address on a VNIC, because pods hold all that could be its own.
pub(super) fn taken(vnic: &Vnic, held: &HashSet<IpAddr>) -> impl Iterator<Item = Condition> {
    let own = |family| vnic.addressing.of(family).as_ref().map(|at| (family, at.address));
    let taken = Family::ALL.into_iter().filter_map(own).filter(|(_, address)| held.contains(address));
    taken.map(|(family, address)| {
        let message = format!(
            "pods hold every {family} address that could be the host's own, such as {address}: the host has none on this VNIC"
        );
        Condition::degraded(Reason::HostAddressTaken, message).about(&vnic.id)
    })
}

fn is_in(pods: &[IpNetwork], address: IpAddr) -> bool {
    pods.iter().any(|range| range.contains(address))
}
