//! The stage of what pods left behind that ended without a DEL: attachments, and objects without one.

use super::StageReport;
use super::context::Context;
use super::dead::DeadPods;
use super::orphans::OrphanedObjects;
use crate::facts::condition::Condition;
use crate::facts::reconcile_report::Cause;

#[derive(Debug, Default)]
pub(super) struct Remains {
    dead: DeadPods,
    orphans: OrphanedObjects,
    /// What it found when it ran last.
    found: Vec<Condition>,
}

impl Remains {
    pub(super) fn run(&mut self, context: &Context<'_>, report: &mut StageReport) {
        // Kernel events come with every pod, and this can wait for the timer. Meanwhile it reports what it found last: otherwise
        // its conditions would come and go with every event, and each time put off the next retry.
        if context.is_ours() && matches!(context.cause, Cause::Kernel | Cause::Preview) {
            report.conditions.extend(self.found.iter().cloned());
            return;
        }
        let before = report.conditions.len();
        self.dead.run(context, report);
        self.orphans.run(context, report);
        self.found = report.conditions.iter().skip(before).cloned().collect();
    }
}
