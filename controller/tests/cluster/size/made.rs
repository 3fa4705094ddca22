//! Objects of a VnicProfile.

use std::sync::Arc;
use std::time::Duration;

use api::{OBJECT_MAX, POD_ADDRESSES_MAX, VnicProfile, VnicTemplate};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use oke_node_controller::profile::apply::apply;
use oke_node_controller::profile::plan::step::Step;
use oke_node_controller::profile::select::from_template::TemplateObject;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::scene::{bytes, fillings, in_order, instance, large, leaving, longest, objects, verdicts};

fn profile_of(name: &str, template: &Value) -> VnicProfile {
    let spec = json!({ "nodeSelector": {}, "allNodes": true, "attachments": [template] });
    VnicProfile::new(name, serde_json::from_value(spec).unwrap())
}

async fn make(client: &Client, profile: &str, template: &Value) -> String {
    let profile = profile_of(profile, template);
    let template: VnicTemplate = serde_json::from_value(template.clone()).unwrap();
    let stamp = TemplateObject::new(&profile, &Arc::new(template), &instance(), "10.255.255.254");
    let name = stamp.name.clone();
    let end = Instant::now() + Duration::from_secs(60);
    for (step, outcome) in apply(client, &[&Step::Create(stamp)], end).await {
        outcome.unwrap_or_else(|error| panic!("{step}: {error}"));
    }
    name
}

#[tokio::test]
async fn large_vnic_from_a_profile_takes_under_1600_bytes() {
    let (client, objects) = objects().await;
    let name = make(&client, "object-storage", &large()).await;
    let bytes = bytes(&objects, &name, &in_order()).await;
    assert!(bytes <= 1600, "{bytes}");
}

#[tokio::test]
async fn largest_object_from_a_profile_stays_within_its_bound() {
    let (client, objects) = objects().await;
    let profiles: Api<VnicProfile> = Api::all(client.clone());
    let (mut most, mut most_shared) = (0, 0);
    for (filling, template) in fillings() {
        let profile = format!("longest-{filling}{}", "p".repeat(40 - filling.len()));
        let named = |length: usize| {
            let mut template = template.clone();
            template["displayName"] = json!("d".repeat(length));
            template
        };
        let accepts = async |length| {
            let object = profile_of(&profile, &named(length));
            profiles.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await.map(drop)
        };
        let name = make(&client, &profile, &named(longest(256, accepts).await)).await;
        let most = if filling == "shared" { &mut most_shared } else { &mut most };
        for verdict in verdicts() {
            *most = (*most).max(bytes(&objects, &name, &verdict).await);
        }
        objects.delete(&name, &DeleteParams::default()).await.unwrap();
        *most = (*most).max(bytes(&objects, &name, &leaving()).await);
    }
    println!("the largest takes {most} bytes, that of a VNIC that pods share {most_shared}");
    let bound = OBJECT_MAX + POD_ADDRESSES_MAX;
    assert!((OBJECT_MAX - 100..=OBJECT_MAX).contains(&most), "{most}");
    assert!((bound - 100..=bound).contains(&most_shared), "{most_shared}");
}
