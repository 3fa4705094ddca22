//! A retry token that the cloud refuses: what was made by it is gone, or it went with another body before. Which of the two is
//! not to be told by the answer, so the lists have to tell.

use std::time::Duration;

use oci::FreeformTags;
use tokio::time::{Instant, sleep};

use super::scene::Scene;

/// How a token that went with another body may be refused. How it is, is written nowhere; the second is the code for one whose
/// VNIC is gone.
const REFUSALS: [(u16, &str, &str); 3] = [
    (400, "InvalidParameter", "the retry token was used with another body"),
    (409, "InvalidatedRetryToken", "as the test wants"),
    (409, "Conflict", "opc-retry-token was used before"),
];
/// More than three polls.
const PROOF: Duration = Duration::from_secs(9);

fn change_tags(scene: &Scene) {
    scene.change("a", |object| {
        object.spec.vnic.freeform_tags = FreeformTags::from([("mind".to_owned(), "changed".to_owned())]);
    });
}

/// Looks once a second until it is ready with the VNIC that is there; never is the spec blamed.
async fn ready_within(scene: &Scene, most: Duration, case: &str) {
    let began = Instant::now();
    let is_there = || scene.live().iter().any(|it| it.vnic_id.is_some() && it.vnic_id == scene.status("a").vnic_id);
    while scene.told("a")[1] != "True Ready" || !is_there() {
        assert!(began.elapsed() < most, "{case}: {:?}", scene.told("a"));
        assert_ne!(scene.told("a")[0], "False InvalidSpec", "{case}");
        sleep(Duration::from_secs(1)).await;
        scene.look().await;
        scene.cloud.settle();
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_request_for_a_vnic_that_is_there_and_not_listed_yet_makes_no_second_one() {
    for refusal in REFUSALS {
        for is_restarted in [false, true] {
            let (mut scene, case) = (Scene::with(6), format!("{refusal:?}, restarted: {is_restarted}"));
            scene.cloud.refuse_other_wishes(refusal);
            scene.cloud.lag_lists(8);
            scene.wants("a");
            scene.cloud.fail_next("AttachVnic", (503, "ServiceUnavailable"), true);
            scene.look().await;
            // Attached: nothing of the instance is under way that would keep a second request from being carried out.
            scene.cloud.settle();
            assert_eq!(scene.live().len(), 1);
            change_tags(&scene);
            if is_restarted {
                scene.restart();
            }
            ready_within(&scene, Duration::from_secs(20), &case).await;
            assert!(scene.count("AttachVnic") <= 10, "{case}: {} times", scene.count("AttachVnic"));
            assert_eq!(scene.cloud.attachments().len(), 2, "{case}: the primary one, and one");
            assert_eq!(scene.vnic().await.freeform_tags.get("mind").map(String::as_str), Some("changed"), "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_whose_vnic_is_gone_from_all_lists_is_replaced_when_they_have_told_so() {
    for refusal in REFUSALS {
        for (is_restarted, is_changed) in [(false, false), (true, false), (false, true), (true, true)] {
            let case = format!("{refusal:?}, restarted: {is_restarted}, changed: {is_changed}");
            let mut scene = Scene::with(6);
            scene.cloud.refuse_other_wishes(refusal);
            scene.wants("a");
            scene.settle().await;
            if is_changed {
                change_tags(&scene);
                scene.settle().await;
            }
            let first = scene.live()[0].id.clone();
            scene.cloud.detach_behind(&first);
            scene.cloud.hide(&first, u32::MAX);
            if is_restarted {
                scene.restart();
            }
            let began = Instant::now();
            ready_within(&scene, Duration::from_secs(60), &case).await;
            assert!(began.elapsed() >= PROOF, "{case}: {:?}", began.elapsed());
            // One by the first token, some in vain, one by the next.
            assert!(scene.count("AttachVnic") <= 15, "{case}: {} times", scene.count("AttachVnic"));
            assert_eq!(scene.cloud.attachments().len(), 3, "{case}: the primary one, the first, another");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_token_is_forgotten_when_no_list_could_be_read_meanwhile() {
    // Of an instance that is answered 404, no list is asked for.
    let failures =
        [("ListVnicAttachments", (503, "ServiceUnavailable")), ("GetInstance", (404, "NotAuthorizedOrNotFound"))];
    for (operation, answer) in failures {
        let scene = Scene::with(6);
        scene.wants("a");
        scene.cloud.lag_lists(40);
        scene.cloud.refuse_other_wishes(REFUSALS[1]);
        scene.cloud.fail_next("AttachVnic", (503, "ServiceUnavailable"), true);
        scene.look().await;
        scene.cloud.settle();
        change_tags(&scene);
        for _ in 0..6 {
            sleep(Duration::from_secs(5)).await;
            scene.look().await;
            scene.cloud.fail_next(operation, answer, false);
            scene.look().await;
        }
        assert_eq!(scene.cloud.attachments().len(), 2, "{operation}: no two lists in turn lacked it for so long");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_came_late_tells_nothing_of_the_time_that_it_took() {
    let scene = Scene::with(6);
    scene.cloud.refuse_other_wishes(REFUSALS[1]);
    scene.cloud.lag_lists(3);
    scene.wants("a");
    scene.cloud.fail_next("AttachVnic", (503, "ServiceUnavailable"), true);
    scene.look().await;
    scene.cloud.settle();
    change_tags(&scene);
    scene.look().await;
    // It was made before the VNIC was listed.
    scene.cloud.answer_late("ListVnicAttachments", PROOF * 2);
    scene.look().await;
    assert_eq!(scene.cloud.attachments().len(), 2, "the primary one, and one");
    scene.cloud.answer_late("ListVnicAttachments", Duration::ZERO);
    ready_within(&scene, PROOF * 2, "late").await;
    assert_eq!(scene.cloud.attachments().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn nor_is_a_vnic_missing_for_the_time_that_a_list_took() {
    let mut scene = Scene::with(6);
    scene.wants("a");
    scene.settle().await;
    // Known by its tags alone: the one that asks next has no token of it.
    scene.restart_as("another-name");
    scene.cloud.hide(&scene.live()[0].id, 2);
    scene.cloud.forbid(&scene.live()[0].vnic_id.clone().unwrap());
    scene.look().await;
    scene.cloud.allow(&scene.live()[0].vnic_id.clone().unwrap());
    scene.cloud.answer_late("ListVnicAttachments", PROOF * 2);
    scene.look().await;
    assert_eq!((scene.count("AttachVnic"), scene.cloud.attachments().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn what_was_changed_between_two_detachments_is_attached_again_whatever_records_are_left() {
    let scene = Scene::with(6);
    scene.wants("a");
    scene.settle().await;
    let first = scene.live()[0].id.clone();
    scene.cloud.detach_behind(&first);
    scene.settle().await;
    // The first record is kept for an hour, the tokens for a day.
    scene.cloud.hide(&first, u32::MAX);
    change_tags(&scene);
    scene.settle().await;
    scene.cloud.detach_behind(&scene.live()[0].id);
    ready_within(&scene, Duration::from_secs(60), "one record").await;
    assert_eq!(scene.cloud.attachments().len(), 4, "the primary one and three");
}
