//! Intervals grow with the number of instances, and when OCI accepts fewer requests.

use std::time::Duration;

use tokio::time::sleep;

use super::scene::{Scene, compartment};
use crate::attachment::sample::{attachment, instance};
use crate::work::{NextReconcile, Worker as _};

#[tokio::test(start_paused = true)]
async fn polls_are_slower_while_many_wait() {
    let scene = Scene::with(4);
    let others = 2..42;
    for number in others.clone() {
        scene.add_instance(number, &compartment());
        scene.store.attachments_mut().apply(attachment(&format!("other-{number}"), number));
        assert!(matches!(scene.worker.work(instance(number)).await, NextReconcile::Soon(_)));
    }
    scene.wants("a");
    // 41 of them, 3 calls each, in half of 20 calls a second.
    assert_eq!(scene.reconcile().await, NextReconcile::Soon(Duration::from_millis(12_300)));
    scene.cloud.settle();
    for number in others {
        assert!(matches!(scene.worker.work(instance(number)).await, NextReconcile::Settled(_)));
    }
    scene.settle().await;
    scene.wants("b");
    assert_eq!(scene.reconcile().await, NextReconcile::Soon(Duration::from_secs(3)));
}

#[tokio::test(start_paused = true)]
async fn intervals_follow_the_rate_that_oci_accepts() {
    let scene = Scene::with(4);
    for number in 2..3002 {
        scene.store.attachments_mut().apply(attachment(&format!("other-{number}"), number));
    }
    scene.wants("a");
    let pauses = async || {
        let NextReconcile::Soon(poll) = scene.reconcile().await else { panic!("it is being attached") };
        [poll, scene.worker.retries().apart, scene.worker.between_looks()].map(|pause| pause.as_millis())
    };
    assert_eq!(pauses().await, [3_000, 450, 1_500_500], "20 a second");
    // Two thirds of a request per second: most of it is less than a poll of one instance takes.
    for _ in 0..5 {
        scene.worker.context.budget.throttled(None);
        sleep(Duration::from_secs(1)).await;
    }
    let soon = pauses().await;
    assert!(soon[2] < 2 * 1_500_500, "a dip of some seconds: {soon:?}");
    sleep(Duration::from_hours(1)).await;
    let low = pauses().await;
    assert_eq!(low, [9_600, 14_400, 4 * 3_600_000], "at most four hours, because the rate may rise again");
}
