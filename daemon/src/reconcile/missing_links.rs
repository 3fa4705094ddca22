//! When a VNIC without a link is worth a condition: not while it is being attached or detached. Its link goes before the
//! metadata service's list drops it, and may come after the list has it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::facts::condition::{Condition, Reason};
use crate::facts::reconcile_report::Cause;

/// VNICs without a link.
#[derive(Debug, Default)]
pub(super) struct MissingLinks {
    /// The time from which each is reported.
    due: BTreeMap<String, Instant>,
    /// The earliest of those that the last reconcile did not report. It may be over when that reconcile ends.
    next: Option<Instant>,
}

/// When a reconcile runs, and why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) cause: Cause,
    pub(super) now: Instant,
    /// How long a VNIC may lack its link before that is reported.
    pub(super) grace: Duration,
}

impl MissingLinks {
    /// Drops the conditions that are not to be reported yet. They concern VNICs that are no longer listed, and those within the
    /// grace period, unless the agent has just started or only a preview was requested.
    pub(super) fn hold_back(
        &mut self,
        conditions: &mut Vec<Condition>,
        is_listed: impl Fn(&str) -> bool,
        Moment { cause, now, grace }: Moment,
    ) {
        let mut due = BTreeMap::new();
        conditions.retain(|condition| {
            let Some(vnic) = condition.subject.as_ref().filter(|_| condition.reason == Reason::LinkMissing) else {
                return true;
            };
            let wait = if cause == Cause::Start { Duration::ZERO } else { grace };
            let from = *due.entry(vnic.clone()).or_insert(self.due.get(vnic).copied().unwrap_or(now + wait));
            is_listed(vnic) && (from <= now || cause == Cause::Preview)
        });
        if cause != Cause::Preview {
            self.next = due.values().copied().filter(|due| *due > now).min();
            self.due = due;
        }
    }

    /// The time until another one is to be reported, if nothing changes.
    pub(super) fn next(&self, now: Instant) -> Option<Duration> {
        self.next.map(|due| due.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    #[test]
    fn missing_link_is_reported_after_grace_unless_vnic_is_unlisted() {
        let (mut links, begun) = (MissingLinks::default(), Instant::now());
        let other = || Condition::degraded(Reason::NftFailed, "busy");
        let mut reconcile = |cause, seconds, missing: &[&str], listed: &[&str]| {
            let now = begun + Duration::from_secs(seconds);
            let missing = missing.iter().map(|vnic| Condition::degraded(Reason::LinkMissing, "no link").about(vnic));
            let mut conditions: Vec<Condition> = missing.chain([other()]).collect();
            links.hold_back(&mut conditions, |vnic| listed.contains(&vnic), Moment { cause, now, grace: GRACE });
            assert_eq!(conditions.pop(), Some(other()));
            let vnics: Vec<String> = conditions.into_iter().filter_map(|it| it.subject).collect();
            (vnics.join(" "), links.next(now).map(|wait| wait.as_secs()))
        };
        let reported = |vnics: &str, next| (vnics.to_owned(), next);
        assert_eq!(reconcile(Cause::Start, 0, &["old"], &["old"]), reported("old", None), "it was so before");
        assert_eq!(reconcile(Cause::Kernel, 10, &["a", "old"], &["a", "old"]), reported("old", Some(30)));
        assert_eq!(
            reconcile(Cause::Preview, 20, &["a", "b"], &["a", "b"]),
            reported("a b", Some(20)),
            "a preview reports it at once"
        );
        assert_eq!(reconcile(Cause::Kernel, 39, &["a"], &["a"]), reported("", Some(1)));
        assert_eq!(reconcile(Cause::Timer, 40, &["a"], &["a"]), reported("a", None));
        assert_eq!(reconcile(Cause::Sources, 41, &["a"], &[]), reported("", None), "it was detached");
        assert_eq!(reconcile(Cause::Kernel, 42, &[], &["a"]), reported("", None), "the link is back");
        assert_eq!(reconcile(Cause::Kernel, 43, &["a"], &["a"]), reported("", Some(30)));
        assert_eq!(links.next(begun + 2 * GRACE + GRACE), Some(Duration::ZERO), "this reconcile took longer");
    }
}
