//! NetworkTests, from the object to its status: agents are asked on their channel, and answer what a test chose.

use api::{NetworkTest, NetworkTestStatus, TestState};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube_harness::{ServiceAccount, wait_until};
use sandbox::OciSettings;
use serde_json::{Value, json};

use crate::agents::{FakeAgent, TrustedControllers};
use crate::scene::Scene;

pub(crate) async fn create(scene: &Scene, name: &str, spec: Value) {
    let mut object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NetworkTest",
        "metadata": { "name": name },
        "spec": { "sources": [{ "nodeSelector": {} }], "probes": [{ "type": "TCP", "port": 443 }] } });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let object: NetworkTest = serde_json::from_value(object).unwrap();
    Api::all(scene.client.clone()).create(&PostParams::default(), &object).await.unwrap();
}

async fn get(scene: &Scene, name: &str) -> Option<NetworkTest> {
    Api::all(scene.client.clone()).get_opt(name).await.unwrap()
}

/// The status of the finished test.
pub(crate) async fn finished(scene: &Scene, name: &str) -> NetworkTestStatus {
    let mut found = NetworkTestStatus::default();
    wait_until(&format!("{name} is finished"), async || {
        found = get(scene, name).await.and_then(|test| test.status).unwrap_or_default();
        found.finished_at.is_some()
    })
    .await;
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn network_test_is_run_reported_and_deleted() {
    let scene = Scene::with(2, 2, OciSettings::default()).await;
    let trusted = TrustedControllers::follow(scene.client.clone());
    let agent = async |node| FakeAgent::on(&scene.client, node, &trusted).await;
    let mut agents = [agent("node-0").await, agent("node-1").await];
    create(&scene, "before", json!({ "targets": [{ "service": "peers" }, { "service": "apiserver" }] })).await;
    let _one = scene.controller("one");

    let status = finished(&scene, "before").await;
    let counts = status.counts.unwrap();
    assert_eq!((status.state, status.worst_verdict.as_str()), (Some(TestState::Finished), "Reachable"));
    assert_eq!((counts.pairs, counts.tested, counts.failed, counts.sent, counts.lost), (4, 4, 0, 20, 0));
    assert_eq!(status.latency.unwrap().p50_micros, 300);

    // It would stay for a day.
    Api::<NetworkTest>::all(scene.client.clone()).delete("before", &DeleteParams::default()).await.unwrap();

    agents[0].finds_closed_ports();
    create(&scene, "closed", json!({ "targets": [{ "node": "node-1" }] })).await;
    let status = finished(&scene, "closed").await;
    assert_eq!(status.worst_verdict, "Proven: PortClosed");
    assert_eq!((status.worst.len(), status.worst[0].source.as_str()), (1, "node-0"));
    assert_eq!((status.worst[0].probe.as_str(), status.worst[0].label.as_str()), ("TCP/443", "Proven"));

    // Refused by the configuration, although the user asked for it.
    let outside = json!({ "targets": [{ "address": "203.0.113.9" }], "externalTargets": true });
    create(&scene, "outside", outside).await;
    let status = finished(&scene, "outside").await;
    assert_eq!(status.state, Some(TestState::Refused));
    assert!(status.message.contains("NETWORK_TEST_TARGETS"), "{}", status.message);

    // Nothing answers: the source's agent is named, and no cause.
    agents[1].freeze();
    let silent =
        json!({ "sources": [{ "node": "node-1" }], "targets": [{ "service": "imds" }], "deadlineSeconds": 120 });
    create(
        &scene,
        "brief",
        json!({ "targets": [{ "service": "imds" }], "sources": [{ "node": "node-0" }],
        "ttlSecondsAfterFinished": 0 }),
    )
    .await;
    wait_until("a test without time to live is deleted", async || get(&scene, "brief").await.is_none()).await;
    create(&scene, "silent", silent).await;
    let status = finished(&scene, "silent").await;
    assert_eq!((status.worst_verdict.as_str(), status.counts.unwrap().unknown), ("Unknown", 1));
    assert!(get(&scene, "before").await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_that_learns_the_key_late_is_asked_again() {
    let scene = Scene::with(1, 2, OciSettings::default()).await;
    let trusted = TrustedControllers::default();
    let _agent = FakeAgent::on(&scene.client, "node-0", &trusted).await;
    create(&scene, "early", json!({ "targets": [{ "service": "imds" }] })).await;
    let _one = scene.controller("one");
    wait_until("the test runs", async || {
        get(&scene, "early").await.and_then(|test| test.status?.state) == Some(TestState::Running)
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    trusted.begin(scene.client.clone());
    assert_eq!(finished(&scene, "early").await.worst_verdict, "Reachable");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_become_targets_where_the_namespace_allows_it() {
    let scene = Scene::with(1, 2, OciSettings::default()).await;
    scene.kubernetes.create_account(&ServiceAccount::new("shop", "default")).await.unwrap();
    let trusted = TrustedControllers::follow(scene.client.clone());
    let agent = FakeAgent::on(&scene.client, "node-0", &trusted).await;
    agent.finds_closed_ports();
    for (name, app, phase) in
        [("cart-1", "cart", "Running"), ("cart-2", "cart", "Failed"), ("other", "other", "Running")]
    {
        make_pod(&scene, name, app, phase).await;
    }
    let _one = scene.controller("one");
    let pods = json!({ "namespace": "shop", "selector": { "matchLabels": { "app": "cart" } } });
    create(&scene, "pods", json!({ "targets": [{ "pods": pods }] })).await;
    let status = finished(&scene, "pods").await;
    assert_eq!((status.counts.unwrap().pairs, status.worst[0].target.as_str()), (1, "shop/cart-1"));
}

/// A Pod of the namespace `shop`, as scheduler and kubelet would leave it.
pub(crate) async fn make_pod(scene: &Scene, name: &str, app: &str, phase: &str) {
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), "shop");
    let pod = json!({ "metadata": { "name": name, "labels": { "app": app } },
        "spec": { "nodeName": "node-0", "automountServiceAccountToken": false, "containers": [{ "name": "a", "image": "a" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let status = json!({ "status": { "phase": phase, "podIP": "10.0.32.7", "podIPs": [{ "ip": "10.0.32.7" }] } });
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}
