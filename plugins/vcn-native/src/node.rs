//! The node-local state behind every verb: which boot, which allocations, and what they mean for the network.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use cni::{AttachmentKey, Error};
use datapath::pod::{LinkEnds, PodAddress, PodNetwork};
use datapath::{Object, Place, Places, pod};
use ipam::{Allocation, BootId, BootTime, Pools, Request, Store};
use vcn::Mtu;

use crate::conf::Conf;
use crate::del;
use crate::failure;
use crate::report::Report;

/// Where the kernel's settings are, from a plugin's point of view.
pub(crate) const SYSCTL_ROOT: &str = "/proc/sys";

/// The node's state files, in this boot.
pub(crate) struct Node<'a> {
    pub(crate) store: Store,
    pub(crate) now: BootTime,
    boot: BootId,
    state_dir: &'a Path,
}

impl<'a> Node<'a> {
    pub(crate) fn open(state_dir: &'a Path) -> Result<Self, ipam::Error> {
        let boot = BootId::current()?;
        Ok(Self { store: Store::new(state_dir, boot.clone()), now: BootTime::now()?, boot, state_dir })
    }

    pub(crate) fn pools(&self) -> Result<Pools, ipam::Error> {
        Pools::read(self.state_dir, &self.boot)
    }

    /// Frees what an attachment holds; whoever calls this holds the attachment's lock. A damaged index is made anew for
    /// that: what is damaged frees nothing.
    ///
    /// # Errors
    /// The files' own troubles.
    pub(crate) fn release(&self, key: &AttachmentKey, report: &mut Report) -> Result<Option<Allocation>, ipam::Error> {
        // Now, not when the verb began: taking a network down takes its time.
        let now = BootTime::now()?;
        let release = || self.store.update_for(key, now, |held| Ok(held.release(key, now)));
        match release() {
            Err(error @ ipam::Error::Damaged { .. }) => {
                match self.rebuild_record(self.pools().ok().as_ref(), Some(key), report) {
                    Ok(()) => release(),
                    Err(_) => Err(error),
                }
            }
            released => released,
        }
    }

    /// Takes down and frees what ADDs have left that were killed, and that no DEL has come for.
    pub(crate) fn reclaim(&self, report: &mut Report) -> Result<(), Error> {
        let wrap = |error| failure::of_ipam(&error);
        self.store.sweep().map_err(wrap)?;
        let held = self.store.read().map_err(wrap)?;
        for key in held.overdue(self.now).map(|overdue| &overdue.key) {
            // Its ADD is under way after all, or somebody else is at it.
            let Some(_lock) = self.store.try_attachment(key).map_err(wrap)? else { continue };
            let Some(left) = self.store.find(key).map_err(wrap)?.filter(|it| it.tentative_until.is_some()) else {
                continue;
            };
            del::take_down(key, Some(&left), report)?;
            self.release(key, report).map_err(wrap)?;
            report.note(format!("{key} was added by halves long ago: taken down"));
        }
        Ok(())
    }

    /// Makes the record anew from what the kernel knows, where it is lost or damaged: the pods that run keep their
    /// addresses. What cannot be known any more is how long freed addresses have rested. Without pools nobody knows whose
    /// VNIC an address is on: what is damaged is then only set aside, and the next ADD, which has pools, does the rest.
    /// `own` is the attachment whose lock the caller holds.
    pub(crate) fn rebuild_record(
        &self,
        pools: Option<&Pools>,
        own: Option<&AttachmentKey>,
        report: &mut Report,
    ) -> Result<(), Error> {
        let mut places = Places::host(Path::new(SYSCTL_ROOT)).map_err(|error| failure::of_host(&error))?;
        let owners = pod::owners(&mut places).map_err(|error| failure::of_datapath(&error))?;
        if let Some(path) = self.store.set_aside().map_err(|error| failure::of_ipam(&error))? {
            report.note(format!("what was damaged is now {}, and was made anew", path.display()));
        }
        let mut attachments: BTreeMap<AttachmentKey, Vec<IpAddr>> = BTreeMap::new();
        for owner in &owners {
            if let Some(key) = owner.identity.as_ref().and_then(|identity| identity.parse().ok()) {
                attachments.entry(key).or_default().push(owner.address);
            }
        }
        let Some(pools) = pools else { return Ok(()) };
        // A pod may be going at this moment; what its DEL holds is not taken in again, and rests.
        let (mut locks, mut going) = (Vec::new(), Vec::new());
        for key in attachments.keys().filter(|key| Some(*key) != own) {
            match self.store.try_attachment(key).map_err(|error| failure::of_ipam(&error))? {
                Some(lock) if places.has_link(&ends(key).host) => locks.push(lock),
                _ => going.push(key.clone()),
            }
        }
        let taken_in = self.store.update(|held| {
            for addresses in going.iter().filter_map(|key| attachments.get(key)) {
                held.rest(addresses, self.now);
            }
            let adopt = |(key, addresses): (&AttachmentKey, &Vec<IpAddr>)| {
                let host_link = ends(key).host;
                let request = Request { key: key.clone(), pod: None, host_link, netns: None, mtu: None };
                held.adopt(pools, request, addresses, self.now)
            };
            let stays = |(key, _): &(&AttachmentKey, &Vec<IpAddr>)| !going.contains(key);
            Ok::<_, ipam::Error>(attachments.iter().filter(stays).map(adopt).filter(|taken_in| *taken_in).count())
        });
        match taken_in.map_err(|error| failure::of_ipam(&error))? {
            0 => {}
            count => report.note(format!("the record of {count} running attachment(s) was lost and was made anew")),
        }
        Ok(())
    }
}

/// The link ends of an attachment.
pub(crate) fn ends(key: &AttachmentKey) -> LinkEnds {
    LinkEnds::of(&key.to_string(), key.ifname.clone())
}

/// What an allocation's network must be. Without pools, where the record says no MTU (an older version's), it is a guess;
/// nobody who takes a network down asks for it.
pub(crate) fn network(allocation: &Allocation, pools: Option<&Pools>, conf: &Conf) -> PodNetwork {
    let address = |assigned: &ipam::Assigned| PodAddress {
        address: assigned.address,
        vnic_link: assigned.vnic_link.clone(),
        table: assigned.table,
    };
    let holds = |vnic: &&ipam::VnicPool| allocation.addresses.iter().any(|a| a.vnic_id == vnic.vnic_id);
    let vnic_mtu = pools.iter().flat_map(|pools| &pools.vnics).find(holds).map_or(Mtu::VCN, |vnic| vnic.mtu);
    PodNetwork {
        ends: ends(&allocation.key),
        mtu: allocation.mtu.unwrap_or_else(|| conf.mtu.map_or(vnic_mtu, |mtu| mtu.min(vnic_mtu))),
        addresses: allocation.addresses.iter().map(address).collect(),
    }
}

/// Everything there is of an attachment's network, by its record, if there is one, and by its link.
pub(crate) fn observe(
    key: &AttachmentKey,
    allocation: Option<&Allocation>,
    places: &mut Places,
) -> Result<Vec<(Place, Object)>, Error> {
    let assigned = allocation.map(|held| held.addresses.as_slice()).unwrap_or_default();
    let held = assigned.iter().map(|a| a.address).collect();
    pod::observe(&ends(key), held, places).map_err(|error| failure::of_datapath(&error))
}
