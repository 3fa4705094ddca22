//! The lives of tests against a scripted API server and agents, with a paused clock.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use api::{AttachMode, Purpose};
use hyper::Method;
use kube::Client;
use nettest::probe::{ProbeReport, ProbeRequest, Tally};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::args::TestTargets;
use crate::attachment::sample::{attachment, instance};
use crate::cluster::client::offline::{client_with, json};
use crate::cluster::store::NodeView;
use crate::network_test::agents::AgentError;

/// Agents whose probes all pass.
struct Agents {
    /// How long a probe takes.
    each: Duration,
    probe_times: Mutex<Vec<Instant>>,
    /// Probes that take place now; the most so far.
    open: Arc<Mutex<(usize, usize)>>,
}

/// One probe; it also ends when its test is dropped.
struct Open(Arc<Mutex<(usize, usize)>>);

impl Open {
    fn new(counts: &Arc<Mutex<(usize, usize)>>) -> Self {
        let mut open = counts.lock().unwrap();
        *open = (open.0 + 1, open.1.max(open.0 + 1));
        Self(counts.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.lock().unwrap().0 -= 1;
    }
}

impl AgentCalls for Agents {
    fn address(&self, _: &str) -> Option<IpAddr> {
        None
    }

    async fn probe(&self, _: &str, _: &ProbeRequest, _: Duration) -> Result<ProbeReport, AgentError> {
        self.probe_times.lock().unwrap().push(Instant::now());
        let _open = Open::new(&self.open);
        sleep(self.each).await;
        let tally = Tally { sent: 5, received: 5, failure: None, micros: vec![100; 5] };
        Ok(ProbeReport { tally, ..ProbeReport::default() })
    }

    async fn probe_from_pod(&self, _: &str, _: &ProbeRequest) -> Result<ProbeReport, AgentError> {
        Err(AgentError::Busy)
    }
}

struct Scene {
    tasks: Tasks<Agents>,
    agents: Arc<Agents>,
    /// What was written: the test's name, and its status or nothing if it was deleted.
    written: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Scene {
    fn new(each: Duration) -> Self {
        let agents = Arc::new(Agents { each, probe_times: Mutex::default(), open: Arc::default() });
        let written = Arc::new(Mutex::new(Vec::new()));
        let context = NetworkTests {
            client: client(written.clone()),
            store: Arc::default(),
            agents: agents.clone(),
            metrics: Arc::default(),
            turns: Semaphore::new(AT_ONCE),
            allowed: TestTargets::Cluster,
            services: Vec::new(),
            oci_host: None,
        };
        let tasks = Tasks { context: Arc::new(context), set: JoinSet::new(), running: BTreeMap::new() };
        Self { tasks, agents, written }
    }

    /// Creates a test of the metadata service from some nodes.
    fn create(&mut self, name: &str, nodes: usize, more: &Value) {
        let sources: Vec<Value> = (0..nodes).map(|node| json!({ "node": format!("node-{node}") })).collect();
        let mut test = object(name);
        test["spec"] =
            json!({ "sources": sources, "targets": [{ "service": "imds" }], "probes": [{ "type": "HTTP" }] });
        test["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.tasks.take(StoreUpdate::One(Ok(serde_json::from_value(test).unwrap())));
    }

    fn probes(&self) -> usize {
        self.agents.probe_times.lock().unwrap().len()
    }

    /// The names of tests that were written with a state.
    fn names(&self, state: &str) -> Vec<String> {
        let written = self.written.lock().unwrap();
        written.iter().filter(|(_, status)| status["state"] == state).map(|(name, _)| name.clone()).collect()
    }
}

fn object(name: &str) -> Value {
    json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NetworkTest", "metadata": { "name": name, "uid": name },
        "spec": { "sources": [], "targets": [], "probes": [] } })
}

/// Keeps what is written.
fn client(written: Arc<Mutex<Vec<(String, Value)>>>) -> Client {
    client_with(move |head, mut body| {
        let name = head.uri.path().split('/').nth(5).unwrap().to_owned();
        let answer = match head.method {
            Method::GET => json!({ "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [] }),
            _ => object(&name),
        };
        written.lock().unwrap().push((name, body["status"].take()));
        Some(json(200, answer.to_string()))
    })
}

async fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let met = async {
        while !condition() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(7 * 24 * 3600), met).await.expect(what);
}

#[tokio::test]
async fn addresses_of_a_node_include_those_of_its_vnics() {
    let scene = Scene::new(Duration::ZERO);
    let store = &scene.tasks.context.store;
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let addresses = [address("10.0.0.2"), address("2001:db8::2")].into();
    let node = NodeView { name: "a".to_owned(), instance: Some(instance(1)), addresses, ..NodeView::default() };
    store.nodes_mut().apply(node);
    let mut pods = attachment("pods", 1);
    pods.status = Some(api::VnicAttachmentStatus { own_addresses: vec![address("10.0.50.2")], ..Default::default() });
    let mut exclusive = pods.clone();
    exclusive.metadata.name = Some("exclusive".to_owned());
    (exclusive.spec.vnic.purpose, exclusive.spec.vnic.mode) = (Purpose::Attach, AttachMode::Exclusive);
    exclusive.status.as_mut().unwrap().own_addresses = vec![address("10.0.50.3")];
    let mut elsewhere = exclusive.clone();
    (elsewhere.metadata.name, elsewhere.spec.instance_id) = (Some("elsewhere".to_owned()), instance(2));
    for object in [pods, exclusive, elsewhere] {
        store.attachments_mut().apply(object);
    }
    let held = scene.tasks.context.nodes(Vec::new()).held;
    let expected = vec![address("10.0.0.2"), address("2001:db8::2"), address("10.0.50.2")];
    assert_eq!(held, BTreeMap::from([("a".to_owned(), expected)]));
}

#[tokio::test(start_paused = true)]
async fn test_with_an_interval_runs_again_and_stays() {
    let mut scene = Scene::new(Duration::from_secs(1));
    scene.create("standing", 1, &json!({ "intervalSeconds": 300, "ttlSecondsAfterFinished": 0 }));
    wait_for("the third run", || scene.names("Finished").len() == 3).await;
    let probe_times = scene.agents.probe_times.lock().unwrap().clone();
    let between: Vec<u64> = probe_times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    // The API's times have whole seconds, and do not pass while the clock is paused.
    assert!(between.iter().all(|seconds| (299..=301).contains(seconds)), "{between:?}");
    assert!(scene.written.lock().unwrap().iter().all(|(_, status)| !status.is_null()), "it is not deleted");
}

#[tokio::test(start_paused = true)]
async fn test_without_a_pair_waits_with_backoff_and_says_why() {
    let mut scene = Scene::new(Duration::ZERO);
    scene.create("early", 1, &json!({ "targets": [{ "pods": { "namespace": "shop" } }] }));
    wait_for("the deadline", || !scene.names("Refused").is_empty()).await;
    let written = scene.written.lock().unwrap();
    let lists = written.iter().filter(|(name, _)| name == "pods").count();
    // 5 s, 10 s, 20 s, 40 s and 60 s in 120 s, or up to half of each.
    assert!((4..=11).contains(&lists), "{lists}");
    let statuses: Vec<_> = written.iter().filter(|(_, status)| !status.is_null()).map(|(_, status)| status).collect();
    assert_eq!((statuses.len(), &statuses[0]["state"]), (2, &json!("Waiting")));
    assert!(statuses.iter().all(|status| status["message"].as_str().unwrap().contains("no selected pod runs")));
}

#[tokio::test(start_paused = true)]
async fn run_honors_its_deadline_and_concurrency() {
    let mut scene = Scene::new(Duration::from_secs(4));
    scene.create("slow", 8, &json!({ "deadlineSeconds": 10, "concurrency": 2 }));
    wait_for("the deadline", || !scene.names("TimedOut").is_empty()).await;
    let written = scene.written.lock().unwrap();
    let counts = &written.last().unwrap().1["counts"];
    // Two after 4 s and two after 8 s; two more were dropped.
    assert_eq!((&counts["pairs"], &counts["tested"]), (&json!(8), &json!(4)));
    assert_eq!((scene.probes(), *scene.agents.open.lock().unwrap()), (6, (0, 2)));
}

#[tokio::test(start_paused = true)]
async fn four_tests_run_at_once_and_a_deleted_one_makes_room() {
    let mut scene = Scene::new(Duration::from_secs(60));
    for name in ["a", "b", "c", "d", "e"] {
        scene.create(name, 1, &json!({}));
    }
    wait_for("four tests run", || scene.probes() == 4).await;
    sleep(Duration::from_secs(30)).await;
    let mut running = scene.names("Running");
    running.sort();
    assert_eq!((running, scene.probes()), (["a", "b", "c", "d"].map(str::to_owned).to_vec(), 4));
    scene.tasks.take(StoreUpdate::Gone("b".to_owned()));
    wait_for("the fifth test runs", || scene.probes() == 5).await;
    assert_eq!(*scene.agents.open.lock().unwrap(), (4, 4), "the deleted test's probe is dropped");
    wait_for("all others end", || scene.names("Finished").len() == 4).await;
    sleep(Duration::from_secs(600)).await;
    assert!(!scene.names("Finished").contains(&"b".to_owned()));
}
