//! An unwanted VNIC is detached, and nothing counts as gone without proof.

use std::time::Duration;

use api::{OnDelete, RELEASED_TAG, UID_TAG};
use oci::InstanceState;

use super::scene::Scene;
use crate::attachment::sample::instance;
use crate::work::NextReconcile;

#[tokio::test(start_paused = true)]
async fn the_object_goes_after_its_vnic() {
    let scene = Scene::attached(|_| {}).await;
    scene.delete("a");
    assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
    assert_eq!(scene.told("a"), ["False Detaching", "False Detaching"]);
    assert!(scene.exists("a"));
    scene.look().await;
    assert!(scene.exists("a"), "it is still DETACHING");
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.live().len(), scene.count("DetachVnic")), (false, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn vnic_is_detached_only_from_running_or_stopped_instance() {
    use InstanceState::{CreatingImage, Moving, Provisioning, Running, Starting, Stopped, Stopping};
    for (state, detached) in
        [(Starting, 0), (Stopping, 0), (Moving, 0), (Provisioning, 0), (CreatingImage, 0), (Running, 1), (Stopped, 1)]
    {
        let scene = Scene::attached(|_| {}).await;
        scene.cloud.change_instance(&instance(1), |machine| machine.lifecycle_state = state);
        scene.delete("a");
        assert!(matches!(scene.look().await, NextReconcile::Soon(_)), "{state:?}");
        let told = if detached == 0 { "False InstanceBusy" } else { "False Detaching" };
        assert_eq!((scene.count("DetachVnic"), scene.told("a")[0].as_str()), (detached, told), "{state:?}");
        scene.cloud.change_instance(&instance(1), |machine| machine.lifecycle_state = Running);
        scene.settle().await;
        assert_eq!((scene.exists("a"), scene.live().len()), (false, 0), "{state:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_vnic_stays_without_our_tags() {
    let scene = Scene::attached(|object| {
        object.spec.vnic.on_delete = OnDelete::Orphan;
        object.spec.vnic.freeform_tags = [("team".to_owned(), "x".to_owned())].into();
    })
    .await;
    scene.delete("a");
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.count("DetachVnic")), (false, 0));
    let tags = scene.vnic().await.freeform_tags;
    let left = [("team", "x"), (RELEASED_TAG, "uid-a")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(tags, left.into());
}

#[tokio::test(start_paused = true)]
async fn an_orphan_keeps_its_object_until_its_tags_are_removed() {
    let scene = Scene::attached(|object| object.spec.vnic.on_delete = OnDelete::Orphan).await;
    scene.delete("a");
    scene.cloud.fail_next("GetInstance", (404, "NotAuthorizedOrNotFound"), false);
    assert_eq!(scene.look().await, NextReconcile::Failed);
    assert_eq!((scene.exists("a"), scene.told("a")[0].as_str()), (true, "Unknown NotAuthorizedOrNotFound"));
    assert!(
        scene.message("a").ends_with("; to orphan it with our tags, remove the finalizer"),
        "{}",
        scene.message("a")
    );
    scene.settle().await;
    let left = [(RELEASED_TAG.to_owned(), "uid-a".to_owned())];
    assert_eq!((scene.exists("a"), scene.vnic().await.freeform_tags), (false, left.into()));
}

#[tokio::test(start_paused = true)]
async fn a_404_for_the_instance_proves_nothing() {
    let mut scene = Scene::attached(|_| {}).await;
    scene.delete("a");
    for _ in 0..3 {
        scene.cloud.fail_next("GetInstance", (404, "NotAuthorizedOrNotFound"), false);
        scene.look().await;
        assert!(scene.exists("a"));
        assert_eq!(scene.told("a"), ["Unknown NotAuthorizedOrNotFound", "Unknown NotAuthorizedOrNotFound"]);
        assert!(
            scene.message("a").ends_with("; if the instance ended, remove the finalizer"),
            "{}",
            scene.message("a")
        );
        scene.restart();
    }
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.live().len()), (false, 0));
}

#[tokio::test(start_paused = true)]
async fn an_outage_after_termination_blocks_nothing() {
    let scene = Scene::attached(|_| {}).await;
    scene.cloud.change_instance(&instance(1), |machine| machine.lifecycle_state = InstanceState::Terminated);
    scene.settle().await;
    // A terminated instance is not read again; for a new object it is.
    scene.wants("late");
    scene.cloud.fail_next("GetInstance", (503, "ServiceUnavailable"), false);
    assert_eq!(scene.look().await, NextReconcile::Failed);
    assert_eq!(scene.told("a"), ["False NodeGone", "False NodeGone"]);
    scene.delete("a");
    scene.cloud.fail_next("GetInstance", (404, "NotAuthorizedOrNotFound"), false);
    scene.look().await;
    assert!(!scene.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn an_object_goes_with_its_terminated_instance() {
    let scene = Scene::attached(|_| {}).await;
    scene.cloud.terminate(&instance(1));
    scene.delete("a");
    for _ in 0..5 {
        assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!((scene.exists("a"), scene.told("a")[0].as_str()), (true, "False Detaching"));
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.count("DetachVnic")), (false, 0));
}

#[tokio::test(start_paused = true)]
async fn a_404_for_a_detach_is_no_proof() {
    let scene = Scene::attached(|_| {}).await;
    scene.delete("a");
    scene.cloud.fail_next("DetachVnic", (404, "NotAuthorizedOrNotFound"), false);
    assert_eq!(scene.look().await, NextReconcile::Failed);
    assert!(scene.exists("a"));
    assert_eq!(scene.told("a")[0], "Unknown NotAuthorizedOrNotFound");
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.live().len()), (false, 0));
}

#[tokio::test(start_paused = true)]
async fn detaches_run_one_by_one_before_attaches() {
    let scene = Scene::with(3);
    ["a", "b"].iter().for_each(|name| scene.wants(name));
    scene.settle().await;
    ["a", "b"].iter().for_each(|name| scene.delete(name));
    ["c", "d"].iter().for_each(|name| scene.wants(name));
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.exists("b"), scene.live().len()), (false, false, 2));
    assert_eq!(["c", "d"].map(|name| scene.told(name)[1].clone()), ["True Ready"; 2].map(String::from));
}

#[tokio::test(start_paused = true)]
async fn an_invisible_orphan_is_not_detached() {
    let scene = Scene::attached(|object| object.spec.vnic.on_delete = OnDelete::Orphan).await;
    scene.delete("a");
    scene.cloud.fail_next("GetVnic", (404, "NotAuthorizedOrNotFound"), false);
    assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
    assert_eq!(scene.told("a")[0], "Unknown NotAuthorizedOrNotFound");
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.count("DetachVnic")), (false, 0));
    assert!(!scene.vnic().await.freeform_tags.contains_key(UID_TAG));
}

#[tokio::test(start_paused = true)]
async fn an_earlier_lost_vnic_is_no_proof() {
    let mut scene = Scene::attached(|_| {}).await;
    scene.cloud.lag_lists(2);
    scene.cloud.detach_behind(&scene.live()[0].id);
    scene.look().await;
    assert_eq!(scene.live().len(), 1, "a second one was requested");
    scene.restart();
    scene.delete("a");
    scene.look().await;
    assert!(scene.exists("a"), "it may be in progress");
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.live().len()), (false, 0));
}

#[tokio::test(start_paused = true)]
async fn lists_before_the_request_are_no_proof() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.cloud.change_instance(&instance(1), |machine| machine.lifecycle_state = InstanceState::Moving);
    scene.look().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    scene.cloud.change_instance(&instance(1), |machine| machine.lifecycle_state = InstanceState::Running);
    // It is carried out, the answer is lost, and lists are stale.
    scene.cloud.lag_lists(2);
    scene.cloud.fail_next("AttachVnic", (500, "InternalServerError"), true);
    scene.look().await;
    assert_eq!(scene.live().len(), 1);
    scene.delete("a");
    for _ in 0..2 {
        assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
        assert!(scene.exists("a"), "its VNIC is being attached");
    }
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.live().len()), (false, 0));
}

#[tokio::test(start_paused = true)]
async fn a_visible_vnic_is_not_gone_although_lists_lack_it() {
    let mut scene = Scene::attached(|_| {}).await;
    scene.delete("a");
    scene.restart();
    scene.cloud.hide(&scene.live()[0].id, 20);
    for look in 0..20 {
        let next = scene.look().await;
        assert_eq!(matches!(next, NextReconcile::Soon(_)), look < 3, "then it is polled no more: {next:?}");
        assert!(scene.exists("a"));
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.live().len(), scene.count("DetachVnic")), (false, 0, 1));
}
