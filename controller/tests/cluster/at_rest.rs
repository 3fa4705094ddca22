//! A changed configuration, and none: while nothing changes, nothing is written.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube_harness::wait_until;
use sandbox::{ApiFault, Operation};
use serde_json::json;

use crate::leases::spec;
use crate::scene::Scene;

#[tokio::test]
async fn valid_change_restarts_the_leader_in_place_with_its_lease() {
    let mut scene = Scene::new().await;
    let file = scene.folder.path().join("controller.conf");
    std::fs::write(&file, "LOG_LEVEL=info\n").unwrap();
    scene.environment.insert("CONFIG_FILE".to_owned(), file.display().to_string());
    // Longer than any test: who waits for the lease to run out never leads.
    scene.environment.insert("LEASE_SECONDS".to_owned(), "300".to_owned());
    let mut one = scene.controller("one");
    wait_until("it leads", async || one.leads()).await;
    let two = scene.controller_with("two", &[("RELOAD_JITTER_SECONDS", "3600".to_owned())]);
    wait_until("the other stands by", async || two.get("/readyz").is_some()).await;
    let before = spec(&scene).await;

    std::fs::write(&file, "LOG_LEVEL=loud\nPOLL_SECOND=1\n").unwrap();
    wait_until("it is reported", async || one.metric("oke_node_controller_configuration_invalid ") == Some(1.0)).await;
    assert!(one.log().contains("POLL_SECOND is not a key; did you mean POLL_SECONDS?"), "{}", one.log());
    scene.want("storage", 0, json!({})).await;
    scene.wait_for_reason("storage", "Ready").await;
    assert!(!one.log().contains(r#""level":"DEBUG""#), "{}", one.log());

    std::fs::write(&file, "LOG_LEVEL=debug\n").unwrap();
    let times = |event: &str| one.log().matches(&format!(r#""event":"{event}""#)).count();
    wait_until("it leads again", async || times("controller.started") == 2 && one.leads()).await;
    scene.cloud.inject(ApiFault::refuse(503, "ServiceUnavailable").of(Operation::GetInstance));
    wait_until("it logs more", async || one.log().contains(r#""level":"DEBUG""#)).await;
    assert_eq!((times("config.accepted"), times("config.restarting"), times("controller.stopping")), (1, 1, 0));
    let after = spec(&scene).await;
    assert_eq!((&after.holder_identity, after.lease_transitions), (&before.holder_identity, before.lease_transitions));
    assert_eq!((after.acquire_time, one.ended()), (before.acquire_time, None));
}

#[tokio::test]
async fn reconciles_in_sync_write_nothing() {
    let mut scene = Scene::with(3, 8, sandbox::OciSettings::default()).await;
    // Only the Lease is written, and rarely in this test.
    scene.environment.insert("LEASE_SECONDS".to_owned(), "300".to_owned());
    let one = scene.controller("one");
    for number in 0..6 {
        scene.want(&format!("v{number}"), number % 3, json!({ "ipv4Count": 2 })).await;
    }
    for number in 0..6 {
        scene.wait_for_reason(&format!("v{number}"), "Ready").await;
    }
    scene.put_into_pool(0..1).await;
    scene.profile("pods", &["stamped"]).await;
    scene.wait_for_nodes(1).await;
    let events = async || {
        let all = Api::<Event>::namespaced(scene.client.clone(), "default").list(&ListParams::default()).await.unwrap();
        let of_profile =
            |event: &Event| event.regarding.as_ref().is_some_and(|it| it.kind.as_deref() == Some("VnicProfile"));
        all.items.into_iter().filter(of_profile).filter_map(|event| event.reason).collect::<Vec<_>>()
    };
    wait_until("it is reported", async || events().await == ["Ready"]).await;
    let looks = || one.metric(r#"oke_node_controller_reconciles_total{result="settled"}"#).unwrap_or_default();
    let versions = async || {
        let profile = scene.profiles().get("pool").await.unwrap().metadata;
        let all = scene.all().await.into_iter().map(|object| object.metadata).chain([profile]);
        all.map(|metadata| metadata.resource_version).collect::<Vec<_>>()
    };
    let planned = || one.metric("oke_node_controller_profile_reconciles_total ").unwrap_or_default();
    let several_reconciles = async || {
        let (looks_before, planned_before) = (looks(), planned());
        wait_until("each was reconciled several times more", async || {
            // A changed Node triggers a reconcile of the profiles.
            let label = json!({ "metadata": { "labels": { "planned": format!("{}", planned()) } } });
            let nodes = Api::<Node>::all(scene.client.clone());
            nodes.patch("node-1", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
            looks() >= looks_before + 14.0 && planned() >= planned_before + 3.0
        })
        .await;
    };
    // The API server sees a write before it is counted: all are counted when each object was found in sync. Early ones may
    // have been reconciled many times, so the count starts here.
    several_reconciles().await;
    // Events follow a little later.
    let writes = || {
        let line = |kind| format!(r#"oke_node_controller_kubernetes_writes_total{{kind="{kind}",result="ok"}}"#);
        ["status", "add_finalizer", "remove_finalizer", "profile_status"].map(|kind| one.metric(&line(kind)))
    };
    let (before, written) = (versions().await, writes());
    several_reconciles().await;
    assert_eq!((versions().await, writes(), events().await), (before, written, vec!["Ready".to_owned()]));
}
