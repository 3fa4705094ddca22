//! Bounds of fields: the last value that passes, and the first that does not.

use serde_json::{Value, json};

use crate::cluster::{client, try_create};
use crate::sample::{attachment, ocid, profile, with};

fn ocids(kind: &str, count: u32) -> Value {
    (0..count).map(|number| ocid(kind, number)).collect()
}

fn routes(count: u32) -> Value {
    (0..count).map(|number| json!({ "destination": format!("10.{number}.0.0/16") })).collect()
}

fn namespaces(count: u32) -> Value {
    (0..count).map(|number| format!("namespace-{number}")).collect()
}

fn tags(count: u32) -> Value {
    (0..count).map(|number| (format!("key-{number}"), json!("value"))).collect::<serde_json::Map<_, _>>().into()
}

fn addresses(count: u32) -> Value {
    (0..count).map(|number| format!("10.0.0.{number}")).collect()
}

fn templates(count: u32) -> Value {
    (0..count)
        .map(|number| json!({ "subnetId": ocid("subnet", 1), "name": format!("vnic-{number}"), "purpose": "Host" }))
        .collect()
}

#[tokio::test]
async fn largest_allowed_value_is_accepted_and_next_is_refused() {
    let client = client().await;
    let attach = |field: &str, value: Value| match field {
        "allowedNamespaces" => json!({ "purpose": "Attach", field: value }),
        "requestedAddresses" => json!({ "ipv4Count": 255, field: value }),
        _ => json!({ field: value }),
    };
    let cases = [
        ("nsgIds", ocids("networksecuritygroup", 5), ocids("networksecuritygroup", 6)),
        ("nicIndex", json!(1), json!(2)),
        ("ipv4Count", json!(255), json!(256)),
        ("ipv4Count", json!(0), json!(-1)),
        ("ipv6Count", json!(255), json!(256)),
        ("mtu", json!(1280), json!(1279)),
        ("mtu", json!(9000), json!(9001)),
        ("routes", routes(16), routes(17)),
        ("allowedNamespaces", namespaces(32), namespaces(33)),
        ("requestedAddresses", addresses(8), addresses(9)),
        ("freeformTags", tags(7), tags(8)),
        ("freeformTags", json!({ "a": "x".repeat(256) }), json!({ "a": "x".repeat(257) })),
        ("displayName", json!("x".repeat(255)), json!("x".repeat(256))),
        ("displayName", json!("x"), json!("")),
        ("name", json!("a".repeat(63)), json!("a".repeat(64))),
        ("name", json!("a-1"), json!("A")),
        ("name", json!("1"), json!("-a")),
        ("name", json!("a"), json!("")),
        ("purpose", json!("Pods"), json!("pods")),
        ("onDelete", json!("Orphan"), json!("Delete")),
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
        let object = |value| with(attachment("bounds"), attach(field, value));
        let accepted = try_create(&client, &object(last)).await;
        assert!(accepted.is_ok(), "{field}: {:?}", accepted.err());
        let complaints = try_create(&client, &object(next)).await.unwrap_err();
        assert!(complaints.iter().any(|(at, _)| at.starts_with(&format!("spec.{field}"))), "{field}: {complaints:?}");
    }
}

#[tokio::test]
async fn object_without_required_field_is_refused() {
    let client = client().await;
    for field in ["instanceId", "subnetId", "name", "purpose"] {
        let object = with(attachment("bounds"), json!({ field: null }));
        let complaints = try_create(&client, &object).await.unwrap_err();
        assert!(complaints.iter().any(|(at, _)| at == &format!("spec.{field}")), "{field}: {complaints:?}");
    }
    for field in ["nodeSelector", "attachments"] {
        let object = with(profile("bounds"), json!({ field: null }));
        let complaints = try_create(&client, &object).await.unwrap_err();
        assert!(complaints.iter().any(|(at, _)| at == &format!("spec.{field}")), "{field}: {complaints:?}");
    }
}

#[tokio::test]
async fn set_with_duplicate_element_is_refused() {
    let client = client().await;
    let group = ocid("networksecuritygroup", 1);
    let twice = [
        json!({ "nsgIds": [group, group] }),
        json!({ "ipv4Count": 2, "requestedAddresses": ["10.0.0.5", "10.0.0.5"] }),
        json!({ "purpose": "Attach", "allowedNamespaces": ["a", "a"] }),
    ];
    for spec in twice {
        let complaints = try_create(&client, &with(attachment("bounds"), spec)).await.unwrap_err();
        assert!(complaints.iter().any(|(_, message)| message.contains("Duplicate value")), "{complaints:?}");
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
    let complaints = try_create(&client, &object(json!([templates(1)[0], templates(1)[0]]))).await.unwrap_err();
    assert!(complaints.iter().any(|(_, message)| message.contains("Duplicate value")), "{complaints:?}");
}
