//! NetworkTests, from the object to its status: agents get requests on their channel, and answer what a test chose.

use api::{NetworkTest, NetworkTestStatus, TestState};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube_harness::wait_until;
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
async fn agent_with_a_late_key_gets_another_request() {
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
async fn external_target_is_refused_by_the_default_configuration() {
    let scene = Scene::with(1, 2, OciSettings::default()).await;
    create(&scene, "outside", json!({ "targets": [{ "address": "203.0.113.9" }], "externalTargets": true })).await;
    let _one = scene.controller("one");
    let status = finished(&scene, "outside").await;
    assert_eq!(status.state, Some(TestState::Refused));
    assert!(status.message.contains("NETWORK_TEST_TARGETS"), "{}", status.message);
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
