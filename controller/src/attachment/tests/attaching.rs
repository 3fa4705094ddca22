//! A VNIC is requested once, whatever happens meanwhile.

use std::time::Duration;

use oci::{ShapeConfig, VnicState};
use vcn::Family;

use super::scene::Scene;
use crate::attachment::sample::instance;
use crate::work::NextReconcile;

#[tokio::test(start_paused = true)]
async fn the_finalizer_is_set_before_the_request() {
    let scene = Scene::with(2);
    scene.wants("storage");
    // It was deleted, and the watch is behind.
    scene.objects.vanished.lock().unwrap().insert("storage".to_owned());
    scene.reconcile().await;
    assert_eq!(scene.calls(), Vec::<&str>::new());
    let text = scene.metrics.text();
    assert!(text.contains(r#"kubernetes_writes_total{kind="add_finalizer",result="ok"} 1"#), "{text}");
}

#[tokio::test(start_paused = true)]
async fn two_processes_with_a_stale_list_request_one_vnic() {
    let mut scene = Scene::with(4);
    scene.wants("a");
    scene.cloud.lag_lists(4);
    for _ in 0..4 {
        scene.reconcile().await;
        scene.restart();
        scene.cloud.settle();
    }
    assert_eq!((scene.count("AttachVnic"), scene.live().len()), (4, 1), "OCI knows the token");
    // Also for the next one, whatever else was refused meanwhile.
    scene.settle().await;
    let attaches = scene.count("AttachVnic");
    scene.change("a", |object| object.spec.vnic.skip_source_dest_check = true);
    scene.cloud.fail_next("UpdateVnic", (409, "Conflict"), false);
    scene.reconcile().await;
    scene.cloud.detach_behind(&scene.live()[0].id);
    for _ in 0..4 {
        scene.reconcile().await;
        scene.restart();
        scene.cloud.settle();
    }
    assert_eq!((scene.count("AttachVnic"), scene.live().len()), (attaches + 4, 1));
}

#[tokio::test(start_paused = true)]
async fn the_instances_own_limit_outranks_its_shape() {
    let scene = Scene::with(4);
    scene.cloud.change_instance(&instance(1), |machine| {
        machine.shape_config = Some(ShapeConfig { ocpus: Some(1.0), max_vnic_attachments: Some(2) });
    });
    ["a", "b"].iter().for_each(|name| scene.wants(name));
    scene.settle().await;
    assert_eq!(scene.reported("b")[0], "False ShapeCapacity");
}

#[tokio::test(start_paused = true)]
async fn attach_time_counts_from_the_accepted_request() {
    // Days of a full subnet do not count.
    for refusal in [(400, "LimitExceeded"), (503, "ServiceUnavailable")] {
        let scene = Scene::with(4);
        scene.wants("a");
        scene.cloud.fail_next("AttachVnic", refusal, false);
        scene.reconcile().await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        scene.reconcile().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        scene.cloud.settle();
        scene.reconcile().await;
        let text = scene.metrics.text();
        let line = text.lines().find(|line| line.starts_with("oke_node_controller_attach_seconds_sum")).unwrap();
        assert_eq!(line, "oke_node_controller_attach_seconds_sum 5.0", "{refusal:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_vnic_is_ready_only_when_it_is_available() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.change("a", |object| (object.spec.vnic.ipv4_count, object.spec.vnic.ipv6_count) = (2, 1));
    scene.reconcile().await;
    scene.cloud.settle();
    let vnic = scene.live()[0].vnic_id.clone().unwrap();
    scene.cloud.change_vnic(&vnic, |vnic| vnic.lifecycle_state = VnicState::Provisioning);
    let calls = scene.calls();
    for _ in 0..3 {
        assert!(matches!(scene.reconcile().await, NextReconcile::Soon(_)));
        assert_eq!(scene.reported("a"), ["False Attaching", "False Attaching"]);
        assert_eq!((scene.status("a").vnic_id.as_ref(), scene.count("ListAddresses")), (Some(&vnic), 0));
        assert_eq!(scene.calls(), calls);
    }
    scene.cloud.change_vnic(&vnic, |vnic| vnic.lifecycle_state = VnicState::Available);
    scene.settle().await;
    assert_eq!((&*scene.ready("a"), scene.extra_addresses(Family::Ipv4).await.len()), ("True Ready", 2));
}
