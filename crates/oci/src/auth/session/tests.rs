//! Sessions by a source that counts, with a clock of the test's.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use super::*;
use crate::auth::instance::retried;
use crate::error::{Failure, chain};

/// Tokens good for an hour, numbered; a clock and failures of the test's.
#[derive(Default)]
struct Source {
    fetched: AtomicU32,
    clock: AtomicU64,
    failing: AtomicU32,
}

impl TokenSource for Source {
    async fn token(&self, _key: &RsaKey, _end: Instant) -> Result<Token, LoginError> {
        let number = self.fetched.fetch_add(1, SeqCst) + 1;
        // Others get a chance to ask meanwhile.
        tokio::task::yield_now().await;
        if self.failing.load(SeqCst) > 0 {
            self.failing.fetch_sub(1, SeqCst);
            return Err(LoginError::material("token", "a failure of the test's"));
        }
        let now = self.now();
        let (expires, renew) = (now + Duration::from_hours(1), now + Duration::from_mins(30));
        Ok(Token { key_id: format!("ST${number}"), expires, renew })
    }

    fn chance(&self) -> f64 {
        1.0
    }

    fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.clock.load(SeqCst))
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

impl Session<Source> {
    async fn key_id(&self) -> Result<String, String> {
        let credentials = self.credentials(soon()).await;
        credentials.map(|credentials| credentials.key_id.to_string()).map_err(|error| error.to_string())
    }

    fn at_minute(&self, minute: u64) {
        self.0.source.clock.store(minute * 60, SeqCst);
    }

    fn fail_once(&self) {
        self.0.source.failing.store(1, SeqCst);
    }

    fn fetched(&self) -> u32 {
        self.0.source.fetched.load(SeqCst)
    }
}

#[tokio::test]
async fn many_callers_share_one_login_and_its_renewal() {
    let session = Session::new(Source::default());
    for (minute, token) in [(0, "ST$1"), (29, "ST$1"), (31, "ST$2"), (60, "ST$2"), (62, "ST$3")] {
        session.at_minute(minute);
        let (a, b, c) = tokio::join!(session.key_id(), session.key_id(), session.key_id());
        assert_eq!([a.unwrap(), b.unwrap(), c.unwrap()], [token; 3], "minute {minute}");
    }
    assert_eq!(session.fetched(), 3);
}

#[tokio::test(start_paused = true)]
async fn all_callers_get_the_cause_of_a_failed_login_until_the_next() {
    let session = Session::new(Source::default());
    session.fail_once();
    let (a, b) = tokio::join!(session.key_id(), session.key_id());
    for error in [a, b, session.key_id().await] {
        assert_eq!(error.unwrap_err(), "token cannot be used: a failure of the test's");
    }
    assert_eq!(session.fetched(), 1, "the service is left alone for a while");
    tokio::time::sleep(BACKOFF.first).await;
    assert_eq!(session.key_id().await.unwrap(), "ST$2");
}

#[tokio::test(start_paused = true)]
async fn failed_renewal_is_harmless_while_old_token_is_valid() {
    let session = Session::new(Source::default());
    session.key_id().await.unwrap();
    session.at_minute(31);
    session.fail_once();
    for _ in 0..10 {
        assert_eq!(session.key_id().await.unwrap(), "ST$1");
    }
    assert_eq!(session.fetched(), 2, "the service is left alone for a while");
    tokio::time::sleep(BACKOFF.first).await;
    assert_eq!(session.key_id().await.unwrap(), "ST$3");
}

#[tokio::test]
async fn refused_credentials_are_not_used_again_and_newer_ones_stay() {
    let session = Session::new(Source::default());
    let first = session.credentials(soon()).await.unwrap();
    for _ in 0..2 {
        assert!(session.reject(&first, soon()).await);
        assert_eq!(session.key_id().await.unwrap(), "ST$2");
    }
}

#[tokio::test(start_paused = true)]
async fn repeatedly_refused_tokens_are_renewed_with_backoff() {
    let session = Session::new(Source::default());
    let mut renewed = Vec::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_mins(5) {
        let credentials = session.credentials(soon()).await.unwrap();
        if session.reject(&credentials, soon()).await {
            renewed.push(start.elapsed().as_secs());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(renewed, [0, 2, 6, 14, 30, 62, 122, 182, 242]);
    assert_eq!(session.fetched(), 10, "the first one, and another for each");
}

#[tokio::test(start_paused = true)]
async fn proven_token_is_renewed_immediately_when_refused() {
    let session = Session::new(Source::default());
    let refused = async || {
        let credentials = session.credentials(soon()).await.unwrap();
        session.reject(&credentials, soon()).await
    };
    assert_eq!([refused().await, refused().await], [true, false]);
    tokio::time::sleep(PROVEN).await;
    assert_eq!([refused().await, refused().await], [true, false]);
    tokio::time::sleep(BACKOFF.first).await;
    assert!(refused().await, "the first backoff again");
}

/// One that asks an address, which refuses or never answers.
struct FakeTokenSource {
    answers: bool,
}

impl TokenSource for FakeTokenSource {
    async fn token(&self, _key: &RsaKey, end: Instant) -> Result<Token, LoginError> {
        let asked = async || match self.answers {
            true => Err(Failure::NoConnection("connection refused".into())),
            false => std::future::pending().await,
        };
        Err(retried("a certificate", "http://192.0.2.1/opc/v2/identity/cert.pem", end, asked)
            .await
            .map(drop)
            .unwrap_err())
    }
}

#[tokio::test(start_paused = true)]
async fn login_ends_at_the_callers_deadline_and_names_address_and_failure() {
    for (answers, cause) in [(true, "no connection: connection refused"), (false, "no whole answer within 300ms")] {
        let session = Session::new(FakeTokenSource { answers });
        let start = Instant::now();
        let end = start + Duration::from_millis(300);
        let late = session.credentials(end).await.unwrap_err();
        let wanted = "fetching a certificate from http://192.0.2.1/opc/v2/identity/cert.pem, \
                      which this host must reach (docs/iam.md, network): ";
        assert_eq!(chain(&late), format!("{wanted}{cause}"));
        assert!(start.elapsed() < Duration::from_millis(400), "{:?}", start.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn caller_that_waits_for_anothers_login_keeps_its_own_deadline() {
    let session = Session::new(FakeTokenSource { answers: false });
    let start = Instant::now();
    let late = start + Duration::from_secs(30);
    let (_, error) = tokio::join!(session.credentials(late), async {
        let error = session.credentials(start + Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(start.elapsed().as_secs(), 1);
        error
    });
    assert!(matches!(*error, LoginError::TimedOut), "{error}");
}
