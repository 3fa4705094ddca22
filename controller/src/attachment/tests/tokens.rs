//! A retry token that OCI refuses: its VNIC is gone, or it was used with another body before. The answer does not tell which,
//! so lists decide.

use std::time::Duration;

use oci::FreeformTags;
use tokio::time::{Instant, sleep};

use super::scene::Scene;

/// Possible refusals of a token that was used with another body; Oracle documents none. The second is the code for one whose
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

/// Reconciles once a second until it is ready with the existing VNIC; the spec is never blamed.
async fn ready_within(scene: &Scene, most: Duration, case: &str) {
    let began = Instant::now();
    let is_there = || scene.live().iter().any(|it| it.vnic_id.is_some() && it.vnic_id == scene.status("a").vnic_id);
    while scene.ready("a") != "True Ready" || !is_there() {
        assert!(began.elapsed() < most, "{case}: {:?}", scene.reported("a"));
        assert_ne!(scene.reported("a")[0], "False InvalidSpec", "{case}");
        sleep(Duration::from_secs(1)).await;
        scene.reconcile().await;
        scene.cloud.settle();
    }
}

#[tokio::test(start_paused = true)]
async fn changed_request_for_unlisted_vnic_creates_no_second_vnic() {
    for refusal in REFUSALS {
        for is_restarted in [false, true] {
            let (mut scene, case) = (Scene::with(6), format!("{refusal:?}, restarted: {is_restarted}"));
            scene.cloud.refuse_changed_requests(refusal);
            scene.cloud.lag_lists(8);
            scene.wants("a");
            scene.cloud.fail_next("AttachVnic", (503, "ServiceUnavailable"), true);
            scene.reconcile().await;
            // Attached: no operation of the instance would block a second request.
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
async fn a_late_list_proves_no_absence() {
    let mut scene = Scene::attached(|_| {}).await;
    // Identified by its tags only: the next request has no token for it.
    scene.restart_as("another-name");
    scene.cloud.hide(&scene.live()[0].id, 2);
    scene.cloud.forbid(&scene.live()[0].vnic_id.clone().unwrap());
    scene.reconcile().await;
    scene.cloud.allow(&scene.live()[0].vnic_id.clone().unwrap());
    scene.cloud.answer_late("ListVnicAttachments", PROOF * 2);
    scene.reconcile().await;
    assert_eq!((scene.count("AttachVnic"), scene.cloud.attachments().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_vnic_changed_between_two_detaches_is_attached_again() {
    let scene = Scene::attached(|_| {}).await;
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
