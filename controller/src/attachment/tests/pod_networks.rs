//! OKE's pod network: nothing is attached while OKE builds it, and no VNIC of pods is detached.

use std::time::Duration;

use api::NativePodNetwork;
use serde_json::json;

use super::scene::Scene;
use crate::attachment::observe::pod_network::PodNetwork;
use crate::attachment::sample::instance;
use crate::profile::plan::state::State;
use crate::work::NextReconcile;

/// The instance's, in this state, with these VNICs.
pub(super) fn npn(state: &str, reason: &str, vnics: &[&str]) -> PodNetwork {
    let entries: Vec<_> =
        vnics.iter().map(|vnic| json!({ "vnicId": vnic, "macAddress": "02:00:17:00:00:01" })).collect();
    let document = json!({ "metadata": { "name": "x" }, "spec": { "id": instance(1) },
        "status": { "state": state, "reason": reason, "vnics": entries } });
    PodNetwork::There(NativePodNetwork::parse(document.to_string().as_bytes()).unwrap())
}

fn set_pod_network(scene: &Scene, pod_network: PodNetwork) {
    scene.objects.pod_network.lock().unwrap().0 = Some(pod_network);
}

fn pod_network_reads(scene: &Scene) -> usize {
    scene.objects.pod_network.lock().unwrap().1
}

#[tokio::test(start_paused = true)]
async fn attaches_wait_for_oke_with_backoff() {
    let scene = Scene::with(4);
    set_pod_network(&scene, npn("IN_PROGRESS", "IN_PROGRESS", &[]));
    ["a", "b"].iter().for_each(|name| scene.wants(name));
    scene.reconcile().await;
    assert_eq!(scene.reported("a"), ["False PodNetworkPending", "False PodNetworkPending"]);
    assert_eq!(scene.message("b"), "NativePodNetwork x is IN_PROGRESS: IN_PROGRESS");
    let (written, before) = (scene.statuses(), pod_network_reads(&scene));
    let mut pauses = Vec::new();
    for _ in 0..5 {
        match scene.reconcile().await {
            NextReconcile::BackOff(pause) => pauses.push((pause.left.as_secs(), pause.number)),
            next => panic!("{next:?}"),
        }
    }
    assert_eq!(pauses, [(30, 2), (60, 3), (120, 4), (120, 5), (120, 6)]);
    assert_eq!((pod_network_reads(&scene) - before, scene.statuses(), scene.count("AttachVnic")), (5, written, 0));
    set_pod_network(&scene, npn("BACKOFF", "FailedToAttachVNIC", &[]));
    scene.reconcile().await;
    assert_eq!(scene.message("a"), "NativePodNetwork x is BACKOFF: FailedToAttachVNIC");
    set_pod_network(&scene, npn("SUCCESS", "COMPLETED", &["ocid1.vnic.oc1.iad.pods"]));
    scene.settle().await;
    assert_eq!([scene.reported("a"), scene.reported("b")].concat().concat(), "True AttachedTrue Ready".repeat(2));
}

#[tokio::test(start_paused = true)]
async fn the_pod_network_is_read_once_per_step() {
    let scene = Scene::attached(|_| {}).await;
    assert_eq!((pod_network_reads(&scene), scene.count("AttachVnic")), (1, 1));
    let before = (scene.statuses(), scene.calls());
    for _ in 0..5 {
        assert!(matches!(scene.reconcile().await, NextReconcile::Settled(_)));
        tokio::time::sleep(Duration::from_mins(5)).await;
    }
    assert_eq!(
        (pod_network_reads(&scene), (scene.statuses(), scene.calls())),
        (1, before),
        "nothing is written or changed"
    );
    scene.delete("a");
    scene.settle().await;
    assert_eq!((scene.exists("a"), pod_network_reads(&scene), scene.count("DetachVnic")), (false, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_detach_waits_for_an_answer() {
    let scene = Scene::attached(|_| {}).await;
    let (before, id) = (scene.statuses(), scene.status("a").vnic_id);
    scene.objects.pod_network.lock().unwrap().0 = None;
    scene.delete("a");
    for _ in 0..3 {
        assert_eq!(scene.reconcile().await, NextReconcile::Failed);
        assert_eq!((scene.statuses() - before, &*scene.ready("a")), (1, "Unknown PodNetworkUnanswered"));
    }
    assert_eq!((scene.status("a").vnic_id, scene.count("DetachVnic")), (id, 0));
    let trouble = State::of(scene.store.attachments().get("a").unwrap()).trouble;
    assert_eq!(trouble, None, "it fails no profile");
    set_pod_network(&scene, PodNetwork::Absent);
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.count("DetachVnic")), (false, 1));
}
