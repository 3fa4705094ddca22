//! An attached VNIC stays in sync, and costs nothing meanwhile.

use std::time::Duration;

use api::AttachmentReason;
use oci::{FreeformTags, InstanceState};

use super::scene::Scene;
use crate::attachment::sample::{attachment, instance};
use crate::work::NextReconcile;

#[tokio::test(start_paused = true)]
async fn nothing_is_written_or_changed_while_nothing_changes() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
    let (written, called) = (scene.statuses(), scene.calls());
    for _ in 0..5 {
        assert!(matches!(scene.look().await, NextReconcile::Settled(_)));
        tokio::time::sleep(Duration::from_mins(5)).await;
    }
    assert_eq!((scene.statuses(), scene.calls()), (written, called));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_detach_is_reported_and_repaired() {
    let mut scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
    let before = scene.vnic().await.id;
    scene.cloud.detach_behind(&scene.live()[0].id);
    scene.look().await;
    assert_eq!(scene.told("a"), ["False DetachedOutOfBand", "False DetachedOutOfBand"]);
    scene.restart();
    scene.look().await;
    assert_eq!(scene.told("a")[0], "False DetachedOutOfBand", "as long as it is being attached again");
    scene.settle().await;
    assert_eq!(scene.told("a"), ["True Attached", "True Ready"]);
    assert_ne!(scene.vnic().await.id, before);
    assert!(scene.metrics.text().contains("detached_out_of_band_total 1"));
}

#[tokio::test(start_paused = true)]
async fn one_incomplete_list_changes_nothing() {
    let mut scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
    scene.restart();
    let (written, id) = (scene.statuses(), scene.live()[0].id.clone());
    scene.cloud.hide(&id, 2);
    assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
    scene.settle().await;
    assert_eq!((scene.count("AttachVnic"), scene.statuses()), (1, written));
    // It is gone, and so is its record.
    scene.cloud.hide(&id, u32::MAX);
    scene.cloud.detach_behind(&id);
    scene.settle().await;
    assert_eq!((scene.live().len(), scene.told("a")[1].as_str()), (1, "True Ready"));
    assert!(scene.metrics.text().contains("detached_out_of_band_total 1"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_repair_is_first_reported_as_detached() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
    scene.cloud.detach_behind(&scene.live()[0].id);
    scene.cloud.change_instance(&instance(1), |machine| machine.lifecycle_state = InstanceState::Starting);
    scene.look().await;
    assert_eq!(scene.told("a")[0], "False DetachedOutOfBand");
    scene.look().await;
    assert_eq!(scene.told("a")[0], "False InstanceBusy");
}

#[tokio::test(start_paused = true)]
async fn changes_of_the_spec_are_applied() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
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
async fn foreign_changes_are_reverted() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
    let change = oci::UpdateVnic { skip_source_dest_check: Some(true), ..oci::UpdateVnic::default() };
    let id = scene.vnic().await.id;
    oci::Cloud::update_vnic(&scene.cloud, &id, &change, None).await.unwrap();
    scene.settle().await;
    assert!(!scene.vnic().await.skip_source_dest_check);
}

#[tokio::test(start_paused = true)]
async fn a_refused_change_is_reported_and_the_vnic_stays() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
    scene.change("a", |object| object.spec.vnic.skip_source_dest_check = true);
    scene.cloud.fail_next("UpdateVnic", (400, "InvalidParameter"), false);
    assert_eq!(scene.look().await, NextReconcile::Failed);
    assert_eq!(scene.told("a"), ["True Attached", "False InvalidSpec"]);
    scene.settle().await;
    assert_eq!(scene.told("a"), ["True Attached", "True Ready"], "no error is final");
}

#[tokio::test(start_paused = true)]
async fn a_change_based_on_an_old_version_is_read_again() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
    scene.change("a", |object| object.spec.vnic.skip_source_dest_check = true);
    scene.cloud.fail_next("UpdateVnic", (412, "NoEtagMatch"), false);
    scene.look().await;
    assert_eq!((scene.count("UpdateVnic"), scene.told("a")[1].as_str()), (2, "True Ready"));
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_terminated_instance_report_it() {
    let scene = Scene::with(4);
    scene.wants("users");
    scene.settle().await;
    scene.cloud.change_instance(&instance(1), |machine| machine.lifecycle_state = InstanceState::Terminated);
    scene.settle().await;
    assert_eq!(scene.told("users"), ["False NodeGone", "False NodeGone"]);
    scene.delete("users");
    scene.settle().await;
    assert!(!scene.exists("users"));
}

#[tokio::test(start_paused = true)]
async fn a_terminating_instance_blames_no_program() {
    let mut scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
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
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
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
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
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
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
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
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
    let called = scene.calls();
    scene.store.nodes_mut().delete("node-1");
    scene.settle().await;
    assert_eq!((scene.calls(), scene.told("a")[1].as_str()), (called, "True Ready"));
    assert_eq!(scene.status("a").node_name.as_deref(), Some("node-1"), "its last name");
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_vnic_is_reported_and_left_alone() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
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
    let mut scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
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
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
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
async fn with_many_instances_a_compartment_list_shows_missing_vnics() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
    // So many that regular reconciles alone would take hours.
    for number in 2..3000 {
        scene.store.attachments_mut().apply(attachment(&format!("other-{number}"), number));
    }
    assert!(scene.worker.between_looks() > Duration::from_mins(5));
    scene.cloud.detach_behind(&scene.live()[0].id);
    let missed = std::cell::RefCell::new(Vec::new());
    let sweeping = scene.worker.scan_compartments(|| 1.0, |instance| missed.borrow_mut().push(instance));
    let _ = tokio::time::timeout(Duration::from_secs(301), sweeping).await;
    assert_eq!(missed.into_inner(), [instance(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_vnic_is_found_with_any_interval() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
    scene.cloud.detach_behind(&scene.live()[0].id);
    // It may have been longer when the next reconcile was scheduled.
    assert_eq!(scene.worker.between_looks(), Duration::from_mins(5));
    let missed = std::cell::RefCell::new(Vec::new());
    let sweeping = scene.worker.scan_compartments(|| 1.0, |instance| missed.borrow_mut().push(instance));
    let _ = tokio::time::timeout(Duration::from_secs(301), sweeping).await;
    assert_eq!(missed.into_inner(), [instance(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_second_vnic_with_an_objects_tags_is_detached_with_it() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
    let first = scene.vnic().await;
    let copy = oci::AttachVnic {
        instance_id: instance(1),
        create_vnic_details: oci::CreateVnic {
            subnet_id: first.subnet_id.clone(),
            freeform_tags: first.freeform_tags.clone(),
            ..oci::CreateVnic::default()
        },
        display_name: Some("foreign copy".to_owned()),
        nic_index: None,
    };
    oci::Cloud::attach_vnic(&scene.cloud, &copy, &oci::RetryToken::derive(&["copy"])).await.unwrap();
    scene.settle().await;
    assert_eq!((scene.live().len(), scene.status("a").vnic_id), (2, Some(first.id)));
    assert!(scene.metrics.text().contains("unclaimed_vnics 1"));
    scene.delete("a");
    scene.settle().await;
    assert_eq!((scene.live().len(), scene.exists("a")), (0, false));
}
