//! Bounds of texts, and their patterns: the last value that passes, and the first that does not. The manifest shows the bounds of
//! numbers and lists.

use serde_json::{Value, json};

use crate::cluster::{client, try_create};
use crate::sample::{attachment, ocid, profile, with};

fn tags(count: u32) -> Value {
    (0..count).map(|number| (format!("key-{number}"), json!("value"))).collect::<serde_json::Map<_, _>>().into()
}

fn templates(count: u32) -> Value {
    (0..count)
        .map(|number| json!({ "subnetId": ocid("subnet", 1), "name": format!("vnic-{number}"), "purpose": "Host" }))
        .collect()
}

#[tokio::test]
async fn largest_allowed_value_is_accepted_and_next_is_refused() {
    let client = client().await;
    let cases = [
        ("freeformTags", tags(7), tags(8)),
        ("freeformTags", json!({ "a": "x".repeat(256) }), json!({ "a": "x".repeat(257) })),
        ("displayName", json!("x".repeat(255)), json!("x".repeat(256))),
        ("displayName", json!("x"), json!("")),
        ("name", json!("a".repeat(63)), json!("a".repeat(64))),
        ("name", json!("a-1"), json!("A")),
        ("name", json!("1"), json!("-a")),
        ("name", json!("a"), json!("")),
        ("instanceId", json!("ocid1.instance.oc1.iad.a"), json!("ocid1.vnic.oc1.iad.a")),
        ("instanceId", json!(ocid("instance", 1)), json!(format!("oci://{}", ocid("instance", 1)))),
        ("instanceId", json!("ocid1.instance.oc1..a"), json!(format!("ocid1.instance.oc1..{}", "a".repeat(250)))),
        (
            "instanceId",
            json!(format!("ocid1.instance.oc1..{}", "a".repeat(108))),
            json!(format!("ocid1.instance.oc1..{}", "a".repeat(109))),
        ),
        ("displayName", json!("storage \u{e9}<&>\"\\"), json!("storage\n")),
        ("freeformTags", json!({ "a": "" }), json!({ "a": "\u{2028}" })),
        ("subnetId", json!("ocid1.subnet.oc1.iad.a"), json!("ocid1.subnet.oc1.iad.")),
        ("nsgIds", json!(["ocid1.networksecuritygroup.oc1.iad.a"]), json!(["ocid1.subnet.oc1.iad.a"])),
    ];
    for (field, last, next) in cases {
        let object = |value| with(attachment("bounds"), json!({ field: value }));
        let accepted = try_create(&client, &object(last)).await;
        assert!(accepted.is_ok(), "{field}: {:?}", accepted.err());
        let complaints = try_create(&client, &object(next)).await.unwrap_err();
        assert!(complaints.iter().any(|(at, _)| at.starts_with(&format!("spec.{field}"))), "{field}: {complaints:?}");
    }
}

#[tokio::test]
async fn a_profile_has_one_to_eight_templates_of_different_names() {
    let client = client().await;
    let object = |templates: Value| with(profile("bounds"), json!({ "attachments": templates }));
    assert!(try_create(&client, &object(templates(8))).await.is_ok());
    for wrong in [templates(0), templates(9)] {
        let complaints = try_create(&client, &object(wrong)).await.unwrap_err();
        assert!(complaints.iter().any(|(at, _)| at == "spec.attachments"), "{complaints:?}");
    }
    let pools = |ids: Value| with(profile("bounds"), json!({ "nodeSelector": null, "nodePools": ids }));
    let ids = |count: u32| (0..count).map(|number| ocid("nodepool", number)).collect::<Value>();
    assert!(try_create(&client, &pools(ids(16))).await.is_ok());
    for wrong in
        [ids(17), json!([ocid("instance", 1)]), json!([ocid("nodepool", 1), ocid("nodepool", 1)]), json!(["x"])]
    {
        let complaints = try_create(&client, &pools(wrong)).await.unwrap_err();
        assert!(complaints.iter().any(|(at, _)| at.starts_with("spec.nodePools")), "{complaints:?}");
    }
    let complaints = try_create(&client, &object(json!([templates(1)[0], templates(1)[0]]))).await.unwrap_err();
    assert!(complaints.iter().any(|(_, message)| message.contains("Duplicate value")), "{complaints:?}");
}
