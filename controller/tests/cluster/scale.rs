//! Ten thousand nodes on paper: how much memory the controller takes, and what it writes when nothing changes.

use std::time::{Duration, Instant};

use api::VnicAttachment;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube::core::PartialObjectMeta;
use serde_json::json;
use tokio::net::TcpListener;

use crate::paper::{self, CLUSTER, EACH, SUBNET, Uids};
use crate::process::Controller;
use crate::scene::{Scene, wait_within};

/// Requests to the API server at once.
const AT_ONCE: usize = 24;
const PATIENCE: Duration = Duration::from_mins(20);

/// As many as DESIGNed for, or `SCALE`.
fn instances() -> usize {
    std::env::var("SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000)
}

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

async fn ready(controller: &Controller, wanted: usize) {
    let line = r#"oke_node_controller_attachments{ready="True",reason="Ready"}"#;
    wait_within(PATIENCE, "all are ready", async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        controller.metric(line).is_some_and(|count| count >= wanted as f64)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: make scale"]
async fn memory_and_writes_with_ten_thousand_nodes() {
    let (instances, mut scene) = (instances(), Scene::with(0, 2, sandbox::OciSettings::default()).await);
    let wanted = instances * EACH;
    let uids = Uids::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (key, value) in [
        ("OCI_ENDPOINT", format!("http://{}", listener.local_addr().unwrap())),
        ("CLUSTER_ID", CLUSTER.to_owned()),
        ("LEASE_SECONDS", "60".to_owned()),
        ("RESYNC_SECONDS", "60".to_owned()),
        ("WORKERS", "64".to_owned()),
    ] {
        scene.environment.insert(key.to_owned(), value);
    }
    tokio::spawn(paper::serve(listener, uids.clone()));
    let nodes: Api<Node> = Api::all(scene.client.clone());
    futures::stream::iter(0..instances)
        .for_each_concurrent(AT_ONCE, |number| {
            let node = paper::node(number);
            let (nodes, node) = (nodes.clone(), serde_json::from_value(node).unwrap());
            async move { drop(nodes.create(&PostParams::default(), &node).await.unwrap()) }
        })
        .await;
    let objects = scene.objects();
    futures::stream::iter((0..instances).flat_map(|number| (1..=EACH).map(move |vnic| (number, vnic))))
        .for_each_concurrent(AT_ONCE, |(number, vnic)| {
            let name = paper::name(number, vnic);
            let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment",
                "metadata": { "name": name },
                "spec": { "instanceId": paper::instance(number), "subnetId": SUBNET, "name": name, "purpose": "Host" } });
            let (objects, uids) = (objects.clone(), uids.clone());
            async move {
                let object: VnicAttachment = serde_json::from_value(object).unwrap();
                let made = objects.create(&PostParams::default(), &object).await.unwrap();
                uids.write().unwrap().insert(name, made.metadata.uid.unwrap());
            }
        })
        .await;
    println!("{instances} instances, {wanted} VnicAttachments");
    let mut one = scene.controller("one");
    let began = Instant::now();
    ready(&one, wanted).await;
    println!("all adopted and told in {:?}: RSS {} MiB", began.elapsed(), one.resident() / 1024);
    // A controller that comes to what is in order.
    assert!(one.terminate().success());
    let one = scene.controller("two");
    let began = Instant::now();
    ready(&one, wanted).await;
    println!("a start with all of it: {:?}, RSS {} MiB", began.elapsed(), one.resident() / 1024);
    let before = versions(&scene).await;
    let looks = || one.metric(r#"oke_node_controller_passes_total{result="settled"}"#).unwrap_or_default();
    let (seen, written, began) = (looks(), writes(&one), Instant::now());
    wait_within(PATIENCE, "each was looked at again", async || {
        tokio::time::sleep(Duration::from_secs(1)).await;
        looks() >= seen + instances as f64
    })
    .await;
    let wrote = writes(&one) - written;
    println!(
        "{} looks in {:?}: {wrote} writes, RSS {} MiB, at most {} MiB",
        looks() - seen,
        began.elapsed(),
        one.resident() / 1024,
        one.peak() / 1024
    );
    assert!(wrote == 0.0, "{wrote} writes while nothing changed");
    assert_eq!(versions(&scene).await, before);
    let request = hyper::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = scene.client.request_text(request).await.unwrap();
    let watches = metrics.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{")
            && (line.contains("\"vnicattachments\"") || line.contains("\"nodes\""))
    });
    watches.for_each(|line| println!("{line}"));
}
