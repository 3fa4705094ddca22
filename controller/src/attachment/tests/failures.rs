//! Each failure explains itself and is retried.

use std::time::Duration;

use super::scene::Scene;
use crate::attachment::sample::attachment;
use crate::work::NextReconcile;

#[tokio::test(start_paused = true)]
async fn a_refused_attach_is_reported_and_retried() {
    for ((status, code), reported) in [
        ((400, "LimitExceeded"), "False LimitReached"),
        ((400, "QuotaExceeded"), "False LimitReached"),
        ((400, "InvalidParameter"), "False InvalidSpec"),
        ((400, "RelatedResourceNotAuthorizedOrNotFound"), "Unknown NotAuthorizedOrNotFound"),
        ((404, "NotAuthorizedOrNotFound"), "Unknown NotAuthorizedOrNotFound"),
        ((401, "NotAuthenticated"), "Unknown NotAuthenticated"),
        ((403, "NotAuthorized"), "False Forbidden"),
        ((405, "MethodNotAllowed"), "Unknown OciUnavailable"),
        ((409, "IncorrectState"), "False InstanceBusy"),
        ((503, "ServiceUnavailable"), "Unknown OciUnavailable"),
        ((429, "TooManyRequests"), "Unknown Throttled"),
    ] {
        let scene = Scene::with(4);
        scene.wants("a");
        scene.cloud.fail_next("AttachVnic", (status, code), false);
        assert_eq!(scene.reconcile().await, NextReconcile::Failed, "{code}");
        assert_eq!(scene.reported("a"), [reported, reported], "{code}");
        let message = scene.message("a");
        let words = if status == 429 { "too many calls" } else { &*format!("AttachVnic: {status} {code}: ") };
        assert!(message.starts_with(words), "{message}");
        assert_eq!(message.contains("[opc-request-id "), status != 429, "{message}");
        scene.settle().await;
        assert_eq!(scene.ready("a"), "True Ready", "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_does_not_replace_a_refusal() {
    for (operation, none) in [
        ("GetInstance", (429, "TooManyRequests")),
        ("ListVnicAttachments", (503, "ServiceUnavailable")),
        ("GetInstance", (401, "NotAuthenticated")),
        ("AttachVnic", (429, "TooManyRequests")),
        ("AttachVnic", (503, "ServiceUnavailable")),
    ] {
        let scene = Scene::with(4);
        scene.wants("a");
        for round in 0..20 {
            let (operation, refusal) =
                if round % 4 < 2 { ("AttachVnic", (400, "LimitExceeded")) } else { (operation, none) };
            scene.cloud.fail_next(operation, refusal, false);
            assert_eq!(scene.reconcile().await, NextReconcile::Failed, "{operation}");
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
        assert_eq!((scene.statuses(), &*scene.ready("a")), (1, "False LimitReached"), "{operation} {none:?}");
        // It is not about later requests.
        scene.change("a", |object| object.spec.vnic.skip_source_dest_check = true);
        scene.cloud.fail_next(operation, none, false);
        scene.reconcile().await;
        assert_eq!(scene.ready("a").split(' ').next(), Some("Unknown"), "{operation} {none:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_during_progress_is_reported_the_second_time() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.reconcile().await;
    let unread = |(status, code)| scene.cloud.fail_next("GetInstance", (status, code), false);
    let written = scene.statuses();
    // A poll without an answer, then one with.
    for _ in 0..5 {
        unread((429, "TooManyRequests"));
        assert_eq!(scene.reconcile().await, NextReconcile::Failed);
        scene.reconcile().await;
    }
    assert_eq!((scene.statuses(), scene.reported("a")[0].as_str()), (written, "False Attaching"));
    unread((503, "ServiceUnavailable"));
    unread((503, "ServiceUnavailable"));
    scene.reconcile().await;
    assert_eq!(scene.reported("a")[0], "False Attaching");
    scene.reconcile().await;
    assert_eq!(scene.reported("a")[0], "Unknown OciUnavailable");
    // Another kind of outage changes nothing.
    for number in 0..10 {
        unread(if number % 2 == 0 { (429, "TooManyRequests") } else { (503, "ServiceUnavailable") });
        scene.reconcile().await;
    }
    assert_eq!(scene.statuses(), written + 1);
    scene.settle().await;
    assert_eq!(scene.ready("a"), "True Ready");
}

#[tokio::test(start_paused = true)]
async fn an_object_in_sync_stays_so_during_an_outage() {
    let scene = Scene::with(4);
    scene.wants("old");
    scene.settle().await;
    let written = scene.statuses();
    scene.wants("new");
    scene.cloud.fail_next("ListVnicAttachments", (503, "ServiceUnavailable"), false);
    assert_eq!(scene.reconcile().await, NextReconcile::Failed);
    assert_eq!(scene.reported("old"), ["True Attached", "True Ready"], "nothing contradicts it");
    assert_eq!(scene.reported("new"), ["Unknown OciUnavailable", "Unknown OciUnavailable"]);
    assert_eq!(scene.statuses(), written + 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_object_blocks_no_other() {
    let scene = Scene::with(8);
    let full = scene.full_subnet();
    ["a", "b", "c"].iter().for_each(|name| scene.wants(name));
    ["a", "b"].iter().for_each(|name| scene.change(name, |object| object.spec.vnic.subnet_id = full.clone()));
    scene.reconcile().await;
    assert_eq!(
        ["a", "b", "c"].map(|name| scene.reported(name)[0].clone()),
        ["False SubnetFull", "False SubnetFull", "False Attaching"]
    );
    let written = scene.statuses();
    scene.cloud.settle();
    for _ in 0..3 {
        scene.reconcile().await;
    }
    assert_eq!(scene.ready("c"), "True Ready");
    assert_eq!(scene.statuses(), written + 1, "the status of the others stays");
    // Nor does a refused detach.
    scene.delete("c");
    scene.wants("d");
    scene.cloud.fail_next("DetachVnic", (404, "NotAuthorizedOrNotFound"), false);
    scene.reconcile().await;
    assert_eq!(
        (scene.reported("c")[0].as_str(), scene.reported("d")[0].as_str()),
        ("Unknown NotAuthorizedOrNotFound", "False Attaching")
    );
    scene.cloud.settle();
    scene.change("a", |object| object.spec.vnic.subnet_id = crate::attachment::sample::subnet());
    for _ in 0..6 {
        scene.reconcile().await;
        scene.cloud.settle();
    }
    assert_eq!((scene.exists("c"), &*scene.ready("a"), &*scene.ready("b")), (false, "True Ready", "False SubnetFull"));
}

#[tokio::test(start_paused = true)]
async fn a_foreign_detach_is_reported_before_the_failed_repair() {
    let scene = Scene::attached(|_| {}).await;
    scene.cloud.detach_behind(&scene.live()[0].id);
    scene.cloud.fail_next("AttachVnic", (400, "LimitExceeded"), false);
    assert_eq!(scene.reconcile().await, NextReconcile::Failed);
    assert_eq!(scene.reported("a"), ["False DetachedOutOfBand", "False DetachedOutOfBand"]);
    assert!(scene.message("a").contains("refused: AttachVnic: 400 LimitExceeded"), "{}", scene.message("a"));
    for _ in 0..2 {
        scene.cloud.fail_next("AttachVnic", (400, "LimitExceeded"), false);
        scene.reconcile().await;
        assert_eq!(scene.reported("a")[0], "False LimitReached");
    }
    scene.settle().await;
    assert_eq!(scene.ready("a"), "True Ready");
    assert!(scene.metrics.text().contains("detached_out_of_band_total 1"));
}

#[tokio::test(start_paused = true)]
async fn drifted_objects_are_reconciled_soon() {
    let scene = Scene::with(2);
    ["a", "b"].iter().for_each(|name| scene.wants(name));
    scene.settle().await;
    // So many that regular reconciles alone would take hours.
    for number in 2..3000 {
        scene.store.attachments_mut().apply(attachment(&format!("other-{number}"), number));
    }
    assert_eq!(scene.reported("b")[0], "False ShapeCapacity");
    assert_eq!(scene.reconcile().await, NextReconcile::Stuck(Duration::from_mins(5)));
    scene.delete("b");
    scene.reconcile().await;
    scene.settle().await;
    assert_eq!(scene.reconcile().await, NextReconcile::Settled(scene.worker.between_looks()));
    assert!(scene.worker.between_looks() > Duration::from_mins(5));
    // An invisible resource may appear in a moment. A VNIC is reported at the second reconcile.
    scene.cloud.fail_next("GetVnic", (404, "NotAuthorizedOrNotFound"), false);
    scene.reconcile().await;
    for (operation, reported) in [("GetVnic", "False Attaching"), ("GetInstance", "Unknown NotAuthorizedOrNotFound")] {
        scene.cloud.fail_next(operation, (404, "NotAuthorizedOrNotFound"), false);
        assert_eq!(scene.reconcile().await, NextReconcile::Failed, "{operation}");
        assert_eq!(scene.reported("a")[0], reported, "{operation}");
    }
}

#[tokio::test(start_paused = true)]
async fn statuses_of_refused_objects_do_not_change() {
    let (throttled, away) = ((429, "TooManyRequests"), (503, "ServiceUnavailable"));
    let (locked, unauthenticated) = ((409, "IncorrectState"), (401, "NotAuthenticated"));
    for (refusal, reported) in [
        (throttled, "Unknown Throttled"),
        (away, "Unknown OciUnavailable"),
        (unauthenticated, "Unknown NotAuthenticated"),
        (locked, "False InstanceBusy"),
    ] {
        // The earlier refusal: a 409 is reported only until there is no answer.
        for first in [refusal, locked, away] {
            let scene = Scene::with(8);
            ["a", "b", "c"].iter().for_each(|name| scene.wants(name));
            scene.refuse(3, "AttachVnic", first);
            scene.refuse(60, "AttachVnic", refusal);
            let case = format!("{refusal:?} after {first:?}");
            for _ in 0..6 {
                assert_eq!(scene.reconcile().await, NextReconcile::Failed, "{case}");
                tokio::time::sleep(Duration::from_mins(1)).await;
            }
            let (written, cause) = (scene.statuses(), ["a", "b", "c"].map(|name| scene.message(name)));
            assert_eq!(
                ["a", "b", "c"].map(|name| scene.reported(name)[0].clone()),
                [reported; 3].map(String::from),
                "{case}"
            );
            assert!(!cause.iter().any(|cause| cause.contains("queued")), "{case}: {cause:?}");
            for _ in 0..6 {
                scene.reconcile().await;
                tokio::time::sleep(Duration::from_mins(1)).await;
            }
            assert_eq!(scene.statuses(), written, "{case}");
        }
    }
}
