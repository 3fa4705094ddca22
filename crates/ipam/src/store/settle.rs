//! What the files cannot tell, the kernel does: which addresses pods live by. An ADD writes its record before it makes a
//! route, and a DEL removes the route before the record. So a route to a pod without a record means that the record was lost,
//! and an entry without a record and without a route that a run was killed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cni::AttachmentKey;
use vcn::IfName;

use super::{AttachmentLock, Store};
use crate::allocations::Held;
use crate::records::name_of;
use crate::{Allocations, BootTime, Error, Pools, Request};

/// A route to a pod, as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routed {
    /// The address.
    pub address: IpAddr,
    /// The host end of the pod's link, which it leads to.
    pub link: IfName,
    /// Whose link that is, as the link says: an attachment's key, as a rule.
    pub identity: Option<String>,
}

/// A pod's link, the addresses routed to it, and what else is known of it.
struct Running<'a> {
    link: &'a IfName,
    key: Option<AttachmentKey>,
    addresses: Vec<IpAddr>,
    /// It is being taken down at this moment.
    going: bool,
}

impl Store {
    /// Puts the allocations right by the routes there are to pods. On success every routed address is held, but for those of
    /// pods that are `going`, which rest; what was held without a record and without a route rests, too. Answers how many
    /// attachments have a record anew: those whose addresses the `pools` know. The others' addresses are held without one.
    ///
    /// `own` is the attachment whose lock the caller has; `lives` asks whether a link is still there.
    ///
    /// # Errors
    /// As [`Self::update`]; those of the locks.
    pub fn settle(
        &self,
        routed: &[Routed],
        pools: Option<&Pools>,
        own: Option<&AttachmentKey>,
        mut lives: impl FnMut(&IfName) -> bool,
    ) -> Result<usize, Error> {
        let known: BTreeSet<AttachmentKey> = self
            .read_sound()
            .map(|(held, _)| held.allocations.into_iter().map(|it| it.key).collect())
            .unwrap_or_default();
        let mut running = running(routed);
        // Whoever holds the lock of an attachment is making or removing it; till the end nobody shall begin to.
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
                // Its record was there a moment ago: a DEL was faster.
                pod.going |= pod.key.as_ref().is_some_and(|key| known.contains(key) && held.find(key).is_none());
            }
            Ok(held.settle(&running, pools, now))
        })
    }
}

impl Allocations {
    /// See [`Store::settle`]. Pure; all records have been read.
    fn settle(&mut self, running: &[Running<'_>], pools: Option<&Pools>, now: BootTime) -> usize {
        let unrecorded = std::mem::take(&mut self.others);
        let listed = |address: &IpAddr| unrecorded.iter().any(|held| held.addresses.contains(address));
        let lost = running.iter().filter(|pod| !pod.going).flat_map(|pod| &pod.addresses);
        let lost = lost.filter(|address| !listed(address) && !self.in_use().any(|held| held == **address));
        // The index was lost, or is an old one: what is not in it may have been somebody's until now.
        if lost.count() > 0 {
            self.anew = self.anew.max(Some(now));
        }
        let mut taken_in = 0;
        for pod in running.iter().filter(|pod| !pod.going) {
            let request = pod.key.clone().map(|key| {
                let host_link = pod.link.clone();
                Request { key, pod: None, host_link, netns: None, mtu: None }
            });
            if let (Some(pools), Some(request)) = (pools, request)
                && self.adopt(pools, request, &pod.addresses, now)
            {
                taken_in += 1;
            }
        }
        for Held { name, addresses } in unrecorded {
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
        taken_in
    }

    /// Holds addresses that nobody else does, without a record.
    fn hold(&mut self, name: String, addresses: &[IpAddr]) {
        let free: Vec<IpAddr> =
            addresses.iter().copied().filter(|address| !self.in_use().any(|held| held == *address)).collect();
        if free.is_empty() {
            return;
        }
        self.freed.retain(|freed| !free.contains(&freed.address));
        match self.others.iter_mut().find(|held| held.name == name) {
            Some(held) => held.addresses.extend(free),
            None => self.others.push(Held { name, addresses: free }),
        }
    }
}

/// The pods' links, each with its addresses.
fn running(routed: &[Routed]) -> Vec<Running<'_>> {
    let mut running: BTreeMap<&IfName, Running<'_>> = BTreeMap::new();
    for Routed { address, link, identity } in routed {
        let key = || identity.as_ref().and_then(|identity| identity.parse().ok());
        let pod = running.entry(link).or_insert_with(|| Running { link, key: key(), addresses: vec![], going: false });
        pod.addresses.push(*address);
    }
    running.into_values().collect()
}
