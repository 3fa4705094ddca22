//! 409 and 412: the known state may be stale. It is read again, and a lasting refusal is reported.

use std::time::Duration;

use sandbox::Refusal;

use super::scene::Scene;
use crate::work::NextReconcile;

/// A scene in which the next calls of an operation are refused.
async fn scene_of(operation: &'static str, refusal: impl Into<Refusal>, times: usize) -> Scene {
    let scene = Scene::with(4);
    scene.wants("a");
    match operation {
        "AttachVnic" => {}
        _ => scene.settle().await,
    }
    match operation {
        "UpdateVnic" => scene.change("a", |object| object.spec.vnic.skip_source_dest_check = true),
        "CreateAddress" => scene.change("a", |object| object.spec.vnic.ipv4_count = 1),
        "DetachVnic" => scene.delete("a"),
        _ => {}
    }
    scene.refuse(times, operation, refusal);
    scene
}

#[tokio::test(start_paused = true)]
async fn a_lasting_conflict_is_reported() {
    for refusal in [
        (409, "Conflict"),
        (409, "NotAuthorizedOrResourceAlreadyExists"),
        (409, "InvalidatedRetryToken"),
        (412, "NoEtagMatch"),
    ] {
        for operation in ["AttachVnic", "UpdateVnic", "CreateAddress", "DetachVnic"] {
            let (scene, case) = (scene_of(operation, refusal, 100).await, format!("{operation} {refusal:?}"));
            let (written, requests) = (scene.statuses(), scene.count(operation));
            for _ in 0..2 {
                assert_eq!(scene.reconcile().await, NextReconcile::Failed, "{case}");
                tokio::time::sleep(Duration::from_mins(1)).await;
            }
            let reported = match refusal.1 {
                "NotAuthorizedOrResourceAlreadyExists" => "Unknown NotAuthorizedOrNotFound",
                _ => "False InstanceBusy",
            };
            let attached = if matches!(operation, "UpdateVnic" | "CreateAddress") { "True Attached" } else { reported };
            assert_eq!(scene.reported("a"), [attached, reported], "{case}");
            let message = scene.message("a");
            let called = if operation == "CreateAddress" { "CreatePrivateIp" } else { operation };
            assert!(message.starts_with(&format!("{called}: {} {}: ", refusal.0, refusal.1)), "{case}: {message}");
            let generation = scene.store.attachments().get("a").unwrap().metadata.generation;
            assert_eq!(scene.status("a").observed_generation, generation, "{case}");
            for _ in 0..8 {
                assert_eq!(scene.reconcile().await, NextReconcile::Failed, "{case}");
                tokio::time::sleep(Duration::from_mins(1)).await;
            }
            assert_eq!(scene.statuses(), written + 1, "{case}");
            let is_spent = refusal.1 == "InvalidatedRetryToken" && operation == "CreateAddress";
            let most = if is_spent { 40 } else { 20 };
            assert!(scene.count(operation) - requests <= most, "{case}: {} times", scene.count(operation) - requests);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_conflict_is_not_reported() {
    let (other, exists) = ((409, "Conflict"), (409, "NotAuthorizedOrResourceAlreadyExists"));
    for (operation, refusal) in
        [("AttachVnic", exists), ("UpdateVnic", other), ("CreateAddress", other), ("DetachVnic", exists)]
    {
        let scene = scene_of(operation, refusal, 1).await;
        scene.reconcile().await;
        let reported = scene.ready("a");
        assert!(
            !reported.ends_with("InstanceBusy") && !reported.ends_with("NotAuthorizedOrNotFound"),
            "{operation}: {reported}"
        );
        scene.settle().await;
        assert_eq!(scene.exists("a"), operation != "DetachVnic", "{operation}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_after_a_successful_attach_attaches_one_vnic() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.cloud.lag_lists(6);
    for _ in 0..3 {
        scene.cloud.fail_next("AttachVnic", (409, "Conflict"), true);
    }
    for _ in 0..6 {
        scene.reconcile().await;
        scene.cloud.settle();
    }
    scene.settle().await;
    assert_eq!((scene.live().len(), &*scene.ready("a")), (1, "True Ready"));
}

#[tokio::test(start_paused = true)]
async fn a_lasting_conflict_does_not_block_the_instance() {
    let scene = Scene::with(4);
    ["a", "b"].iter().for_each(|name| scene.wants(name));
    scene.refuse(2, "AttachVnic", (412, "NoEtagMatch"));
    scene.reconcile().await;
    assert_eq!(["a", "b"].map(|name| scene.reported(name)[0].clone()), ["False InstanceBusy", "False Attaching"]);
    assert!(scene.message("a").starts_with("AttachVnic: 412 NoEtagMatch"), "{}", scene.message("a"));
    scene.settle().await;
    assert_eq!(["a", "b"].map(|name| scene.ready(name)), ["True Ready"; 2].map(String::from));
}

#[tokio::test(start_paused = true)]
async fn a_busy_instance_gets_one_request_per_reconcile() {
    for (operation, code) in [
        ("AttachVnic", "Conflict"),
        ("AttachVnic", "IncorrectState"),
        ("DetachVnic", "Conflict"),
        ("DetachVnic", "IncorrectState"),
    ] {
        let (scene, names) = (Scene::with(8), ["a", "b", "c"]);
        names.iter().for_each(|name| scene.wants(name));
        if operation == "DetachVnic" {
            scene.settle().await;
            names.iter().for_each(|name| scene.delete(name));
        }
        scene.refuse(6, operation, (409, code));
        let before = scene.count(operation);
        for look in 1..=6 {
            assert_eq!(scene.reconcile().await, NextReconcile::Failed, "{operation} {code}");
            assert_eq!(scene.count(operation) - before, look, "{operation} {code}");
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
        // Each was tried, and reports it.
        let reported = names.map(|name| (scene.ready(name), scene.message(name).contains(code)));
        assert_eq!(reported, names.map(|_| ("False InstanceBusy".to_owned(), true)), "{operation} {code}");
    }
}
