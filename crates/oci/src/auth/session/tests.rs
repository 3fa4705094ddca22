//! Sessions by a source that counts, with a clock of the test's.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::*;
use crate::auth::instance::retried;
use crate::error::Failure;

/// Tokens good for an hour, numbered; a clock and failures of the test's.
struct Source {
    fetched: Arc<AtomicU32>,
    clock: Arc<AtomicU64>,
    failing: Arc<AtomicU32>,
}

struct World {
    session: Session<Source>,
    fetched: Arc<AtomicU32>,
    clock: Arc<AtomicU64>,
    failing: Arc<AtomicU32>,
}

impl TokenSource for Source {
    async fn token(&self, _key: &RsaKey, _progress: &Progress) -> Result<Token, LoginError> {
        let number = self.fetched.fetch_add(1, Ordering::SeqCst) + 1;
        // Others get a chance to call meanwhile.
        tokio::task::yield_now().await;
        if self.failing.load(Ordering::SeqCst) > 0 {
            self.failing.fetch_sub(1, Ordering::SeqCst);
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
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.clock.load(Ordering::SeqCst))
    }
}

impl World {
    fn new() -> Self {
        let (fetched, clock, failing) = (Arc::default(), Arc::default(), Arc::default());
        let source = Source { fetched: Arc::clone(&fetched), clock: Arc::clone(&clock), failing: Arc::clone(&failing) };
        Self { session: Session::new(source), fetched, clock, failing }
    }

    async fn key_id(&self) -> Result<String, LoginError> {
        let end = Instant::now() + Duration::from_secs(20);
        self.session.credentials(end).await.map(|credentials| credentials.key_id.to_string())
    }

    fn fetched(&self) -> u32 {
        self.fetched.load(Ordering::SeqCst)
    }

    async fn until_fetched(&self, number: u32) {
        let waiting = async {
            while self.fetched() < number || self.session.0.state().renewal.is_some() {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(20), waiting).await.expect("a renewal");
    }
}

#[tokio::test]
async fn many_callers_share_one_login() {
    let world = World::new();
    let (a, b, c) = tokio::join!(world.key_id(), world.key_id(), world.key_id());
    assert_eq!([a.unwrap(), b.unwrap(), c.unwrap()], ["ST$1", "ST$1", "ST$1"]);
    assert_eq!(world.fetched(), 1);
}

#[tokio::test]
async fn old_token_is_used_while_next_one_is_fetched() {
    let world = World::new();
    world.key_id().await.unwrap();
    world.clock.store(29 * 60, Ordering::SeqCst);
    assert_eq!(world.key_id().await.unwrap(), "ST$1");
    assert_eq!(world.fetched(), 1, "not old yet");
    world.clock.store(31 * 60, Ordering::SeqCst);
    assert_eq!(world.key_id().await.unwrap(), "ST$1", "no caller waits");
    world.until_fetched(2).await;
    assert_eq!(world.key_id().await.unwrap(), "ST$2");
}

#[tokio::test]
async fn failed_renewal_is_harmless_while_old_token_is_valid() {
    let world = World::new();
    world.key_id().await.unwrap();
    world.clock.store(31 * 60, Ordering::SeqCst);
    world.failing.store(1, Ordering::SeqCst);
    assert_eq!(world.key_id().await.unwrap(), "ST$1");
    world.until_fetched(2).await;
    for _ in 0..10 {
        assert_eq!(world.key_id().await.unwrap(), "ST$1");
    }
    assert_eq!(world.fetched(), 2, "the service is left alone for a while");
    world.clock.store(61 * 60, Ordering::SeqCst);
    assert_eq!(world.key_id().await.unwrap(), "ST$3", "a token that is over is worth a wait");
}

#[tokio::test]
async fn all_waiting_callers_get_the_cause_of_a_failed_login() {
    let world = World::new();
    world.failing.store(1, Ordering::SeqCst);
    let (a, b) = tokio::join!(world.key_id(), world.key_id());
    for error in [a.unwrap_err(), b.unwrap_err()] {
        assert_eq!(error.to_string(), "token cannot be used: a failure of the test's");
    }
    assert_eq!(world.key_id().await.unwrap(), "ST$2");
}

#[tokio::test]
async fn refused_credentials_are_not_used_again_and_newer_ones_stay() {
    let world = World::new();
    let end = Instant::now() + Duration::from_secs(20);
    let first = world.session.credentials(end).await.unwrap();
    world.session.reject(&first);
    assert_eq!(world.key_id().await.unwrap(), "ST$2");
    world.session.reject(&first);
    assert_eq!(world.key_id().await.unwrap(), "ST$2");
}

#[tokio::test(start_paused = true)]
async fn repeatedly_refused_tokens_are_renewed_with_backoff() {
    let world = World::new();
    let mut renewed = Vec::new();
    let start = Instant::now();
    while start.elapsed() < Duration::from_mins(10) {
        let credentials = world.session.credentials(Instant::now() + Duration::from_secs(20)).await.unwrap();
        if world.session.reject(&credentials) {
            renewed.push(start.elapsed().as_secs());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(renewed, [0, 2, 6, 14, 30, 62, 126, 246, 366, 486]);
    assert_eq!(world.fetched(), 11, "the first one, and another for each");
}

#[tokio::test(start_paused = true)]
async fn proven_token_is_renewed_immediately_when_refused() {
    let world = World::new();
    let refused = async || {
        let credentials = world.session.credentials(Instant::now() + Duration::from_secs(20)).await.unwrap();
        world.session.reject(&credentials)
    };
    assert_eq!([refused().await, refused().await], [true, false]);
    tokio::time::sleep(PROVEN).await;
    assert_eq!([refused().await, refused().await], [true, false]);
    tokio::time::sleep(AFTER_REFUSAL.first).await;
    assert!(refused().await, "the first backoff again");
}

#[tokio::test]
async fn the_next_key_is_generated_before_it_is_needed() {
    let world = World::new();
    world.key_id().await.unwrap();
    assert!(world.session.0.state().spare.is_some());
}

#[test]
fn a_renewal_that_died_with_its_runtime_is_restarted() {
    let world = World::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let late = runtime().block_on(async { world.session.credentials(Instant::now()).await }).unwrap_err();
    assert!(matches!(late, LoginError::TimedOut { .. }), "{late:?}");
    assert_eq!(runtime().block_on(world.key_id()).unwrap(), "ST$1");
}

#[tokio::test]
async fn caller_times_out_at_deadline_but_token_still_arrives() {
    let world = World::new();
    let late = world.session.credentials(Instant::now()).await.unwrap_err();
    assert!(matches!(late, LoginError::TimedOut { .. }), "{late:?}");
    world.until_fetched(1).await;
    assert_eq!(world.key_id().await.unwrap(), "ST$1");
}

/// One that calls an address, which refuses or never answers.
struct FakeTokenSource {
    answers: bool,
}

impl TokenSource for FakeTokenSource {
    async fn token(&self, _key: &RsaKey, progress: &Progress) -> Result<Token, LoginError> {
        let request = async || match self.answers {
            true => Err(Failure::NoConnection("connection refused".into())),
            false => std::future::pending().await,
        };
        let failure = retried("a certificate", "http://192.0.2.1/opc/v2/identity/cert.pem", progress, request)
            .await
            .map(drop)
            .unwrap_err();
        Err(LoginError::material("token", failure))
    }
}

#[tokio::test(start_paused = true)]
async fn timed_out_caller_gets_the_address_and_its_failure() {
    let within = Duration::from_millis(300);
    for (answers, progress) in [(true, ": no connection: connection refused;"), (false, " has not answered yet;")] {
        let session = Session::new(FakeTokenSource { answers });
        let late = session.credentials(Instant::now() + within).await.unwrap_err().to_string();
        let expected = format!("no token within 300ms: http://192.0.2.1/opc/v2/identity/cert.pem{progress} check that");
        assert!(late.starts_with(&expected) && late.contains("docs/iam.md"), "{late}");
    }
}
