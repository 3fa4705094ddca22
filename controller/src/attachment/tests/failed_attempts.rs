//! Requests that OCI does not carry out, always refuses, or that are reverted again and again: each is reported, backs off,
//! and blocks no other.

use std::time::Duration;

use kube::ResourceExt;
use oci::{AttachmentState, FreeformTags, VnicAttachment as Listed};
use tokio::time::{Instant, advance};

use super::scene::{Scene, pods};
use crate::work::NextReconcile;

const HOUR: Duration = Duration::from_hours(1);

/// Reconciles, as the queue would, for this long; runs `after` in OCI after each one. Returns their number.
async fn go_on(scene: &Scene, most: Duration, mut happens: impl FnMut(&Scene)) -> u32 {
    let (began, mut looks) = (Instant::now(), 0);
    while began.elapsed() < most {
        let next = scene.reconcile().await;
        looks += 1;
        happens(scene);
        advance(next.pause(Duration::from_secs(60))).await;
    }
    looks
}

fn of(scene: &Scene, name: &str) -> Vec<Listed> {
    let uid = scene.store.attachments().get(name).and_then(|object| object.uid()).unwrap();
    let all = scene.cloud.attachments().into_iter();
    all.filter(|it| it.display_name.as_deref().is_some_and(|own| own.ends_with(&uid))).collect()
}

fn gives_up(scene: &Scene, name: &str) {
    of(scene, name).iter().for_each(|it| scene.cloud.give_up(&it.id));
}

fn counted(scene: &Scene, line: &str) -> bool {
    scene.metrics.text().lines().any(|own| own == format!("oke_node_controller_{line}"))
}

#[tokio::test(start_paused = true)]
async fn a_failing_attach_is_reported_and_backs_off() {
    let scene = Scene::with(8);
    ["a", "b", "c"].iter().for_each(|name| scene.wants(name));
    go_on(&scene, Duration::from_mins(1), |scene| {
        gives_up(scene, "a");
        scene.cloud.settle();
    })
    .await;
    assert_eq!(["b", "c"].map(|name| scene.ready(name)), ["True Ready", "True Ready"]);
    assert_eq!(scene.reported("a"), ["False AttachFailed", "False AttachFailed"]);
    let (attaches, written) = (scene.count("AttachVnic"), scene.statuses());
    let looks = go_on(&scene, HOUR, |scene| {
        gives_up(scene, "a");
        scene.cloud.settle();
    })
    .await;
    let attaches = scene.count("AttachVnic") - attaches;
    // Every two minutes, the longest backoff; each time one reconcile that requests and one that sees the result.
    assert!((25..=32).contains(&attaches) && looks <= 70, "{attaches} times in {looks} reconciles");
    assert_eq!((scene.statuses(), scene.ready("a").as_str()), (written, "False AttachFailed"), "no change");
    let records = of(&scene, "a").len();
    let is_counted = |count| counted(&scene, &format!(r#"undone_total{{kind="attach"}} {count}"#));
    assert!(is_counted(records) || is_counted(records - 1), "the last one may be unseen: {records}");
    go_on(&scene, Duration::from_mins(3), |scene| scene.cloud.settle()).await;
    assert_eq!((scene.ready("a").as_str(), scene.live().len()), ("True Ready", 3));
}

#[tokio::test(start_paused = true)]
async fn a_changed_spec_ends_the_backoff() {
    let mut scene = Scene::with(4);
    scene.wants("a");
    let begun = Instant::now();
    let mut at = Vec::new();
    go_on(&scene, Duration::from_secs(30), |scene| {
        if scene.live().len() == 1 {
            at.push(begun.elapsed().as_secs());
        }
        gives_up(scene, "a");
    })
    .await;
    // A poll, and a backoff of 1, 2, 4, 8 s.
    assert_eq!(at, [0, 4, 9, 16, 27]);
    assert!(matches!(scene.reconcile().await, NextReconcile::BackOff(_)));
    let attaches = scene.count("AttachVnic");
    scene.change("a", |object| object.spec.vnic.freeform_tags = FreeformTags::from([("x".into(), "y".into())]));
    scene.reconcile().await;
    assert_eq!(scene.count("AttachVnic"), attaches + 1, "it requests something else");
    gives_up(&scene, "a");
    scene.reconcile().await;
    assert!(matches!(scene.reconcile().await, NextReconcile::BackOff(_)));
    scene.restart();
    scene.reconcile().await;
    assert_eq!(scene.count("AttachVnic"), attaches + 2, "a new process tries at once");
    gives_up(&scene, "a");
    assert!(
        matches!(scene.reconcile().await, NextReconcile::BackOff(pause) if pause.left > Duration::from_mins(1)),
        "it counts records"
    );
    assert_eq!(scene.ready("a"), "False AttachFailed");
}

#[tokio::test(start_paused = true)]
async fn a_failing_detach_is_reported_and_blocks_no_other() {
    let scene = Scene::with(8);
    scene.wants("a");
    scene.settle().await;
    scene.delete("a");
    scene.wants("b");
    go_on(&scene, HOUR, |scene| {
        gives_up(scene, "a");
        scene.cloud.settle();
    })
    .await;
    assert_eq!((scene.reported("a")[0].as_str(), scene.ready("b").as_str()), ("False DetachFailed", "True Ready"));
    let detaches = scene.count("DetachVnic");
    assert!((25..=40).contains(&detaches), "{detaches} times");
    let written = scene.statuses();
    go_on(&scene, Duration::from_mins(10), |scene| gives_up(scene, "a")).await;
    assert_eq!(scene.statuses(), written, "no change");
    go_on(&scene, Duration::from_mins(3), |scene| scene.cloud.settle()).await;
    assert_eq!((scene.exists("a"), scene.live().len()), (false, 1));
}

#[tokio::test(start_paused = true)]
async fn a_stale_list_does_not_fail_a_detach() {
    let scene = Scene::attached(|_| {}).await;
    scene.delete("a");
    scene.reconcile().await;
    // Listed as before, twice.
    gives_up(&scene, "a");
    for _ in 0..2 {
        scene.reconcile().await;
        gives_up(&scene, "a");
        advance(Duration::from_secs(3)).await;
    }
    assert_eq!(scene.reported("a")[0], "False Detaching");
    advance(Duration::from_secs(4)).await;
    scene.reconcile().await;
    assert_eq!(scene.reported("a")[0], "False DetachFailed", "but not forever");
}

#[tokio::test(start_paused = true)]
async fn a_detach_is_followed_despite_a_stale_list() {
    let scene = Scene::attached(|_| {}).await;
    scene.cloud.freeze_in_lists(&scene.live()[0].id);
    scene.delete("a");
    for _ in 0..6 {
        assert!(matches!(scene.reconcile().await, NextReconcile::Soon(_)));
        assert_eq!(scene.reported("a")[0], "False Detaching");
        advance(Duration::from_secs(3)).await;
    }
    assert_eq!((scene.count("DetachVnic"), scene.count("GetVnicAttachment")), (1, 5), "one read per reconcile");
    scene.cloud.settle();
    scene.reconcile().await;
    assert!(!scene.exists("a"), "DETACHED, although the list still shows it as attached");
}

#[tokio::test(start_paused = true)]
async fn a_refused_object_lets_the_next_one_try() {
    let refusals = [
        (500, "InternalServerError"),
        (503, "ServiceUnavailable"),
        (409, "IncorrectState"),
        (429, "TooManyRequests"),
        (401, "NotAuthenticated"),
    ];
    for refusal in refusals {
        let scene = Scene::with(8);
        let other: vcn::Ocid = "ocid1.subnet.oc1.iad.other".parse().unwrap();
        scene.cloud.add_subnet(pods("10.0.64.0/20", other.clone()));
        scene.cloud.refuse_vnics_in(&other, refusal);
        ["a", "b", "c"].iter().for_each(|name| scene.wants(name));
        scene.change("a", |object| object.spec.vnic.subnet_id = other);
        scene.reconcile().await;
        // At once, it might be carried out in addition to the first one.
        assert_eq!(scene.count("AttachVnic"), 1, "{refusal:?}");
        assert_eq!(["b", "c"].map(|name| scene.reported(name)[0].clone()), ["False InstanceBusy"; 2].map(String::from));
        go_on(&scene, Duration::from_mins(5), |scene| scene.cloud.settle()).await;
        assert_eq!(["b", "c"].map(|name| scene.ready(name)), ["True Ready", "True Ready"], "{refusal:?}");
        assert_ne!(scene.ready("a"), "True Ready", "{refusal:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn repeated_foreign_detaches_are_repaired_with_backoff() {
    let scene = Scene::with(8);
    scene.wants("a");
    scene.settle().await;
    scene.cloud.detach_behind(&scene.live()[0].id);
    scene.reconcile().await;
    assert_eq!(scene.live().len(), 1, "the first loss is repaired at once");
    scene.settle().await;
    let (attaches, began) = (scene.count("AttachVnic"), Instant::now());
    let mut reported = false;
    while began.elapsed() < HOUR {
        let next = scene.reconcile().await;
        reported |= scene.message("a").contains("controller again");
        scene.cloud.settle();
        if scene.ready("a") == "True Ready" {
            // Each loss is noticed within a second.
            scene.live().iter().for_each(|it| scene.cloud.detach_behind(&it.id));
            advance(Duration::from_secs(1)).await;
        } else {
            advance(next.pause(Duration::from_secs(60))).await;
        }
    }
    let attaches = scene.count("AttachVnic") - attaches;
    assert!(reported && (25..=45).contains(&attaches), "{reported}, {attaches} times");
    go_on(&scene, Duration::from_mins(3), |scene| scene.cloud.settle()).await;
    assert_eq!((scene.ready("a").as_str(), scene.live().len()), ("True Ready", 1));
}

#[tokio::test(start_paused = true)]
async fn an_attach_that_failed_unlisted_leads_to_one_vnic() {
    let scene = Scene::with(8);
    scene.wants("a");
    scene.cloud.lag_lists(2);
    scene.reconcile().await;
    gives_up(&scene, "a");
    // Its token is refused until it is listed; then another VNIC is requested, which lists lack for longer than the first was
    // refused.
    for _ in 0..2 {
        advance(Duration::from_secs(3)).await;
        scene.reconcile().await;
    }
    scene.cloud.lag_lists(4);
    // Its acceptance is not noticed either.
    scene.cloud.fail_next("AttachVnic", (503, "ServiceUnavailable"), true);
    for _ in 0..8 {
        advance(Duration::from_secs(3)).await;
        scene.reconcile().await;
        scene.cloud.settle();
    }
    go_on(&scene, Duration::from_mins(1), |scene| scene.cloud.settle()).await;
    let states: Vec<AttachmentState> = of(&scene, "a").iter().map(|it| it.lifecycle_state).collect();
    assert_eq!(states, [AttachmentState::Detached, AttachmentState::Attached], "{:?}", scene.calls());
    assert_eq!(scene.ready("a"), "True Ready");
}
