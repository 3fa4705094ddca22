//! VnicProfiles themselves: one for many nodes, so nothing is done to make them smaller.

use std::time::Duration;

use api::{Condition, ConditionType, NODE_NAME_MAX, ProfileReason, ProfileSummary, VnicProfile, VnicProfileStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use kube_harness::ApiServer;
use oke_node_controller::profile::apply::{apply, write_status};
use oke_node_controller::profile::plan::step::{Profile, Step};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::scene::{large, objects, ocid};

fn status() -> VnicProfileStatus {
    let now = Time(Timestamp::from_second(1_795_000_000).unwrap());
    VnicProfileStatus {
        observed_generation: Some(1),
        conditions: vec![Condition::new(ConditionType::Ready, ProfileReason::Failing, &"<".repeat(200), now)],
        summary: Some(ProfileSummary { matched: 10_000, attached: 9_990, ready: 9_990, failed: 10 }),
        failing_nodes: (0..10).map(|number| format!("{}{number}", "n".repeat(NODE_NAME_MAX - 1))).collect(),
    }
}

#[tokio::test]
async fn profile_adds_at_most_two_kilobytes_to_its_templates() {
    let (client, _) = objects().await;
    let profiles: Api<VnicProfile> = Api::all(client.clone());
    let groups = |count: usize| (0..count).map(|number| ocid("networksecuritygroup", number)).collect::<Value>();
    let eight: Value = (0..8)
        .map(|number| {
            json!({ "name": format!("vnic-{number}"), "purpose": "Pods", "subnetId": ocid("subnet", number),
                "nsgIds": groups(5), "ipv4Count": 31 })
        })
        .collect();
    let labels = |pool: &str| json!({ "nodeSelector": { "matchLabels": { "pool": pool } } });
    let pools = json!({ "nodePools": (0..16).map(|number| ocid("nodepool", number)).collect::<Value>() });
    for (name, mut spec, templates) in [
        ("usual", labels("usual"), json!([large()])),
        ("eight", labels("eight"), eight),
        ("pools", pools, json!([large()])),
    ] {
        spec["attachments"] = templates;
        let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicProfile",
            "metadata": { "name": name }, "spec": spec });
        let made = profiles.patch(name, &PatchParams::apply("kubectl"), &Patch::Apply(&object)).await.unwrap();
        let guarded = Profile { name: name.to_owned(), finalizers: Vec::new(), version: made.resource_version() };
        let end = Instant::now() + Duration::from_secs(60);
        for (step, outcome) in apply(&client, &[&Step::AddFinalizer(guarded)], end).await {
            outcome.unwrap_or_else(|error| panic!("{step}: {error}"));
        }
        write_status(&client, name, &status()).await.unwrap();
        let key = format!("/registry/{}/vnicprofiles/{name}", api::GROUP);
        let stored = ApiServer::shared().unwrap().stored(&key).await.unwrap().unwrap().len();
        let spec = spec.to_string().len();
        println!("profile {name}: {stored} bytes in etcd, of which spec {spec}");
        assert!(stored <= spec + 2048, "{name}: {stored}, spec {spec}");
    }
}
