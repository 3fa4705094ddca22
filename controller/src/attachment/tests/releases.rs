//! Releases of addresses and changes of VNICs: refusals are reported, and neither refused nor ignored requests are repeated
//! without backoff.

use std::time::Duration;

use tokio::time::{Instant, advance};
use vcn::Family;

use super::scene::Scene;
use crate::work::NextReconcile;

async fn with_addresses(count: u8) -> Scene {
    Scene::attached(|object| object.spec.vnic.ipv4_count = count).await
}

/// The VNIC's addresses in addition to its own, as OCI's objects, the highest last.
async fn extra_objects(scene: &Scene) -> Vec<oci::IpObject> {
    let mut all = scene.cloud.addresses(&scene.vnic().await.id, Family::Ipv4).await.unwrap();
    all.retain(|own| !own.is_primary);
    all.sort_by_key(|own| own.ip_address);
    all
}

/// Reconciles for this long, with growing backoff like the queue's. Returns the number of requests of each reconcile.
async fn requests(scene: &Scene, operation: &str, most: Duration) -> Vec<usize> {
    let (began, mut all, mut failed) = (Instant::now(), Vec::new(), 0);
    while began.elapsed() < most {
        let before = scene.count(operation);
        let next = scene.reconcile().await;
        failed += u32::from(next == NextReconcile::Failed);
        let pause = next.pause(Duration::from_secs(1 << failed.min(7)));
        all.push(scene.count(operation) - before);
        advance(pause).await;
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_refused_release_is_not_requested_for_each_address() {
    let scene = with_addresses(8).await;
    for own in extra_objects(&scene).await {
        scene.cloud.forbid(&own.id);
    }
    scene.change("a", |object| object.spec.vnic.ipv4_count = 0);
    assert_eq!(scene.reconcile().await, NextReconcile::Failed, "so that the backoff grows");
    assert_eq!(scene.count("DeleteAddress"), 2, "once more after the list showed that it is there");
    assert_eq!(scene.reported("a"), ["True Attached", "Unknown NotAuthorizedOrNotFound"]);
    let written = scene.statuses();
    let counts = requests(&scene, "DeleteAddress", Duration::from_mins(5)).await;
    assert!(counts.len() < 10 && counts.iter().all(|count| *count <= 2), "{counts:?}");
    assert_eq!((scene.statuses(), extra_objects(&scene).await.len()), (written, 8));
    let text = scene.metrics.text();
    assert!(!text.contains(r#"steps_total{kind="delete_address",result="ok"}"#), "{text}");
    for own in extra_objects(&scene).await {
        scene.cloud.allow(&own.id);
    }
    scene.settle().await;
    assert_eq!((extra_objects(&scene).await.len(), &*scene.ready("a")), (0, "True Ready"));
}

#[tokio::test(start_paused = true)]
async fn an_address_released_elsewhere_blocks_no_other() {
    let scene = with_addresses(4).await;
    let written = scene.statuses();
    scene.change("a", |object| object.spec.vnic.ipv4_count = 0);
    // The answer to the first is lost, and the request was carried out.
    scene.cloud.fail_next("DeleteAddress", (404, "NotAuthorizedOrNotFound"), true);
    assert!(matches!(scene.reconcile().await, NextReconcile::Settled(_)));
    assert_eq!((extra_objects(&scene).await.len(), &*scene.ready("a")), (0, "True Ready"));
    assert_eq!((scene.count("DeleteAddress"), scene.statuses()), (4, written + 1));
}

#[tokio::test(start_paused = true)]
async fn an_ignored_request_is_repeated_with_backoff() {
    let minutes = Duration::from_mins(20);
    for (operation, reported) in [("UpdateVnic", "False ChangePending"), ("DeleteAddress", "False AddressesPending")] {
        let scene = with_addresses(1).await;
        scene.cloud.accept_without_effect(operation);
        scene.change("a", |object| match operation {
            "UpdateVnic" => object.spec.vnic.skip_source_dest_check = true,
            _ => object.spec.vnic.ipv4_count = 0,
        });
        assert_eq!(scene.reconcile().await, NextReconcile::Failed, "{operation}");
        assert_eq!((scene.count(operation), &*scene.ready("a")), (1, reported));
        assert!(scene.message("a").contains("retried with backoff"), "{}", scene.message("a"));
        let written = scene.statuses();
        let counts = requests(&scene, operation, minutes).await;
        assert!(counts.iter().all(|count| *count <= 1), "{operation}: {counts:?}");
        // 1, 2, 4 … 64 s, then every two minutes.
        let all: usize = counts.iter().sum();
        assert!((12..=17).contains(&all), "{operation}: {all} in twenty minutes");
        assert_eq!(scene.statuses(), written, "{operation}: the status stays");
        scene.cloud.carry_out(operation);
        tokio::time::sleep(Duration::from_mins(2)).await;
        scene.settle().await;
        assert_eq!(scene.ready("a"), "True Ready", "{operation}");
        assert_eq!(scene.vnic().await.skip_source_dest_check, operation == "UpdateVnic");
    }
}

#[tokio::test(start_paused = true)]
async fn an_ignored_request_blocks_nothing_else() {
    let scene = with_addresses(1).await;
    scene.cloud.accept_without_effect("UpdateVnic");
    scene.change("a", |object| object.spec.vnic.skip_source_dest_check = true);
    scene.reconcile().await;
    scene.cloud.delete_behind(extra_objects(&scene).await[0].ip_address);
    assert_eq!(scene.reconcile().await, NextReconcile::Failed);
    assert_eq!(extra_objects(&scene).await.len(), 1, "the address came back");
    // Other requests are sent at once.
    let updates = scene.count("UpdateVnic");
    scene.change("a", |object| object.spec.vnic.display_name = Some("other".to_owned()));
    scene.reconcile().await;
    assert_eq!(scene.count("UpdateVnic"), updates + 1);
}
