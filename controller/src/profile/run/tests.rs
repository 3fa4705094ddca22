//! Profiles against an API server that refuses, with a paused clock.

use std::sync::{Arc, Mutex};

use api::VnicProfile;
use hyper::Method;
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::cluster::client::offline;
use crate::cluster::events::Events;
use crate::cluster::store::Store;
use crate::profile::plan::step::Profile;
use crate::profile::profiles::{GRACE, ROUND};
use crate::profile::sample::store;
use crate::report::metrics::Metrics;

/// An API server that refuses or accepts VnicAttachments; it has no watch.
#[derive(Debug, Default)]
struct Server {
    /// Whether it accepts them.
    takes: bool,
    /// The names of requested VnicAttachments, in order.
    requested: Vec<String>,
    /// Their events: reason and note.
    reported: Vec<(String, String)>,
}

impl Server {
    fn answer(&mut self, method: &Method, path: &str, body: Value) -> (u16, Value) {
        if path.contains("/events") {
            self.reported
                .push((body["reason"].as_str().unwrap().to_owned(), body["note"].as_str().unwrap().to_owned()));
            return (201, body);
        }
        if method != Method::POST {
            return (200, json!({ "metadata": { "name": "pool" }, "spec": { "attachments": [] } }));
        }
        let name = body["metadata"]["name"].as_str().unwrap();
        self.requested.push(name.to_owned());
        match self.takes {
            true => (201, body),
            false => (403, json!({ "apiVersion": "v1", "kind": "Status", "message": "no VNICs today", "code": 403 })),
        }
    }
}

/// A profile for so many nodes, its store, and its server behind a client.
fn scene(nodes: u32) -> (Arc<Mutex<Server>>, Arc<Store>, Client) {
    let server = Arc::new(Mutex::new(Server::default()));
    let behind = server.clone();
    let client = offline::client_with(move |head, body| {
        let (status, body) = behind.lock().unwrap().answer(&head.method, head.uri.path(), body);
        Some(offline::json(status, body.to_string()))
    });
    (server, store(nodes), client)
}

/// With rounds too short for all objects.
#[tokio::test(start_paused = true)]
async fn a_profile_paused_during_creation_creates_no_more() {
    let (server, store, client) = scene(200);
    server.lock().unwrap().takes = true;
    let (metrics, round) = (Arc::new(Metrics::default()), Duration::from_millis(20));
    let (events, _writer) = Events::new(metrics.clone());
    let (nominated, store_of) = (watch::Sender::default(), store.clone());
    let profiles =
        Profiles { client, store: store_of, nominated, metrics, events, grace: GRACE, round, chance: || 1.0 };
    let checks = async {
        while server.lock().unwrap().requested.len() < 10 {
            sleep(Duration::from_millis(1)).await;
        }
        let mut paused = VnicProfile::clone(store.profiles().iter().next().unwrap());
        paused.spec.paused = true;
        store.profiles_mut().apply(api::Received(Ok(paused)));
        sleep(Duration::from_hours(1)).await;
        let created = server.lock().unwrap().requested.len();
        assert!(created < 100, "{created} were created although it was paused");
    };
    tokio::select! {
        () = profiles.run() => {}
        () = checks => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_profile_refused_for_a_thousand_nodes_tries_ten() {
    let (server, store, client) = scene(1_000);
    let metrics = Arc::new(Metrics::default());
    let (events, writer) = Events::new(metrics.clone());
    let (grace, round) = (GRACE, ROUND);
    let (client_of, nominated) = (client.clone(), watch::Sender::default());
    let store_of = store.clone();
    let profiles =
        Profiles { client: client_of, store: store_of, nominated, metrics, events, grace, round, chance: || 1.0 };
    let checks = async {
        let began = Instant::now();
        sleep(Duration::from_mins(1)).await;
        let first = server.lock().unwrap().requested.len();
        sleep(Duration::from_mins(19)).await;
        let server_now = std::mem::replace(&mut *server.lock().unwrap(), Server { takes: true, ..Server::default() });
        println!("{first} requests in the first minute, {} in twenty", server_now.requested.len());
        assert!((1_000..1_070).contains(&first), "each once: {first}");
        assert!(server_now.requested.len() - first <= 120, "{}", server_now.requested.len());
        let reported: Vec<&str> = server_now.reported.iter().map(|(reason, _)| reason.as_str()).collect();
        assert_eq!(reported, ["StampingFailed"; 3], "at once, then about every ten minutes");
        let last = &server_now.reported[2].1;
        assert!(
            last.starts_with("10 of 10 steps failed") && last.ends_with("990 more wait until one is accepted"),
            "{last}"
        );
        // From here all are accepted; without a watch each is created again in every reconcile.
        let all_by = Instant::now() + Duration::from_secs(140);
        while server.lock().unwrap().requested.len() < 1_001 {
            // As the watch does with a created object.
            store.changed().notify_one();
            assert!(Instant::now() < all_by, "{} after {:?}", server.lock().unwrap().requested.len(), began.elapsed());
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = profiles.run() => {}
        () = writer.run(client, "c".to_owned(), || 1.0) => {}
        () = checks => {}
    }
}

#[test]
fn steps_of_profiles_are_interleaved() {
    let step = |name: &str, version: &str| {
        let (name, version) = (name.to_owned(), Some(version.to_owned()));
        Step::AddFinalizer(Profile { name, version, finalizers: Vec::new() })
    };
    let steps = [step("a", "1"), step("a", "2"), step("a", "3"), step("b", "1"), step("b", "2"), step("c", "1")];
    let [a1, a2, a3, b1, b2, c1] = &steps;
    assert_eq!(in_turn(&steps), [a1, b1, c1, a2, b2, a3]);
}
