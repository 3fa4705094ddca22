//! A session: a key and a token for it. One task renews it for all callers while the old token is still valid.
//!
//! ```text
//!   fetched ─────────────── renew ──────────────────────────── expires
//!      │ callers get it at once │ callers get the old one, a task  │ callers wait for the task
//!      │                        │ fetches the next                 │
//! ```
//!
//! Credentials that are refused (401) are replaced at once, since a service may have lost them. If the new ones are refused as
//! well, a backoff follows: a wrong clock spoils every token, and each token costs a key and requests to two services.
//!
//! The key for the next session is generated in advance, on another thread: 100 ms of work that no request waits for.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use backoff::Backoff;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};

use super::progress::Progress;
use super::token::Token;
use crate::auth::key::RsaKey;
use crate::auth::sign::Credentials;
use crate::error::{LoginError, chain};

/// Where tokens come from.
pub(crate) trait TokenSource: Send + Sync + 'static {
    /// Fetches a token for a key's public half, and records in `progress` the address that it calls.
    fn token(&self, key: &RsaKey, progress: &Progress) -> impl Future<Output = Result<Token, LoginError>> + Send;

    /// The time; tests have their own.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    /// A random number in 0.0–1.0, for the jitter of renewals; tests have their own.
    fn chance(&self) -> f64 {
        backoff::chance()
    }
}

/// The most time for one renewal, the source's own retries included.
const RENEWING: Duration = Duration::from_secs(50);
/// The backoff after a failed renewal, while the old token is still valid.
const PAUSE: Duration = Duration::from_secs(10);
/// The progress of a renewal that still waits for its key.
const NOTHING_SENT: &str = "no request was sent yet";
/// Between two renewals because of a refusal.
const AFTER_REFUSAL: Backoff = Backoff { first: Duration::from_secs(2), cap: Duration::from_mins(2) };
/// Credentials that were refused only after this time had worked before. Longer than the longest backoff, which bad ones
/// outlive.
const PROVEN: Duration = Duration::from_mins(10);

/// A session; clones share it.
pub(crate) struct Session<S>(Arc<SessionState<S>>);

struct SessionState<S> {
    source: S,
    /// Of the renewal under way.
    progress: Progress,
    state: Mutex<RenewalState>,
}

#[derive(Default)]
struct RenewalState {
    current: Option<FetchedCredentials>,
    /// The outcome of the renewal under way.
    renewal: Option<watch::Receiver<Option<Outcome>>>,
    /// When the last renewal failed.
    failed: Option<Instant>,
    refusals: Refusals,
    spare: Option<JoinHandle<Result<RsaKey, LoginError>>>,
}

struct FetchedCredentials {
    credentials: Credentials,
    token: Token,
    fetched: Instant,
}

/// Sessions that were refused one after the other.
#[derive(Default)]
struct Refusals {
    number: u32,
    /// No renewal because of another refusal before this time.
    until: Option<Instant>,
}

/// The outcome for all callers that wait for a renewal; errors cannot be cloned, so they share one.
type Outcome = Result<Credentials, Arc<LoginError>>;

impl<S> Clone for Session<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> std::fmt::Debug for Session<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

impl<S: TokenSource> Session<S> {
    pub(crate) fn new(source: S) -> Self {
        Self(Arc::new(SessionState { source, progress: Progress::default(), state: Mutex::default() }))
    }

    /// The credentials to sign with. Waits, until `end` at most, only where no token is valid.
    pub(crate) async fn credentials(&self, end: Instant) -> Result<Credentials, LoginError> {
        let requested_at = Instant::now();
        let mut renewal = {
            let now = self.0.source.now();
            let mut state = self.0.state();
            match &state.current {
                Some(current) if now < current.token.renew => return Ok(current.credentials.clone()),
                Some(current) if now < current.token.expires => {
                    let credentials = current.credentials.clone();
                    if state.failed.is_none_or(|failed| requested_at >= failed + PAUSE) {
                        self.renew(&mut state);
                    }
                    return Ok(credentials);
                }
                _ => self.renew(&mut state),
            }
        };
        let late = || self.0.late(end.saturating_duration_since(requested_at));
        let outcome = timeout_at(end, renewal.wait_for(Option::is_some)).await.map_err(|_| late())?;
        match outcome.map(|outcome| outcome.clone()) {
            Ok(Some(Ok(credentials))) => Ok(credentials),
            Ok(Some(Err(error))) => Err(shared(&error)),
            // The task ended without an outcome: the runtime is shutting down.
            _ => Err(late()),
        }
    }

    /// The service refused these. Returns whether the next caller gets others, or waits for them.
    pub(crate) fn reject(&self, credentials: &Credentials) -> bool {
        let (now, chance) = (Instant::now(), self.0.source.chance());
        let mut state = self.0.state();
        let Some(current) = state.current.as_ref().filter(|current| current.is(credentials)) else { return true };
        if state.refusals.until.is_some_and(|until| now < until) {
            return false;
        }
        let before = if now < current.fetched + PROVEN { state.refusals.number } else { 0 };
        let number = before.saturating_add(1);
        state.refusals = Refusals { number, until: Some(now + AFTER_REFUSAL.delay(number, chance)) };
        state.current = None;
        true
    }

    /// Joins the renewal under way, or starts one.
    fn renew(&self, state: &mut RenewalState) -> watch::Receiver<Option<Outcome>> {
        // A renewal whose task is gone without an outcome (its runtime ended) does not count.
        if let Some(renewal) = state.renewal.as_ref().filter(|renewal| renewal.has_changed().is_ok()) {
            return renewal.clone();
        }
        let (done, renewal) = watch::channel(None);
        state.renewal = Some(renewal.clone());
        let spare = state.spare.take().unwrap_or_else(RsaKey::generate_aside);
        let shared = Arc::clone(&self.0);
        // A task of its own: callers give up at their own deadlines, and the token still arrives for the next one.
        tokio::spawn(async move {
            let outcome = shared.renewed(spare).await;
            done.send_replace(Some(outcome));
        });
        renewal
    }
}

impl FetchedCredentials {
    fn is(&self, credentials: &Credentials) -> bool {
        self.credentials.key_id == credentials.key_id
    }
}

impl<S: TokenSource> SessionState<S> {
    async fn renewed(&self, spare: JoinHandle<Result<RsaKey, LoginError>>) -> Outcome {
        self.progress.set(NOTHING_SENT.to_owned());
        let fetched = timeout(RENEWING, self.fetch(spare)).await.unwrap_or_else(|_| Err(self.late(RENEWING)));
        let mut state = self.state();
        state.renewal = None;
        match fetched {
            Ok(current) => {
                let credentials = current.credentials.clone();
                state.current = Some(current);
                state.failed = None;
                state.spare = Some(RsaKey::generate_aside());
                Ok(credentials)
            }
            Err(error) => {
                tracing::debug!(%error, "no new session token");
                state.failed = Some(Instant::now());
                Err(Arc::new(error))
            }
        }
    }

    async fn fetch(&self, spare: JoinHandle<Result<RsaKey, LoginError>>) -> Result<FetchedCredentials, LoginError> {
        let key = spare.await.map_err(|error| LoginError::material("the new session key", error))??;
        let token = self.source.token(&key, &self.progress).await?;
        let credentials = Credentials { key_id: token.key_id.as_str().into(), key: Arc::new(key) };
        Ok(FetchedCredentials { credentials, token, fetched: Instant::now() })
    }

    fn late(&self, within: Duration) -> LoginError {
        let (last, kind) = self.progress.get();
        LoginError::TimedOut { within, last, kind }
    }

    fn state(&self) -> MutexGuard<'_, RenewalState> {
        // Every change is complete in itself, so a panic elsewhere leaves it usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error for one of several callers that waited.
fn shared(error: &LoginError) -> LoginError {
    LoginError::Shared { message: chain(error), transient: error.is_transient(), kind: error.kind() }
}
