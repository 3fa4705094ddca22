//! VnicProfiles on a real API server: what is stamped, changed, removed and reported.

mod scene;

use std::time::Instant;

use api::{VnicAttachment, VnicProfile};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube_harness::wait_for;
use serde_json::json;

use oke_node_controller::profile::apply::apply;
use oke_node_controller::profile::plan::removal::RemovalReason;
use oke_node_controller::profile::plan::step::{Step, Target};
use scene::{GRACE, Scene, WITHIN, ocid};

#[tokio::test]
async fn a_ready_profile_is_reported_once_and_not_written() {
    let scene = Scene::new("rest");
    scene.node("rest-1", json!({})).await;
    scene.profile("rest", json!({})).await;
    let object = scene.objects("rest", 1).await.remove(0);
    scene.make_ready(&object).await;
    let event = scene.event("rest", "Ready").await;
    let profile: VnicProfile = scene.api().get("rest").await.unwrap();
    assert_eq!((event.type_.as_deref(), event.regarding.unwrap().uid), (Some("Normal"), profile.metadata.uid));
    let versions = async || {
        let objects = scene.objects("rest", 1).await;
        let profile: VnicProfile = scene.api().get("rest").await.unwrap();
        (objects[0].metadata.resource_version.clone(), profile.metadata.resource_version)
    };
    let three_looks = async || {
        let looks = scene.looks();
        let more = async || (scene.looks() >= looks + 3).then_some(()).or_else(|| scene.nudge());
        wait_for("three reconciles more", more).await;
    };
    // The last write may be one that the test did not wait for.
    three_looks().await;
    let before = versions().await;
    three_looks().await;
    assert_eq!(versions().await, before);
    assert_eq!(scene.reported("rest").await, ["Ready"]);
}

#[tokio::test]
async fn changed_template_is_applied_and_user_edit_is_reverted() {
    let scene = Scene::new("edits");
    scene.node("edits-1", json!({})).await;
    scene.profile("edits", json!({ "ipv4Count": 2 })).await;
    let object = scene.objects("edits", 1).await.remove(0);
    let name = object.metadata.name.clone().unwrap();
    scene
        .merge::<VnicAttachment>(
            &name,
            json!({ "metadata": { "labels": { "mine": "kept" } }, "spec": { "mtu": 1500 } }),
        )
        .await;
    let has = async |count: u8, mtu: Option<u16>| {
        wait_for("the object is as the profile says", async || {
            let object: VnicAttachment = scene.api().get(&name).await.unwrap();
            let right = object.spec.vnic.ipv4_count == count && object.spec.vnic.mtu == mtu;
            right.then_some(object)
        })
        .await
    };
    let object = has(2, None).await;
    assert_eq!(object.metadata.labels.unwrap()["mine"], "kept", "foreign labels stay");
    scene.profile("edits", json!({ "ipv4Count": 5 })).await;
    let object = has(5, None).await;
    assert_eq!(object.metadata.uid, scene.objects("edits", 1).await[0].metadata.uid, "it was not recreated");
}

#[tokio::test]
async fn a_node_that_leaves_and_returns_keeps_its_vnics() {
    let scene = Scene::new("leaves");
    scene.node("leaves-1", json!({})).await;
    scene.profile("leaves", json!({})).await;
    let uid = scene.objects("leaves", 1).await[0].metadata.uid.clone();
    scene.delete::<Node>("leaves-1").await;
    scene.profile_says("leaves", "NoNodes").await;
    let (away, looks) = (Instant::now(), scene.looks());
    wait_for("reconciles beyond the grace period", async || {
        (away.elapsed() > GRACE * 2 && scene.looks() > looks).then_some(()).or_else(|| scene.nudge())
    })
    .await;
    assert_eq!(scene.objects("leaves", 1).await[0].metadata.uid, uid, "the Node is away");
    scene.node_as("leaves-by-another-name", "leaves-1", json!({})).await;
    scene.profile_says("leaves", "Progressing").await;
    assert_eq!(scene.objects("leaves", 1).await[0].metadata.uid, uid);
}

#[tokio::test]
async fn an_annotation_requests_vnics_and_its_errors_become_events() {
    let scene = Scene::new("asks");
    scene.node("asks-1", json!({})).await;
    scene.profile_with("asks", json!({}), json!({ "allowNodeAnnotation": true })).await;
    scene.profile_says("asks", "NoNodes").await;
    let annotate = async |text: Option<&str>| {
        let annotations = json!({ "oke.oraclecloud.com/vnics": text });
        scene.merge::<Node>("asks-1", json!({ "metadata": { "annotations": annotations } })).await;
    };
    annotate(Some("asks,Wrong")).await;
    let event = scene.event("asks-1", "InvalidVnicsAnnotation").await;
    assert!(event.note.as_ref().unwrap().contains("\"Wrong\" is not the name"), "{event:?}");
    let node: Node = scene.api().get("asks-1").await.unwrap();
    assert_eq!(event.regarding.unwrap().uid, node.metadata.uid);
    annotate(Some("asks,absent")).await;
    scene.objects("asks", 1).await;
    let event = scene.event("asks-1", "UnknownVnicProfile").await;
    assert!(event.note.as_ref().unwrap().contains("names VnicProfile absent, which does not exist"), "{event:?}");
    annotate(None).await;
    scene.objects("asks", 0).await;
}

#[tokio::test]
async fn a_refused_profile_is_reported_and_blocks_no_other() {
    let scene = Scene::new("refused");
    scene.refuse("refused-first").await;
    scene.node("refused-1", json!({})).await;
    scene.profile_with("refused-first", json!({ "name": "first" }), json!({})).await;
    let profile: VnicProfile = scene.api().get("refused-first").await.unwrap();
    let event = scene.event("refused-first", "StampingFailed").await;
    assert!(event.note.as_ref().unwrap().contains("no VNICs today"), "{event:?}");
    assert_eq!(event.regarding.unwrap().uid, profile.metadata.uid);
    scene.profile("refused-second", json!({})).await;
    scene.objects("refused-second", 1).await;
    scene.allow().await;
    scene.objects("refused-first", 1).await;
}

#[tokio::test]
async fn a_profile_paused_during_creation_creates_no_more() {
    let scene = Scene::new("mistake");
    for number in 0..200 {
        scene.node(&format!("mistake-{number}"), json!({})).await;
    }
    let (stands, go_on) = scene.stop_in_the_midst_of("mistake");
    scene.profile("mistake", json!({})).await;
    stands.await.expect("some are made");
    scene.merge::<VnicProfile>("mistake", json!({ "spec": { "paused": true } })).await;
    drop(go_on);
    scene.profile_says("mistake", "Paused").await;
    let made = scene.made_from("mistake").await.len();
    println!("{made} of 200 were made");
    assert!(made < 200, "all were created although it was paused");
}

/// docs/access.md depends on this.
#[tokio::test]
async fn a_nodes_provider_id_cannot_be_changed() {
    let scene = Scene::new("claims");
    scene.node("claims", json!({})).await;
    let other = Patch::Merge(json!({ "spec": { "providerID": format!("oci://{}", ocid("another")) } }));
    let refused = scene.api::<Node>().patch("claims", &PatchParams::default(), &other).await.unwrap_err();
    assert!(refused.to_string().contains("providerID"), "{refused}");
}

#[tokio::test]
async fn an_object_that_a_user_took_over_is_not_deleted() {
    let scene = Scene::new("takes");
    let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment",
        "metadata": { "name": "takes", "labels": { "oke.oraclecloud.com/profile": "takes" } },
        "spec": { "instanceId": ocid("takes"), "name": "net1", "purpose": "Host", "subnetId": "ocid1.subnet.oc1.iad.s" } });
    let api = scene.api::<VnicAttachment>();
    let made = api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let delete = async |object: VnicAttachment| {
        let metadata = object.metadata;
        let object = Target { name: "takes".to_owned(), uid: metadata.uid, version: metadata.resource_version };
        let step = Step::Remove { object, why: RemovalReason::ProfileDeleted("takes".to_owned()) };
        let client = scene.api::<VnicAttachment>().into_client();
        let end = tokio::time::Instant::now() + WITHIN;
        assert!(apply(&client, &[&step], end).await.iter().all(|(_, outcome)| outcome.is_ok()));
        scene.api::<VnicAttachment>().get_opt("takes").await.unwrap()
    };
    let free = json!({ "metadata": { "labels": { "oke.oraclecloud.com/profile": null } } });
    scene.merge::<VnicAttachment>("takes", free).await;
    let own = delete(made).await.expect("it belongs to a user");
    assert_eq!(own.metadata.deletion_timestamp, None);
    assert_eq!(delete(own).await, None, "its present version");
}
