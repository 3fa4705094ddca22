//! An attached VNIC stays in sync, and costs nothing meanwhile.

use std::time::Duration;

use api::AttachmentReason;
use oci::{FreeformTags, InstanceState};

use super::scene::Scene;
use crate::attachment::sample::{attachment, instance};
use crate::work::NextReconcile;

#[tokio::test(start_paused = true)]
async fn nothing_is_written_or_changed_while_nothing_changes() {
    let scene = Scene::attached(|_| {}).await;
    let (written, called) = (scene.statuses(), scene.calls());
    for _ in 0..5 {
        assert!(matches!(scene.look().await, NextReconcile::Settled(_)));
        tokio::time::sleep(Duration::from_mins(5)).await;
    }
    assert_eq!((scene.statuses(), scene.calls()), (written, called));
}

#[tokio::test(start_paused = true)]
async fn changes_of_the_spec_are_applied() {
    let scene = Scene::attached(|_| {}).await;
    scene.change("a", |object| {
        object.spec.vnic.nsg_ids = vec!["ocid1.networksecuritygroup.oc1.iad.one".parse().unwrap()];
        object.spec.vnic.skip_source_dest_check = true;
        object.spec.vnic.display_name = Some("for storage".to_owned());
        object.spec.vnic.freeform_tags = FreeformTags::from([("team".to_owned(), "x".to_owned())]);
    });
    scene.settle().await;
    let vnic = scene.vnic().await;
    assert_eq!(vnic.nsg_ids.len(), 1);
    assert!(vnic.skip_source_dest_check && vnic.freeform_tags.contains_key("team"));
    assert_eq!((vnic.display_name.as_deref(), scene.told("a")[1].as_str()), (Some("for storage"), "True Ready"));
    assert_eq!(scene.count("UpdateVnic"), 1);
    scene.change("a", |object| object.spec.vnic.freeform_tags.clear());
    scene.settle().await;
    assert_eq!(scene.vnic().await.freeform_tags.len(), 3, "a tag that left the spec leaves the VNIC");
}

#[tokio::test(start_paused = true)]
async fn a_refused_change_is_reported_and_the_vnic_stays() {
    let scene = Scene::attached(|_| {}).await;
    scene.change("a", |object| object.spec.vnic.skip_source_dest_check = true);
    scene.cloud.fail_next("UpdateVnic", (400, "InvalidParameter"), false);
    assert_eq!(scene.look().await, NextReconcile::Failed);
    assert_eq!(scene.told("a"), ["True Attached", "False InvalidSpec"]);
    scene.settle().await;
    assert_eq!(scene.told("a"), ["True Attached", "True Ready"], "no error is final");
}

#[tokio::test(start_paused = true)]
async fn a_terminating_instance_blames_no_program() {
    let mut scene = Scene::attached(|_| {}).await;
    let written = scene.statuses();
    scene.cloud.terminate(&instance(1));
    scene.wants("late");
    for _ in 0..5 {
        assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
        tokio::time::sleep(Duration::from_secs(10)).await;
        scene.restart();
    }
    assert_eq!(scene.told("a"), ["True Attached", "True Ready"], "nothing to repair");
    assert_eq!((scene.told("late")[0].as_str(), scene.statuses()), ("False InstanceBusy", written + 1));
    scene.settle().await;
    assert_eq!(scene.told("a"), ["False NodeGone", "False NodeGone"]);
    assert_eq!((scene.count("AttachVnic"), scene.count("DetachVnic")), (1, 0));
    assert!(scene.metrics.text().contains("detached_out_of_band_total 0"));
}

#[tokio::test(start_paused = true)]
async fn a_detach_from_a_stopping_instance_is_repaired_later() {
    let scene = Scene::attached(|_| {}).await;
    scene.cloud.detach_behind(&scene.live()[0].id);
    scene.cloud.change_instance(&instance(1), |machine| machine.lifecycle_state = InstanceState::Stopping);
    assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
    assert_eq!(scene.told("a"), ["True Attached", "True Ready"], "it may be terminating");
    scene.cloud.settle();
    scene.look().await;
    assert_eq!(scene.told("a"), ["False DetachedOutOfBand", "False DetachedOutOfBand"]);
    scene.settle().await;
    assert_eq!((scene.told("a")[1].as_str(), scene.live().len()), ("True Ready", 1));
    assert!(scene.metrics.text().contains("detached_out_of_band_total 1"));
}

#[tokio::test(start_paused = true)]
async fn a_restarted_instance_keeps_its_vnics() {
    let scene = Scene::attached(|_| {}).await;
    let (written, called) = (scene.statuses(), scene.calls());
    for state in [InstanceState::Stopping, InstanceState::Starting] {
        scene.cloud.change_instance(&instance(1), |machine| machine.lifecycle_state = state);
        scene.look().await;
        scene.cloud.settle();
        scene.look().await;
    }
    assert_eq!((scene.statuses(), scene.calls()), (written, called));
}

#[tokio::test(start_paused = true)]
async fn a_list_without_the_primary_vnic_is_ignored() {
    let scene = Scene::attached(|_| {}).await;
    let written = scene.statuses();
    scene.wants("new");
    scene.cloud.hide_all(&instance(1), 10);
    for _ in 0..10 {
        assert_eq!(scene.look().await, NextReconcile::Failed);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(scene.told("a"), ["True Attached", "True Ready"]);
    assert_eq!(scene.told("new")[0], "Unknown OciUnavailable");
    assert!(scene.message("new").starts_with("OCI lists 0 VNIC(s)"), "{}", scene.message("new"));
    assert_eq!((scene.count("AttachVnic"), scene.statuses()), (1, written + 1));
    scene.settle().await;
    assert_eq!((scene.live().len(), scene.told("new")[1].as_str()), (2, "True Ready"));
    assert!(scene.metrics.text().contains("detached_out_of_band_total 0"));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_keeps_its_vnics() {
    let scene = Scene::attached(|_| {}).await;
    let called = scene.calls();
    scene.store.nodes_mut().delete("node-1");
    scene.settle().await;
    assert_eq!((scene.calls(), scene.told("a")[1].as_str()), (called, "True Ready"));
    assert_eq!(scene.status("a").node_name.as_deref(), Some("node-1"), "its last name");
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_vnic_is_reported_and_left_alone() {
    let scene = Scene::attached(|_| {}).await;
    // The finalizer was removed by hand.
    scene.store.attachments_mut().delete("a");
    scene.wants("b");
    scene.settle().await;
    assert_eq!((scene.live().len(), scene.count("DetachVnic")), (2, 0));
    assert!(scene.metrics.text().contains("unclaimed_vnics 1"));
}

#[tokio::test(start_paused = true)]
async fn the_vnic_of_an_unreadable_object_is_not_orphaned() {
    let scene = Scene::with(4);
    ["a", "b"].iter().for_each(|name| scene.wants(name));
    scene.settle().await;
    // Written by a later version, and this one was started afterwards.
    scene.store.attachments_mut().delete("a");
    scene.store.attachments_mut().cannot_read("a".to_owned());
    scene.settle().await;
    assert!(scene.metrics.text().contains("unclaimed_vnics 0"));
    scene.cloud.fail_next("GetVnic", (404, "NotAuthorizedOrNotFound"), false);
    scene.look().await;
    assert!(scene.metrics.text().contains("unclaimed_vnics 0"), "its object is unknown");
    scene.store.attachments_mut().delete("a");
    scene.settle().await;
    assert!(scene.metrics.text().contains("unclaimed_vnics 1"));
}

#[tokio::test(start_paused = true)]
async fn a_terminated_instance_is_not_read_again() {
    let mut scene = Scene::attached(|_| {}).await;
    scene.cloud.terminate(&instance(1));
    scene.settle().await;
    assert_eq!(scene.told("a")[0], "False NodeGone");
    // A Node alone would be an answer.
    scene.store.nodes_mut().delete("node-1");
    scene.restart();
    let asked = scene.cloud.calls().len();
    for _ in 0..3 {
        assert_eq!(scene.look().await, NextReconcile::Settled(scene.worker.between_looks()));
    }
    assert_eq!((scene.cloud.calls().len(), scene.told("a")[0].as_str()), (asked, "False NodeGone"));
    scene.delete("a");
    scene.look().await;
    assert!(!scene.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn a_recreated_object_gets_its_own_vnic() {
    let scene = Scene::attached(|_| {}).await;
    scene.delete("a");
    scene.settle().await;
    let mut anew = attachment("a", 1);
    anew.metadata.uid = Some("another".to_owned());
    scene.store.attachments_mut().apply(anew);
    scene.settle().await;
    assert_eq!((scene.live().len(), scene.count("AttachVnic")), (1, 2));
    assert_eq!(scene.told("a")[1], format!("True {}", api::Reason::as_str(AttachmentReason::Ready)));
}

#[tokio::test(start_paused = true)]
async fn a_missing_vnic_is_found_with_any_interval() {
    let scene = Scene::attached(|_| {}).await;
    scene.cloud.detach_behind(&scene.live()[0].id);
    // It may have been longer when the next reconcile was scheduled.
    assert_eq!(scene.worker.between_looks(), Duration::from_mins(5));
    let missed = std::cell::RefCell::new(Vec::new());
    let sweeping = scene.worker.scan_compartments(|| 1.0, |instance| missed.borrow_mut().push(instance));
    let _ = tokio::time::timeout(Duration::from_secs(301), sweeping).await;
    assert_eq!(missed.into_inner(), [instance(1)]);
}
