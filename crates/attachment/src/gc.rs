//! GC: what the runtime no longer knows goes, as by DEL.

use std::time::Duration;

use cni::{AttachmentKey, Error};
use ipam::Allocation;

use crate::end::{Access, Ended, end, link_missing};
use crate::failure;
use crate::node::Node;
use crate::report::Report;

/// An attachment this young may belong to an ADD that the runtime has not recorded yet.
const SPARED: Duration = Duration::from_secs(30);

/// Ends all attachments that are dead; goes on after a failure.
///
/// # Errors
/// All failures, in one.
pub fn gc(node: &Node, is_dead: impl Fn(&Allocation) -> bool, report: &mut Report) -> Result<(), Error> {
    // What a killed run freed by half has no record, and so no attachment that the runtime could call dead.
    let mut outcome = node.sweep(None, report);
    let (held, unreadable) = node.store.read_sound().map_err(|error| failure::of_ipam(&error))?;
    if let Some(error) = unreadable {
        outcome = both(outcome, Err(failure::of_ipam(&error)));
    }
    let dead = |held: &&Allocation| is_dead(held) && node.now.since(held.since) >= SPARED;
    // One that resists must not keep the others.
    for allocation in held.allocations.iter().filter(dead) {
        outcome = both(outcome, free(&allocation.key, dead, node, report));
    }
    both(outcome, node.remove_orphans(report))
}

fn both(outcome: Result<(), Error>, next: Result<(), Error>) -> Result<(), Error> {
    match (outcome, next) {
        (Err(first), Err(error)) => Err(first.with_details(error)),
        (outcome, next) => outcome.and(next),
    }
}

/// As DEL does, if it is still dead when no other verb acts on it any more.
fn free(
    key: &AttachmentKey,
    dead: impl Fn(&&Allocation) -> bool,
    node: &Node,
    report: &mut Report,
) -> Result<(), Error> {
    let is_due = |found: Option<&Allocation>| found.is_some_and(|found| dead(&found));
    match end(key, node, Access::Wait, is_due, report)? {
        Ended::Freed { allocation, .. } => {
            allocation.iter().for_each(|allocation| report.addresses(&allocation.addresses));
        }
        Ended::LinkMissing(allocation) => report.note(link_missing(&allocation)),
        Ended::Busy | Ended::Spared => {}
    }
    Ok(())
}
