//! Whose a VNIC is when its tags are not as they were.

use std::time::Duration;

use api::{CLUSTER_TAG, OnDelete, RELEASED_TAG};
use oci::{FreeformTags, UpdateVnic};

use super::scene::Scene;

async fn tag(scene: &Scene, tags: FreeformTags) {
    let change = UpdateVnic { freeform_tags: Some(tags), ..UpdateVnic::default() };
    oci::Cloud::update_vnic(&scene.cloud, &scene.vnic().await.id, &change, None).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn tags_that_somebody_took_off_are_put_back() {
    let mut scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
    let before = scene.vnic().await;
    for restarted in [false, true] {
        tag(&scene, FreeformTags::default()).await;
        if restarted {
            scene.restart();
        }
        scene.settle().await;
        assert_eq!(scene.vnic().await.freeform_tags, before.freeform_tags);
        assert_eq!((scene.vnic().await.id, scene.count("AttachVnic")), (before.id.clone(), 1));
        assert_eq!(scene.told("a"), ["True Attached", "True Ready"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_vnic_without_tags_goes_with_its_object() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
    tag(&scene, FreeformTags::default()).await;
    scene.delete("a");
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.live().len()), (false, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_called_otherwise_keeps_its_vnics_and_addresses() {
    let mut scene = Scene::with(4);
    scene.wants("a");
    scene.change("a", |object| object.spec.vnic.ipv4_count = 3);
    scene.settle().await;
    let (before, written) = (scene.vnic().await.id, scene.calls());
    scene.restart_as("another-name");
    scene.settle().await;
    let after = scene.vnic().await;
    assert_eq!((after.id, after.freeform_tags.get(CLUSTER_TAG).map(String::as_str)), (before, Some("another-name")));
    assert_eq!(scene.calls()[written.len()..], ["UpdateVnic"], "its tags, and nothing else");
}

#[tokio::test(start_paused = true)]
async fn what_was_left_to_others_is_not_taken_up_again() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.change("a", |object| object.spec.vnic.on_delete = OnDelete::Orphan);
    scene.settle().await;
    scene.delete("a");
    // The tags are off, and the object is not gone: the process was killed in between.
    let released = FreeformTags::from([(RELEASED_TAG.to_owned(), "uid-a".to_owned())]);
    tag(&scene, released.clone()).await;
    scene.change("a", |object| object.spec.vnic.on_delete = OnDelete::Detach);
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.count("DetachVnic")), (false, 0));
    assert_eq!(scene.vnic().await.freeform_tags, released);
}

#[tokio::test(start_paused = true)]
async fn a_vnic_of_ours_is_told_on_an_instance_without_objects_too() {
    let scene = Scene::with(4);
    ["a", "left"].iter().for_each(|name| scene.wants(name));
    scene.settle().await;
    let left = scene.status("left").vnic_id.unwrap();
    let tags = FreeformTags::from([(RELEASED_TAG.to_owned(), "uid-left".to_owned())]);
    let change = UpdateVnic { freeform_tags: Some(tags), ..UpdateVnic::default() };
    oci::Cloud::update_vnic(&scene.cloud, &left, &change, None).await.unwrap();
    // Somebody removed the finalizers by hand.
    ["a", "left"].iter().for_each(|name| drop(scene.store.attachments_mut().delete(name)));
    scene.look().await;
    assert!(scene.metrics.text().contains("unclaimed_vnics 0"));
    let before = scene.count("GetVnic");
    let sweeping = scene.worker.sweep(|| 1.0, |instance| panic!("{instance}"));
    let _ = tokio::time::timeout(Duration::from_secs(301), sweeping).await;
    assert!(scene.metrics.text().contains("unclaimed_vnics 0"), "one list proves nothing");
    let sweeping = scene.worker.sweep(|| 1.0, |instance| panic!("{instance}"));
    let _ = tokio::time::timeout(Duration::from_secs(1501), sweeping).await;
    assert!(scene.metrics.text().contains("unclaimed_vnics 1"), "what was left to others is theirs");
    assert_eq!((scene.count("GetVnic") - before, scene.live().len()), (2, 2), "each is asked for once");
}
