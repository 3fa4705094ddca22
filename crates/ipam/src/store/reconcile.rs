//! Reconciles the allocations with the kernel's routes to pods. An ADD writes its record before the route, and a DEL removes the
//! route before the record. So a route without a record means that the record was lost; an index entry with neither means that a
//! run was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cni::AttachmentKey;
use vcn::{IfName, PodRoute};

use super::{AttachmentLock, Store};
use crate::allocations::IndexEntry;
use crate::records::name_of;
use crate::{Allocation, Allocations, BootTime, Error, Pools};

/// A pod by its host link and the addresses routed to it.
struct RunningPod<'a> {
    link: &'a IfName,
    key: Option<AttachmentKey>,
    addresses: Vec<IpAddr>,
    /// A verb is taking it down now.
    going: bool,
}

impl Store {
    /// Afterwards every routed address is held, except those of pods that are `going`: these are in cooldown, and so are addresses
    /// that were held without a record and a route. Returns how many attachments got a new record: those whose addresses the
    /// `pools` contain. The other routed addresses are held without a record.
    ///
    /// The caller holds the lock of `own`. `lives` tells whether a link still exists.
    ///
    /// # Errors
    /// As [`Self::update`]; those of the locks.
    pub fn reconcile_with_kernel(
        &self,
        routed: &[PodRoute],
        pools: Option<&Pools>,
        own: Option<&AttachmentKey>,
        mut lives: impl FnMut(&IfName) -> bool,
    ) -> Result<usize, Error> {
        let known: BTreeSet<AttachmentKey> = self
            .read_sound()
            .map(|(held, _)| held.allocations.into_iter().map(|it| it.key).collect())
            .unwrap_or_default();
        let mut running = running(routed);
        // A verb that holds an attachment's lock is making or removing it. The locks taken here keep verbs from starting.
        let mut locks: Vec<AttachmentLock> = Vec::new();
        for pod in &mut running {
            let Some(key) = pod.key.as_ref().filter(|key| Some(*key) != own && !known.contains(key)) else { continue };
            match self.try_attachment(key)? {
                Some(lock) if lives(pod.link) => locks.push(lock),
                _ => pod.going = true,
            }
        }
        let now = BootTime::now()?;
        self.update(|held| {
            for pod in &mut running {
                // Its record existed a moment ago, so a DEL removed it.
                pod.going |= pod.key.as_ref().is_some_and(|key| known.contains(key) && held.find(key).is_none());
            }
            Ok(held.reconcile_with_kernel(&running, pools, now))
        })
    }
}

impl Allocations {
    /// See [`Store::reconcile_with_kernel`]. Pure; all records have been read.
    fn reconcile_with_kernel(&mut self, running: &[RunningPod<'_>], pools: Option<&Pools>, now: BootTime) -> usize {
        let unrecorded = std::mem::take(&mut self.others);
        let listed = |address: &IpAddr| unrecorded.iter().any(|held| held.addresses.contains(address));
        let lost = running.iter().filter(|pod| !pod.going).flat_map(|pod| &pod.addresses);
        let lost = lost.filter(|address| !listed(address) && !self.in_use().any(|held| held == **address));
        // The index was lost or is old: another pod may have had an unlisted address until now.
        if lost.count() > 0 {
            self.rebuilt_at = self.rebuilt_at.max(Some(now));
        }
        let mut adopted = 0;
        for pod in running.iter().filter(|pod| !pod.going) {
            let request = pod.key.clone().map(|key| Allocation::requested(key, pod.link.clone()));
            if let (Some(pools), Some(request)) = (pools, request)
                && self.adopt(pools, request, &pod.addresses, now)
            {
                adopted += 1;
            }
        }
        for IndexEntry { name, addresses } in unrecorded {
            let lives = |address: &IpAddr| running.iter().any(|pod| pod.addresses.contains(address));
            match addresses.iter().any(lives) {
                true => self.hold(name, &addresses),
                false => self.rest(&addresses, now),
            }
        }
        for pod in running {
            match (pod.going, &pod.key) {
                (true, _) => self.rest(&pod.addresses, now),
                (false, Some(key)) if self.find(key).is_none() => self.hold(name_of(key), &pod.addresses),
                (false, _) => self.hold(pod.link.to_string(), &pod.addresses),
            }
        }
        adopted
    }

    /// Holds addresses without a record, unless another attachment holds them.
    fn hold(&mut self, name: String, addresses: &[IpAddr]) {
        let free: Vec<IpAddr> =
            addresses.iter().copied().filter(|address| !self.in_use().any(|held| held == *address)).collect();
        if free.is_empty() {
            return;
        }
        self.freed.retain(|freed| !free.contains(&freed.address));
        match self.others.iter_mut().find(|held| held.name == name) {
            Some(held) => held.addresses.extend(free),
            None => self.others.push(IndexEntry { name, addresses: free }),
        }
    }
}

/// The pods' links, each with its addresses.
fn running(routed: &[PodRoute]) -> Vec<RunningPod<'_>> {
    let mut running: BTreeMap<&IfName, RunningPod<'_>> = BTreeMap::new();
    for PodRoute { address, link, identity } in routed {
        let key = || identity.as_ref().and_then(|identity| identity.parse().ok());
        let pod =
            running.entry(link).or_insert_with(|| RunningPod { link, key: key(), addresses: vec![], going: false });
        pod.addresses.push(*address);
    }
    running.into_values().collect()
}
