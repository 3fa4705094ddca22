//! The stage that removes what is ours and about no pod: rules from addresses that nobody holds, and proxies for them. A rule
//! that stays behind leads the address's next owner, here or on another node, astray. They come of verbs that were killed
//! and of VNIC links that were renamed between ADD and DEL; DEL and GC know nothing of them any more.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use datapath::{Change, NeighbourSpec, Object, Place, Places, RuleSpec, Step, dismantle};
use ipam::{Allocations, BootId, Store};
use netlink::{NeighbourFilter, RouteFilter, Socket};
use resident::logging::chain;
use vcn::{Family, HOST_LINK_PREFIX, PODS_TABLE, PROTOCOL, RulePriorities};

use super::{Findings, stages};
use crate::condition::{Condition, Reason};
use crate::pass::Cause;

/// The most that is remembered; more is looked at when these are gone.
const KEPT: usize = 4096;

/// The stage and what it remembers from pass to pass.
#[derive(Debug)]
pub(super) struct Orphans {
    store: Store,
    sysctl_root: PathBuf,
    /// The least time between the first look that finds something to be nobody's and the one that ends it.
    apart: Duration,
    /// What was nobody's, by its words, and since when.
    since: HashMap<String, Instant>,
}

impl Orphans {
    pub(super) fn new(state_dir: &Path, sysctl_root: &Path, boot: BootId, apart: Duration) -> Self {
        let (store, sysctl_root) = (Store::new(state_dir, boot), sysctl_root.to_owned());
        Self { store, sysctl_root, apart, since: HashMap::new() }
    }

    /// Another least time.
    pub(super) const fn keep_apart(&mut self, apart: Duration) {
        self.apart = apart;
    }

    /// Nothing is to be removed here any more, or not yet.
    pub(super) fn rest(&mut self) {
        self.since.clear();
    }

    /// Removes what has been nobody's for long enough, notes what seems so.
    pub(super) fn stage(&mut self, cause: Cause, findings: &mut Findings) {
        // Events come with every pod; this can wait for the timer.
        if matches!(cause, Cause::Kernel | Cause::Preview) {
            return;
        }
        let before = std::mem::take(&mut self.since);
        let unknown = |error: &(dyn std::error::Error + 'static)| {
            Condition::degraded(Reason::HostNetworkFailed, chain(error)).about("what is about no pod")
        };
        let found = about_pods().and_then(|found| Ok((found, Places::host(&self.sysctl_root)?)));
        let (found, mut places) = match found {
            Ok(found) => found,
            Err(error) => return findings.conditions.push(unknown(&error)),
        };
        // Read after the kernel: what an ADD has made was on record before. Of a damaged record nobody knows who holds what,
        // which another stage tells.
        let Ok((held, None)) = self.store.read_sound() else { return };
        for (address, object) in found.into_iter().filter(|(address, _)| !is_held(*address, &held)) {
            let step = Step { place: Place::Host, change: Change::Delete(object) };
            let words = step.to_string();
            let since = before.get(&words).copied().unwrap_or_else(Instant::now);
            if since.elapsed() >= self.apart {
                self.end(address, &step, &mut places, findings);
            } else if self.since.len() < KEPT {
                self.since.insert(words, since);
            }
        }
    }

    fn end(&self, address: IpAddr, step: &Step, places: &mut Places, findings: &mut Findings) {
        if let Some(failure) = dismantle(std::slice::from_ref(step), places).first() {
            let condition = Condition::degraded(Reason::HostNetworkFailed, chain(failure));
            return findings.conditions.push(condition.about("what is about no pod"));
        }
        // Somebody got the address just now, and would have made the same.
        if self.store.read().is_ok_and(|held| is_held(address, &held)) {
            dismantle(&[step.undo()], places);
            return;
        }
        let mut changed = stages::changed(step);
        changed.text.push_str(" (of no pod)");
        findings.changes.push(changed);
    }
}

fn is_held(address: IpAddr, held: &Allocations) -> bool {
    held.allocations.iter().flat_map(|allocation| &allocation.addresses).any(|assigned| assigned.address == address)
}

/// What is ours about single addresses to which no route to a pod leads: those of pods whose record was lost are theirs.
fn about_pods() -> Result<Vec<(IpAddr, Object)>, netlink::Error> {
    let mut socket = Socket::open()?;
    let links: HashMap<u32, vcn::IfName> = socket.links()?.into_iter().map(|link| (link.index, link.name)).collect();
    let mut found = Vec::new();
    for proxy in socket.neighbours(&NeighbourFilter { proxy: true, ..NeighbourFilter::default() })? {
        let link = links.get(&proxy.index).filter(|link| !link.as_str().starts_with(HOST_LINK_PREFIX));
        if let (Some(link), Some(PROTOCOL)) = (link, proxy.protocol) {
            let spec = NeighbourSpec { link: link.clone(), address: proxy.address, mac: None };
            found.push((proxy.address, Object::Neighbour(spec)));
        }
    }
    for family in Family::ALL {
        for rule in socket.rules(family)? {
            let narrower = rule.to.is_some() || rule.fwmark.is_some() || rule.iif.is_some() || rule.unmodelled;
            let netlink::Rule { priority, from, table, protocol, .. } = rule;
            if let (Some(net), RulePriorities::FROM_POD, PROTOCOL, false) = (from, priority, protocol, narrower) {
                let spec = RuleSpec { priority, family, from, to: None, fwmark: None, table };
                found.push((net.ip(), Object::Rule(spec)));
            }
        }
        let filter = RouteFilter { family, table: Some(PODS_TABLE), protocol: None, oif: None };
        let routed: Vec<IpAddr> = socket.routes(&filter)?.into_iter().map(|route| route.destination.ip()).collect();
        found.retain(|(address, _)| !routed.contains(address));
    }
    Ok(found)
}
