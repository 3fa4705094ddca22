//! Which of a VNIC's IPv6 addresses is the host's own. The metadata service lists all that the VNIC has, pods' addresses too, in
//! an order that nobody promises; given to the host, a pod's address is dead for the pod.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::net::IpAddr;

use api::npn::NpnVnic;
use ipnetwork::IpNetwork;
use vcn::{SubnetAddressing, TableId};

use super::Facts;

/// What speaks for an address, and against it.
#[derive(Clone, Debug)]
pub(super) struct Signs<'a> {
    /// The host's on this VNIC, as the NativePodNetwork has it.
    host: Option<IpAddr>,
    /// The host's on this VNIC until now.
    before: Vec<IpAddr>,
    /// For pods, as the NativePodNetwork has it, of whatever VNIC.
    pods: Vec<IpNetwork>,
    /// Somebody's.
    held: &'a HashSet<IpAddr>,
}

impl<'a> Signs<'a> {
    /// About a VNIC, by its entry in the NativePodNetwork and its table.
    pub(super) fn of(facts: Facts<'a>, entry: Option<&NpnVnic>, table: TableId) -> Self {
        let vnics = facts.npn.into_iter().flat_map(|npn| &npn.vnics);
        Self {
            host: entry.and_then(|entry| entry.addressing.ipv6.as_ref()?.host),
            before: facts.own.iter().filter(|(of, _)| *of == table).map(|(_, address)| *address).collect(),
            pods: vnics.filter_map(|vnic| vnic.addressing.ipv6.as_ref()).flat_map(|at| at.pods.clone()).collect(),
            held: facts.held,
        }
    }
}

/// The host's own: as OKE made it, as it was, or the first that is no pod's. One that is not listed only where nothing else that
/// is could be the host's; one that somebody holds only where there is no other: it is then not given to the host.
pub(super) fn choose(at: &SubnetAddressing, Signs { host, before, pods, held }: &Signs<'_>) -> IpAddr {
    let free = |address: &IpAddr| !held.contains(address);
    let for_pods = |address: IpAddr| pods.iter().any(|range| range.contains(address));
    let known = || host.iter().chain(before).copied().filter(free);
    let mut listed_and_known = known().filter(|known| at.listed().any(|address| address == *known));
    listed_and_known
        .next()
        .or_else(|| at.listed().find(|address| free(address) && !for_pods(*address)))
        .or_else(|| known().next())
        .or_else(|| at.listed().find(free))
        .unwrap_or(at.address)
}
