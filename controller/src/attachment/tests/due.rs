//! When an instance is reconciled after an event of the API server.

use super::pod_networks::npn;
use super::scene::Scene;
use crate::attachment::observe::pod_network::PodNetwork;
use crate::attachment::sample::{attachment, instance};
use crate::cluster::store::NodeView;
use crate::work::Lane;

/// The lane of an instance that is reconciled now.
fn at_once(scene: &Scene) -> Lane {
    let (lane, after) = scene.worker.due(&instance(1), 1.0);
    assert!(after.is_zero(), "{after:?}");
    lane
}

#[tokio::test(start_paused = true)]
async fn an_instance_in_sync_waits_for_its_regular_reconcile() {
    let scene = Scene::with(4);
    scene.wants("a");
    assert_eq!(at_once(&scene), Lane::Requested);
    scene.settle().await;
    assert_eq!(scene.worker.due(&instance(1), 1.0), (Lane::Regular, scene.worker.between_looks()));
    scene.change("a", |object| object.spec.vnic.ipv4_count = 1);
    assert_eq!(at_once(&scene), Lane::Requested);
    scene.settle().await;
    scene.store.nodes_mut().apply(NodeView {
        name: "by-another-name".to_owned(),
        instance: Some(instance(1)),
        ..NodeView::default()
    });
    assert_eq!(at_once(&scene), Lane::Requested);
}

#[tokio::test(start_paused = true)]
async fn a_refused_object_is_queued_at_the_start() {
    let scene = Scene::with(4);
    let full = scene.full_subnet();
    scene.wants("a");
    scene.change("a", |object| object.spec.vnic.subnet_id = full);
    assert_eq!(at_once(&scene), Lane::Requested);
    scene.reconcile().await;
    assert_eq!(scene.ready("a"), "False SubnetFull");
    assert_eq!(at_once(&scene), Lane::Again);
    scene.wants("b");
    assert_eq!(at_once(&scene), Lane::Requested, "another object is new");
    scene.store.attachments_mut().delete("b");
    scene.change("a", |object| object.spec.vnic.subnet_id = crate::attachment::sample::subnet());
    assert_eq!(at_once(&scene), Lane::Requested);
    scene.reconcile().await;
    assert_eq!((&*scene.ready("a"), at_once(&scene)), ("False Attaching", Lane::Requested));
}

#[tokio::test(start_paused = true)]
async fn a_pending_reason_survives_an_outage() {
    let mut scene = Scene::with(4);
    scene.objects.pod_network.lock().unwrap().0 = Some(npn("IN_PROGRESS", "IN_PROGRESS", &[]));
    scene.wants("a");
    scene.reconcile().await;
    assert_eq!(scene.ready("a"), "False PodNetworkPending");
    scene.restart();
    assert_eq!(at_once(&scene), Lane::Requested);
    for _ in 0..3 {
        scene.refuse(1, "GetInstance", (503, "ServiceUnavailable"));
        scene.reconcile().await;
    }
    assert_eq!(scene.ready("a"), "False PodNetworkPending");
    scene.objects.pod_network.lock().unwrap().0 = Some(PodNetwork::Unreadable("403".to_owned()));
    scene.reconcile().await;
    assert_eq!(scene.ready("a"), "Unknown PodNetworkUnknown");
    assert_eq!(at_once(&scene), Lane::Again, "a person has to act");
}

#[tokio::test(start_paused = true)]
async fn a_single_request_is_not_part_of_a_rollout() {
    let scene = Scene::with(6);
    let stamped = |vnic: &str| {
        let mut object = attachment("x", 1);
        object.spec.vnic.name = vnic.parse().unwrap();
        let name = crate::cluster::stamp::object_name("pool", &object.spec.vnic.name, &instance(1));
        object.metadata.labels = Some([(api::PROFILE_LABEL.to_owned(), "pool".to_owned())].into());
        object.metadata.name = Some(name.clone());
        object.metadata.uid = Some(name);
        object
    };
    scene.store.attachments_mut().apply(stamped("one"));
    assert_eq!(at_once(&scene), Lane::Rollout);
    scene.wants("mine");
    assert_eq!(at_once(&scene), Lane::Requested, "a user's own object next to it");
    scene.settle().await;
    scene.store.attachments_mut().apply(stamped("two"));
    assert_eq!(at_once(&scene), Lane::Rollout, "that object is in sync");
    scene.delete("mine");
    assert_eq!(at_once(&scene), Lane::Requested);
    scene.reconcile().await;
    scene.settle().await;
    scene.store.attachments_mut().apply(stamped("three"));
    let node = scene.store.nodes().of(&instance(1)).cloned().unwrap();
    let vnics = Some("pool".to_owned());
    scene.store.nodes_mut().apply(NodeView { vnics, ..NodeView::clone(&node) });
    assert_eq!(at_once(&scene), Lane::Requested, "an annotation names it for this Node");
}
