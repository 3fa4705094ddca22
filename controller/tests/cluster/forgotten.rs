//! Instances that OCI answers 404 for: ended while no controller ran, or moved to an invisible compartment.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use sandbox::{OciSettings, Operation};
use serde_json::json;

use crate::scene::{Scene, wait_for};

/// A VNIC on the first of two instances, deleted without a controller, with its Node.
async fn deleted_meanwhile() -> Scene {
    let scene = Scene::with(2, 8, OciSettings::default()).await;
    let mut one = scene.controller("one");
    scene.want("storage", 0, json!({})).await;
    scene.wait_for_reason("storage", "Ready").await;
    assert!(one.terminate().success());
    let nodes: Api<Node> = Api::all(scene.client.clone());
    nodes.delete("node-0", &DeleteParams::default()).await.unwrap();
    scene.delete("storage").await;
    scene.cloud.forbid(&[Operation::GetInstance]);
    scene
}

/// The object's times are set back by a day.
async fn a_day_passes(scene: &Scene) {
    let mut conditions = scene.get("storage").await.unwrap().status.unwrap().conditions;
    for condition in &mut conditions {
        condition.last_transition_time.0 -= k8s_openapi::jiff::SignedDuration::from_hours(25);
    }
    let patch = Patch::Merge(json!({ "status": { "conditions": conditions } }));
    scene.objects().patch_status("storage", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_forgotten_instance_releases_its_object_after_a_day() {
    let scene = deleted_meanwhile().await;
    scene.cloud.set_instance_state("node-0", "TERMINATED").unwrap();
    let mut two = scene.controller("two");
    scene.wait_for_reason("storage", "InstanceForgotten").await;
    assert!(two.terminate().success());
    a_day_passes(&scene).await;
    let three = scene.controller("three");
    scene.wait_until_gone("storage").await;
    // Counted when the finalizer has been removed.
    let counted = async || three.metric("oke_node_controller_forgotten_instances_total") == Some(1.0);
    wait_for("it is counted", counted).await;
    assert_eq!(scene.cloud.answered(Operation::DetachVnic, 204), 0);
    assert!(three.log().contains("instance.forgotten"));
}

#[tokio::test]
async fn a_moved_instance_keeps_its_object_until_it_is_seen() {
    let scene = deleted_meanwhile().await;
    let mut two = scene.controller("two");
    let object = scene.wait_for_reason("storage", "NotAuthorizedOrNotFound").await;
    let message = |object: &api::VnicAttachment| object.status.as_ref().unwrap().conditions[2].message.clone();
    wait_for("the evidence is collected", async || {
        scene.get("storage").await.is_some_and(|object| message(&object).ends_with("its VNIC is visible"))
    })
    .await;
    assert!(two.terminate().success());
    a_day_passes(&scene).await;
    let _three = scene.controller("three");
    let asked = scene.cloud.answered(Operation::GetInstance, 404);
    wait_for("it was reconciled several times", async || {
        scene.cloud.answered(Operation::GetInstance, 404) >= asked + 15
    })
    .await;
    let kept = scene.get("storage").await.unwrap();
    assert_eq!((kept.metadata.uid, scene.vnics().len()), (object.metadata.uid, 1));
    scene.cloud.forbid(&[]);
    scene.wait_until_gone("storage").await;
    assert_eq!(scene.vnics(), Vec::<String>::new());
}
