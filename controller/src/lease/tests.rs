//! A lease against an API server that answers as the test says, on a clock of the test's.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const ME: &str = "one";

/// What it answers to which request, and what it was asked.
type Play = dyn Fn(&str, usize) -> Option<(u16, Value)> + Send + Sync;

struct Server {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// `play` is told the method, and how many requests there were before; where it gives nothing, nobody answers.
    async fn start(play: Arc<Play>) -> Self {
        Self::start_slow(play, Duration::ZERO).await
    }

    /// One that takes so long to answer a write.
    async fn start_slow(play: Arc<Play>, pause: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let its = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, (play.clone(), pause), its.clone()));
            }
        });
        Self { url, asked }
    }

    fn lease(&self, seconds: u16) -> Lease {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let client = Client::try_from(kube::Config::new(self.url.parse().unwrap())).unwrap();
        let settings =
            LeaseSettings { namespace: "here".to_owned(), name: "lease".to_owned(), identity: None, seconds };
        Lease::new(client, &settings, ME.to_owned(), || 1.0)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, (play, pause): (Arc<Play>, Duration), asked: Arc<Mutex<Vec<String>>>) {
    loop {
        let Some(method) = request(&mut stream).await else { return };
        let before = {
            let mut asked = asked.lock().unwrap();
            asked.push(method.clone());
            asked.len() - 1
        };
        let Some((status, body)) = play(&method, before) else { std::future::pending().await };
        if method != "GET" {
            sleep(pause).await;
        }
        let body = body.to_string();
        let head =
            format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        if stream.write_all(format!("{head}{body}").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads a request whole; its method.
async fn request(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let said = String::from_utf8_lossy(&text).into_owned();
        if let Some((head, body)) = said.split_once("\r\n\r\n") {
            let length =
                head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return head.split(' ').next().map(str::to_owned);
            }
        }
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return None,
            Ok(length) => text.extend(&piece[..length]),
        }
    }
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
        let server = Server::start(Arc::new(|_, before| (before < 2).then(|| (200, held_by(ME, before))))).await;
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
    let server = Server::start(Arc::new(play)).await;
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
    let server = Server::start(Arc::new(play)).await;
    let mut waiting = server.lease(15);
    let began = Instant::now();
    waiting.acquire(|| {}).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(15) && took < Duration::from_secs(20), "{took:?}");
    assert_eq!(server.asked().iter().filter(|method| *method != "GET").collect::<Vec<_>>(), ["POST"]);
    // Who never saw one has nobody to wait for.
    let server =
        Server::start(Arc::new(|method: &str, _| Some(if method == "GET" { gone() } else { (201, held_by(ME, 1)) })))
            .await;
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
    let server = Server::start(Arc::new(play)).await;
    let mut lease = server.lease(15);
    lease.acquire(|| {}).await;
    assert_eq!(lease.keep().await.to_string(), "another one took the lease");
    assert_eq!(server.asked(), ["GET", "PUT", "GET", "POST", "GET", "PUT", "GET"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_written_late_is_good_from_when_it_was_asked_for() {
    let server =
        Server::start_slow(Arc::new(|_, before| Some((200, held_by(ME, before)))), Duration::from_secs(4)).await;
    let mut lease = server.lease(15);
    let began = Instant::now();
    lease.acquire(|| {}).await;
    assert_eq!((lease.renewed, began.elapsed() >= Duration::from_secs(4)), (Some(began), true));
}
