//! When a VNIC without a link is worth a condition: not while it is being attached or detached. Its link goes before the
//! metadata service's list does, and may come after it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::report::condition::{Condition, Reason};
use crate::report::reconcile_report::Cause;

/// VNICs without a link, and from when on each is reported.
#[derive(Debug, Default)]
pub(super) struct Unplugged(BTreeMap<String, Instant>);

impl Unplugged {
    /// Keeps of the conditions what is to be reported now. One of a VNIC that is no longer listed is not; any other waits for
    /// the grace, unless the agent has just started or only a preview was asked for.
    pub(super) fn settle(
        &mut self,
        conditions: &mut Vec<Condition>,
        is_listed: impl Fn(&str) -> bool,
        (cause, grace, now): (Cause, Duration, Instant),
    ) {
        let before = std::mem::take(&mut self.0);
        let mut due = BTreeMap::new();
        conditions.retain(|condition| {
            let Some(vnic) = condition.subject.as_ref().filter(|_| condition.reason == Reason::LinkMissing) else {
                return true;
            };
            let wait = if cause == Cause::Start { Duration::ZERO } else { grace };
            let from = *due.entry(vnic.clone()).or_insert(before.get(vnic).copied().unwrap_or(now + wait));
            is_listed(vnic) && (from <= now || cause == Cause::Preview)
        });
        self.0 = if cause == Cause::Preview { before } else { due };
    }

    /// In what time another one is to be reported, if nothing changes.
    pub(super) fn next(&self, now: Instant) -> Option<Duration> {
        self.0.values().filter(|due| **due > now).map(|due| due.saturating_duration_since(now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    #[test]
    fn a_missing_link_is_reported_after_the_grace_unless_its_vnic_leaves_the_list() {
        let (mut unplugged, begun) = (Unplugged::default(), Instant::now());
        let other = || Condition::degraded(Reason::NftFailed, "busy");
        let mut pass = |cause, seconds, missing: &[&str], listed: &[&str]| {
            let now = begun + Duration::from_secs(seconds);
            let missing = missing.iter().map(|vnic| Condition::degraded(Reason::LinkMissing, "no link").about(vnic));
            let mut conditions: Vec<Condition> = missing.chain([other()]).collect();
            unplugged.settle(&mut conditions, |vnic| listed.contains(&vnic), (cause, GRACE, now));
            assert_eq!(conditions.pop(), Some(other()));
            let told: Vec<String> = conditions.into_iter().filter_map(|it| it.subject).collect();
            (told.join(" "), unplugged.next(now).map(|wait| wait.as_secs()))
        };
        let told = |vnics: &str, next| (vnics.to_owned(), next);
        assert_eq!(pass(Cause::Start, 0, &["old"], &["old"]), told("old", None), "it was so before");
        assert_eq!(pass(Cause::Kernel, 10, &["a", "old"], &["a", "old"]), told("old", Some(30)));
        assert_eq!(pass(Cause::Preview, 20, &["a", "b"], &["a", "b"]), told("a b", Some(20)), "who asks is told");
        assert_eq!(pass(Cause::Kernel, 39, &["a"], &["a"]), told("", Some(1)));
        assert_eq!(pass(Cause::Timer, 40, &["a"], &["a"]), told("a", None));
        assert_eq!(pass(Cause::Sources, 41, &["a"], &[]), told("", None), "it was detached");
        assert_eq!(pass(Cause::Kernel, 42, &[], &["a"]), told("", None), "the link is back");
        assert_eq!(pass(Cause::Kernel, 43, &["a"], &["a"]), told("", Some(30)));
    }
}
