//! Which kernel events cause a reconcile: those about what the agent configures. Pods' links, routes and rules change by the
//! hundred and are the plugins'; of them only removals are hints that a pod drifted.

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::AsFd;

use netlink::{Change, Event, Link, Monitor, Socket, nft};
use resident::readable::Readable;
use vcn::{NFT_TABLE, PODS_TABLE, PROTOCOL, RulePriorities, TABLE_BASE};

use crate::reconcile::drift_hints::{DriftHints, PodLinks};

/// The first bytes of a VCN's MACs.
const VCN_MACS: [u8; 3] = [0x02, 0x00, 0x17];

/// What kernel events concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum KernelChange {
    /// Running pods: there are hints to take.
    Hints,
    /// The host's own network.
    Host {
        /// Devices came, went or changed: a VNIC may have been plugged or unplugged.
        links: bool,
    },
}

/// The kernel's events, for one task to wait for.
#[derive(Debug)]
pub(crate) struct KernelWatch {
    readable: Readable,
    reader: EventReader,
}

/// The events, and what is remembered of them.
#[derive(Debug)]
struct EventReader {
    monitor: Monitor,
    hints: DriftHints,
    pod_links: PodLinks,
}

/// Changes of our nft tables: a firewall that starts flushes the tables of other programs.
#[derive(Debug)]
pub(crate) struct NftWatch {
    /// `None` if the kernel has no nf_tables.
    watch: Option<(nft::Watch, Readable)>,
}

impl KernelWatch {
    /// Subscribes in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        let monitor = Monitor::open().map_err(io::Error::other)?;
        // After the subscription, so that no change is missed. Without the list, the timer finds what changed.
        let links = Socket::open().and_then(|mut socket| socket.links()).unwrap_or_default();
        let (hints, pod_links) = (DriftHints::default(), PodLinks::among(&links));
        let readable = Readable::new(monitor.as_fd())?;
        Ok(Self { readable, reader: EventReader { monitor, hints, pod_links } })
    }

    /// Waits for an event that causes a reconcile. Cancel-safe: a reconcile sees the effect of all events.
    /// After an error, open another.
    pub(crate) async fn concerning(&mut self) -> io::Result<KernelChange> {
        let Self { readable, reader } = self;
        readable.wait(|| reader.read()).await
    }

    /// Takes in the events so far, before a full reconcile. Returns whether they concern links.
    /// After an error, open another.
    pub(crate) fn take_in(&mut self) -> io::Result<bool> {
        Ok(self.reader.read()? == Some(KernelChange::Host { links: true }))
    }

    /// Whether there are hints that were not taken. The same hint again is then no news.
    pub(crate) fn has_hints(&self) -> bool {
        !self.reader.hints.is_empty()
    }

    /// Takes the hints so far that running pods drifted.
    pub(crate) fn take_hints(&mut self) -> DriftHints {
        std::mem::take(&mut self.reader.hints)
    }
}

/// The most reads at a time: a program that floods the kernel with changes does not stop the agent's other work.
const READS: usize = 16;

impl EventReader {
    /// Reads all events so far; `None` if none of them causes a reconcile.
    fn read(&mut self) -> io::Result<Option<KernelChange>> {
        let mut concern = None;
        for _ in 0..READS {
            let events = self.monitor.drain().map_err(io::Error::other)?;
            if events.is_empty() {
                return Ok(concern);
            }
            for event in &events {
                concern = self.concern(event).into_iter().chain(concern).max();
            }
        }
        // There are more: a full reconcile replaces reading them.
        Ok(Some(KernelChange::Host { links: true }))
    }

    fn concern(&mut self, event: &Event) -> Option<KernelChange> {
        let is_hint = self.hints.note(event, &mut self.pod_links);
        if concerns_host(event, &self.pod_links) {
            let links = match event {
                Event::Link(_, link) => may_be_vnic(link),
                event => matches!(event, Event::Overrun),
            };
            return Some(KernelChange::Host { links });
        }
        is_hint.then_some(KernelChange::Hints)
    }
}

impl NftWatch {
    /// Subscribes in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        match nft::Watch::open(NFT_TABLE) {
            Ok(watch) => {
                let readable = Readable::new(watch.as_fd())?;
                Ok(Self { watch: Some((watch, readable)) })
            }
            Err(error) if error.is_unsupported() => Ok(Self { watch: None }),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// Waits until our table changes; without nf_tables it never returns. Cancel-safe.
    /// After an error, open another.
    pub(crate) async fn touched(&mut self) -> io::Result<()> {
        let Some((watch, readable)) = &mut self.watch else { return std::future::pending().await };
        while !readable.wait(|| watch.drain().map_err(io::Error::other)).await? {}
        Ok(())
    }

    /// Takes in the changes so far, before a reconcile. A broken socket is found by the next wait.
    pub(crate) fn take_in(&mut self) {
        if let Some((watch, _)) = &mut self.watch {
            let _ = watch.drain();
        }
    }
}

fn concerns_host(event: &Event, pod_links: &PodLinks) -> bool {
    match event {
        Event::Link(_, link) => !link.name.is_of_pod(),
        // Every pod link brings a link-local one. Of others, a VNIC may have lost that from which the kernel resolves its router.
        Event::Address(change, address) => {
            !is_link_local(address.address.ip()) || *change == Change::Gone && !pod_links.has(address.index)
        }
        // Of the routes in the pods' table only those that cannot be a pod's.
        Event::Route(_, route) if route.table == PODS_TABLE => {
            route.protocol != PROTOCOL && route.destination.prefix() < route.family().host_prefix()
        }
        Event::Route(_, route) => route.table.0 >= TABLE_BASE,
        // Rules of other programs may precede our rules.
        Event::Rule(_, rule) => rule.protocol != PROTOCOL || rule.priority != RulePriorities::FROM_POD,
        Event::Setting | Event::Overrun => true,
    }
}

/// Whether a link may be a VNIC's device: no virtual kind of link is. In a sandbox a VNIC's device is a veth; pods of other
/// networks have these by the hundred, with MACs that are not a VCN's.
fn may_be_vnic(link: &Link) -> bool {
    match link.kind.as_deref() {
        None => true,
        Some("veth") => link.mac.is_some_and(|mac| mac.0.starts_with(&VCN_MACS)),
        Some(_) => false,
    }
}

fn is_link_local(address: std::net::IpAddr) -> bool {
    matches!(address, std::net::IpAddr::V6(address) if address.is_unicast_link_local())
}
