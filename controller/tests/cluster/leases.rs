//! One works, the other takes over.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::scene::{Scene, wait_for};

#[tokio::test]
async fn when_the_one_that_works_is_killed_another_takes_over_after_the_leases_time() {
    let scene = Scene::new().await;
    let mut one = scene.controller("one");
    wait_for("the first leads", async || one.leads()).await;
    let two = scene.controller("two");
    wait_for("the second stands by", async || two.get("/readyz").is_some_and(|(_, body)| body.contains("standing by")))
        .await;
    assert_eq!(
        (one.metric("oke_node_controller_leads "), two.metric("oke_node_controller_leads ")),
        (Some(1.0), Some(0.0))
    );
    one.kill();
    let killed = Instant::now();
    wait_for("the second leads", async || two.leads()).await;
    assert!(killed.elapsed() >= Duration::from_millis(1500), "the lease was good for 2 s: {:?}", killed.elapsed());
    scene.want("storage", 0, json!({})).await;
    scene.wait_for_reason("storage", "Ready").await;
}

#[tokio::test]
async fn the_one_that_is_told_to_stop_gives_the_lease_back() {
    let mut scene = Scene::new().await;
    scene.environment.insert("LEASE_SECONDS".to_owned(), "60".to_owned());
    let mut one = scene.controller("one");
    wait_for("the first leads", async || one.leads()).await;
    scene.environment.insert("LEASE_SECONDS".to_owned(), "2".to_owned());
    let two = scene.controller("two");
    wait_for("the second stands by", async || two.get("/readyz").is_some()).await;
    assert!(one.terminate().success());
    let told = Instant::now();
    wait_for("the second leads", async || two.leads()).await;
    assert!(told.elapsed() < Duration::from_secs(30), "not after the 60 s that the lease was good for");
}

#[tokio::test]
async fn the_one_that_cannot_renew_it_ends_by_itself() {
    let scene = Scene::new().await;
    let mut one = scene.controller("one");
    wait_for("it leads", async || one.leads()).await;
    scene.kubernetes.stop().unwrap();
    wait_for("it has ended", async || one.ended().is_some()).await;
    assert_eq!(one.ended().unwrap().code(), Some(1));
    assert!(one.log().contains("the lease is lost"), "{}", one.log());
}

#[tokio::test]
async fn the_one_that_was_frozen_finds_its_lease_lost_and_ends() {
    let scene = Scene::new().await;
    let mut one = scene.controller("one");
    wait_for("the first leads", async || one.leads()).await;
    let two = scene.controller("two");
    one.freeze(true);
    wait_for("the second leads", async || two.leads()).await;
    one.freeze(false);
    wait_for("the first has ended", async || one.ended().is_some()).await;
    scene.want("storage", 0, json!({})).await;
    scene.wait_for_reason("storage", "Ready").await;
    scene.assert_exact().await;
}
