//! While nothing changes, nothing is written.

use serde_json::json;

use crate::scene::{Scene, wait_for};

#[tokio::test]
async fn looks_at_what_is_in_order_write_nothing() {
    let mut scene = Scene::with(3, 8, sandbox::OciSettings::default()).await;
    // The lease is the one thing that is written for ever; not here, for the revision is counted.
    scene.environment.insert("LEASE_SECONDS".to_owned(), "300".to_owned());
    let one = scene.controller("one");
    for number in 0..6 {
        scene.want(&format!("v{number}"), number % 3, json!({ "ipv4Count": 2 })).await;
    }
    for number in 0..6 {
        scene.wait_for_reason(&format!("v{number}"), "Ready").await;
    }
    let looks = || one.metric(r#"oke_node_controller_passes_total{result="settled"}"#).unwrap_or_default();
    let versions = async || {
        let all = scene.all().await;
        let versions = all.iter().map(|object| object.metadata.resource_version.clone());
        versions.collect::<Vec<_>>()
    };
    let (before, seen) = (versions().await, looks());
    wait_for("each was looked at several times more", async || looks() >= seen + 12.0).await;
    assert_eq!(versions().await, before);
}
