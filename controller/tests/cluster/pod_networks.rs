//! OKE's NativePodNetwork on a real API server, before an attach or detach.

use kube::Api;
use kube::api::{DeleteParams, DynamicObject};
use kube_harness::{ApiServer, wait_until};
use sandbox::{NpnShape, Operation, VnicSpec};
use serde_json::{Value, json};

use crate::process::Controller;
use crate::scene::Scene;

/// A scene with a node for which OKE has attached a VNIC, and the kind.
async fn on_oke() -> Scene {
    let scene = Scene::new().await;
    scene.kubernetes.apply(&ApiServer::native_pod_networks()).await.unwrap();
    scene.vcn.attach_vnic("node-0", &VnicSpec::for_pods("pods", 3)).unwrap();
    scene
}

/// What OKE would write when it has finished: each VNIC with more addresses than its own counts as one for pods.
fn finished(scene: &Scene) -> Value {
    scene.vcn.native_pod_network("node-0", NpnShape::Legacy).unwrap()
}

async fn publish(scene: &Scene, npn: Value) {
    scene.kubernetes.apply_object(npn).await.unwrap();
}

/// This many reconciles have changed nothing.
async fn looks(controller: &Controller, more: f64) {
    let settled = || controller.metric(r#"oke_node_controller_reconciles_total{result="settled"}"#).unwrap_or_default();
    let before = settled();
    wait_until("it is reconciled some times more", async || settled() >= before + more).await;
}

async fn version(scene: &Scene, name: &str) -> Option<String> {
    scene.get(name).await.unwrap().metadata.resource_version
}

fn message(object: &api::VnicAttachment) -> String {
    object.status.as_ref().unwrap().conditions[2].message.clone()
}

#[tokio::test]
async fn attaches_wait_for_oke_without_writes() {
    let scene = on_oke().await;
    let npn = finished(&scene);
    let name = npn["metadata"]["name"].as_str().unwrap().to_owned();
    let mut unfinished = npn.clone();
    unfinished["status"] = json!({ "state": "BACKOFF", "reason": "FailedToCreatePrivateIP" });
    publish(&scene, unfinished).await;
    let controller = scene.controller("one");
    scene.want("storage", 0, json!({})).await;
    let object = scene.wait_for_reason("storage", "PodNetworkPending").await;
    assert_eq!(message(&object), format!("NativePodNetwork {name} is BACKOFF: FailedToCreatePrivateIP"));
    let before = version(&scene, "storage").await;
    looks(&controller, 3.0).await;
    assert_eq!((version(&scene, "storage").await, scene.cloud.answered(Operation::AttachVnic, 200)), (before, 0));
    publish(&scene, npn).await;
    scene.wait_for_reason("storage", "Ready").await;
    assert_eq!(scene.cloud.answered(Operation::AttachVnic, 200), 1);
}

#[tokio::test]
async fn pod_vnic_is_detached_after_its_pod_network_is_deleted() {
    let scene = on_oke().await;
    let controller = scene.controller("one");
    for name in ["pods", "own"] {
        let count = u8::from(name == "pods") * 3;
        scene.want(name, 0, json!({ "ipv4Count": count })).await;
        scene.wait_for_reason(name, "Ready").await;
    }
    let npn = finished(&scene);
    assert_eq!(npn["status"]["vnics"].as_array().unwrap().len(), 2, "{npn}");
    let name = npn["metadata"]["name"].as_str().unwrap().to_owned();
    publish(&scene, npn).await;
    scene.delete("pods").await;
    scene.delete("own").await;
    scene.wait_until_gone("own").await;
    let object = scene.wait_for_reason("pods", "UsedByPods").await;
    assert!(message(&object).starts_with(&format!("NativePodNetwork {name} lists the VNIC for pods")), "{object:?}");
    let before = version(&scene, "pods").await;
    looks(&controller, 3.0).await;
    assert_eq!((version(&scene, "pods").await, scene.cloud.answered(Operation::DetachVnic, 204)), (before, 1));
    let npns: Api<DynamicObject> = Api::all_with(scene.client.clone(), &api::npn::resource());
    npns.delete(&name, &DeleteParams::default()).await.unwrap();
    scene.wait_until_gone("pods").await;
    assert_eq!(scene.cloud.answered(Operation::DetachVnic, 204), 2);
}
