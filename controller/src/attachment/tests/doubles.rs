//! An object never has two VNICs, even if OCI forgot the first one's token. Another cluster name, which makes another token,
//! stands for that here.

use std::time::Duration;

use api::AttachmentReason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::scene::Scene;
use crate::attachment::plan::TOKEN_LIFE;
use crate::work::NextReconcile;

/// So old that OCI may have forgotten its requests.
fn make_old(scene: &Scene, name: &str) {
    made_at(scene, name, Timestamp::now() - TOKEN_LIFE);
}

fn made_at(scene: &Scene, name: &str, when: Timestamp) {
    scene.change(name, |object| object.metadata.creation_timestamp = Some(Time(when)));
}

#[tokio::test(start_paused = true)]
async fn an_invisible_vnic_is_not_attached_twice() {
    for unseen in 0..4 {
        let mut scene = Scene::attached(|_| {}).await;
        let (id, reported) = (scene.live()[0].id.clone(), scene.status("a").vnic_id);
        for _ in 0..unseen {
            scene.cloud.fail_next("GetVnic", (404, "NotAuthorizedOrNotFound"), false);
            scene.reconcile().await;
            assert_eq!(scene.status("a").vnic_id, reported, "it is listed all the time");
        }
        scene.restart_as("a-day-later");
        scene.cloud.hide(&id, 1);
        assert!(matches!(scene.reconcile().await, NextReconcile::Soon(_)), "one list proves nothing");
        scene.settle().await;
        assert_eq!((scene.count("AttachVnic"), scene.live().len()), (1, 1), "not seen {unseen} times");
        assert_eq!((&*scene.ready("a"), scene.status("a").vnic_id), ("True Ready", reported));
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_object_needs_proof_before_an_attach() {
    // With a clock that was set back, an old object has a future time.
    for made in [Timestamp::now() - TOKEN_LIFE, Timestamp::now() + TOKEN_LIFE * 2] {
        let mut scene = Scene::attached(|_| {}).await;
        let id = scene.live()[0].id.clone();
        made_at(&scene, "a", made);
        // It was never reported, or the status was emptied.
        scene.change("a", |object| object.status = None);
        scene.restart_as("a-day-later");
        scene.cloud.hide(&id, 1);
        assert!(matches!(scene.reconcile().await, NextReconcile::Soon(_)));
        assert_eq!(scene.reported("a")[0], format!("False {}", api::Reason::as_str(AttachmentReason::Attaching)));
        scene.settle().await;
        assert_eq!((scene.count("AttachVnic"), scene.live().len()), (1, 1));
        assert_eq!(scene.ready("a"), "True Ready");
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_object_waits_for_that_proof_once() {
    let scene = Scene::with(6);
    scene.wants("a");
    make_old(&scene, "a");
    for _ in 0..3 {
        assert!(matches!(scene.reconcile().await, NextReconcile::Soon(_)));
        assert_eq!(scene.count("AttachVnic"), 0);
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    for attempt in 1..5 {
        scene.cloud.fail_next("AttachVnic", (400, "LimitExceeded"), false);
        assert_eq!(scene.reconcile().await, NextReconcile::Failed);
        assert_eq!((scene.count("AttachVnic"), scene.reported("a")[0].as_str()), (attempt, "False LimitReached"));
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    scene.settle().await;
    assert_eq!((scene.live().len(), &*scene.ready("a")), (1, "True Ready"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_between_two_lists_resets_the_proof() {
    for is_reported in [true, false] {
        let mut scene = Scene::attached(|_| {}).await;
        let id = scene.live()[0].id.clone();
        make_old(&scene, "a");
        if !is_reported {
            scene.change("a", |object| object.status = None);
        }
        scene.restart_as("a-day-later");
        scene.cloud.hide(&id, 2);
        assert!(matches!(scene.reconcile().await, NextReconcile::Soon(_)));
        tokio::time::sleep(Duration::from_mins(1)).await;
        scene.cloud.fail_next("ListVnicAttachments", (503, "ServiceUnavailable"), false);
        assert_eq!(scene.reconcile().await, NextReconcile::Failed);
        assert!(matches!(scene.reconcile().await, NextReconcile::Soon(_)));
        scene.settle().await;
        assert_eq!((scene.count("AttachVnic"), scene.live().len()), (1, 1), "reported: {is_reported}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_visible_vnic_exists_although_lists_lack_it() {
    let mut scene = Scene::attached(|_| {}).await;
    let written = scene.statuses();
    scene.restart_as("a-day-later");
    scene.cloud.hide(&scene.live()[0].id, 20);
    for look in 0..20 {
        let next = scene.reconcile().await;
        assert_eq!(matches!(next, NextReconcile::Soon(_)), look < 3, "then it is polled no more: {next:?}");
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    assert_eq!((scene.count("AttachVnic"), scene.statuses()), (1, written), "nothing is reported either");
    scene.settle().await;
    assert_eq!((scene.count("AttachVnic"), scene.live().len()), (1, 1));
}
