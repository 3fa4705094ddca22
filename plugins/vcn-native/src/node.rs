//! The node-local state behind every verb: which boot, which allocations, and what they mean for the network.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use cni::{AttachmentKey, Error};
use datapath::pod::{LinkEnds, PodAddress, PodNetwork};
use datapath::{Object, Place, Places, pod};
use ipam::{Allocation, BootId, BootTime, Pools, Request, Store};
use vcn::{IfName, Mtu};

use crate::conf::Conf;
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

    /// Frees what an attachment holds. A damaged index is made anew for that: what is damaged frees nothing.
    ///
    /// # Errors
    /// The files' own troubles.
    pub(crate) fn release(&self, key: &AttachmentKey, report: &mut Report) -> Result<Option<Allocation>, ipam::Error> {
        let release = || self.store.update_for(key, self.now, |held| Ok(held.release(key, self.now)));
        match release() {
            Err(error @ ipam::Error::Damaged { .. }) => match self.pools() {
                Ok(pools) if self.rebuild_record(&pools, report).is_ok() => release(),
                _ => Err(error),
            },
            released => released,
        }
    }

    /// Makes the record anew from what the kernel knows, where it is lost or damaged: the pods that run keep their
    /// addresses. What cannot be known any more is how long freed addresses have rested.
    pub(crate) fn rebuild_record(&self, pools: &Pools, report: &mut Report) -> Result<(), Error> {
        let mut places = Places::host(Path::new(SYSCTL_ROOT)).map_err(|error| failure::of_host(&error))?;
        let owners = pod::owners(&mut places).map_err(|error| failure::of_datapath(&error))?;
        if let Some(path) = self.store.set_aside().map_err(|error| failure::of_ipam(&error))? {
            report.note(format!("allocations.json was damaged: it is now {}, and was made anew", path.display()));
        }
        let mut attachments: BTreeMap<AttachmentKey, Vec<IpAddr>> = BTreeMap::new();
        for owner in &owners {
            if let Some(key) = owner.identity.as_ref().and_then(|identity| identity.parse().ok()) {
                attachments.entry(key).or_default().push(owner.address);
            }
        }
        let taken_in = self.store.update(|held| {
            let adopt = |(key, addresses): (&AttachmentKey, &Vec<IpAddr>)| {
                let request = Request { key: key.clone(), pod: None, host_link: ends(key).host, netns: None };
                held.adopt(pools, request, addresses, self.now)
            };
            Ok::<_, ipam::Error>(attachments.iter().map(adopt).filter(|taken_in| *taken_in).count())
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

/// What an allocation's network must be. Without pools the MTU is a guess; nobody who takes a network down asks for it.
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
        mtu: conf.mtu.map_or(vnic_mtu, |mtu| mtu.min(vnic_mtu)),
        addresses: allocation.addresses.iter().map(address).collect(),
    }
}

/// Everything there is of an attachment's network. `allocation` and `pools` say where to look; both may be missing.
pub(crate) fn observe(
    key: &AttachmentKey,
    allocation: Option<&Allocation>,
    pools: Option<&Pools>,
    places: &mut Places,
) -> Result<Vec<(Place, Object)>, Error> {
    let assigned = allocation.map(|held| held.addresses.as_slice()).unwrap_or_default();
    let mut links: Vec<IfName> = assigned.iter().map(|a| a.vnic_link.clone()).collect();
    links.extend(pools.iter().flat_map(|pools| pools.vnics.iter().map(|vnic| vnic.link.clone())));
    links.sort();
    links.dedup();
    let held = assigned.iter().map(|a| a.address).collect();
    pod::observe(&ends(key), held, &links, places).map_err(|error| failure::of_datapath(&error))
}
