//! Objects of a VnicProfile.

use std::sync::Arc;
use std::time::Duration;

use api::{AttachmentReason as Reason, OBJECT_MAX, POD_ADDRESSES_MAX, VnicProfile, VnicTemplate};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use oke_node_controller::attachment::report::attachment_status::{AttachmentStatus, Facts};
use oke_node_controller::profile::apply::apply;
use oke_node_controller::profile::plan::step::Step;
use oke_node_controller::profile::select::from_template::TemplateObject;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::scene::{bytes, fillings, in_order, instance, large, objects, ocid, refused, verdicts};

async fn make(client: &Client, profile: &str, template: &Value) -> String {
    let template: VnicTemplate = serde_json::from_value(template.clone()).unwrap();
    let spec = json!({ "nodeSelector": {}, "allNodes": true, "attachments": [template] });
    let profile = VnicProfile::new(profile, serde_json::from_value(spec).unwrap());
    let stamp = TemplateObject::new(&profile, &Arc::new(template), &instance(), "10.255.255.254");
    let name = stamp.name.clone();
    let end = Instant::now() + Duration::from_secs(60);
    for (step, outcome) in apply(client, &[&Step::Make(stamp)], end).await {
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

/// The longest display name that the API server accepts in a profile of this name.
async fn longest(client: &Client, profile: &str, template: &Value) -> Value {
    let profiles: Api<VnicProfile> = Api::all(client.clone());
    let (mut fits, mut too_long) = (0, 256);
    let named = |length: usize| {
        let mut template = template.clone();
        if length > 0 {
            template["displayName"] = json!("d".repeat(length));
        }
        template
    };
    while too_long - fits > 1 {
        let length = usize::midpoint(fits, too_long);
        let spec = json!({ "nodeSelector": {}, "allNodes": true, "attachments": [named(length)] });
        let object = VnicProfile::new(profile, serde_json::from_value(spec).unwrap());
        match profiles.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await {
            Ok(_) => fits = length,
            Err(kube::Error::Api(status)) if status.message.contains("is too large") => too_long = length,
            Err(error) => panic!("{error}"),
        }
    }
    assert!((1..255).contains(&fits), "it is the size that bounds it: {fits}: {template}");
    named(fits)
}

#[tokio::test]
async fn largest_object_from_a_profile_stays_within_its_bound() {
    let (client, objects) = objects().await;
    let (mut most, mut most_shared) = (0, 0);
    for (filling, template) in fillings() {
        let profile = format!("longest-{filling}{}", "p".repeat(40 - filling.len()));
        let name = make(&client, &profile, &longest(&client, &profile, &template).await).await;
        let most = if filling == "shared" { &mut most_shared } else { &mut most };
        for verdict in verdicts() {
            *most = (*most).max(bytes(&objects, &name, &verdict).await);
        }
        objects.delete(&name, &DeleteParams::default()).await.unwrap();
        let facts = Facts { vnic_id: ocid("vnic", 1).parse().ok(), ..Facts::default() };
        let leaving = AttachmentStatus { attached: refused(Reason::NotAuthorizedOrNotFound), ready: None, facts };
        *most = (*most).max(bytes(&objects, &name, &leaving).await);
    }
    println!("the largest takes {most} bytes, that of a VNIC that pods share {most_shared}");
    let bound = OBJECT_MAX + POD_ADDRESSES_MAX;
    assert!((OBJECT_MAX - 100..=OBJECT_MAX).contains(&most), "{most}");
    assert!((bound - 100..=bound).contains(&most_shared), "{most_shared}");
}
