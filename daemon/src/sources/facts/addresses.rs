//! The IPv6 addresses of listed VNICs, which come in an order that nobody promises, and not always all.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use vcn::{Ocid, SubnetAddressing, Vnic};

/// Addresses that the last answer lacks beside others of their VNICs, and since when it does.
#[derive(Clone, Debug, Default)]
pub(super) struct Lacked(BTreeMap<(Ocid, IpAddr), Instant>);

impl Lacked {
    /// Gives listed VNICs the addresses that they had before in the same place and lack since less than the grace: were the
    /// host's own believed to be gone, another would take its place, and keep it.
    pub(super) fn keep(&mut self, listed: &mut [Vnic], before: &[Vnic], grace: Duration, now: Instant) {
        let mut lacked = BTreeMap::new();
        for vnic in listed {
            let Some(at) = &mut vnic.addressing.ipv6 else { continue };
            let old = before.iter().find(|old| old.id == vnic.id).and_then(|old| old.addressing.ipv6.as_ref());
            let Some(old) = old.filter(|old| in_one_place(old, at)) else { continue };
            let still = all(at);
            for address in old.listed().filter(|address| !still.contains(address)) {
                let which = (vnic.id.clone(), address);
                let since = self.0.get(&which).copied().unwrap_or(now);
                if now.saturating_duration_since(since) < grace {
                    at.others.push(address);
                    lacked.insert(which, since);
                }
            }
        }
        self.0 = lacked;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

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
