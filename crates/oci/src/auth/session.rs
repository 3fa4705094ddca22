//! A session: a key and a token for it. One caller at a time renews it, within its own deadline; the others wait for the outcome.
//!
//! ```text
//!   fetched ─────────────── renew ──────────────────────────────── expires
//!      │ callers get it at once │ the next caller renews it; if that   │ callers wait for a new one,
//!      │                        │ fails, all get the old one           │ or get the failure
//! ```
//!
//! Credentials that are refused (401) are replaced at once, since a service may have lost them; if the new ones are refused
//! as well, with backoff: a wrong clock spoils every token, and each costs a key and requests to two services.

#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use backoff::Backoff;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};

use super::token::Token;
use crate::auth::key::RsaKey;
use crate::auth::sign::Credentials;
use crate::error::LoginError;

/// Where tokens come from.
pub(crate) trait TokenSource: Send + Sync + 'static {
    /// Fetches a token for a key's public half, until `end` at most.
    fn token(&self, key: &RsaKey, end: Instant) -> impl Future<Output = Result<Token, LoginError>> + Send;

    /// The time; tests have their own.
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    /// 0.0–1.0, for jitter.
    fn chance(&self) -> f64 {
        backoff::chance()
    }
}

/// The most time for a renewal while the old token is valid: all callers wait for it.
const EARLY_RENEWAL: Duration = Duration::from_secs(10);
/// Between two logins after a failed one, and between two renewals because of a refusal.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(2), cap: Duration::from_mins(1) };
/// Credentials that were refused only after this time had worked before. Longer than the longest backoff, which bad ones
/// outlive.
const PROVEN: Duration = Duration::from_mins(10);

/// A session; clones share it.
pub(crate) struct Session<S>(Arc<SessionState<S>>);

struct SessionState<S> {
    source: S,
    /// Locked during a login. A caller that gives up leaves it as it was.
    state: Mutex<LoginState>,
}

#[derive(Default)]
struct LoginState {
    current: Option<FetchedCredentials>,
    /// Logins that failed one after the other.
    failures: Failures,
    /// The failure of the last login, for all callers until the next one.
    failed: Option<Arc<LoginError>>,
    /// Sessions that were refused one after the other.
    refusals: Failures,
}

struct FetchedCredentials {
    credentials: Credentials,
    token: Token,
    fetched: Instant,
}

#[derive(Default)]
struct Failures {
    number: u32,
    /// The end of the backoff.
    until: Option<Instant>,
}

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
        Self(Arc::new(SessionState { source, state: Mutex::default() }))
    }

    /// The credentials to sign with. Waits, until `end` at most, only where a login is due.
    pub(crate) async fn credentials(&self, end: Instant) -> Result<Credentials, Arc<LoginError>> {
        let mut state = self.state(end).await?;
        let now = self.0.source.now();
        let old = state.current.as_ref().filter(|current| now < current.token.expires);
        let is_due = old.is_none_or(|current| now >= current.token.renew);
        let old = old.map(|current| current.credentials.clone());
        let failed = state.failed.clone().filter(|_| state.failures.are_recent());
        let end = match (&old, failed) {
            (Some(old), _) if !is_due => return Ok(old.clone()),
            (_, Some(error)) => return old.ok_or(error),
            (Some(_), None) => end.min(Instant::now() + EARLY_RENEWAL),
            (None, None) => end,
        };
        match self.fetch(end).await {
            Ok(current) => {
                let credentials = current.credentials.clone();
                (state.current, state.failures, state.failed) = (Some(current), Failures::default(), None);
                Ok(credentials)
            }
            Err(error) => {
                tracing::debug!(%error, "no new session token");
                let error = Arc::new(error);
                state.failures.add(self.0.source.chance());
                state.failed = Some(Arc::clone(&error));
                old.ok_or(error)
            }
        }
    }

    /// The service refused these. Returns whether the next caller gets others.
    pub(crate) async fn reject(&self, credentials: &Credentials, end: Instant) -> bool {
        let Ok(mut state) = self.state(end).await else { return false };
        let Some(current) = state.current.as_ref().filter(|current| current.is(credentials)) else { return true };
        if state.refusals.are_recent() {
            return false;
        }
        if current.fetched.elapsed() >= PROVEN {
            state.refusals = Failures::default();
        }
        state.refusals.add(self.0.source.chance());
        state.current = None;
        true
    }

    async fn state(&self, end: Instant) -> Result<MutexGuard<'_, LoginState>, LoginError> {
        timeout_at(end, self.0.state.lock()).await.map_err(|_| LoginError::TimedOut)
    }

    async fn fetch(&self, end: Instant) -> Result<FetchedCredentials, LoginError> {
        let key = timeout_at(end, RsaKey::generate()).await.map_err(|_| LoginError::TimedOut)??;
        let token = self.0.source.token(&key, end).await?;
        let credentials = Credentials { key_id: token.key_id.as_str().into(), key: Arc::new(key) };
        Ok(FetchedCredentials { credentials, token, fetched: Instant::now() })
    }
}

impl FetchedCredentials {
    fn is(&self, credentials: &Credentials) -> bool {
        self.credentials.key_id == credentials.key_id
    }
}

impl Failures {
    fn are_recent(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    fn add(&mut self, chance: f64) {
        self.number = self.number.saturating_add(1);
        self.until = Some(Instant::now() + BACKOFF.delay(self.number, chance));
    }
}
