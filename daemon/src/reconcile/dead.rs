//! Ends attachments whose pods have gone without a DEL, because the runtime lost them or was killed: otherwise
//! their addresses leak.
//!
//! ```text
//!   recorded ─▶ no link with its alias ─▶ later: still none, the same record ─▶ work of DEL ─▶ cooldown of the addresses
//! ```
//!
//! Only the link decides: namespace paths go stale. A pod with a link is never touched. An Exclusive VNIC's link has no end on
//! the host as long as its pod lives. When the pod ends, a device comes back, and a VLAN link goes with the pod. The next pod
//! that requests the VNIC finds that out. What a DEL could not end is another stage's: `unreturned.rs`.

use std::collections::HashMap;
use std::time::Instant;

use attachment::{Access, Ended, Report};
use datapath::{Snapshot, pod};
use ipam::{Allocation, BootTime};
use resident::logging::chain;

use super::context::Context;
use super::stage::unknown;
use super::{StageReport, host};
use crate::decide::pods::is_dead;
use crate::facts::condition::{Condition, Reason};
use crate::facts::reconcile_report::Changed;

/// The subject of conditions.
const ABOUT: &str = "pods that have gone";

/// Attachments that may have ended.
#[derive(Debug, Default)]
pub(super) struct DeadPods {
    /// Attachments without link, by their keys.
    absent: HashMap<String, DeadCandidate>,
}

#[derive(Debug)]
struct DeadCandidate {
    since: Instant,
    allocation: Allocation,
    /// Why it could not be ended.
    error: Option<String>,
}

impl DeadPods {
    /// Restores what was lost, ends what is dead.
    pub(super) fn run(&mut self, context: &Context<'_>, report: &mut StageReport) {
        if context.is_ours()
            && let Err(condition) = restore_records(context, report)
        {
            report.conditions.push(condition);
        }
        if let Err(error) = self.end_all(context, report) {
            report.conditions.push(unknown(ABOUT, error.as_ref()));
        }
    }

    /// Ends what is dead, notes what seems so.
    fn end_all(&mut self, context: &Context<'_>, report: &mut StageReport) -> Result<(), Box<dyn std::error::Error>> {
        let store = &context.node.store;
        let (Ok((held, _)), Ok(now)) = (store.read_sound(), BootTime::now()) else { return Ok(()) };
        // The ADD of a lease that ran out has had longer than the least time.
        let is_overdue = |it: &Allocation| it.tentative_until.is_some_and(|until| until <= now);
        // On another pod network only extra interfaces are from our plugins: that network may have assigned the other addresses.
        let all = held.allocations.into_iter().filter(|it| context.is_ours() || it.attached.is_some());
        let is_settled = |it: &Allocation| it.tentative_until.is_none() && it.unreturned_since.is_none();
        let settled: Vec<Allocation> = all.filter(|it| is_settled(it) || is_overdue(it)).collect();
        if settled.is_empty() {
            self.absent.clear();
            return Ok(());
        }
        let (links, nics) = (host::links()?, context.node.settings.nics());
        let before = std::mem::take(&mut self.absent);
        for allocation in settled.into_iter().filter(|it| is_overdue(it) || is_dead(it, &links, &nics)) {
            let key = allocation.key.to_string();
            let known = before.get(&key).filter(|known| known.allocation == allocation);
            let since = known.map_or_else(Instant::now, |known| known.since);
            let is_due = known.is_some() && since.elapsed() >= context.node.settings.dead_after;
            let mut error = None;
            if is_due || is_overdue(&allocation) {
                // An ADD of the same attachment may have come first.
                let still_dead =
                    |it: &Allocation| is_overdue(it) || host::links().is_ok_and(|links| is_dead(it, &links, &nics));
                error = match end(&allocation, still_dead, context, report) {
                    Ok(Ended::Busy) => known.and_then(|known| known.error.clone()),
                    Ok(Ended::Freed { .. } | Ended::LinkMissing(_) | Ended::Spared) => continue,
                    Err(error) => Some(error),
                };
                report.conditions.extend(error.iter().map(|error| {
                    Condition::degraded(Reason::AttachmentLeftOver, error.clone()).about(allocation.holder())
                }));
            }
            self.absent.insert(key, DeadCandidate { since, allocation, error });
        }
        Ok(())
    }
}

/// Restores records that were lost, or that a killed plugin left half-written: addresses of running pods are held, those
/// that nothing leads to are free.
fn restore_records(context: &Context<'_>, report: &mut StageReport) -> Result<(), Condition> {
    let store = &context.node.store;
    // Unreadable records are reported by the stage of running pods; damaged ones are restored like lost ones.
    if !matches!(store.sweep(), Ok(true) | Err(ipam::Error::Damaged { .. })) {
        return Ok(());
    }
    let mut places = context.node.places().map_err(|error| unknown(ABOUT, &error))?;
    let host = Snapshot::of_host(&mut places).map_err(|error| unknown(ABOUT, &error))?;
    // After the kernel has answered: a damaged record may be all that is known of who holds what.
    let set_aside = store.set_aside();
    let set_aside = set_aside
        .map_err(|error| Condition::degraded(Reason::StateFailed, chain(&error)).about("damaged allocations"))?;
    report.changes.extend(
        set_aside
            .map(|path| Changed::new("attachment", format!("attachment: what was damaged is now {}", path.display()))),
    );
    let pools = context.node.pools().ok();
    let restored = store.reconcile_with_kernel(&pod::owners(&host), pools.as_ref(), None, |link| places.has_link(link));
    if let Ok(count @ 1..) = restored {
        let text = format!("attachment add: the record of {count} running pod(s) was lost and was restored");
        report.changes.push(Changed::new("attachment", text));
    }
    Ok(())
}

/// Does what DEL does, if the record is still `allocation` and the pod is `still_dead` when no plugin works on it. An error says
/// what is left.
pub(super) fn end(
    allocation: &Allocation,
    still_dead: impl Fn(&Allocation) -> bool,
    context: &Context<'_>,
    report: &mut StageReport,
) -> Result<Ended, String> {
    let node = attachment::Node::of_agent(&context.node.settings.state_dir, &context.node.boot);
    let node = node.map_err(|error| chain(&error))?;
    let is_due = |found: Option<&Allocation>| found.is_some_and(|found| found == allocation && still_dead(found));
    let mut unsent = Report::of_agent(&allocation.key);
    let ended = attachment::end(&allocation.key, &node, Access::Try, is_due, &mut unsent)
        .map_err(|error| format!("its pod is gone, but not all of its network: {error}"))?;
    if let Ended::Freed { allocation: Some(released), .. } = &ended {
        report.changes.push(freed(released));
    }
    Ok(ended)
}

fn freed(allocation: &Allocation) -> Changed {
    let addresses: Vec<String> = allocation.addresses.iter().map(|assigned| assigned.address.to_string()).collect();
    let text = format!(
        "attachment del {} ({}; pod {}, whose link {} is gone without a DEL)",
        allocation.key,
        addresses.join(", "),
        allocation.holder(),
        allocation.host_link
    );
    Changed::new("attachment", text)
}
