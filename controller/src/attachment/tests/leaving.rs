//! An unwanted VNIC is detached, and nothing counts as gone without proof.

use std::time::Duration;

use oci::InstanceState;

use super::scene::Scene;
use crate::attachment::sample::instance;
use crate::work::NextReconcile;

#[tokio::test(start_paused = true)]
async fn an_outage_after_termination_blocks_nothing() {
    let scene = Scene::attached(|_| {}).await;
    scene.cloud.change_instance(&instance(1), |machine| machine.lifecycle_state = InstanceState::Terminated);
    scene.settle().await;
    // A terminated instance is not read again; for a new object it is.
    scene.wants("late");
    scene.cloud.fail_next("GetInstance", (503, "ServiceUnavailable"), false);
    assert_eq!(scene.reconcile().await, NextReconcile::Failed);
    assert_eq!(scene.reported("a"), ["False NodeGone", "False NodeGone"]);
    scene.delete("a");
    scene.cloud.fail_next("GetInstance", (404, "NotAuthorizedOrNotFound"), false);
    scene.reconcile().await;
    assert!(!scene.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn lists_before_the_request_are_no_proof() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.cloud.change_instance(&instance(1), |machine| machine.lifecycle_state = InstanceState::Moving);
    scene.reconcile().await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    scene.cloud.change_instance(&instance(1), |machine| machine.lifecycle_state = InstanceState::Running);
    // It is carried out, the answer is lost, and lists are stale.
    scene.cloud.lag_lists(2);
    scene.cloud.fail_next("AttachVnic", (500, "InternalServerError"), true);
    scene.reconcile().await;
    assert_eq!(scene.live().len(), 1);
    scene.delete("a");
    for _ in 0..2 {
        assert!(matches!(scene.reconcile().await, NextReconcile::Soon(_)));
        assert!(scene.exists("a"), "its VNIC is being attached");
    }
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.live().len()), (false, 0));
}
