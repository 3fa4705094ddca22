//! The stage that repairs the host's side of running pods: rules that a network manager flushed, a MAC that udev rewrote, a
//! route that was deleted. The plugins create and remove all of it without the agent, so apparent drift may be a DEL under
//! way:
//!
//! ```text
//!   hint (event) ─ settles ─▶ recorded? ─▶ look ─ is confirmed ─▶ the same again? ─▶ still recorded? ─▶ repair
//! ```
//!
//! Only what a finished ADD recorded is repaired. What is repaired during a DEL is removed as an orphan.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use cni::AttachmentKey;
use datapath::host::HostVnic;
use datapath::{Places, Snapshot, Step, pods};
use ipam::{Allocation, Allocations, Store};
use netlink::Socket;
use resident::logging::chain;
use vcn::{IfName, Ocid};

use super::context::Context;
use super::gone_links::{GoneLinks, Moment};
use super::{StageReport, host_network};
use crate::decide::pods::network;
use crate::facts::condition::{Condition, Reason};
use crate::facts::reconcile_report::{Cause, Changed};
use crate::reconcile::drift_hints::DriftHints;

/// How long a hint waits: a DEL that caused it is over by then. A repair takes twice this and once [`CONFIRMED`], which must
/// stay below a second.
pub(crate) const SETTLED: Duration = Duration::from_millis(100);

/// How long the same drift must have lasted before it is repaired.
const CONFIRMED: Duration = Duration::from_millis(150);

/// The stage and what it remembers, by the host ends of pods' links.
#[derive(Debug, Default)]
pub(super) struct RunningPods {
    /// Hints that have yet to settle.
    hints: DriftHints,
    drift: HashMap<IfName, Drift>,
    failed: HashMap<IfName, FailedRepair>,
    gone: GoneLinks,
}

/// What a pod lacks.
#[derive(Debug)]
struct Drift {
    since: Instant,
    steps: Vec<Step>,
}

/// What could not be repaired.
#[derive(Debug)]
struct FailedRepair {
    steps: Vec<Step>,
    condition: Condition,
}

impl RunningPods {
    pub(super) fn run(&mut self, context: &Context<'_>, report: &mut StageReport) {
        let repaired = self.repair_all(context, report);
        report.conditions.extend(repaired.err());
    }

    /// Repairs what was missing before, notes what is missing now.
    fn repair_all(&mut self, context: &Context<'_>, report: &mut StageReport) -> Result<(), Condition> {
        let cause = context.cause;
        // Drift counts only if two reconciles in a row find it.
        let mut drift = if context.is_preview() { HashMap::new() } else { std::mem::take(&mut self.drift) };
        // Damaged records are set aside and restored by the stage of dead pods, or by the next plugin that needs them.
        let (held, damaged) = context.node.store.read_sound().map_err(|error| unreadable(&error))?;
        report.conditions.extend(damaged.as_ref().map(unreadable));
        // On another pod network only extra interfaces are from our plugins: that network may have assigned the other addresses.
        let is_ours = |it: &&Allocation| context.is_ours() || it.attached.is_some();
        let finished = held.allocations.iter().filter(|it| it.tentative_until.is_none());
        let running: Vec<&Allocation> = finished.filter(is_ours).collect();
        if !context.is_preview() {
            let moment = Moment { now: Instant::now(), dead_after: context.node.settings.dead_after };
            report.conditions.extend(self.gone.update(&running, &context.links, moment));
        }
        let broken = if running.is_empty() { Ok(Vec::new()) } else { broken(&running, context) };
        let (broken, mut places) = broken
            .and_then(|broken| Ok((broken, context.node.places()?)))
            .map_err(|error| Condition::degraded(Reason::PodNetworkBroken, chain(&error)).about("pods"))?;
        report.running = running.iter().map(|allocation| (*allocation).clone()).collect();
        if context.is_preview() {
            for (allocation, steps) in broken {
                report.changes.extend(steps.iter().map(|step| changed(step, allocation)));
            }
            return Ok(());
        }
        let now = Instant::now();
        let mut failed = std::mem::take(&mut self.failed);
        for (allocation, steps) in broken {
            let link = &allocation.host_link;
            let since = drift.remove(link).filter(|before| before.steps == steps).map_or(now, |before| before.since);
            // The kernel refused the same before, and trying causes events of its own. A timer retries.
            if let Some(known) = failed.remove(link).filter(|known| known.steps == steps && cause == Cause::Kernel) {
                self.failed.insert(link.clone(), known);
            } else if now.duration_since(since) < CONFIRMED {
                self.drift.insert(link.clone(), Drift { since, steps });
            } else {
                report.changes.extend(self.repair(allocation, steps, &context.node.store, &mut places));
            }
        }
        report.conditions.extend(self.failed.values().map(|failed| failed.condition.clone()));
        Ok(())
    }

    /// Whether a reconcile is due: for drift that was found, for a condition that a DEL ended, or for hints of kernel events
    /// about recorded pods. New `hints` must settle first.
    pub(super) fn needs_reconcile(
        &mut self,
        hints: DriftHints,
        deleted: &HashSet<AttachmentKey>,
        store: &Store,
    ) -> bool {
        let settled = std::mem::replace(&mut self.hints, hints);
        self.gone.end(deleted)
            || !self.drift.is_empty()
            || self.gone.is_waiting(Instant::now())
            || (!settled.is_empty() && store.read_sound().is_ok_and(|(held, _)| concerns(&settled, &held)))
    }

    /// When a reconcile is due although nothing happens.
    pub(super) fn again(&self) -> Option<Duration> {
        let settles = (!self.hints.is_empty()).then_some(SETTLED);
        let drift = (!self.drift.is_empty()).then_some(CONFIRMED);
        [settles, drift, self.gone.again()].into_iter().flatten().min()
    }

    /// Applies each step, even if others fail.
    fn repair(
        &mut self,
        allocation: &Allocation,
        steps: Vec<Step>,
        store: &Store,
        places: &mut Places,
    ) -> Vec<Changed> {
        // A DEL or an ADD is under way.
        if !matches!(store.find(&allocation.key), Ok(Some(now)) if now == *allocation) {
            return Vec::new();
        }
        let (mut changes, mut errors) = (Vec::new(), Vec::new());
        for step in &steps {
            match datapath::apply(std::slice::from_ref(step), places) {
                Ok(()) => changes.push(changed(step, allocation)),
                Err(error) if error.is_already_exists() => {}
                Err(error) => errors.push(chain(&error)),
            }
        }
        let link = &allocation.host_link;
        let gone = || Socket::open().and_then(|mut socket| socket.link(link)).is_err_and(|error| error.is_not_found());
        if !errors.is_empty() && !gone() {
            let about = allocation.holder();
            let condition = Condition::degraded(Reason::PodNetworkBroken, errors.join("; ")).about(about);
            self.failed.insert(link.clone(), FailedRepair { steps, condition });
        }
        changes
    }
}

/// The pods that lack something, and what.
fn broken<'a>(
    running: &[&'a Allocation],
    context: &Context<'_>,
) -> Result<Vec<(&'a Allocation, Vec<Step>)>, datapath::Error> {
    let mut places = context.node.places()?;
    let host = Snapshot::of_host(&mut places)?;
    let lacks = |allocation: &&'a Allocation| {
        let network = network(allocation, |id| link_of(context.vnics(), id));
        let steps = pods::repairs(&host, &network, allocation.mtu, &places)?;
        (!steps.is_empty()).then_some((*allocation, steps))
    };
    Ok(running.iter().filter_map(lacks).collect())
}

/// Whether hints are about pods that a finished ADD recorded.
fn concerns(hints: &DriftHints, held: &Allocations) -> bool {
    held.allocations.iter().filter(|allocation| allocation.tentative_until.is_none()).any(|allocation| {
        hints.links.contains(&allocation.host_link)
            || allocation.addresses.iter().any(|assigned| hints.addresses.contains(&assigned.address))
    })
}

/// The link that carries a VNIC now.
pub(super) fn link_of(vnics: &[HostVnic], id: &Ocid) -> Option<IfName> {
    vnics.iter().find(|host| host.vnic.id == *id).map(|host| host.placement.link().clone())
}

fn unreadable(error: &ipam::Error) -> Condition {
    Condition::degraded(Reason::StateFailed, chain(error)).about("allocations")
}

fn changed(step: &Step, allocation: &Allocation) -> Changed {
    let Changed { noun, text } = host_network::changed(step);
    Changed { noun, text: format!("{text} (pod {})", allocation.holder()) }
}
