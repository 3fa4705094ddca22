//! How full the pools are, counted from their files without enumerating ranges (an IPv6 range is practically endless).

mod files;

use std::collections::HashSet;
use std::net::IpAddr;

use ipam::{Allocations, BootTime, COOLDOWN, FamilyPool, Pools};
use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use vcn::{AttachMode, Family, IfName, Ocid, Purpose, TableId};

/// The pools of a node and what is held of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Usage {
    /// Why the pools are empty or incomplete, as the plugins report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Per VNIC and family.
    pub pools: Vec<PoolUsage>,
    /// How many interfaces of pods hold addresses.
    pub attachments: AttachmentCounts,
}

/// One family of one VNIC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolUsage {
    pub vnic_id: Ocid,
    pub link: IfName,
    pub table: TableId,
    pub purpose: Purpose,
    /// The `spec.name` of the VnicAttachment by which pods share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<String>,
    pub family: Family,
    pub total: u64,
    /// Addresses that pods hold.
    pub in_use: u64,
    /// Freed less than the cooldown ago: reused only when nothing else is free.
    pub cooling: u64,
    /// Neither held nor cooling.
    pub free: u64,
}

/// Interfaces of pods whose records can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AttachmentCounts {
    /// Their ADD has finished.
    pub committed: usize,
    /// Their ADD has not finished.
    pub tentative: usize,
}

impl Usage {
    /// Counts. A held address is not free, even if its record cannot be read.
    pub(crate) fn of(pools: &Pools, allocations: &Allocations, now: BootTime) -> Self {
        let held: HashSet<IpAddr> = allocations.in_use().collect();
        let cooling: HashSet<IpAddr> = allocations
            .freed
            .iter()
            .filter(|freed| now.since(freed.at) < COOLDOWN && !held.contains(&freed.address))
            .map(|freed| freed.address)
            .collect();
        let rows = pools.vnics.iter().flat_map(|vnic| {
            let (held, cooling) = (&held, &cooling);
            let shared = vnic.attach.as_ref().filter(|offer| offer.mode == AttachMode::Shared && !offer.is_leaving);
            vnic.families.iter().map(move |(family, pool)| {
                let within =
                    |set: &HashSet<IpAddr>| count(set.iter().filter(|address| pool.contains(**address)).count());
                let (total, in_use, cooling) = (size(pool), within(held), within(cooling));
                PoolUsage {
                    vnic_id: vnic.vnic_id.clone(),
                    link: vnic.link.clone(),
                    table: vnic.table,
                    purpose: vnic.purpose,
                    shared: shared.map(|offer| offer.name.clone()),
                    family,
                    total,
                    in_use,
                    cooling,
                    free: total.saturating_sub(in_use).saturating_sub(cooling),
                }
            })
        });
        let tentative = allocations.allocations.iter().filter(|it| it.tentative_until.is_some()).count();
        let attachments = AttachmentCounts { committed: allocations.allocations.len() - tentative, tentative };
        Self { reason: pools.reason.clone(), pools: rows.collect(), attachments }
    }

    /// Whether any address is for pods, held or not: a full node is as usable as an empty one.
    pub(crate) fn offers_any(pools: &Pools) -> bool {
        pools.for_pods().any(|vnic| vnic.families.iter().any(|(_, pool)| size(pool) > 0))
    }
}

/// How many addresses a pool has for pods. Overlapping ranges count once.
pub(crate) fn size(pool: &FamilyPool) -> u64 {
    let mut ranges: Vec<&IpNetwork> = pool.addresses.iter().collect();
    // Two CIDR blocks either are disjoint or one contains the other. In this order a block follows the one that contains it.
    ranges.sort_unstable_by_key(|range| (range.network(), range.prefix()));
    ranges.dedup_by(|range, before| before.contains(range.network()));
    let all = ranges.iter().fold(0u64, |sum, range| sum.saturating_add(addresses_in(range)));
    let mut closed: Vec<&IpAddr> = pool.reserved.iter().chain([&pool.router]).collect();
    closed.sort_unstable();
    closed.dedup();
    let taken = closed.into_iter().filter(|address| ranges.iter().any(|range| range.contains(**address))).count();
    all.saturating_sub(count(taken))
}

fn addresses_in(range: &IpNetwork) -> u64 {
    let bits = Family::of(range.ip()).host_prefix().saturating_sub(range.prefix());
    1u64.checked_shl(u32::from(bits)).unwrap_or(u64::MAX)
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pool(addresses: &[&str], reserved: &[&str]) -> FamilyPool {
        FamilyPool {
            router: "10.0.0.1".parse().unwrap(),
            reserved: reserved.iter().map(|address| address.parse().unwrap()).collect(),
            addresses: addresses.iter().map(|range| range.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn size_of_a_pool_equals_its_number_of_candidates() {
        for pool in [
            pool(&["10.0.0.8/32", "10.0.0.9/32"], &[]),
            pool(&["10.0.0.0/28"], &["10.0.0.5", "10.0.0.5", "10.0.1.1"]),
            pool(&["10.0.0.8/30", "10.0.1.0/30"], &["10.0.0.8"]),
            pool(&[], &["10.0.0.8"]),
        ] {
            assert_eq!(size(&pool), pool.candidates().count() as u64, "{pool:?}");
        }
    }

    #[test]
    fn address_listed_twice_counts_once() {
        assert_eq!(size(&pool(&["10.0.0.8/32", "10.0.0.8/30", "10.0.0.8/30"], &[])), 4);
    }

    /// An older agent may have published as many, and they are counted several times in every reconcile.
    #[test]
    fn counting_time_is_proportional_to_pool_size() {
        let of = |count: u32| FamilyPool {
            addresses: (0..count).rev().map(|at| IpAddr::from((0x0a00_0000 + 2 * at).to_be_bytes()).into()).collect(),
            ..pool(&[], &[])
        };
        let cpu = || nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
        let time = |pool: &FamilyPool| {
            let begun = cpu();
            assert_eq!(size(pool), pool.addresses.len() as u64);
            Duration::from(cpu() - begun)
        };
        // In proportion it is 8 times as much, by squares it were 64. What else the machine does comes on top, not always.
        let (few, many) = (of(2_000), of(16_000));
        let tries: Vec<(Duration, Duration)> = (0..3).map(|_| (time(&few), time(&many))).collect();
        assert!(tries.iter().any(|(few, many)| *many < *few * 24), "{tries:?}");
    }

    #[test]
    fn huge_range_is_counted_at_once() {
        assert_eq!(size(&pool(&["2603:c020::/48"], &[])), u64::MAX);
        assert_eq!(size(&pool(&["2603:c020::/80"], &[])), 1 << 48);
    }
}
