//! What the definitions count is what etcd holds: a name and a spec take 900 bytes at most, which leaves room for the rest of
//! an object (`controller/tests/cluster/size`).

use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{api, client, server, try_create, typed};
use crate::sample::{attachment, ocid, profile, with, with_template};

const MAX_BYTES: usize = 900;
const TOO_LARGE: &str = "is too large: with the object's name it may take 900 bytes";
/// The rule counts a comma after each last one, `true` as `false`, and `Host` as `Attach`.
const ROUNDED_UP: usize = 8;

fn groups(count: u32) -> Value {
    (0..count).map(|number| ocid("networksecuritygroup", number)).collect()
}

/// Specs that are small enough, each with other fields.
fn specs() -> [Value; 6] {
    let routes = json!([
        { "destination": "10.1.0.0/16" }, { "destination": "fd00:1234::/48", "via": "fd00:1::1" },
        { "destination": "172.16.0.0/12", "via": "10.0.0.1" },
    ]);
    let tags = json!({ "k&<>": "\"\\<é>&", "cost-center": "storage" });
    let addresses = json!(["10.0.0.5", "2603:c020:400e:fe00:1234:5678:9abc:def0"]);
    [
        json!({ "nsgIds": groups(2) }),
        json!({ "routes": routes }),
        json!({ "freeformTags": tags, "purpose": "Attach", "allowedNamespaces": ["storage-gateways", "backup"] }),
        json!({ "ipv4Count": 255, "ipv6Count": 255, "nicIndex": 1, "mtu": 9000, "skipSourceDestCheck": true,
            "assignPublicIp": true, "onDelete": "Orphan", "requestedAddresses": addresses }),
        json!({ "privateIp": "192.168.100.100", "subnetRoute": true, "nsgIds": groups(2) }),
        json!({ "ipv4Count": 2, "nsgIds": groups(1), "routes": [], "freeformTags": {}, "requestedAddresses": [] }),
    ]
}

/// How many bytes etcd holds of the object's name and its spec.
async fn stored(object: &Value) -> usize {
    let (name, api) = (object["metadata"]["name"].as_str().unwrap(), api(&client().await, "VnicAttachment"));
    api.create(&PostParams::default(), &typed(object)).await.unwrap();
    let key = format!("/registry/{}/vnicattachments/{name}", api::GROUP);
    let stored = String::from_utf8(server().await.stored(&key).await.unwrap().unwrap()).unwrap();
    api.delete(name, &DeleteParams::default()).await.unwrap();
    name.len() + stored.trim_end().strip_suffix('}').unwrap().split_once(r#""spec":"#).unwrap().1.len()
}

#[tokio::test]
async fn size_rule_counts_the_size_stored_in_etcd() {
    let client = client().await;
    for mut spec in specs() {
        spec["displayName"] = json!("d".repeat(240));
        let named = |length: usize| with(attachment(&"n".repeat(length)), spec.clone());
        let most = 1 + MAX_BYTES - stored(&named(1)).await;
        assert!((ROUNDED_UP + 1..253).contains(&most), "it is the size that bounds it: {most} {spec}");
        let fits = try_create(&client, &named(most - ROUNDED_UP)).await;
        assert!(fits.is_ok(), "{spec}: {:?}", fits.err());
        let complaints = try_create(&client, &named(most + 1)).await.unwrap_err();
        let refused = complaints.iter().any(|(field, message)| field == "spec" && message.contains(TOO_LARGE));
        assert!(refused, "{spec}: {complaints:?}");
    }
}

/// As many as OCI allows, in a region with a long name, with the usual other fields.
#[tokio::test]
async fn five_security_groups_fit() {
    let client = client().await;
    let more = json!({ "name": "pods", "purpose": "Pods", "nsgIds": groups(5), "ipv4Count": 31, "ipv6Count": 31, "nicIndex": 1 });
    let fits = try_create(&client, &with_template(profile("object-storage"), more.clone())).await;
    assert!(fits.is_ok(), "{:?}", fits.err());
    let fits = try_create(&client, &with(attachment("object-storage-gateway"), more)).await;
    assert!(fits.is_ok(), "{:?}", fits.err());
}
