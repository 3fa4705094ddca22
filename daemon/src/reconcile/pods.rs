//! The stage that keeps the host's side of running pods whole: rules that a network manager flushed, a MAC that udev
//! rewrote, a route that somebody deleted. The plugins make and remove all of it without asking us, so what looks broken
//! may be a DEL half done:
//!
//! ```text
//!   sign (event) ─ settles ─▶ still on record? ─▶ look ─ settles ─▶ the same again? ─▶ on record yet? ─▶ repair
//!                                                                      and later: pod gone? ─▶ take the repair back
//! ```
//!
//! Only what a finished ADD left on record is repaired; what belongs to no record is not looked at.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use datapath::host::HostVnic;
use datapath::pod::{LinkEnds, PodAddress, PodNetwork};
use datapath::pods::Observed;
use datapath::{Change, Object, Places, Step, dismantle};
use ipam::{Allocation, Allocations, BootId, Store};
use netlink::Socket;
use resident::logging::chain;
use vcn::{IfName, Mtu, Ocid};

use super::{Findings, stages};
use crate::decide::usage::holder;
use crate::report::condition::{Condition, Reason};
use crate::report::reconcile_report::{Cause, Changed};
use crate::triggers::drift_hints::Suspects;

/// How long a sign is left alone: a DEL that made it is over by then. Twice this and once [`CONFIRMED`] make the time that
/// a repair takes, which is to stay below a second.
pub(crate) const SETTLED: Duration = Duration::from_millis(100);

/// How long something must have been missing in the same way.
const CONFIRMED: Duration = Duration::from_millis(150);

/// How often it is asked whether a pod that was repaired has gone meanwhile, and for how long.
const WATCHED_EVERY: Duration = Duration::from_secs(1);
const WATCHED_FOR: Duration = Duration::from_secs(120);

/// The stage and what it remembers from pass to pass, by the host ends of pods' links.
#[derive(Debug)]
pub(super) struct Pods {
    store: Store,
    sysctl_root: PathBuf,
    /// Signs that have settled.
    suspects: Suspects,
    drift: HashMap<IfName, Drift>,
    repaired: HashMap<IfName, Repaired>,
    failed: HashMap<IfName, Failed>,
}

/// What a pod was found to lack.
#[derive(Debug)]
struct Drift {
    since: Instant,
    steps: Vec<Step>,
}

/// What was added for a pod that may have been on its way out.
#[derive(Debug)]
struct Repaired {
    allocation: Allocation,
    at: Instant,
    /// What does not go with the pod's link.
    added: Vec<(IpAddr, Step)>,
}

/// What could not be repaired.
#[derive(Debug)]
struct Failed {
    steps: Vec<Step>,
    condition: Condition,
}

/// Whether and when to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// A pass is due.
    pub look: bool,
    /// When to ask again.
    pub again: Option<Duration>,
}

impl Pods {
    pub(super) fn new(state_dir: &Path, sysctl_root: &Path, boot: BootId) -> Self {
        Self {
            store: Store::new(state_dir, boot),
            sysctl_root: sysctl_root.to_owned(),
            suspects: Suspects::default(),
            drift: HashMap::new(),
            repaired: HashMap::new(),
            failed: HashMap::new(),
        }
    }

    /// Repairs what was missing before, notes what is missing now.
    pub(super) fn stage(&mut self, cause: Cause, vnics: &[HostVnic], findings: &mut Findings) {
        // Whatever comes of this look, what the last one found missing has been looked at.
        let mut drift = match cause {
            Cause::Preview => HashMap::new(),
            _ => std::mem::take(&mut self.drift),
        };
        // What is damaged is set aside and made anew by the stage of the dead, or by the next verb that needs it.
        let held = match self.store.read_sound() {
            Ok((held, damaged)) => {
                findings.conditions.extend(damaged.as_ref().map(trouble));
                held
            }
            Err(error) => return findings.conditions.push(trouble(&error)),
        };
        let running: Vec<&Allocation> =
            held.allocations.iter().filter(|allocation| allocation.tentative_until.is_none()).collect();
        let broken = if running.is_empty() { Ok(Vec::new()) } else { self.broken(&running, vnics) };
        let (broken, mut places) = match broken.and_then(|broken| Ok((broken, self.places()?))) {
            Ok(found) => found,
            Err(error) => {
                let condition = Condition::degraded(Reason::PodNetworkBroken, chain(&error));
                return findings.conditions.push(condition.about("pods"));
            }
        };
        if cause == Cause::Preview {
            for (allocation, steps) in broken {
                findings.changes.extend(steps.iter().map(|step| changed(step, allocation)));
            }
            return;
        }
        let now = Instant::now();
        let mut failed = std::mem::take(&mut self.failed);
        for (allocation, steps) in broken {
            let link = &allocation.host_link;
            let since = drift.remove(link).filter(|before| before.steps == steps).map_or(now, |before| before.since);
            // Nothing new: the kernel refuses it, and a try makes events of its own. A timer tries again.
            if let Some(known) = failed.remove(link).filter(|known| known.steps == steps && cause == Cause::Kernel) {
                self.failed.insert(link.clone(), known);
            } else if now.duration_since(since) < CONFIRMED {
                self.drift.insert(link.clone(), Drift { since, steps });
            } else {
                self.repair(allocation, steps, &mut places, findings);
            }
        }
        self.take_back(&mut places, findings);
        findings.conditions.extend(self.failed.values().map(|failed| failed.condition.clone()));
    }

    /// Nothing is to be repaired here any more, or not yet.
    pub(super) fn rest(&mut self, findings: &mut Findings) {
        // Nobody here makes it anew then, but a verb for a pod that came before.
        if let Err(error) = self.store.read() {
            findings.conditions.push(trouble(&error));
        }
        self.drift.clear();
        self.repaired.clear();
        self.failed.clear();
    }

    /// Whether something is to be looked at: what was found missing, what the kernel's events (`signs`) say of pods that
    /// are on record, pods that went after they were repaired.
    pub(super) fn attention(&mut self, signs: Suspects) -> Attention {
        let settled = std::mem::replace(&mut self.suspects, signs);
        let gone = |repaired: &Repaired| {
            repaired.at.elapsed() < WATCHED_FOR && matches!(self.store.find(&repaired.allocation.key), Ok(None))
        };
        let look = !self.drift.is_empty()
            || (!settled.is_empty() && self.store.read_sound().is_ok_and(|(held, _)| concerns(&settled, &held)))
            || self.repaired.values().any(gone);
        Attention { look, again: self.again() }
    }

    /// When attention is due although nothing happens.
    pub(super) fn again(&self) -> Option<Duration> {
        if !self.drift.is_empty() {
            Some(CONFIRMED)
        } else if !self.suspects.is_empty() {
            Some(SETTLED)
        } else {
            (!self.repaired.is_empty()).then_some(WATCHED_EVERY)
        }
    }

    fn places(&self) -> Result<Places, datapath::Error> {
        let what = "the host".to_owned();
        Places::host(&self.sysctl_root).map_err(|source| datapath::Error::Observe { what, source })
    }

    /// The pods that lack something, and what.
    fn broken<'a>(
        &self,
        running: &[&'a Allocation],
        vnics: &[HostVnic],
    ) -> Result<Vec<(&'a Allocation, Vec<Step>)>, datapath::Error> {
        let mut places = self.places()?;
        let observed = Observed::look(&mut places)?;
        let lacks = |allocation: &&'a Allocation| {
            let steps = observed.repairs(&network(allocation, |id| link_of(vnics, id)), allocation.mtu, &places)?;
            (!steps.is_empty()).then_some((*allocation, steps))
        };
        Ok(running.iter().filter_map(lacks).collect())
    }

    /// Takes each step, whatever becomes of the others.
    fn repair(&mut self, allocation: &Allocation, steps: Vec<Step>, places: &mut Places, findings: &mut Findings) {
        // Whoever runs a DEL or an ADD now knows better.
        if !matches!(self.store.find(&allocation.key), Ok(Some(now)) if now == *allocation) {
            return;
        }
        let mut errors = Vec::new();
        let mut added = Vec::new();
        for step in &steps {
            match datapath::apply(std::slice::from_ref(step), places) {
                Ok(()) => {
                    findings.changes.push(changed(step, allocation));
                    added.extend(stays_behind(step, &allocation.host_link).map(|address| (address, step.clone())));
                }
                Err(error) if error.is_already_exists() => {}
                Err(error) => errors.push(chain(&error)),
            }
        }
        let link = &allocation.host_link;
        let gone = || Socket::open().and_then(|mut socket| socket.link(link)).is_err_and(|error| error.is_not_found());
        if !errors.is_empty() && !gone() {
            let about = holder(allocation);
            let condition = Condition::degraded(Reason::PodNetworkBroken, errors.join("; ")).about(about);
            self.failed.insert(link.clone(), Failed { steps, condition });
        }
        if !added.is_empty() {
            let repaired = Repaired { allocation: allocation.clone(), at: Instant::now(), added };
            self.repaired.insert(link.clone(), repaired);
        }
    }

    /// Removes what was added for pods that have gone, where nobody else has the address by now.
    fn take_back(&mut self, places: &mut Places, findings: &mut Findings) {
        let find = |repaired: &Repaired| self.store.find(&repaired.allocation.key);
        let gone: Vec<IfName> =
            self.repaired.iter().filter(|(_, it)| matches!(find(it), Ok(None))).map(|(link, _)| link.clone()).collect();
        if !gone.is_empty()
            && let Ok(freed) = self.store.freed()
        {
            let free: HashSet<IpAddr> = freed.iter().map(|freed| freed.address).collect();
            for repaired in gone.iter().filter_map(|link| self.repaired.remove(link)) {
                for (_, step) in repaired.added.iter().filter(|(address, _)| free.contains(address)) {
                    let undo = step.undo();
                    if dismantle(std::slice::from_ref(&undo), places).is_empty() {
                        findings.changes.push(changed(&undo, &repaired.allocation));
                    }
                }
            }
        }
        self.repaired.retain(|_, repaired| repaired.at.elapsed() < WATCHED_FOR);
    }
}

/// Whether signs are about pods that a finished ADD left on record.
fn concerns(signs: &Suspects, held: &Allocations) -> bool {
    let mut links = signs.links.clone();
    if !signs.indices.is_empty()
        && let Ok(mut socket) = Socket::open()
    {
        links.extend(signs.indices.iter().filter_map(|index| Some(socket.link_at(*index).ok()?.name)));
    }
    held.allocations.iter().filter(|allocation| allocation.tentative_until.is_none()).any(|allocation| {
        links.contains(&allocation.host_link)
            || allocation.addresses.iter().any(|assigned| signs.addresses.contains(&assigned.address))
    })
}

/// What an allocation's network must be, as far as the host's side goes. A VNIC's link may have been renamed since ADD: the
/// name that `link_of` it says now is the one that counts.
pub(crate) fn network(allocation: &Allocation, link_of: impl Fn(&Ocid) -> Option<IfName>) -> PodNetwork {
    let address = |assigned: &ipam::Assigned| PodAddress {
        address: assigned.address,
        vnic_link: link_of(&assigned.vnic_id).unwrap_or_else(|| assigned.vnic_link.clone()),
        table: assigned.table,
    };
    PodNetwork {
        ends: LinkEnds::of(&allocation.key.to_string(), allocation.key.ifname.clone()),
        mtu: allocation.mtu.unwrap_or(Mtu::VCN),
        addresses: allocation.addresses.iter().map(address).collect(),
    }
}

/// The link that carries a VNIC now.
pub(super) fn link_of(vnics: &[HostVnic], id: &Ocid) -> Option<IfName> {
    vnics.iter().find(|host| host.vnic.id == *id).map(|host| host.placement.link().clone())
}

/// The address of an added object that does not go with the pod's link.
fn stays_behind(step: &Step, link: &IfName) -> Option<IpAddr> {
    match &step.change {
        Change::Add(Object::Rule(rule)) => rule.from.map(|from| from.ip()),
        Change::Add(Object::Neighbour(proxy)) if proxy.link != *link => Some(proxy.address),
        _ => None,
    }
}

fn trouble(error: &ipam::Error) -> Condition {
    Condition::degraded(Reason::StateFailed, chain(error)).about("allocations")
}

fn changed(step: &Step, allocation: &Allocation) -> Changed {
    let Changed { noun, text } = stages::changed(step);
    Changed { noun, text: format!("{text} (pod {})", holder(allocation)) }
}
