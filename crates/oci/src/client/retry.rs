//! Decides whether a failed attempt is followed by another. Pure; the table of status codes, as code.

#[cfg(test)]
mod tests;

use std::time::Duration;

use backoff::Policy;

use crate::error::{Failure, Kind};

/// The effect of sending a request twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The same as once: reads, deletes, updates, creates with a retry token.
    Harmless,
    /// Two objects: creates without a retry token.
    Doubles,
}

/// The facts when an attempt failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation<'a> {
    /// The policy of the call.
    pub(crate) policy: &'a Policy,
    /// The effect of sending it again.
    pub(crate) repeat: Repeat,
    /// The number of attempts so far.
    pub(crate) attempts: u32,
    /// Whether the login was renewed already after a 401.
    pub(crate) renewed: bool,
    /// The time until the deadline.
    pub(crate) left: Duration,
    /// 0.0–1.0, for the jitter.
    pub(crate) chance: f64,
}

/// The next step after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Stop,
    /// Try again after this time.
    After(Duration),
    /// Renew the login, then try again at once.
    RenewLogin,
}

/// Attempts where eventual consistency (a subnet just created, a policy just granted) or another client may be the cause:
/// better than to block a worker for long.
const MAX_ATTEMPTS_WHEN_REFUSED: u32 = 3;

/// Decides. [`Decision::After`] ends before the deadline.
pub(crate) fn decide(failure: &Failure, situation: Situation<'_>) -> Decision {
    let Situation { policy, repeat, attempts, renewed, left, chance } = situation;
    if repeat == Repeat::Doubles && failure.may_have_been_done() {
        return Decision::Stop;
    }
    let most = match failure.kind() {
        Kind::Login if is_401(failure) && !renewed => return Decision::RenewLogin,
        // The login has had attempts of its own.
        _ if is_transient_login(failure) => policy.attempts.min(MAX_ATTEMPTS_WHEN_REFUSED),
        Kind::Unavailable | Kind::Throttled => policy.attempts,
        Kind::Busy | Kind::RelatedNotFoundOrForbidden => policy.attempts.min(MAX_ATTEMPTS_WHEN_REFUSED),
        Kind::Login | Kind::Limit | Kind::Conflict | Kind::Changed | Kind::NotFoundOrForbidden => {
            return Decision::Stop;
        }
        Kind::Forbidden | Kind::Invalid | Kind::Unusable => return Decision::Stop,
    };
    // The wait for the budget has used up the time.
    if matches!(failure, Failure::Budget(_)) || attempts >= most {
        return Decision::Stop;
    }
    let pause = policy.backoff.delay(attempts, chance).max(retry_after(failure));
    if pause < left { Decision::After(pause) } else { Decision::Stop }
}

fn is_401(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(refusal) if refusal.status == 401)
}

fn is_transient_login(failure: &Failure) -> bool {
    matches!(failure, Failure::Login { source, .. } if source.is_transient())
}

fn retry_after(failure: &Failure) -> Duration {
    match failure {
        Failure::Refused(refusal) => refusal.retry_after.unwrap_or_default(),
        _ => Duration::ZERO,
    }
}
