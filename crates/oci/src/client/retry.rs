//! Whether a failed attempt is followed by another. Pure; the table of status codes, as code.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::client::policy::Policy;
use crate::error::{Failure, Kind};

/// What doing a request twice comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// The same as doing it once: reads, deletes, updates of given values, creates with a retry token.
    Harmless,
    /// Two of what was asked for: creates without a retry token.
    Doubles,
}

/// What is known when an attempt failed.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The policy of the call.
    pub policy: &'a Policy,
    /// What a repetition comes to.
    pub repeat: Repeat,
    /// How many attempts were made, this one included.
    pub attempts: u32,
    /// Whether the login was renewed already because of a 401.
    pub renewed: bool,
    /// What is left until the deadline.
    pub left: Duration,
    /// 0.0–1.0, for the jitter.
    pub chance: f64,
}

/// What to do about a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Report it.
    Stop,
    /// Attempt again after this pause.
    After(Duration),
    /// Renew the login, then attempt again at once.
    RenewLogin,
}

/// Attempts at what may be eventual consistency (a subnet just made, a policy just granted) or somebody else's doing: the
/// caller knows better than to hold a worker for it.
const FEW: u32 = 3;

/// Decides. On [`Decision::After`] the pause ends before the deadline.
#[must_use]
pub fn decide(failure: &Failure, situation: Situation<'_>) -> Decision {
    let Situation { policy, repeat, attempts, renewed, left, chance } = situation;
    if repeat == Repeat::Doubles && failure.may_have_been_done() {
        return Decision::Stop;
    }
    let most = match failure.kind() {
        Kind::Login if is_401(failure) && !renewed => return Decision::RenewLogin,
        Kind::Unavailable | Kind::Throttled => policy.attempts,
        Kind::Busy | Kind::RelatedNotFoundOrForbidden => policy.attempts.min(FEW),
        Kind::Login if is_transient_login(failure) => policy.attempts.min(FEW),
        Kind::Login | Kind::Limit | Kind::Conflict | Kind::Changed | Kind::NotFoundOrForbidden => {
            return Decision::Stop;
        }
        Kind::Forbidden | Kind::Invalid | Kind::Unusable => return Decision::Stop,
    };
    // The budget has waited for as long as it may.
    if matches!(failure, Failure::Budget(_)) || attempts >= most {
        return Decision::Stop;
    }
    let pause = policy.backoff.pause(attempts, chance).max(retry_after(failure));
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
