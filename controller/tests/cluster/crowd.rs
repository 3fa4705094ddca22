//! Many refused objects and a small budget: a new object does not wait behind them.

use api::VnicAttachment;
use futures::StreamExt as _;
use kube::api::PostParams;
use sandbox::OciSettings;
use serde_json::json;
use tokio::net::TcpListener;

use crate::paper;
use crate::process::Controller;
use crate::scene::{Scene, wait_for};

const REFUSED: usize = 80;
/// Calls in flight and reconciles that end while a watch lags. If all refused objects came before each of its own reconciles,
/// a new one would wait for at least eighty.
const MOST: f64 = 45.0;

fn object(number: usize, subnet: &str) -> VnicAttachment {
    let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment",
        "metadata": { "name": format!("vnic-{number}") },
        "spec": { "instanceId": paper::instance(number), "subnetId": subnet, "name": "storage", "purpose": "Host" } });
    serde_json::from_value(object).unwrap()
}

fn looks_in_vain(controller: &Controller) -> f64 {
    controller.metric(r#"oke_node_controller_passes_total{result="failed"}"#).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_vnic_does_not_wait_for_refused_ones() {
    let mut scene = Scene::with(0, 2, OciSettings::default()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (key, value) in [
        ("OCI_ENDPOINT", format!("http://{}", listener.local_addr().unwrap())),
        ("CLUSTER_ID", paper::CLUSTER.to_owned()),
        ("OCI_REQUESTS_PER_SECOND", "10".to_owned()),
        ("WORKERS", "4".to_owned()),
    ] {
        scene.environment.insert(key.to_owned(), value);
    }
    tokio::spawn(paper::serve(listener, paper::Attached::default()));
    let objects = scene.objects();
    futures::stream::iter(0..REFUSED)
        .for_each_concurrent(8, |number| {
            let objects = objects.clone();
            async move { drop(objects.create(&PostParams::default(), &object(number, paper::FULL)).await.unwrap()) }
        })
        .await;
    let controller = scene.controller("one");
    let full = || controller.metric(r#"oke_node_controller_attachments{ready="False",reason="SubnetFull"}"#);
    wait_for("all are refused", async || full() == Some(REFUSED as f64)).await;
    let mut before = 0.0;
    let mut meanwhile = Vec::new();
    // This thread or the API server may have stood still, while the controller worked on.
    while meanwhile.last().is_none_or(|looks| *looks >= MOST) {
        assert!(meanwhile.len() < 3, "{meanwhile:?} reconciles of refused ones");
        let number = REFUSED + meanwhile.len();
        before = looks_in_vain(&controller);
        objects.create(&PostParams::default(), &object(number, paper::SUBNET)).await.unwrap();
        scene.wait_for_reason(&format!("vnic-{number}"), "Ready").await;
        meanwhile.push(looks_in_vain(&controller) - before);
    }
    // They are not forgotten meanwhile.
    wait_for("they are reconciled", async || looks_in_vain(&controller) > before + REFUSED as f64 / 2.0).await;
    assert_eq!(full(), Some(REFUSED as f64));
}
