//! The IPv6 addresses of listed VNICs, which come in an order that nobody promises.

use std::collections::BTreeSet;
use std::net::IpAddr;

use vcn::{SubnetAddressing, Vnic};

/// Puts addresses in the order in which they were known, where they are the same: another order at every answer would be
/// news at every answer, and the copy on disk would be written each time.
pub(super) fn keep_order<'a>(listed: &mut [Vnic], known: impl Iterator<Item = &'a Vnic> + Clone) {
    for vnic in listed {
        let Some(at) = &mut vnic.addressing.ipv6 else { continue };
        let mut of_it = known.clone().filter(|old| old.id == vnic.id).filter_map(|old| old.addressing.ipv6.as_ref());
        if let Some(old) = of_it.find(|old| in_one_place(old, at) && all(old) == all(at)) {
            *at = old.clone();
        }
    }
}

fn in_one_place(old: &SubnetAddressing, new: &SubnetAddressing) -> bool {
    (old.subnet, old.router) == (new.subnet, new.router)
}

fn all(at: &SubnetAddressing) -> BTreeSet<IpAddr> {
    at.listed().collect()
}
