//! The stage of what pods left behind that ended without a DEL: attachments, and objects without one.

use resident::logging::chain;

use super::context::Context;
use super::dead::DeadPods;
use super::orphans::OrphanedObjects;
use super::{Stage, StageReport};
use crate::report::condition::{Condition, Reason};
use crate::report::reconcile_report::Cause;

#[derive(Debug, Default)]
pub(super) struct Remains {
    dead: DeadPods,
    orphans: OrphanedObjects,
    /// What it found when it ran last.
    found: Vec<Condition>,
}

impl Stage for Remains {
    fn run(&mut self, context: &Context<'_>) -> StageReport {
        // Kernel events come with every pod, and this can wait for the timer. Meanwhile it reports what it found last: otherwise
        // its conditions would come and go with every event, and each time put off the next retry.
        if context.is_ours() && matches!(context.cause, Cause::Kernel | Cause::Preview) {
            return StageReport::of_conditions(self.found.iter().cloned());
        }
        let mut report = StageReport::default();
        self.dead.run(context, &mut report);
        self.orphans.run(context, &mut report);
        self.found.clone_from(&report.conditions);
        report
    }
}

/// Why remains are not known, or not removed.
pub(super) fn unknown(about: &str, error: &(dyn std::error::Error + 'static)) -> Condition {
    Condition::degraded(Reason::HostNetworkFailed, chain(error)).about(about)
}
