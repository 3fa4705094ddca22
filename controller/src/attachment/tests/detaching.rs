//! A VNIC that another program detaches, seen before it is gone; and one that exists but is invisible.

use oci::AttachmentState;

use super::scene::Scene;
use crate::work::NextReconcile;

/// Another program detaches the VNIC, which takes some time.
async fn detach(scene: &Scene) -> vcn::Ocid {
    let id = scene.live()[0].id.clone();
    oci::Cloud::detach_vnic(&scene.cloud, &id, None).await.unwrap();
    id
}

fn told_of_detachments(scene: &Scene) -> String {
    let text = scene.metrics.text();
    let line = text.lines().find(|line| line.starts_with("oke_node_controller_detached_out_of_band_total"));
    line.unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_foreign_detach_is_reported_once_and_repaired() {
    let mut scene = Scene::attached(|_| {}).await;
    let before = scene.vnic().await.id;
    detach(&scene).await;
    for _ in 0..3 {
        assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
        assert_eq!(scene.told("a"), ["False DetachedOutOfBand", "False DetachedOutOfBand"]);
        assert_eq!((scene.status("a").vnic_id, scene.count("AttachVnic")), (Some(before.clone()), 1));
        scene.restart();
    }
    scene.cloud.settle();
    scene.look().await;
    assert_eq!((scene.told("a")[0].as_str(), scene.count("AttachVnic")), ("False DetachedOutOfBand", 2));
    scene.settle().await;
    assert_eq!(scene.told("a"), ["True Attached", "True Ready"]);
    assert_ne!(scene.vnic().await.id, before);
    assert_eq!(told_of_detachments(&scene), "oke_node_controller_detached_out_of_band_total 1");
}

#[tokio::test(start_paused = true)]
async fn a_vnic_lost_before_it_was_ready_blames_no_program() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.look().await;
    scene.cloud.settle();
    detach(&scene).await;
    scene.look().await;
    assert_eq!(scene.told("a")[0], "False Detaching");
    scene.settle().await;
    assert_eq!((scene.told("a")[1].as_str(), scene.live().len()), ("True Ready", 1));
    assert_eq!(told_of_detachments(&scene), "oke_node_controller_detached_out_of_band_total 0");
}

#[tokio::test(start_paused = true)]
async fn one_incomplete_list_attaches_no_second_vnic() {
    let mut scene = Scene::attached(|_| {}).await;
    let before = scene.status("a");
    for _ in 0..2 {
        scene.cloud.fail_next("GetVnic", (404, "NotAuthorizedOrNotFound"), false);
        scene.look().await;
    }
    assert_eq!((scene.told("a")[0].as_str(), scene.status("a").vnic_id), ("False Attaching", before.vnic_id));
    scene.restart();
    scene.cloud.hide(&scene.live()[0].id, 2);
    for _ in 0..2 {
        assert!(matches!(scene.look().await, NextReconcile::Soon(_)));
        assert_eq!(scene.count("AttachVnic"), 1);
    }
    scene.settle().await;
    assert_eq!((scene.count("AttachVnic"), scene.live().len()), (1, 1));
    // It is really gone.
    scene.cloud.detach_behind(&scene.live()[0].id);
    scene.settle().await;
    assert_eq!(scene.live()[0].lifecycle_state, AttachmentState::Attached);
    assert_eq!(told_of_detachments(&scene), "oke_node_controller_detached_out_of_band_total 1");
}
