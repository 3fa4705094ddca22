//! The node-local state behind every verb: which boot, which allocations, and what they mean for the network.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use cni::{AttachmentKey, ContainerNetns, Error};
use datapath::pod::{LinkEnds, PodAddress, PodNetwork};
use datapath::{Object, Place, Places, Snapshot, pod};
use ipam::{Allocation, BootId, BootTime, Pools, Store};
use netlink::Netns;
use vcn::{IfName, Mtu, Ocid};

use crate::failure::{self, code};
use crate::report::Report;
use crate::state_dir::{SYSCTL_ROOT, state_dir};

/// The node's state files, in this boot.
#[derive(Debug)]
pub struct Node {
    /// The allocations of this node, below the state directory.
    pub store: Store,
    /// When the verb began.
    pub now: BootTime,
    /// Where the files are.
    pub state_dir: PathBuf,
    boot: BootId,
    /// Whether this program goes on after its work. Then it waits for nothing, and starts no child to wait for it.
    pub(crate) is_resident: bool,
}

impl Node {
    /// The files of this process's state directory.
    ///
    /// # Errors
    /// When the kernel's boot id cannot be read.
    pub fn open() -> Result<Self, ipam::Error> {
        Self::at(state_dir(), BootId::current()?)
    }

    /// The same for the agent.
    ///
    /// # Errors
    /// When the kernel's clock cannot be read.
    pub fn of_agent(state_dir: &Path, boot: &BootId) -> Result<Self, ipam::Error> {
        Ok(Self { is_resident: true, ..Self::at(state_dir.to_owned(), boot.clone())? })
    }

    fn at(state_dir: PathBuf, boot: BootId) -> Result<Self, ipam::Error> {
        let store = Store::new(&state_dir, boot.clone());
        Ok(Self { store, now: BootTime::now()?, state_dir, boot, is_resident: false })
    }

    /// The host, for taking something down.
    pub(crate) fn places(&self) -> Result<Places, Error> {
        let places = Places::host(Path::new(SYSCTL_ROOT)).map_err(|error| failure::of_host(&error))?;
        Ok(if self.is_resident { places } else { places.without_waiting() })
    }

    /// What the agent offers.
    ///
    /// # Errors
    /// As [`Pools::read`].
    pub fn pools(&self) -> Result<Pools, ipam::Error> {
        Pools::read(&self.state_dir, &self.boot)
    }

    /// Frees the addresses of an attachment: those in the index and those it `had`. The caller holds the attachment's lock and has
    /// taken its network down. A damaged index is rebuilt first. If the disk has no room, only the record is removed, provided
    /// that no address becomes free too early.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn release(
        &self,
        key: &AttachmentKey,
        had: &[IpAddr],
        report: &mut Report,
    ) -> Result<Option<Allocation>, ipam::Error> {
        // The time after the network was taken down, not that of the verb's start.
        let now = BootTime::now()?;
        let release = || {
            self.store.update_for(key, |held| {
                let released = held.release(key, now);
                if released.is_none() && !had.is_empty() {
                    held.lose(had, now);
                }
                Ok::<_, ipam::Error>(released)
            })
        };
        let error = match release() {
            Err(error) if error.is_no_space() || matches!(error, ipam::Error::Damaged { .. }) => error,
            answer => return answer,
        };
        // First, so that the cooldown in a rebuilt index starts when no pod has the addresses any more.
        let gone = self.store.let_go(key, had)?;
        let again = match &error {
            ipam::Error::Damaged { .. } => self.rebuild_record(self.pools().ok().as_ref(), Some(key), report).is_ok(),
            _ => false,
        };
        match if again { release() } else { Err(error) } {
            Err(error) if gone => {
                report
                    .note(format!("{error}: the addresses of {key} are free only after the repair and their cooldown"));
                Ok(None)
            }
            answer => answer,
        }
    }

    /// Frees addresses that killed runs hold without a record, and restores the records of running pods. It queries the kernel only if
    /// an entry has no record or a file cannot be read. The caller holds the lock of `own`.
    pub fn sweep(&self, own: Option<&AttachmentKey>, report: &mut Report) -> Result<(), Error> {
        match self.store.sweep() {
            Ok(false) => Ok(()),
            Ok(true) | Err(ipam::Error::Damaged { .. }) => self.rebuild_record(self.pools().ok().as_ref(), own, report),
            Err(error) => Err(failure::of_ipam(&error)),
        }
    }

    /// Removes our rules and proxies for addresses of no pod: they would misroute the next owner's packets.
    pub fn remove_orphans(&self, report: &mut Report) -> Result<(), Error> {
        let mut places = Places::host(Path::new(SYSCTL_ROOT)).map_err(|error| failure::of_host(&error))?;
        let host = Snapshot::of_host(&mut places).map_err(|error| failure::of_datapath(&error))?;
        let orphans = pod::orphans(&host);
        if orphans.is_empty() {
            return Ok(());
        }
        // Read after the kernel's objects: an ADD writes its record before them.
        let held = self.store.held().map_err(|error| failure::of_ipam(&error))?;
        let mut failed = None::<Error>;
        for orphan in orphans.iter().filter(|it| !held.contains(&it.address)) {
            match orphan.end(&mut places, |address| self.store.held().is_ok_and(|held| held.contains(&address))) {
                Ok(true) => report.note(format!("orphaned: {}", orphan.step)),
                Ok(false) => {}
                Err(failure) => {
                    let first =
                        || Error::new(code::LEFT_OVER, "part of the network of a deleted pod could not be removed");
                    failed = Some(failed.unwrap_or_else(first).caused_by(failure.as_ref()));
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Rebuilds a lost or damaged record from the kernel's routes: running pods keep their addresses. How long freed addresses have
    /// been in cooldown is lost. Without pools the VNIC of an address is unknown, so it is held without a record until a run with
    /// pools. The caller holds the lock of `own`.
    pub fn rebuild_record(
        &self,
        pools: Option<&Pools>,
        own: Option<&AttachmentKey>,
        report: &mut Report,
    ) -> Result<(), Error> {
        let mut places = Places::host(Path::new(SYSCTL_ROOT)).map_err(|error| failure::of_host(&error))?;
        let host = Snapshot::of_host(&mut places).map_err(|error| failure::of_datapath(&error))?;
        if let Some(path) = self.store.set_aside().map_err(|error| failure::of_ipam(&error))? {
            report.note(format!("the damaged file is now {}, and was rebuilt", path.display()));
        }
        match self.store.reconcile_with_kernel(&pod::owners(&host), pools, own, |link| places.has_link(link)) {
            Ok(0) => {}
            Ok(count) => report.note(format!("the record of {count} running attachment(s) was lost and was rebuilt")),
            Err(error) => return Err(failure::of_ipam(&error)),
        }
        Ok(())
    }
}

/// The host's namespace and a pod's, if that is not the host's too.
pub fn enter(netns: &ContainerNetns) -> Result<Places, Error> {
    let pod = Netns::open(netns.path()).map_err(|error| failure::of_netns(netns.path(), &error))?;
    let places = Places::host(Path::new(SYSCTL_ROOT)).and_then(|host| host.with_pod(pod));
    let places = places.map_err(|error| failure::of_host(&error))?;
    netns.permit(places.pod_is_host())?;
    Ok(places)
}

/// The link ends of an attachment.
pub fn ends(key: &AttachmentKey) -> LinkEnds {
    LinkEnds::of(&key.to_string(), key.ifname.clone())
}

/// The network of an allocation. `limit` is the MTU of the configuration.
pub fn network(allocation: &Allocation, pools: Option<&Pools>, limit: Option<Mtu>) -> PodNetwork {
    let link = |id: &Ocid| Some(pools?.find(id)?.link.clone());
    network_on(allocation, mtu(allocation, pools, limit), link)
}

/// The same with another source of the names of VNICs' links. A link may have been renamed since ADD, and its proxies go with it.
pub fn network_on(allocation: &Allocation, mtu: Mtu, link_of: impl Fn(&Ocid) -> Option<IfName>) -> PodNetwork {
    let address = |assigned: &ipam::AssignedAddress| PodAddress {
        address: assigned.address,
        vnic_link: link_of(&assigned.vnic_id).unwrap_or_else(|| assigned.vnic_link.clone()),
        table: assigned.table,
    };
    PodNetwork { ends: ends(&allocation.key), mtu, addresses: allocation.addresses.iter().map(address).collect() }
}

/// The MTU of an attachment's links: the recorded one. Records of older versions have none: then it is the VNIC's, at most the
/// configuration's. Taking a network down does not need it.
pub fn mtu(allocation: &Allocation, pools: Option<&Pools>, limit: Option<Mtu>) -> Mtu {
    let of_vnic = || {
        let held = allocation.addresses.iter().find_map(|held| pools?.find(&held.vnic_id));
        held.map_or(Mtu::VCN, |vnic| vnic.mtu).limited(limit)
    };
    allocation.mtu.unwrap_or_else(of_vnic)
}

/// Everything there is of an attachment's network, by its record, if there is one, and by its link.
pub fn observe(
    key: &AttachmentKey,
    allocation: Option<&Allocation>,
    places: &mut Places,
) -> Result<Vec<(Place, Object)>, Error> {
    let assigned = allocation.map(|held| held.addresses.as_slice()).unwrap_or_default();
    let held = assigned.iter().map(|a| a.address).collect();
    pod::observe(&ends(key), held, places).map_err(|error| failure::of_datapath(&error))
}
