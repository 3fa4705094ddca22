//! OKE's pod network: nothing is attached while OKE builds it, and no VNIC of pods is detached.

use std::time::Duration;

use api::{NativePodNetwork, OnDelete};
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

fn says(scene: &Scene, pod_network: PodNetwork) {
    scene.objects.pod_network.lock().unwrap().0 = Some(pod_network);
}

/// Pods use `a`'s VNIC, and `a` is deleted.
async fn scene_with_a_deleted_pod_vnic() -> Scene {
    let scene = Scene::attached(|_| {}).await;
    let id = scene.status("a").vnic_id.unwrap();
    says(&scene, npn("SUCCESS", "COMPLETED", &[id.as_str()]));
    scene.delete("a");
    scene.look().await;
    scene
}

fn asked(scene: &Scene) -> usize {
    scene.objects.pod_network.lock().unwrap().1
}

#[tokio::test(start_paused = true)]
async fn attaches_wait_for_oke_with_backoff() {
    let scene = Scene::with(4);
    says(&scene, npn("IN_PROGRESS", "IN_PROGRESS", &[]));
    ["a", "b"].iter().for_each(|name| scene.wants(name));
    scene.look().await;
    assert_eq!(scene.told("a"), ["False PodNetworkPending", "False PodNetworkPending"]);
    assert_eq!(scene.message("b"), "NativePodNetwork x is IN_PROGRESS: IN_PROGRESS");
    let (written, before) = (scene.statuses(), asked(&scene));
    let mut pauses = Vec::new();
    for _ in 0..5 {
        match scene.look().await {
            NextReconcile::BackOff(pause) => pauses.push((pause.left.as_secs(), pause.number)),
            next => panic!("{next:?}"),
        }
    }
    assert_eq!(pauses, [(30, 2), (60, 3), (120, 4), (120, 5), (120, 6)]);
    assert_eq!((asked(&scene) - before, scene.statuses(), scene.count("AttachVnic")), (5, written, 0));
    says(&scene, npn("BACKOFF", "FailedToAttachVNIC", &[]));
    scene.look().await;
    assert_eq!(scene.message("a"), "NativePodNetwork x is BACKOFF: FailedToAttachVNIC");
    says(&scene, npn("SUCCESS", "COMPLETED", &["ocid1.vnic.oc1.iad.pods"]));
    scene.settle().await;
    assert_eq!([scene.told("a"), scene.told("b")].concat().concat(), "True AttachedTrue Ready".repeat(2));
}

#[tokio::test(start_paused = true)]
async fn okes_failure_stays_reported_while_oke_retries() {
    let scene = Scene::with(4);
    says(&scene, npn("IN_PROGRESS", "IN_PROGRESS", &[]));
    scene.wants("a");
    scene.look().await;
    let written = scene.statuses();
    for _ in 0..5 {
        for (state, reason) in [("BACKOFF", "FailedToAttachVNIC"), ("IN_PROGRESS", "IN_PROGRESS")] {
            says(&scene, npn(state, reason, &[]));
            scene.look().await;
            assert_eq!(scene.message("a"), "NativePodNetwork x is BACKOFF: FailedToAttachVNIC");
        }
    }
    assert_eq!(scene.statuses(), written + 1);
}

#[tokio::test(start_paused = true)]
async fn the_pod_network_is_read_once_per_step() {
    let scene = Scene::attached(|_| {}).await;
    assert_eq!((asked(&scene), scene.count("AttachVnic")), (1, 1));
    for _ in 0..5 {
        assert!(matches!(scene.look().await, NextReconcile::Settled(_)));
        tokio::time::sleep(Duration::from_mins(5)).await;
    }
    assert_eq!(asked(&scene), 1);
    scene.delete("a");
    scene.settle().await;
    assert_eq!((scene.exists("a"), asked(&scene), scene.count("DetachVnic")), (false, 2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_blocked_attach_does_not_read_the_pod_network() {
    let scene = Scene::with(1);
    says(&scene, npn("IN_PROGRESS", "IN_PROGRESS", &[]));
    scene.wants("a");
    scene.settle().await;
    assert_eq!((scene.told("a")[0].as_str(), asked(&scene)), ("False ShapeCapacity", 0));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_pod_network_is_reported_and_blocks_steps() {
    let scene = Scene::with(4);
    scene.wants("there");
    scene.settle().await;
    let refusal = "the API server answers 403 for NativePodNetwork x";
    says(&scene, PodNetwork::Unreadable(refusal.to_owned()));
    scene.wants("a");
    scene.delete("there");
    for _ in 0..3 {
        assert!(matches!(scene.look().await, NextReconcile::BackOff(_)));
    }
    for name in ["a", "there"] {
        assert_eq!(scene.told(name), ["Unknown PodNetworkUnknown", "Unknown PodNetworkUnknown"]);
        assert_eq!(scene.message(name), refusal);
    }
    assert_eq!((scene.count("AttachVnic"), scene.count("DetachVnic")), (1, 0));
    says(&scene, PodNetwork::Absent);
    scene.settle().await;
    assert_eq!((scene.exists("there"), scene.told("a")[1].as_str()), (false, "True Ready"));
}

#[tokio::test(start_paused = true)]
async fn a_detach_waits_for_an_answer() {
    let scene = Scene::attached(|_| {}).await;
    let (before, id) = (scene.statuses(), scene.status("a").vnic_id);
    scene.objects.pod_network.lock().unwrap().0 = None;
    scene.delete("a");
    for _ in 0..3 {
        assert_eq!(scene.look().await, NextReconcile::Failed);
        assert_eq!((scene.statuses() - before, scene.told("a")[1].as_str()), (1, "Unknown PodNetworkUnanswered"));
    }
    assert_eq!((scene.status("a").vnic_id, scene.count("DetachVnic")), (id, 0));
    let trouble = State::of(scene.store.attachments().get("a").unwrap()).trouble;
    assert_eq!(trouble, None, "it fails no profile");
    says(&scene, PodNetwork::Absent);
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.count("DetachVnic")), (false, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_vnic_stays_until_pods_release_it() {
    let mut scene = Scene::with(4);
    ["a", "b"].iter().for_each(|name| scene.wants(name));
    scene.settle().await;
    let id = scene.status("a").vnic_id.unwrap();
    says(&scene, npn("SUCCESS", "COMPLETED", &[id.as_str()]));
    ["a", "b"].iter().for_each(|name| scene.delete(name));
    for _ in 0..3 {
        scene.look().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        scene.cloud.settle();
    }
    assert_eq!((scene.exists("b"), scene.live().len()), (false, 1), "another VNIC does not wait for it");
    assert_eq!(scene.told("a"), ["False UsedByPods", "False UsedByPods"]);
    assert_eq!(
        scene.message("a"),
        "NativePodNetwork x lists the VNIC for pods; drain the node, then `kubectl delete npn x` or terminate the instance; or set spec.onDelete to Orphan"
    );
    let written = scene.statuses();
    scene.restart();
    for _ in 0..3 {
        assert!(matches!(scene.look().await, NextReconcile::BackOff(_)));
    }
    assert_eq!((scene.statuses(), scene.status("a").vnic_id), (written, Some(id)));
    says(&scene, PodNetwork::Absent);
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.live().len(), scene.count("DetachVnic")), (false, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn an_unnamed_vnic_goes_although_oke_never_finishes() {
    let scene = Scene::attached(|_| {}).await;
    says(&scene, npn("IN_PROGRESS", "IN_PROGRESS", &["ocid1.vnic.oc1.iad.pods"]));
    scene.delete("a");
    scene.settle().await;
    assert_eq!((scene.exists("a"), scene.live().len(), scene.count("DetachVnic")), (false, 0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_released_pod_vnic_stays_with_the_pods() {
    let scene = scene_with_a_deleted_pod_vnic().await;
    assert_eq!(scene.told("a")[0], "False UsedByPods");
    scene.change("a", |object| object.spec.vnic.on_delete = OnDelete::Orphan);
    scene.look().await;
    assert_eq!((scene.exists("a"), scene.live().len(), scene.count("DetachVnic")), (false, 1, 0));
}
