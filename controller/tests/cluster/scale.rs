//! Ten thousand minimal nodes, each with the watch that its agent holds, and one VnicProfile for all of them: the controller's
//! memory, its writes while nothing changes, and its watches.

mod agents;

use std::time::{Duration, Instant};

use api::{VnicAttachment, VnicProfile};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt as _};
use kube_harness::wait_within;
use serde_json::json;

use crate::paper::{self, PATIENCE, SUBNET, count, until};
use crate::process::Controller;
use crate::scene::Scene;
use agents::Agents;

/// The VNICs of the profile.
const EACH: usize = 2;
/// The allowed memory in MiB.
const MEMORY: u64 = 150;
/// Objects that change while all agents watch.
const CHANGES: usize = 100;

async fn versions(scene: &Scene) -> Vec<(Option<String>, Option<String>)> {
    let api: Api<PartialObjectMeta<VnicAttachment>> = Api::all(scene.client.clone());
    let all = api.list(&ListParams::default()).await.unwrap().items.into_iter();
    let mut all: Vec<_> = all.map(|object| (object.metadata.name, object.metadata.resource_version)).collect();
    all.sort();
    all
}

fn writes(controller: &Controller) -> f64 {
    let (_, text) = controller.get("/metrics").unwrap();
    let all = text.lines().filter(|line| line.starts_with("oke_node_controller_kubernetes_writes_total"));
    all.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// How many watches of the controller's kinds the API server serves.
async fn watches(scene: &Scene) -> u64 {
    let request = hyper::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = scene.client.request_text(request).await.unwrap();
    let watches = metrics.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{")
            && ["\"vnicattachments\"", "\"vnicprofiles\"", "\"nodes\""].iter().any(|kind| line.contains(kind))
            && line.contains("verb=\"WATCH\"")
    });
    let counts =
        watches.inspect(|line| println!("{line}")).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    counts.sum::<f64>() as u64
}

async fn ready(controller: &Controller, expected: usize) {
    let line = r#"oke_node_controller_attachments{ready="True",reason="Ready"}"#;
    until("all are ready", async || controller.metric(line).is_some_and(|count| count >= expected as f64)).await;
}

/// Changes objects of as many agents; how long it takes until each agent has its change.
async fn change(scene: &Scene, agents: &Agents, count: usize) -> Duration {
    let api: Api<VnicAttachment> = Api::all(scene.client.clone());
    let all = api.list_metadata(&ListParams::default().limit(count as u32)).await.unwrap().items;
    let (began, events) = (Instant::now(), agents.events());
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "example.com/changed": "true" } } }));
    for object in &all {
        api.patch_metadata(&object.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }
    wait_within(PATIENCE, "each agent has its change", async || agents.events() >= events + all.len()).await;
    began.elapsed()
}

/// A profile of two VNICs for all nodes.
async fn request(scene: &Scene) {
    let templates = (0..EACH).map(
        |vnic| json!({ "name": format!("net{vnic}"), "purpose": "Host", "subnetId": SUBNET, "subnetRoute": true }),
    );
    let profile = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicProfile", "metadata": { "name": "paper" },
        "spec": { "nodeSelector": {}, "allNodes": true, "attachments": templates.collect::<Vec<_>>() } });
    let profiles: Api<VnicProfile> = Api::all(scene.client.clone());
    profiles.create(&PostParams::default(), &serde_json::from_value(profile).unwrap()).await.unwrap();
}

/// An agent's watch is opened again every few minutes.
async fn has_watches(scene: &Scene, expected: u64, what: &str) {
    until(what, async || watches(scene).await == expected).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: make scale"]
async fn memory_and_writes_with_ten_thousand_nodes() {
    let (instances, mut scene) = (count(), paper::scene("60").await);
    scene.environment.insert("WORKERS".to_owned(), "64".to_owned());
    let expected = instances * EACH;
    // The API server's own.
    let others = watches(&scene).await;
    paper::create(&scene, (0..instances).map(paper::node)).await;
    request(&scene).await;
    println!("{instances} instances, {expected} VnicAttachments");
    let mut one = scene.controller("one");
    let began = Instant::now();
    ready(&one, expected).await;
    let seconds =
        |one: &Controller, what: &str| one.metric(&format!("oke_node_controller_profile_reconcile_seconds_{what}"));
    println!(
        "all created, attached and reported in {:?}: RSS {} MiB, at most {} MiB; planning took {:?} s in {:?} reconciles",
        began.elapsed(),
        one.resident() / 1024,
        one.peak() / 1024,
        seconds(&one, "sum"),
        seconds(&one, "count"),
    );
    assert!(one.peak() <= MEMORY * 1024, "{} KiB", one.peak());
    // Not before: each write costs the API server a comparison for each watch.
    let began = Instant::now();
    let agents = Agents::start(&scene.kubernetes, instances).await;
    println!("{instances} agents watch after {:?}", began.elapsed());
    wait_within(PATIENCE, "every agent has its objects", async || agents.objects() == expected).await;
    let with_agents = others + instances as u64;
    has_watches(&scene, with_agents + 3, "the controller has three watches").await;
    // A controller that starts with everything in sync.
    assert!(one.terminate().success());
    let one = scene.controller("two");
    let began = Instant::now();
    ready(&one, expected).await;
    println!("a start with all of it: {:?}, RSS {} MiB", began.elapsed(), one.resident() / 1024);
    has_watches(&scene, with_agents + 3, "the first controller's watches are gone").await;
    let events = agents.events();
    let before = versions(&scene).await;
    let looks = || one.metric(r#"oke_node_controller_reconciles_total{result="settled"}"#).unwrap_or_default();
    let (seen, written, began) = (looks(), writes(&one), Instant::now());
    until("each was reconciled again", async || looks() >= seen + instances as f64).await;
    let wrote = writes(&one) - written;
    println!(
        "{} reconciles in {:?}: {wrote} writes, RSS {} MiB, at most {} MiB",
        looks() - seen,
        began.elapsed(),
        one.resident() / 1024,
        one.peak() / 1024
    );
    assert!(wrote == 0.0, "{wrote} writes while nothing changed");
    assert_eq!(versions(&scene).await, before);
    assert!(one.peak() <= MEMORY * 1024, "{} KiB", one.peak());
    assert_eq!(agents.events(), events, "agents receive nothing while nothing changes");
    has_watches(&scene, with_agents + 3, "watches while nothing changes").await;
    println!("planning took {:?} s in {:?} reconciles", seconds(&one, "sum"), seconds(&one, "count"));
    println!("{CHANGES} changes reached their agents in {:?}", change(&scene, &agents, CHANGES).await);
}
