//! Ten thousand agents that speak the real protocol, on loopback: the duration of a sweep, the controller's memory, its
//! writes at rest, a wave of failures, a partition of half of the nodes, and a leader change. SCALE is another number of nodes,
//! SCALE_POLL_SECONDS another interval for a quick run.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use health::fleet::NodeState;
use health::{Area, Fleet};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube::core::PartialObjectMeta;
use kube_harness::wait_within;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::agents::{self, FakeAgent, TrustedControllers};
use crate::paper;
use crate::process::Controller;
use crate::scene::Scene;

const AT_ONCE: usize = 24;
const PATIENCE: Duration = Duration::from_mins(60);
/// Listeners; a hundredth of the nodes each, so that requests at once fit the connections that an agent allows.
const LISTENERS: usize = 100;
/// The allowed memory in MiB, with summaries.
const MEMORY: u64 = 200;
/// The allowed duration of a sweep at full speed.
const SWEEP: f64 = 60.0;
/// The nodes without conditions; the remaining ones have conditions from an earlier leader. At 5 writes per second, 10,000 first conditions
/// would take 33 minutes in which nothing else happens.
const NEW: usize = 500;

/// The designed number, or `SCALE`.
fn count() -> usize {
    std::env::var("SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000)
}

fn metric(controller: &Controller, line: &str) -> f64 {
    controller.metric(&format!("oke_node_controller_{line}")).unwrap_or_default()
}

fn writes(controller: &Controller) -> f64 {
    metric(controller, r#"kubernetes_writes_total{kind="condition",result="ok"}"#)
}

fn nodes(controller: &Controller, state: NodeState) -> usize {
    metric(controller, &format!("fleet_nodes{{state=\"{state}\"}}")) as usize
}

async fn versions(scene: &Scene) -> Vec<Option<String>> {
    let api: Api<PartialObjectMeta<Node>> = Api::all(scene.client.clone());
    let all = api.list_metadata(&ListParams::default()).await.unwrap().items.into_iter();
    all.map(|object| object.metadata.resource_version).collect()
}

/// The conditions that an earlier leader wrote.
fn judged_before(node: &mut Value) {
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    conditions.extend(Area::ALL.map(|area| {
        json!({ "type": area.condition(), "status": "True", "reason": "NoCriticalProblem", "message": "No critical problem.",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:00:00Z" })
    }));
}

/// Nodes like OKE's with Pods of agents; the agents, and what answers for OCI.
async fn build(scene: &mut Scene, count: usize) -> Vec<FakeAgent> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (key, value) in [
        ("OCI_ENDPOINT", format!("http://{}", listener.local_addr().unwrap())),
        ("CLUSTER_ID", paper::CLUSTER.to_owned()),
        ("LEASE_SECONDS", "60".to_owned()),
        ("RESYNC_SECONDS", "300".to_owned()),
    ] {
        scene.environment.insert(key.to_owned(), value);
    }
    tokio::spawn(paper::serve(listener, paper::Attached::default()));
    let trusted = TrustedControllers::follow(scene.client.clone());
    let mut agents = Vec::new();
    for _ in 0..LISTENERS {
        let agent = FakeAgent::start("many", &trusted).await;
        agent.has_usual_findings();
        agents.push(agent);
    }
    let api: Api<Node> = Api::all(scene.client.clone());
    futures::stream::iter(0..count)
        .for_each_concurrent(AT_ONCE, |number| {
            let mut node = paper::node(number);
            if number >= NEW {
                judged_before(&mut node);
            }
            let node = serde_json::from_value(node).unwrap();
            let (api, client) = (api.clone(), scene.client.clone());
            let annotation = agents[number % LISTENERS].annotation();
            async move {
                drop(api.create(&PostParams::default(), &node).await.unwrap());
                agents::make_pod(&client, &format!("node-{number}"), &annotation).await;
            }
        })
        .await;
    agents
}

fn report(controller: &Controller, what: &str, began: Instant) {
    println!(
        "{what}: {:?}; RSS {} MiB, at most {} MiB; sweep {:.1} s, oldest summary {:.1} s, {} writes",
        began.elapsed(),
        controller.resident() / 1024,
        controller.peak() / 1024,
        metric(controller, "fleet_sweep_seconds"),
        metric(controller, "fleet_oldest_summary_seconds"),
        writes(controller),
    );
    assert!(controller.peak() <= MEMORY * 1024, "{} KiB", controller.peak());
}

async fn until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    wait_within(PATIENCE, what, async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        is_true().await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: make scale"]
async fn fleet_of_ten_thousand_nodes() {
    let (count, mut scene) = (count(), Scene::with(0, 2, sandbox::OciSettings::default()).await);
    let mut agents = build(&mut scene, count).await;
    println!("{count} nodes");
    // At full speed.
    let mut one = scene.controller_with("one", &[("AGENT_POLL_SECONDS", "10".to_owned())]);
    let began = Instant::now();
    until("all are known", async || nodes(&one, NodeState::Healthy) == count).await;
    report(&one, "the first sweep", began);
    assert!(metric(&one, "fleet_sweep_seconds") <= SWEEP);
    until("the new nodes have conditions", async || writes(&one) >= count.min(NEW) as f64).await;
    report(&one, "the first conditions", began);
    // A hundredth of the nodes fails.
    let (written, began) = (writes(&one), Instant::now());
    agents[0].has(&[("conntrack_use", Area::Network), ("disk_use", Area::Host)]);
    let wave = count.div_ceil(LISTENERS);
    until("the wave is written", async || writes(&one) >= written + wave as f64).await;
    report(&one, "a wave of failures", began);
    assert_eq!(nodes(&one, NodeState::Critical), wave);

    // Another leader, at the usual speed, which writes nothing.
    assert!(one.terminate().success());
    let poll = std::env::var("SCALE_POLL_SECONDS").unwrap_or_else(|_| "240".to_owned());
    let (two, before) = (scene.controller_with("two", &[("AGENT_POLL_SECONDS", poll)]), versions(&scene).await);
    let began = Instant::now();
    until("all are known", async || nodes(&two, NodeState::Healthy) + wave == count).await;
    report(&two, "another leader", began);
    let asked = |agents: &[FakeAgent]| agents.iter().map(FakeAgent::answers).sum::<u64>();
    let (began, until_asked) = (Instant::now(), asked(&agents) + 2 * count as u64);
    until("all were asked twice", async || asked(&agents) >= until_asked).await;
    report(&two, "two sweeps at rest", began);
    assert_eq!((writes(&two), versions(&scene).await == before), (0.0, true));
    let began = Instant::now();
    let (_, body) = two.view("/fleet").unwrap();
    let shown: Fleet = serde_json::from_str(&body).unwrap();
    assert_eq!(shown.nodes.len(), count);
    report(&two, &format!("the view, {} KiB", body.len() / 1024), began);

    // Half of the nodes are cut off.
    let began = Instant::now();
    agents.iter_mut().skip(LISTENERS / 2).for_each(FakeAgent::freeze);
    let unknown = || nodes(&two, NodeState::Unknown);
    until("the alert", async || metric(&two, "fleet_unknown_held") == 1.0).await;
    until("half is unknown", async || unknown() >= count / 2).await;
    report(&two, "a partition of half of the nodes", began);
    let until_asked = asked(&agents) + count as u64;
    until("the other half is asked as before", async || {
        assert_eq!(unknown(), count / 2);
        asked(&agents) >= until_asked
    })
    .await;
    report(&two, "two sweeps of the other half", began);
    let began = Instant::now();
    agents.iter_mut().skip(LISTENERS / 2).for_each(FakeAgent::thaw);
    until("all are known again", async || unknown() == 0).await;
    report(&two, "after the partition", began);
    assert_eq!((writes(&two), versions(&scene).await == before), (0.0, true));
}
