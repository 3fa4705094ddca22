//! A lease against an API server that answers as the test says, on a clock of the test's.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

const ME: &str = "one";

/// What it answers to which request, and what it was asked.
type Play = dyn Fn(&str, usize) -> Option<(u16, Value)> + Send + Sync;

/// Without a connection: while the kernel carries one's bytes, a clock that runs when nothing else does would run.
struct Server {
    play: Arc<Play>,
    pause: Duration,
    asked: Arc<Mutex<Vec<String>>>,
    /// What was to be written: the version that it names, and the holder.
    written: Arc<Mutex<Vec<(Value, Value)>>>,
}

impl Server {
    /// `play` is told the method, and how many requests there were before; where it gives nothing, nobody answers.
    fn start(play: Arc<Play>) -> Self {
        Self::start_slow(play, Duration::ZERO)
    }

    /// One that takes so long to answer a write.
    fn start_slow(play: Arc<Play>, pause: Duration) -> Self {
        Self { play, pause, asked: Arc::default(), written: Arc::default() }
    }

    fn lease(&self, seconds: u16) -> Lease {
        let (play, pause, asked) = (Arc::clone(&self.play), self.pause, Arc::clone(&self.asked));
        let written = Arc::clone(&self.written);
        let answer = move |request: Request<Body>| {
            let (play, asked, written) = (Arc::clone(&play), Arc::clone(&asked), Arc::clone(&written));
            async move {
                let method = request.method().to_string();
                if method != "GET" {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    let mut body: Value = serde_json::from_slice(&body).unwrap();
                    let version = body["metadata"]["resourceVersion"].take();
                    written.lock().unwrap().push((version, body["spec"]["holderIdentity"].take()));
                }
                answer(method, (play, pause), asked).await
            }
        };
        let client = Client::new(tower::service_fn(answer), "here");
        let settings =
            LeaseSettings { namespace: "here".to_owned(), name: "lease".to_owned(), identity: None, seconds };
        Lease::new(client, &settings, ME.to_owned(), || 1.0)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn answer(
    method: String,
    (play, pause): (Arc<Play>, Duration),
    asked: Arc<Mutex<Vec<String>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let before = {
        let mut asked = asked.lock().unwrap();
        asked.push(method.clone());
        asked.len() - 1
    };
    let Some((status, body)) = play(&method, before) else { std::future::pending().await };
    if method != "GET" {
        sleep(pause).await;
    }
    Ok(Response::builder().status(status).body(body.to_string().into()).unwrap())
}

fn held_by(holder: &str, version: usize) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "lease", "namespace": "here", "resourceVersion": version.to_string() },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15 },
    })
}

fn gone() -> (u16, Value) {
    (404, json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404 }))
}

fn conflict() -> (u16, Value) {
    let status =
        json!({ "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409 });
    (409, status)
}

#[tokio::test(start_paused = true)]
async fn whoever_is_not_answered_any_more_ends_before_another_may_take_the_lease() {
    for seconds in [1, 2, 15, 300] {
        let server = Server::start(Arc::new(|_, before| (before < 2).then(|| (200, held_by(ME, before)))));
        let mut lease = server.lease(seconds);
        lease.acquire(|| {}).await;
        let renewed = lease.renewed.unwrap();
        let why = lease.keep().await;
        let ended = renewed.elapsed();
        let good = Duration::from_secs(seconds.into());
        assert!(ended <= good.mul_f64(0.7), "{why:#}: after {ended:?} of {good:?}");
        assert!(ended >= good.mul_f64(0.4), "{why:#}: after {ended:?} of {good:?}: one lost answer is no reason");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_of_our_own_that_came_late_takes_the_lease_from_nobody() {
    let play = |method: &str, before: usize| match (method, before) {
        // Had by now, and written once more before the fourth request, which names the version of the third.
        ("PUT", 3) => Some(conflict()),
        _ if before < 6 => Some((200, held_by(ME, before))),
        _ => Some((200, held_by("two", before))),
    };
    let server = Server::start(Arc::new(play));
    let mut lease = server.lease(15);
    lease.acquire(|| {}).await;
    assert_eq!(lease.keep().await.to_string(), "another one took the lease");
    assert_eq!(server.asked(), ["GET", "PUT", "GET", "PUT", "GET", "PUT", "GET"], "it was ours, whatever came late");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_somebody_deleted_is_its_holders_for_its_time() {
    let play = |method: &str, before: usize| match (method, before) {
        ("GET", 0) => Some((200, held_by("two", 0))),
        ("GET", _) => Some(gone()),
        _ => Some((201, held_by(ME, before))),
    };
    let server = Server::start(Arc::new(play));
    let mut waiting = server.lease(15);
    let began = Instant::now();
    waiting.acquire(|| {}).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(15) && took < Duration::from_secs(20), "{took:?}");
    assert_eq!(server.asked().iter().filter(|method| *method != "GET").collect::<Vec<_>>(), ["POST"]);
    // Who never saw one has nobody to wait for.
    let server =
        Server::start(Arc::new(|method: &str, _| Some(if method == "GET" { gone() } else { (201, held_by(ME, 1)) })));
    let began = Instant::now();
    server.lease(15).acquire(|| {}).await;
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn whose_lease_is_deleted_makes_it_anew_and_goes_on() {
    let play = |method: &str, before: usize| match (method, before) {
        ("GET", 2) => Some(gone()),
        ("POST", _) => Some((201, held_by(ME, before))),
        _ if before < 6 => Some((200, held_by(ME, before))),
        _ => Some((200, held_by("two", before))),
    };
    let server = Server::start(Arc::new(play));
    let mut lease = server.lease(15);
    lease.acquire(|| {}).await;
    assert_eq!(lease.keep().await.to_string(), "another one took the lease");
    assert_eq!(server.asked(), ["GET", "PUT", "GET", "POST", "GET", "PUT", "GET"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_written_late_is_good_from_when_it_was_asked_for() {
    let server = Server::start_slow(Arc::new(|_, before| Some((200, held_by(ME, before)))), Duration::from_secs(4));
    let mut lease = server.lease(15);
    let began = Instant::now();
    lease.acquire(|| {}).await;
    assert_eq!((lease.renewed, began.elapsed() >= Duration::from_secs(4)), (Some(began), true));
}

#[tokio::test(start_paused = true)]
async fn it_is_given_back_although_a_renewal_that_was_given_up_is_carried_out_all_the_same() {
    let play = |method: &str, before: usize| match (method, before) {
        // The renewal. It is carried out, after what is read next.
        ("PUT", 3) => None,
        ("PUT", 5) => Some(conflict()),
        _ => Some((200, held_by(ME, before))),
    };
    let server = Server::start(Arc::new(play));
    let mut lease = server.lease(15);
    lease.acquire(|| {}).await;
    // SIGTERM comes in the midst of it.
    assert!(timeout(Duration::from_secs(2), lease.keep()).await.is_err());
    lease.release().await;
    let written = server.written.lock().unwrap().clone();
    let expected =
        [("0", ME), ("2", ME), ("4", ""), ("6", "")].map(|(version, holder)| (json!(version), json!(holder)));
    assert_eq!((server.asked().len(), written), (8, expected.to_vec()));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_ours_is_not_given_back() {
    let server = Server::start(Arc::new(|_, before| Some((200, held_by(if before < 2 { ME } else { "two" }, before)))));
    let mut lease = server.lease(15);
    lease.release().await;
    assert_eq!(server.asked(), [""; 0], "it was never asked for");
    lease.acquire(|| {}).await;
    lease.release().await;
    assert_eq!(server.asked(), ["GET", "PUT", "GET"], "another one has it");
}
