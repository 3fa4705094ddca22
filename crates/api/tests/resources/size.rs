//! What an object costs in etcd, everything counted: metadata, managedFields, spec and status, as etcd holds them.
//! At most 2 KB for a VNIC that somebody asked for.

use api::condition::{MESSAGE_MAX, set_all};
use api::{AttachmentReason, Condition, ConditionType, Reason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{api, client, server};
use crate::sample::{attachment, ocid, profile, with, with_template};

const MOST: usize = 2048;

/// Writes it as the controller does, spec and status applied each whole, and returns how many bytes etcd holds.
async fn bytes(object: Value, status: &Value) -> usize {
    let client = client().await;
    let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
    let api = api(&client, kind);
    let us = PatchParams::apply(api::FIELD_MANAGER).force();
    api.patch(name, &us, &Patch::Apply(&object)).await.unwrap();
    let status =
        json!({ "apiVersion": object["apiVersion"], "kind": kind, "metadata": { "name": name }, "status": status });
    api.patch_status(name, &us, &Patch::Apply(&status)).await.unwrap();
    let key = format!("/registry/{}/{}s/{name}", api::GROUP, kind.to_lowercase());
    let value = server().await.stored(&key).await.unwrap().unwrap();
    println!("{name}: {} bytes in etcd: {}", value.len(), String::from_utf8_lossy(&value));
    value.len()
}

fn condition(kind: ConditionType, reason: impl Reason, message: &str) -> Condition {
    Condition::new(kind, reason, message, Time(k8s_openapi::jiff::Timestamp::from_second(1_795_000_000).unwrap()))
}

fn conditions(attached: AttachmentReason, ready: AttachmentReason, message: &str) -> Value {
    let found = [
        condition(ConditionType::Attached, attached, message),
        condition(ConditionType::Configured, AttachmentReason::NotReported, ""),
        condition(ConditionType::Ready, ready, message),
    ];
    let mut conditions = Vec::new();
    set_all(&mut conditions, found);
    serde_json::to_value(conditions).unwrap()
}

/// On bare metal, both families.
fn attached(conditions: &Value) -> Value {
    json!({
        "observedGeneration": 12, "conditions": conditions, "nodeName": "10.255.255.254", "vnicId": ocid("vnic", 1),
        "macAddress": "02:00:17:0a:0b:0c", "vlanTag": 4094, "ipv4Count": 31, "ipv6Count": 31,
        "ownAddresses": ["10.255.255.254", "2603:c020:400e:fe00:1234:5678:9abc:def0"],
    })
}

/// On a virtual machine, IPv4.
fn attached_to_vm(conditions: &Value) -> Value {
    json!({
        "observedGeneration": 12, "conditions": conditions, "nodeName": "10.255.255.254", "vnicId": ocid("vnic", 1),
        "macAddress": "02:00:17:0a:0b:0c", "ipv4Count": 0, "ownAddresses": ["10.255.255.254"],
    })
}

/// As a profile makes it.
fn stamped(name: &str, spec: Value) -> Value {
    let mut object = with(attachment(&format!("object-storage.{name}.0123456789abcdef")), spec);
    object["metadata"]["labels"] = json!({ api::PROFILE_LABEL: "object-storage" });
    object["metadata"]["finalizers"] = json!([api::VNIC_FINALIZER]);
    object
}

fn for_pods() -> Value {
    json!({
        "purpose": "Pods", "ipv4Count": 31, "ipv6Count": 31, "nicIndex": 1,
        "nsgIds": [ocid("networksecuritygroup", 1), ocid("networksecuritygroup", 2)],
    })
}

/// Bare metal, both families, a region with a long name, two security groups: more is asked of few.
#[tokio::test]
async fn a_large_attachment_in_order_takes_less_than_two_kilobytes() {
    let in_order = conditions(AttachmentReason::Attached, AttachmentReason::Ready, "");
    let bytes = bytes(stamped("in-order", for_pods()), &attached(&in_order)).await;
    assert!(bytes <= MOST, "{bytes}");
}

#[tokio::test]
async fn a_large_attachment_that_failed_takes_less_than_two_kilobytes_with_the_longest_messages() {
    let message = "x".repeat(MESSAGE_MAX);
    let failed =
        conditions(AttachmentReason::NotAuthorizedOrNotFound, AttachmentReason::NotAuthorizedOrNotFound, &message);
    let status = json!({ "observedGeneration": 12, "conditions": failed, "nodeName": "10.255.255.254" });
    let bytes = bytes(stamped("failed", for_pods()), &status).await;
    assert!(bytes <= MOST, "{bytes}");
}

#[tokio::test]
async fn an_attachment_for_named_pods_takes_less_than_two_kilobytes() {
    let spec = json!({
        "purpose": "Attach", "allowedNamespaces": ["storage-gateways", "backup"], "nsgIds": [ocid("networksecuritygroup", 1)],
        "routes": [{ "destination": "172.16.0.0/12" }, { "destination": "fd00:1234::/48", "via": "fd00:1::1" }],
        "mtu": 1500, "freeformTags": { "cost-center": "storage" }, "displayName": "storage gateway",
    });
    let in_order = conditions(AttachmentReason::Attached, AttachmentReason::Ready, "");
    let bytes = bytes(stamped("attach", spec), &attached_to_vm(&in_order)).await;
    assert!(bytes <= MOST, "{bytes}");
}

/// Whoever fills every list gets a large object; the bounds are there so that it cannot be a huge one.
#[tokio::test]
async fn an_attachment_filled_to_every_bound_takes_less_than_sixteen_kilobytes() {
    let attachment = stamped("largest", with(attachment("x"), largest())["spec"].clone());
    let message = "x".repeat(MESSAGE_MAX);
    let status = attached(&conditions(AttachmentReason::Attached, AttachmentReason::AddressesPending, &message));
    let attachment = bytes(attachment, &status).await;
    assert!((MOST..16 * 1024).contains(&attachment), "{attachment}");
    let mut template = largest();
    template.as_object_mut().unwrap().remove("requestedAddresses");
    let profile = bytes(with_template(profile("largest"), template), &json!({})).await;
    assert!(profile < 16 * 1024, "one of eight templates: {profile}");
}

fn largest() -> Value {
    let numbers = |count: u32| 0..count;
    let routes: Value = numbers(32)
        .map(|n| json!({ "destination": format!("2603:c020:400e:fe{n:02}::/64"), "via": format!("2603:c020:400e:ff00:1234:5678:9abc:d{n:03}") }))
        .collect();
    let namespaces: Value = numbers(64).map(|n| format!("{}{n:02}", "n".repeat(61))).collect();
    let tags: serde_json::Map<_, _> =
        numbers(7).map(|n| (format!("{}{n}", "k".repeat(99)), json!("v".repeat(256)))).collect();
    let addresses: Value = numbers(8).map(|n| format!("2603:c020:400e:fe00:1234:5678:9abc:def{n}")).collect();
    json!({
        "purpose": "Attach", "ipv4Count": 255, "ipv6Count": 255, "requestedAddresses": addresses,
        "nsgIds": numbers(5).map(|n| ocid("networksecuritygroup", n)).collect::<Value>(),
        "routes": routes, "allowedNamespaces": namespaces, "freeformTags": tags, "displayName": "d".repeat(255),
    })
}
