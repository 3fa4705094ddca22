//! Stages that do not look in every pass. A pass tells of all that is not as it should be, so one that such a stage sits out
//! tells what the stage found last: else a condition would come and go with every event of the kernel's, and each time put off
//! when what failed is tried again.

use super::Findings;
use crate::report::condition::Condition;
use crate::report::reconcile_report::Cause;

/// A stage that only slow passes have look.
#[derive(Debug)]
pub(super) struct Slow<S> {
    stage: S,
    /// What was wrong when it looked last.
    found: Vec<Condition>,
}

impl<S> Slow<S> {
    pub(super) const fn new(stage: S) -> Self {
        Self { stage, found: Vec::new() }
    }

    /// The stage itself, for its settings.
    pub(super) const fn stage(&mut self) -> &mut S {
        &mut self.stage
    }

    /// Has the stage look where the pass is worth it. Answers what it does; nothing of one that sits the pass out.
    pub(super) fn pass<T: Default>(
        &mut self,
        cause: Cause,
        findings: &mut Findings,
        look: impl FnOnce(&mut S, &mut Findings) -> T,
    ) -> T {
        // Events come with every pod; these stages can wait for the timer.
        if matches!(cause, Cause::Kernel | Cause::Preview) {
            findings.conditions.extend(self.found.iter().cloned());
            return T::default();
        }
        let mut own = Findings::default();
        let answer = look(&mut self.stage, &mut own);
        self.found.clone_from(&own.conditions);
        findings.conditions.extend(own.conditions);
        findings.changes.extend(own.changes);
        answer
    }

    /// Nothing is to be done here any more, or not yet: nothing is wrong with it.
    pub(super) fn rest(&mut self, rest: impl FnOnce(&mut S)) {
        self.found.clear();
        rest(&mut self.stage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::condition::Reason;
    use crate::report::reconcile_report::Changed;

    #[test]
    fn a_stage_that_sits_a_pass_out_says_what_it_said_when_it_looked_last_until_it_looks_again_or_rests() {
        let left = || Condition::degraded(Reason::AttachmentLeftOver, "ip rule").about("a");
        let mut slow = Slow::new(());
        let mut pass = |cause, wrong: Option<Condition>| {
            let mut findings = Findings::default();
            let looked = slow.pass(cause, &mut findings, |(), own| {
                own.conditions.extend(wrong);
                own.changes.push(Changed::new("rule", "del"));
                true
            });
            assert_eq!(looked, !findings.changes.is_empty());
            (looked, findings.conditions)
        };
        assert_eq!(pass(Cause::Kernel, Some(left())), (false, vec![]));
        assert_eq!(pass(Cause::Timer, Some(left())), (true, vec![left()]));
        for _ in 0..2 {
            assert_eq!(pass(Cause::Kernel, None), (false, vec![left()]));
        }
        assert_eq!(pass(Cause::Preview, None), (false, vec![left()]));
        assert_eq!(pass(Cause::Retry, None), (true, vec![]));
        assert_eq!(pass(Cause::Kernel, None), (false, vec![]));
        assert_eq!(pass(Cause::Start, Some(left())), (true, vec![left()]));
        slow.rest(|()| {});
        let mut findings = Findings::default();
        slow.pass(Cause::Kernel, &mut findings, |(), _| ());
        assert_eq!(findings.conditions, []);
    }
}
