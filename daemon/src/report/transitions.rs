//! The log lines of a reconcile: changes, and conditions raised or cleared since the one before. A reconcile that equals the one
//! before logs nothing.

use crate::facts::condition::{Condition, Reason};
use crate::facts::reconcile_report::{Cause, ReconcileReport};

/// Changes of one reconcile that get a line each; flushing the rules of a full node causes some 500.
const LOGGED: usize = 50;

pub(crate) fn log(before: Option<&ReconcileReport>, now: &ReconcileReport) {
    let cause = now.cause.as_str();
    let logged = if is_reverted(now) && before.is_some_and(is_reverted) { 0 } else { LOGGED };
    for change in now.changes.iter().take(logged) {
        let event = match (change.noun.as_str(), now.cause) {
            ("pools", _) => "pools.written",
            ("cni", _) => "cni.installed",
            // The facts are the same, so another program changed our objects.
            (_, Cause::Kernel | Cause::Files | Cause::Timer) => "host.repaired",
            _ => "host.configured",
        };
        tracing::info!(event, cause, change = %change.text);
    }
    let more = now.changes.len().saturating_sub(logged);
    if logged > 0 && more > 0 {
        tracing::info!(
            event = "host.changed_more",
            cause,
            changes = more,
            "further changes of this reconcile, not logged one by one"
        );
    }
    let none: &[Condition] = &[];
    let conditions = before.map_or(none, |report| report.conditions.as_slice());
    for condition in new_conditions(conditions, &now.conditions) {
        let Condition { reason, subject, message, .. } = condition;
        let subject = subject.as_deref().unwrap_or_default();
        if condition.blocks() {
            tracing::error!(event = "condition.raised", %reason, subject, blocking = true, "{message}");
        } else {
            tracing::warn!(event = "condition.raised", %reason, subject, blocking = false, "{message}");
        }
    }
    for Condition { reason, subject, .. } in new_conditions(&now.conditions, conditions) {
        tracing::info!(event = "condition.cleared", %reason, subject = subject.as_deref().unwrap_or_default());
    }
    if let Some(state) = &now.pod_network
        && before.and_then(|report| report.pod_network.as_ref()) != Some(state)
    {
        let (install, decided_by, status) = (state.install, state.decided_by.as_str(), state.status.as_str());
        let notes = state.notes.join("; ");
        tracing::info!(event = "pod_network.decided", install, decided_by, status, notes, "{}", state.reason);
    }
    let was_ready = before.is_some_and(ReconcileReport::is_ready);
    if was_ready != now.is_ready() {
        let event = if now.is_ready() { "agent.ready" } else { "agent.not_ready" };
        tracing::info!(event);
    }
}

/// Whether another program reverts our repairs: the condition is logged once, not each repair. Metrics count them.
fn is_reverted(report: &ReconcileReport) -> bool {
    report.conditions.iter().any(|condition| condition.reason == Reason::RepairsUndone)
}

/// The conditions of `now` that `before` lacks.
fn new_conditions<'a>(before: &'a [Condition], now: &'a [Condition]) -> impl Iterator<Item = &'a Condition> {
    now.iter().filter(move |condition| !before.iter().any(|earlier| earlier.is_same(condition)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_is_new_if_reason_subject_or_severity_differ() {
        let old = [Condition::degraded(Reason::LinkMissing, "seen: a").about("x")];
        let same = [Condition::degraded(Reason::LinkMissing, "seen: a, b").about("x")];
        assert_eq!(new_conditions(&old, &same).count(), 0);
        let other = [Condition::degraded(Reason::LinkMissing, "seen: a").about("y")];
        assert_eq!(new_conditions(&old, &other).count(), 1);
        let worse = [Condition::blocking(Reason::LinkMissing, "seen: a").about("x")];
        assert_eq!(new_conditions(&old, &worse).count(), 1);
    }
}
