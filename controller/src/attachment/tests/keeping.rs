//! An attached VNIC stays in sync, and costs nothing meanwhile.

use std::time::Duration;

use super::scene::Scene;
use crate::attachment::sample::instance;
use crate::work::NextReconcile;

#[tokio::test(start_paused = true)]
async fn a_list_without_the_primary_vnic_is_ignored() {
    let scene = Scene::attached(|_| {}).await;
    let written = scene.statuses();
    scene.wants("new");
    scene.cloud.hide_all(&instance(1), 10);
    for _ in 0..10 {
        assert_eq!(scene.reconcile().await, NextReconcile::Failed);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(scene.reported("a"), ["True Attached", "True Ready"]);
    assert_eq!(scene.reported("new")[0], "Unknown OciUnavailable");
    assert!(scene.message("new").starts_with("OCI lists 0 VNIC(s)"), "{}", scene.message("new"));
    assert_eq!((scene.count("AttachVnic"), scene.statuses()), (1, written + 1));
    scene.settle().await;
    assert_eq!((scene.live().len(), &*scene.ready("new")), (2, "True Ready"));
    assert!(scene.metrics.text().contains("detached_out_of_band_total 0"));
}

#[tokio::test(start_paused = true)]
async fn a_terminated_instance_is_not_read_again() {
    let mut scene = Scene::attached(|_| {}).await;
    scene.cloud.terminate(&instance(1));
    scene.settle().await;
    assert_eq!(scene.reported("a")[0], "False NodeGone");
    // A Node alone would be an answer.
    scene.store.nodes_mut().delete("node-1");
    scene.restart();
    let calls = scene.cloud.calls().len();
    for _ in 0..3 {
        assert_eq!(scene.reconcile().await, NextReconcile::Settled(scene.worker.between_looks()));
    }
    assert_eq!((scene.cloud.calls().len(), scene.reported("a")[0].as_str()), (calls, "False NodeGone"));
    scene.delete("a");
    scene.reconcile().await;
    assert!(!scene.exists("a"));
}
