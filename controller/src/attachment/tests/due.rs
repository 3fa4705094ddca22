//! When an instance is to be looked at of which the API server told something.

use super::pod_networks::{npn, why};
use super::scene::Scene;
use crate::attachment::observe::pod_network::PodNetwork;
use crate::attachment::sample::{attachment, instance};
use crate::cluster::store::NodeView;
use crate::work::When;

#[tokio::test(start_paused = true)]
async fn what_is_in_order_waits_for_its_turn_and_what_is_not_does_not() {
    let scene = Scene::with(4);
    scene.wants("a");
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::Now);
    scene.settle().await;
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::After(scene.worker.between_looks()));
    scene.change("a", |object| object.spec.vnic.ipv4_count = 1);
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::Now);
    scene.settle().await;
    scene.store.nodes_mut().apply(NodeView {
        name: "by-another-name".to_owned(),
        instance: Some(instance(1)),
        ..NodeView::default()
    });
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::Now);
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_has_its_turn_at_a_start_and_what_was_changed_since_has_not_to_wait() {
    let scene = Scene::with(4);
    let full = scene.full_subnet();
    scene.wants("a");
    scene.change("a", |object| object.spec.vnic.subnet_id = full);
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::Now);
    scene.look().await;
    assert_eq!(scene.told("a")[1], "False SubnetFull");
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::InTurn);
    scene.wants("b");
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::Now, "another one is new");
    scene.store.attachments_mut().delete("b");
    scene.change("a", |object| object.spec.vnic.subnet_id = crate::attachment::sample::subnet());
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::Now);
    scene.look().await;
    assert_eq!((scene.told("a")[1].as_str(), scene.worker.due(&instance(1), 1.0)), ("False Attaching", When::Now));
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_oke_is_new_still_and_its_reason_outlasts_a_cloud_that_does_not_answer() {
    let mut scene = Scene::with(4);
    scene.objects.pod_network.lock().unwrap().0 = npn("IN_PROGRESS", "IN_PROGRESS", &[]);
    scene.wants("a");
    scene.look().await;
    assert_eq!(scene.told("a")[1], "False PodNetworkPending");
    scene.restart();
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::Now);
    for _ in 0..3 {
        scene.cloud.fail_next("GetInstance", (503, "ServiceUnavailable"), false);
        scene.look().await;
    }
    assert_eq!(scene.told("a")[1], "False PodNetworkPending");
    scene.objects.pod_network.lock().unwrap().0 = PodNetwork::Unread(why("403"));
    scene.look().await;
    assert_eq!(scene.told("a")[1], "Unknown PodNetworkUnknown");
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::InTurn, "somebody has to mend that");
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_by_itself_is_no_part_of_a_rollout() {
    let scene = Scene::with(6);
    let stamped = |vnic: &str| {
        let mut object = attachment("x", 1);
        object.spec.vnic.name = vnic.parse().unwrap();
        let name = crate::profile::select::from_template::object_name("pool", &object.spec.vnic.name, &instance(1));
        object.metadata.labels = Some([(api::PROFILE_LABEL.to_owned(), "pool".to_owned())].into());
        object.metadata.name = Some(name.clone());
        object.metadata.uid = Some(name);
        object
    };
    scene.store.attachments_mut().apply(stamped("one"));
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::Rollout);
    scene.wants("mine");
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::Now, "somebody's own beside it");
    scene.settle().await;
    scene.store.attachments_mut().apply(stamped("two"));
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::Rollout, "his is as he wants it");
    scene.delete("mine");
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::Now);
    scene.look().await;
    scene.settle().await;
    scene.store.attachments_mut().apply(stamped("three"));
    let node = scene.store.nodes().of(&instance(1)).cloned().unwrap();
    let vnics = Some("pool".to_owned());
    scene.store.nodes_mut().apply(NodeView { vnics, ..NodeView::clone(&node) });
    assert_eq!(scene.worker.due(&instance(1), 1.0), When::Now, "somebody named it for this Node");
}
