//! A Lease against a scripted API server, with a paused clock.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::*;
use crate::cluster::client::offline::{TAKES, client_with, json};

const ME: &str = "one";

/// Answers to requests by method and number.
type Responder = dyn Fn(&str, usize) -> Option<(u16, Value)> + Send + Sync;

struct Server {
    play: Arc<Responder>,
    requests: Arc<Mutex<Vec<String>>>,
    /// The attempted writes: version and holder.
    written: Arc<Mutex<Vec<(Value, Value)>>>,
}

impl Server {
    /// `play` gets the method and the number of earlier requests; with `None` there is no answer.
    fn start(play: Arc<Responder>) -> Self {
        Self { play, requests: Arc::default(), written: Arc::default() }
    }

    fn lease(&self, seconds: u16) -> Lease {
        let (play, requests, written) = (Arc::clone(&self.play), Arc::clone(&self.requests), Arc::clone(&self.written));
        let client = client_with(move |head, mut body| {
            if head.method != "GET" {
                let version = body["metadata"]["resourceVersion"].take();
                written.lock().unwrap().push((version, body["spec"]["holderIdentity"].take()));
            }
            requests.lock().unwrap().push(head.method.to_string());
            let before = requests.lock().unwrap().len() - 1;
            play(head.method.as_str(), before).map(|(status, body)| json(status, body.to_string()))
        });
        let settings = LeaseSettings { namespace: "here".to_owned(), identity: None, seconds };
        Lease::new(client, &settings, ME.to_owned(), || 1.0)
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn held_by(holder: &str, version: usize) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": NAME, "namespace": "here", "uid": "u", "resourceVersion": version.to_string() },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3 },
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
async fn a_leader_without_answers_exits_before_the_lease_expires() {
    for seconds in [1, 2, 15, 300] {
        let server = Server::start(Arc::new(|_, before| (before < 2).then(|| (200, held_by(ME, before)))));
        let mut lease = server.lease(seconds);
        lease.acquire(|_| {}).await;
        let renewed = lease.renewed.unwrap();
        let why = lease.keep().await;
        let ended = renewed.elapsed();
        let good = Duration::from_secs(seconds.into());
        assert!(ended <= good.mul_f64(0.7), "{why:#}: after {ended:?} of {good:?}");
        assert!(ended >= good.mul_f64(0.4), "{why:#}: after {ended:?} of {good:?}: one lost answer does not end it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_write_of_our_own_keeps_the_lease() {
    let play = |method: &str, before: usize| match (method, before) {
        // Held by now, and written once more before the fourth request, which names the version of the third.
        ("PUT", 3) => Some(conflict()),
        _ if before < 6 => Some((200, held_by(ME, before))),
        _ => Some((200, held_by("two", before))),
    };
    let server = Server::start(Arc::new(play));
    let mut lease = server.lease(15);
    lease.acquire(|_| {}).await;
    assert_eq!(lease.keep().await.to_string(), "another replica took the Lease");
    assert_eq!(
        server.requests(),
        ["GET", "PUT", "GET", "PUT", "GET", "PUT", "GET"],
        "it was held despite the late write"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_stays_its_holders_until_it_expires() {
    let play = |method: &str, before: usize| match (method, before) {
        ("GET", 0) => Some((200, held_by("two", 0))),
        ("GET", _) => Some(gone()),
        _ => Some((201, held_by(ME, before))),
    };
    let server = Server::start(Arc::new(play));
    let mut waiting = server.lease(15);
    let began = Instant::now();
    waiting.acquire(|_| {}).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(15) && took < Duration::from_secs(20), "{took:?}");
    assert_eq!(server.requests().iter().filter(|method| *method != "GET").collect::<Vec<_>>(), ["POST"]);
    // A replica that never saw one waits for no holder.
    let server =
        Server::start(Arc::new(|method: &str, _| Some(if method == "GET" { gone() } else { (201, held_by(ME, 1)) })));
    let began = Instant::now();
    server.lease(15).acquire(|_| {}).await;
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_holder_creates_its_deleted_lease_again() {
    let play = |method: &str, before: usize| match (method, before) {
        ("GET", 2) => Some(gone()),
        ("POST", _) => Some((201, held_by(ME, before))),
        _ if before < 6 => Some((200, held_by(ME, before))),
        _ => Some((200, held_by("two", before))),
    };
    let server = Server::start(Arc::new(play));
    let mut lease = server.lease(15);
    lease.acquire(|_| {}).await;
    assert_eq!(lease.keep().await.to_string(), "another replica took the Lease");
    assert_eq!(server.requests(), ["GET", "PUT", "GET", "POST", "GET", "PUT", "GET"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_valid_from_when_it_was_requested() {
    let server = Server::start(Arc::new(|_, before| Some((200, held_by(ME, before)))));
    let mut lease = server.lease(15);
    lease.acquire(|_| {}).await;
    assert!(lease.renewed.unwrap() + TAKES <= Instant::now(), "not when the answer came");
    assert_eq!(lease.term(), LeaderTerm { lease: "u".to_owned(), number: 3 });
}

#[tokio::test(start_paused = true)]
async fn release_survives_a_late_renewal() {
    let play = |method: &str, before: usize| match (method, before) {
        // The renewal. It takes effect after the next read.
        ("PUT", 3) => None,
        ("PUT", 5) => Some(conflict()),
        _ => Some((200, held_by(ME, before))),
    };
    let server = Server::start(Arc::new(play));
    let mut lease = server.lease(15);
    lease.acquire(|_| {}).await;
    // SIGTERM arrives during it.
    assert!(timeout(Duration::from_secs(2), lease.keep()).await.is_err());
    lease.release().await;
    let written = server.written.lock().unwrap().clone();
    let expected =
        [("0", ME), ("2", ME), ("4", ""), ("6", "")].map(|(version, holder)| (json!(version), json!(holder)));
    assert_eq!((server.requests().len(), written), (8, expected.to_vec()));
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_another_replica_is_not_released() {
    let server = Server::start(Arc::new(|_, before| Some((200, held_by(if before < 2 { ME } else { "two" }, before)))));
    let mut lease = server.lease(15);
    lease.release().await;
    assert_eq!(server.requests(), [""; 0], "it was never requested");
    lease.acquire(|_| {}).await;
    lease.release().await;
    assert_eq!(server.requests(), ["GET", "PUT", "GET"], "another replica holds it");
}
