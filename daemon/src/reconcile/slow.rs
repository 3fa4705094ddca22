//! Stages that do not look in every reconcile. One that is skipped reports what it found last: otherwise its conditions would
//! come and go with every kernel event, and each time put off the next retry.

use super::context::Context;
use super::{Stage, StageReport};
use crate::report::condition::Condition;
use crate::report::reconcile_report::Cause;

/// A stage that kernel events and previews skip: events come with every pod, and it can wait for the timer.
#[derive(Debug)]
pub(super) struct SlowStage<S> {
    stage: S,
    /// What it found when it ran last.
    found: Vec<Condition>,
}

impl<S> SlowStage<S> {
    pub(super) const fn new(stage: S) -> Self {
        Self { stage, found: Vec::new() }
    }

    fn run_or_repeat(&mut self, cause: Cause, is_ours: bool, run: impl FnOnce(&mut S) -> StageReport) -> StageReport {
        if is_ours && matches!(cause, Cause::Kernel | Cause::Preview) {
            return StageReport::of_conditions(self.found.iter().cloned());
        }
        let report = run(&mut self.stage);
        self.found.clone_from(&report.conditions);
        report
    }
}

impl<S: Stage> Stage for SlowStage<S> {
    fn run(&mut self, context: &Context<'_>) -> StageReport {
        self.run_or_repeat(context.cause, context.is_ours(), |stage| stage.run(context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::condition::Reason;

    #[test]
    fn skipped_stage_repeats_its_conditions_until_it_runs_again() {
        let left = || Condition::degraded(Reason::AttachmentLeftOver, "ip rule").about("a");
        let mut slow = SlowStage::new(0);
        let mut run = |cause, is_ours, found: Option<Condition>| {
            let report = slow.run_or_repeat(cause, is_ours, |runs| {
                *runs += 1;
                StageReport::of_conditions(found)
            });
            (slow.stage, report.conditions)
        };
        assert_eq!(run(Cause::Kernel, true, Some(left())), (0, vec![]));
        assert_eq!(run(Cause::Timer, true, Some(left())), (1, vec![left()]));
        for cause in [Cause::Kernel, Cause::Kernel, Cause::Preview] {
            assert_eq!(run(cause, true, None), (1, vec![left()]));
        }
        assert_eq!(run(Cause::Retry, true, None), (2, vec![]));
        assert_eq!(run(Cause::Start, true, Some(left())), (3, vec![left()]));
        assert_eq!(run(Cause::Kernel, false, None), (4, vec![]), "another pod network owns the node");
        assert_eq!(run(Cause::Kernel, true, None), (4, vec![]));
    }
}
