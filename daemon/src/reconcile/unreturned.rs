//! The stage of VNICs whose pod was deleted and whose link another namespace has: a pod may move its link anywhere. DEL succeeded,
//! record and VNIC stay taken, and this stage reports that until the namespace ends and the kernel returns the link.

use attachment::Ended;
use ipam::{Allocation, Store};

use super::context::Context;
use super::{StageReport, dead};
use crate::facts::condition::{Condition, Reason};

/// The stage, and the records that it found when it ran last.
#[derive(Debug, Default)]
pub(super) struct UnreturnedLinks {
    /// Whether the node has VNICs that one pod at a time has: only those have such records.
    has_exclusive: bool,
    known: Vec<Allocation>,
}

impl UnreturnedLinks {
    /// Ends those whose link is back, reports the others.
    pub(super) fn run(&mut self, context: &Context<'_>, report: &mut StageReport) {
        self.has_exclusive = !context.desired.exclusive.is_empty();
        let mut left = Vec::new();
        for allocation in unreturned(&context.node.store) {
            let error = match context.is_preview() {
                true => None,
                false => match dead::end(&allocation, |_| true, context, report) {
                    Ok(Ended::Freed { .. } | Ended::Spared) => continue,
                    Ok(Ended::LinkMissing(_) | Ended::Busy) => None,
                    Err(error) => Some(error),
                },
            };
            report.conditions.push(condition(&allocation, error));
            left.push(allocation);
        }
        self.known = left;
    }

    /// Whether a DEL left another one since.
    pub(super) fn has_new(&self, store: &Store) -> bool {
        self.has_exclusive && unreturned(store).iter().any(|it| !self.known.contains(it))
    }
}

fn unreturned(store: &Store) -> Vec<Allocation> {
    // Unreadable records are reported by the stage of running pods.
    let Ok((held, _)) = store.read_sound() else { return Vec::new() };
    held.allocations.into_iter().filter(|it| it.unreturned_since.is_some()).collect()
}

/// About the VNIC, whose VnicAttachment then has the reason.
fn condition(allocation: &Allocation, error: Option<String>) -> Condition {
    let name = allocation.attached.as_ref().map_or("?", |attached| attached.vnic.as_str());
    let why = error.map(|error| format!(" ({error})")).unwrap_or_default();
    let message = format!("{} (VNIC {name}); no other pod gets the VNIC{why}", attachment::link_missing(allocation));
    let condition = Condition::degraded(Reason::LinkNotReturned, message);
    match allocation.addresses.first() {
        Some(held) => condition.about(&held.vnic_id),
        None => condition.about(allocation.holder()),
    }
}
