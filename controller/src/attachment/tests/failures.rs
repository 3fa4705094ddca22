//! Every failure explains itself, and none is for ever.

use std::time::Duration;

use super::scene::Scene;
use crate::attachment::sample::attachment;
use crate::work::Next;

#[tokio::test(start_paused = true)]
async fn a_refused_attach_is_told_with_its_reason_and_tried_again() {
    for ((status, code), told) in [
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
    ] {
        let scene = Scene::with(4);
        scene.wants("a");
        scene.cloud.fail_next("AttachVnic", (status, code), false);
        assert_eq!(scene.look().await, Next::Failed, "{code}");
        assert_eq!(scene.told("a"), [told, told], "{code}");
        let message = scene.message("a");
        assert!(message.starts_with(&format!("AttachVnic: {status} {code}: ")), "{message}");
        assert!(message.contains("[opc-request-id "), "{message}");
        scene.settle().await;
        assert_eq!(scene.told("a")[1], "True Ready", "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn too_many_calls_are_told_and_tried_again() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.cloud.fail_next("AttachVnic", (429, "TooManyRequests"), false);
    assert_eq!(scene.look().await, Next::Failed);
    assert_eq!(scene.told("a"), ["Unknown Throttled", "Unknown Throttled"]);
    assert!(scene.message("a").contains("oke_node_controller_oci_calls_total"), "{}", scene.message("a"));
    scene.settle().await;
    assert_eq!(scene.told("a")[1], "True Ready");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_stays_is_written_once() {
    let scene = Scene::with(4);
    scene.wants("a");
    for _ in 0..5 {
        scene.cloud.fail_next("AttachVnic", (400, "LimitExceeded"), false);
        scene.look().await;
    }
    assert_eq!(scene.statuses(), 1, "the number of a later request is no news");
}

#[tokio::test(start_paused = true)]
async fn what_was_refused_is_not_overwritten_by_no_answer_and_back() {
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
            assert_eq!(scene.look().await, Next::Failed, "{operation}");
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
        assert_eq!((scene.statuses(), scene.told("a")[1].as_str()), (1, "False LimitReached"), "{operation} {none:?}");
        // Of what is asked for since then, it says nothing.
        scene.change("a", |object| object.spec.vnic.skip_source_dest_check = true);
        scene.cloud.fail_next(operation, none, false);
        scene.look().await;
        assert_eq!(scene.told("a")[1].split(' ').next(), Some("Unknown"), "{operation} {none:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn that_nothing_is_to_be_read_of_what_is_on_its_way_is_told_the_second_time() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.look().await;
    let unread = |(status, code)| scene.cloud.fail_next("GetInstance", (status, code), false);
    let written = scene.statuses();
    // A poll that had no answer, then one that had.
    for _ in 0..5 {
        unread((429, "TooManyRequests"));
        assert_eq!(scene.look().await, Next::Failed);
        scene.look().await;
    }
    assert_eq!((scene.statuses(), scene.told("a")[0].as_str()), (written, "False Attaching"));
    unread((503, "ServiceUnavailable"));
    unread((503, "ServiceUnavailable"));
    scene.look().await;
    assert_eq!(scene.told("a")[0], "False Attaching");
    scene.look().await;
    assert_eq!(scene.told("a")[0], "Unknown OciUnavailable");
    // One way of getting no answer and another, and so on, is no news.
    for number in 0..10 {
        unread(if number % 2 == 0 { (429, "TooManyRequests") } else { (503, "ServiceUnavailable") });
        scene.look().await;
    }
    assert_eq!(scene.statuses(), written + 1);
    scene.settle().await;
    assert_eq!(scene.told("a")[1], "True Ready");
}

#[tokio::test(start_paused = true)]
async fn what_is_in_order_stays_so_when_nothing_can_be_read() {
    let scene = Scene::with(4);
    scene.wants("old");
    scene.settle().await;
    let written = scene.statuses();
    scene.wants("new");
    scene.cloud.fail_next("ListVnicAttachments", (503, "ServiceUnavailable"), false);
    assert_eq!(scene.look().await, Next::Failed);
    assert_eq!(scene.told("old"), ["True Attached", "True Ready"], "nobody knows better");
    assert_eq!(scene.told("new"), ["Unknown OciUnavailable", "Unknown OciUnavailable"]);
    assert_eq!(scene.statuses(), written + 1);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_not_to_be_seen_is_told() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.cloud.fail_next("GetInstance", (404, "NotAuthorizedOrNotFound"), false);
    scene.look().await;
    assert_eq!(scene.told("a")[0], "Unknown NotAuthorizedOrNotFound");
    assert_eq!(scene.calls(), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn a_subnet_that_is_not_to_be_seen_is_told_and_others_go_on() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.change("a", |object| object.spec.vnic.subnet_id = "ocid1.subnet.oc1.iad.unknown".parse().unwrap());
    scene.wants("b");
    scene.look().await;
    scene.cloud.settle();
    scene.look().await;
    assert_eq!(scene.told("a")[0], "Unknown NotAuthorizedOrNotFound");
    assert!(scene.message("a").contains("ocid1.subnet.oc1.iad.unknown"), "{}", scene.message("a"));
    assert_eq!(scene.told("b")[1], "True Ready");
}

#[tokio::test(start_paused = true)]
async fn who_is_always_refused_keeps_nobody_waiting() {
    let scene = Scene::with(8);
    let full = scene.full_subnet();
    ["a", "b", "c"].iter().for_each(|name| scene.wants(name));
    ["a", "b"].iter().for_each(|name| scene.change(name, |object| object.spec.vnic.subnet_id = full.clone()));
    scene.look().await;
    assert_eq!(
        ["a", "b", "c"].map(|name| scene.told(name)[0].clone()),
        ["False SubnetFull", "False SubnetFull", "False Attaching"]
    );
    let written = scene.statuses();
    scene.cloud.settle();
    for _ in 0..3 {
        scene.look().await;
    }
    assert_eq!(scene.told("c")[1], "True Ready");
    assert_eq!(scene.statuses(), written + 1, "what is said of the others stays");
    // Nor does a detach that is refused.
    scene.delete("c");
    scene.wants("d");
    scene.cloud.fail_next("DetachVnic", (404, "NotAuthorizedOrNotFound"), false);
    scene.look().await;
    assert_eq!(
        (scene.told("c")[0].as_str(), scene.told("d")[0].as_str()),
        ("Unknown NotAuthorizedOrNotFound", "False Attaching")
    );
    scene.cloud.settle();
    scene.change("a", |object| object.spec.vnic.subnet_id = crate::attachment::sample::subnet());
    for _ in 0..6 {
        scene.look().await;
        scene.cloud.settle();
    }
    assert_eq!(
        (scene.exists("c"), scene.told("a")[1].as_str(), scene.told("b")[1].as_str()),
        (false, "True Ready", "False SubnetFull")
    );
}

#[tokio::test(start_paused = true)]
async fn a_detachment_is_told_before_the_refusal_to_mend_it() {
    let scene = Scene::with(4);
    scene.wants("a");
    scene.settle().await;
    scene.cloud.detach_behind(&scene.live()[0].id);
    scene.cloud.fail_next("AttachVnic", (400, "LimitExceeded"), false);
    assert_eq!(scene.look().await, Next::Failed);
    assert_eq!(scene.told("a"), ["False DetachedOutOfBand", "False DetachedOutOfBand"]);
    assert!(scene.message("a").contains("refused: AttachVnic: 400 LimitExceeded"), "{}", scene.message("a"));
    for _ in 0..2 {
        scene.cloud.fail_next("AttachVnic", (400, "LimitExceeded"), false);
        scene.look().await;
        assert_eq!(scene.told("a")[0], "False LimitReached");
    }
    scene.settle().await;
    assert_eq!(scene.told("a")[1], "True Ready");
    assert!(scene.metrics.text().contains("detached_out_of_band_total 1"));
}

#[tokio::test(start_paused = true)]
async fn looks_at_what_is_not_in_order_are_not_put_off_for_hours() {
    let scene = Scene::with(2);
    ["a", "b"].iter().for_each(|name| scene.wants(name));
    scene.settle().await;
    // So many that regular looks alone would take hours.
    for number in 2..3000 {
        scene.store.attachments_mut().apply(attachment(&format!("other-{number}"), number));
    }
    assert_eq!(scene.told("b")[0], "False ShapeCapacity");
    assert_eq!(scene.look().await, Next::Stuck(Duration::from_mins(5)));
    scene.delete("b");
    scene.look().await;
    scene.settle().await;
    assert_eq!(scene.look().await, Next::Settled(scene.worker.between_looks()));
    assert!(scene.worker.between_looks() > Duration::from_mins(5));
    // What the cloud does not show, it may show in a moment. A VNIC is told of at the second look.
    scene.cloud.fail_next("GetVnic", (404, "NotAuthorizedOrNotFound"), false);
    scene.look().await;
    for (operation, told) in [("GetVnic", "False Attaching"), ("GetInstance", "Unknown NotAuthorizedOrNotFound")] {
        scene.cloud.fail_next(operation, (404, "NotAuthorizedOrNotFound"), false);
        assert_eq!(scene.look().await, Next::Failed, "{operation}");
        assert_eq!(scene.told("a")[0], told, "{operation}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_who_are_refused_in_turn_stands_still() {
    let (throttled, away) = ((429, "TooManyRequests"), (503, "ServiceUnavailable"));
    let (locked, nobody) = ((409, "IncorrectState"), (401, "NotAuthenticated"));
    for (refusal, told) in [
        (throttled, "Unknown Throttled"),
        (away, "Unknown OciUnavailable"),
        (nobody, "Unknown NotAuthenticated"),
        (locked, "False InstanceBusy"),
    ] {
        // What was refused before that: a 409 is told no longer than until there is no answer.
        for first in [refusal, locked, away] {
            let scene = Scene::with(8);
            ["a", "b", "c"].iter().for_each(|name| scene.wants(name));
            (0..3).for_each(|_| scene.cloud.fail_next("AttachVnic", first, false));
            (0..60).for_each(|_| scene.cloud.fail_next("AttachVnic", refusal, false));
            let case = format!("{refusal:?} after {first:?}");
            for _ in 0..6 {
                assert_eq!(scene.look().await, Next::Failed, "{case}");
                tokio::time::sleep(Duration::from_mins(1)).await;
            }
            let (written, said) = (scene.statuses(), ["a", "b", "c"].map(|name| scene.message(name)));
            assert_eq!(["a", "b", "c"].map(|name| scene.told(name)[0].clone()), [told; 3].map(String::from), "{case}");
            assert!(!said.iter().any(|said| said.contains("queued behind")), "{case}: {said:?}");
            for _ in 0..6 {
                scene.look().await;
                tokio::time::sleep(Duration::from_mins(1)).await;
            }
            assert_eq!(scene.statuses(), written, "{case}");
        }
    }
}
