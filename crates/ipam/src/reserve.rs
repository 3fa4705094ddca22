//! The choice of an address: pure, given the pools, what is handed out and the time.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use vcn::{Family, IfName};

use crate::records::name_of;
use crate::{
    Allocation, Allocations, AssignedAddress, BootTime, Error, FamilyPool, FreedAddress, NetnsRecord, Pools, Shortage,
    VnicPool,
};

/// The cooldown of a freed address. A client that opened a connection to the old pod may still be retrying. conntrack keeps an
/// unanswered SYN for 120 s (`nf_conntrack_tcp_timeout_syn_sent`), so anything shorter can hand that connection to the wrong pod.
pub const COOLDOWN: Duration = Duration::from_secs(130);

/// How long an unfinished ADD keeps its addresses in any case. After that, an ADD that finds the pool full checks whether the
/// first one is still running; if not, it takes down what that left and frees the addresses.
pub const TENTATIVE_LIFETIME: Duration = Duration::from_secs(60);

/// How many freed addresses are listed after their cooldown, once the kernel has forgotten their connections. More than a node
/// has IPv4 addresses for pods; a large IPv6 range would make the list grow without limit.
const FREED_MEMORY: usize = 512;

/// The most freed addresses that are listed. Only IPv6 ranges without an agent reach it.
const FREED_LIMIT: usize = 4096;

/// The addresses that are reserved for an attachment.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    /// The allocation, tentative unless it was there before.
    pub allocation: Allocation,
    /// The attachment held it already: an ADD repeated, or one killed half-way.
    pub existing: bool,
    /// Set when an address was taken before its cooldown ended because nothing else was free: how long it had rested.
    pub rested: Option<Duration>,
    /// Those of the addresses whose last holder's connections the kernel may still know: to be flushed before the first
    /// packet, or they reach the new pod.
    pub unforgotten: Vec<IpAddr>,
}

impl Reservation {
    /// Whether an earlier ADD succeeded: then the pod is in use, and stays whatever becomes of this one.
    pub const fn is_settled(&self) -> bool {
        self.existing && self.allocation.tentative_until.is_none()
    }

    /// Of an attachment that has addresses already.
    fn again(existing: &mut Allocation, netns: Option<NetnsRecord>, now: BootTime) -> Self {
        // The namespace may be a new one under the same key; the addresses stay.
        existing.netns = netns;
        let is_tentative = existing.tentative_until.is_some();
        if is_tentative {
            // This ADD has its whole time before it again.
            existing.tentative_until = Some(now.after(TENTATIVE_LIFETIME));
            existing.since = now;
        }
        // The ADD before this one may have been killed before it flushed.
        let unforgotten = if is_tentative { existing.held() } else { Vec::new() };
        Self { allocation: existing.clone(), existing: true, rested: None, unforgotten }
    }
}

impl Allocations {
    /// Reserves one address of every family that pods get, all on one VNIC, for an attachment ([`Allocation::requested`]).
    ///
    /// Only VNICs that can serve every family count. First come those with a rested address, or else the one whose address has
    /// rested longest. Then the VNIC with the fewest addresses in use wins, then the one whose address was freed first. On it,
    /// per family: an address never used in this boot, else the one freed longest ago.
    ///
    /// # Errors
    /// [`Error::Exhausted`] with the numbers behind it; [`Error::FamilyMissing`] when no VNIC has addresses of a family now.
    pub fn reserve(&mut self, pools: &Pools, request: Allocation, now: BootTime) -> Result<Reservation, Error> {
        self.reserve_beside(pools, &[], request, now)
    }

    /// The same, on no VNIC whose link is one of `avoided`: the host turned out not to have it, or it is down.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn reserve_beside(
        &mut self,
        pools: &Pools,
        avoided: &[IfName],
        request: Allocation,
        now: BootTime,
    ) -> Result<Reservation, Error> {
        self.trim(pools, now);
        self.release_unrecorded(&name_of(&request.key), now);
        if let Some(existing) = self.allocations.iter_mut().find(|held| held.key == request.key) {
            return Ok(Reservation::again(existing, request.netns, now));
        }
        let choice = self.choose(pools, avoided, now)?;
        let rested = choice.cooling(self.rebuilt_at, now);
        let allocation = choice.allocation(request, now);
        let unforgotten = self.take(&allocation);
        Ok(Reservation { allocation, existing: false, rested, unforgotten })
    }

    /// The addresses for a new attachment.
    fn choose<'a>(&self, pools: &'a Pools, avoided: &[IfName], now: BootTime) -> Result<Choice<'a>, Error> {
        let families = pools.families();
        let in_use: HashSet<IpAddr> = self.in_use().collect();
        let freed: HashMap<IpAddr, BootTime> = self.freed.iter().map(|freed| (freed.address, freed.at)).collect();
        let choice = pools
            .for_pods()
            .filter(|vnic| !families.is_empty() && !avoided.contains(&vnic.link))
            .filter_map(|vnic| Choice::on(vnic, &families, &in_use, &freed))
            .min_by_key(|choice| {
                let cooling = choice.cooling(self.rebuilt_at, now);
                (cooling.is_some(), Reverse(cooling), choice.load, choice.newest())
            });
        choice.ok_or_else(|| {
            let offered = pools.offered();
            let missing: Vec<Family> = families.iter().copied().filter(|family| !offered.contains(family)).collect();
            if !offered.is_empty() && !missing.is_empty() {
                return Error::FamilyMissing { families: missing, reason: pools.reason.clone() };
            }
            Error::Exhausted(Shortage {
                vnics: pools.for_pods().count(),
                lacking: lacking(pools, &families, &in_use),
                in_use: families.iter().map(|family| (*family, held(pools, &in_use, *family))).collect(),
                reason: pools.reason.clone(),
            })
        })
    }

    /// Lists a new allocation. Returns its addresses whose last holder's connections the kernel may still know.
    fn take(&mut self, allocation: &Allocation) -> Vec<IpAddr> {
        let addresses = allocation.held();
        let used: Vec<FreedAddress> = self.freed.extract_if(.., |freed| addresses.contains(&freed.address)).collect();
        let clean = |address: &IpAddr| match used.iter().find(|freed| freed.address == *address) {
            Some(freed) => freed.forgotten,
            None => self.rebuilt_at.is_none(),
        };
        let unforgotten = addresses.into_iter().filter(|address| !clean(address)).collect();
        self.allocations.push(allocation.clone());
        unforgotten
    }

    /// Records what an attachment has by the kernel's account, where its record was lost. What is on record already, by
    /// key or by address, stays as it is, and so does what is in no pool, even in part: DEL would overlook that part. Answers
    /// whether it was taken in.
    pub(crate) fn adopt(&mut self, pools: &Pools, request: Allocation, addresses: &[IpAddr], now: BootTime) -> bool {
        let on_record = |held: &Allocation| {
            held.key == request.key || held.addresses.iter().any(|assigned| addresses.contains(&assigned.address))
        };
        let assigned: Option<Vec<AssignedAddress>> =
            addresses.iter().map(|address| assigned(pools, *address)).collect();
        let Some(mut assigned) = assigned.filter(|them| !them.is_empty()) else { return false };
        if self.allocations.iter().any(on_record) {
            return false;
        }
        assigned.sort_by_key(|assigned| assigned.address);
        self.freed.retain(|freed| !addresses.contains(&freed.address));
        self.allocations.push(Allocation { addresses: assigned, since: now, ..request });
        true
    }

    /// All held addresses, with or without a record.
    pub fn in_use(&self) -> impl Iterator<Item = IpAddr> {
        let known = self.allocations.iter().flat_map(|held| held.addresses.iter().map(|assigned| assigned.address));
        self.others.iter().flat_map(|held| held.addresses.iter().copied()).chain(known)
    }

    /// An address that is held or freed more than once: no version writes that.
    pub(crate) fn listed_twice(&self) -> Option<IpAddr> {
        let mut seen = HashSet::with_capacity(self.others.len() + self.freed.len());
        self.in_use().chain(self.freed.iter().map(|freed| freed.address)).find(|address| !seen.insert(*address))
    }

    /// The allocations of ADDs that should have finished long ago. They may still be running: see [`crate::Store::attachment`].
    pub fn overdue(&self, now: BootTime) -> impl Iterator<Item = &Allocation> {
        self.allocations.iter().filter(move |held| held.tentative_until.is_some_and(|until| until <= now))
    }

    /// Starts the cooldown of addresses that no attachment holds.
    pub fn rest(&mut self, addresses: &[IpAddr], now: BootTime) {
        let held: HashSet<IpAddr> = self.in_use().collect();
        let unheld: Vec<IpAddr> = addresses.iter().copied().filter(|address| !held.contains(address)).collect();
        self.cool(&unheld, now);
    }

    /// Starts the cooldown of addresses that a pod had until now. If the index lists an address neither as held nor as freed, the
    /// index was lost, so every unlisted address starts in cooldown.
    pub fn lose(&mut self, addresses: &[IpAddr], now: BootTime) {
        let freed: HashSet<IpAddr> = self.freed.iter().map(|freed| freed.address).collect();
        let held: HashSet<IpAddr> = self.in_use().collect();
        if addresses.iter().any(|address| !freed.contains(address) && !held.contains(address)) {
            // Another run may have rebuilt the index since `now` was read.
            self.rebuilt_at = self.rebuilt_at.max(Some(now));
        }
        self.rest(addresses, now);
    }

    /// Drops freed addresses that need not be listed any more.
    fn trim(&mut self, pools: &Pools, now: BootTime) {
        let rested = |freed: &FreedAddress| now.since(freed.at) >= COOLDOWN;
        // Addresses that left the pools move to the front of the list, because no ADD takes them.
        let left =
            self.freed.iter().take_while(|freed| rested(freed) && assigned(pools, freed.address).is_none()).count();
        self.freed.drain(..left);
        let mut surplus = self.freed.len().saturating_sub(FREED_MEMORY);
        self.freed.retain(|freed| {
            let dropped = surplus > 0 && freed.forgotten && rested(freed);
            surplus -= usize::from(dropped);
            !dropped
        });
        let surplus = self.freed.len().saturating_sub(FREED_LIMIT);
        self.freed.drain(..surplus);
    }
}

impl Pools {
    /// Whether the pools offer every family that pods get, and no VNIC has a free address of each: an ADD answers
    /// [`Error::Exhausted`]. An address that cools down is free.
    pub fn are_exhausted(&self, held: &HashSet<IpAddr>) -> bool {
        let (families, offered) = (self.families(), self.offered());
        let is_free = |pool: &FamilyPool| pool.candidates().any(|address| !held.contains(&address));
        let serves = |vnic: &VnicPool| families.iter().all(|family| vnic.families.of(*family).is_some_and(is_free));
        !families.is_empty() && families.iter().all(|family| offered.contains(family)) && !self.for_pods().any(serves)
    }
}

/// How many addresses of the VNICs that serve pods are held. Extra interfaces of pods hold addresses of other VNICs.
fn held(pools: &Pools, in_use: &HashSet<IpAddr>, family: Family) -> usize {
    let pools: Vec<&FamilyPool> = pools.for_pods().filter_map(|vnic| vnic.families.of(family)).collect();
    in_use.iter().filter(|address| pools.iter().any(|pool| pool.contains(**address))).count()
}

/// The families of which no VNIC has a free address.
fn lacking(pools: &Pools, families: &[Family], in_use: &HashSet<IpAddr>) -> Vec<Family> {
    let free = |pool: &FamilyPool| pool.candidates().any(|address| !in_use.contains(&address));
    let lacks = |family: &Family| !pools.for_pods().any(|vnic| vnic.families.of(*family).is_some_and(free));
    families.iter().copied().filter(lacks).collect()
}

/// An address on the VNIC whose pool it is in.
fn assigned(pools: &Pools, address: IpAddr) -> Option<AssignedAddress> {
    let holds = |vnic: &&VnicPool| vnic.families.of(Family::of(address)).is_some_and(|pool| pool.contains(address));
    let VnicPool { vnic_id, link, table, .. } = pools.vnics.iter().find(holds)?;
    Some(AssignedAddress { address, vnic_id: vnic_id.clone(), vnic_link: link.clone(), table: *table })
}

/// What one VNIC could give.
struct Choice<'a> {
    vnic: &'a VnicPool,
    /// Each address and when it was freed, if ever in this boot.
    addresses: Vec<(IpAddr, Option<BootTime>)>,
    /// Addresses of this VNIC that pods hold.
    load: usize,
}

impl<'a> Choice<'a> {
    fn on(
        vnic: &'a VnicPool,
        families: &[Family],
        in_use: &HashSet<IpAddr>,
        freed: &HashMap<IpAddr, BootTime>,
    ) -> Option<Self> {
        let mut addresses = Vec::with_capacity(families.len());
        for &family in families {
            let pool = vnic.families.of(family)?;
            let mut oldest: Option<(IpAddr, Option<BootTime>)> = None;
            for address in pool.candidates().filter(|address| !in_use.contains(address)) {
                let at = freed.get(&address).copied();
                if oldest.is_none_or(|(_, best)| at < best) {
                    oldest = Some((address, at));
                }
                if at.is_none() {
                    break;
                }
            }
            addresses.push(oldest?);
        }
        let load =
            in_use.iter().filter(|&&address| vnic.families.iter().any(|(_, pool)| pool.contains(address))).count();
        Some(Self { vnic, addresses, load })
    }

    /// How long the least rested address has rested, when that is less than the cooldown.
    /// An address that an index does not list may have been in use until the index was rebuilt.
    fn cooling(&self, rebuilt_at: Option<BootTime>, now: BootTime) -> Option<Duration> {
        let rest = |(_, at): &(IpAddr, Option<BootTime>)| at.or(rebuilt_at).map(|at| now.since(at));
        self.addresses.iter().filter_map(rest).filter(|rest| *rest < COOLDOWN).min()
    }

    /// When the last of its addresses was freed.
    fn newest(&self) -> Option<BootTime> {
        self.addresses.iter().filter_map(|&(_, at)| at).max()
    }

    fn allocation(&self, request: Allocation, now: BootTime) -> Allocation {
        let (mtu, until) = (Some(self.vnic.mtu.limited(request.mtu)), Some(now.after(TENTATIVE_LIFETIME)));
        Allocation { addresses: self.assigned(), tentative_until: until, since: now, mtu, ..request }
    }

    fn assigned(&self) -> Vec<AssignedAddress> {
        let VnicPool { vnic_id, link, table, .. } = self.vnic;
        self.addresses
            .iter()
            .map(|&(address, _)| AssignedAddress {
                address,
                vnic_id: vnic_id.clone(),
                vnic_link: link.clone(),
                table: *table,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
