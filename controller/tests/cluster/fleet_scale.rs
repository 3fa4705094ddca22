//! Ten thousand agents that speak the real protocol, on loopback. Measured are the duration of a sweep, the controller's memory
//! and its writes at rest. Then follow a wave of failures, a partition of half of the nodes, and a leader change.
//! SCALE_POLL_SECONDS is another interval for a quick run.

use std::time::Instant;

use futures::StreamExt as _;
use health::fleet::NodeState;
use health::{Area, Fleet};
use serde_json::{Value, json};

use crate::agents::{self, FakeAgent, TrustedControllers};
use crate::fleet::versions;
use crate::paper::{self, AT_ONCE, count, until};
use crate::process::Controller;
use crate::scene::Scene;

/// Listeners; a hundredth of the nodes each, so that requests at once fit the connections that an agent allows.
const LISTENERS: usize = 100;
/// The allowed memory in MiB, with summaries.
const MEMORY: u64 = 200;
/// The allowed duration of a sweep at full speed.
const SWEEP: f64 = 60.0;
/// The nodes without conditions; the remaining ones have conditions from an earlier leader. At 5 writes per second, 10,000 first conditions
/// would take 33 minutes in which nothing else happens.
const NEW: usize = 500;

fn metric(controller: &Controller, line: &str) -> f64 {
    controller.metric(&format!("oke_node_controller_{line}")).unwrap_or_default()
}

fn writes(controller: &Controller) -> f64 {
    metric(controller, r#"kubernetes_writes_total{kind="condition",result="ok"}"#)
}

fn nodes(controller: &Controller, state: NodeState) -> usize {
    metric(controller, &format!("fleet_nodes{{state=\"{state}\"}}")) as usize
}

/// The conditions that an earlier leader wrote.
fn judged_before(node: &mut Value) {
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    conditions.extend(Area::ALL.map(|area| {
        json!({ "type": area.condition(), "status": "True", "reason": "NoCriticalProblem", "message": "No critical problem.",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastHeartbeatTime": "2026-01-01T00:00:00Z" })
    }));
}

/// Nodes like OKE's with Pods of agents, and the agents.
async fn build(scene: &Scene, count: usize) -> Vec<FakeAgent> {
    let trusted = TrustedControllers::follow(scene.client.clone());
    let mut agents = Vec::new();
    for _ in 0..LISTENERS {
        let agent = FakeAgent::start("many", &trusted).await;
        agent.has_usual_findings();
        agents.push(agent);
    }
    let node = |number| {
        let mut node = paper::node(number);
        if number >= NEW {
            judged_before(&mut node);
        }
        node
    };
    paper::create(scene, (0..count).map(node)).await;
    futures::stream::iter(0..count)
        .for_each_concurrent(AT_ONCE, |number| {
            let annotation = agents[number % LISTENERS].annotation();
            async move { agents::make_pod(&scene.client, &format!("node-{number}"), &annotation).await }
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: make scale"]
async fn fleet_of_ten_thousand_nodes() {
    let (count, scene) = (count(), paper::scene("300").await);
    let mut agents = build(&scene, count).await;
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
    let answers = |agents: &[FakeAgent]| agents.iter().map(FakeAgent::answers).sum::<u64>();
    let (began, target) = (Instant::now(), answers(&agents) + 2 * count as u64);
    until("all agents answered twice", async || answers(&agents) >= target).await;
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
    let target = answers(&agents) + count as u64;
    until("the other half is queried as before", async || {
        assert_eq!(unknown(), count / 2);
        answers(&agents) >= target
    })
    .await;
    report(&two, "two sweeps of the other half", began);
    let began = Instant::now();
    agents.iter_mut().skip(LISTENERS / 2).for_each(FakeAgent::thaw);
    until("all are known again", async || unknown() == 0).await;
    report(&two, "after the partition", began);
    assert_eq!((writes(&two), versions(&scene).await == before), (0.0, true));
}
