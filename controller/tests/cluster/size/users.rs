//! A user's own objects, in every way that they can be created: server-side apply, kubectl's older apply, create.

use api::{POD_ADDRESSES_MAX, VnicAttachment, VnicAttachmentStatus};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use oke_node_controller::attachment::apply::objects::Objects;
use serde_json::{Value, json};

use super::scene::{
    as_the_controller, bytes, fillings, in_order, instance, large, leaving, longest, objects, ocid, verdicts,
};

/// The most bytes in etcd of a user's own object, its managed fields included; an annotation of `kubectl apply` comes on top.
const MAX_OBJECT_BYTES: usize = 2700;
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

fn object(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment", "metadata": { "name": name }, "spec": spec,
    })
}

/// As `kubectl apply --server-side` does, without force.
async fn apply(objects: &Api<VnicAttachment>, name: &str, spec: &Value) -> kube::Result<VnicAttachment> {
    objects.patch(name, &PatchParams::apply("kubectl"), &Patch::Apply(&object(name, spec))).await
}

/// As `kubectl apply` does: it keeps the applied object in an annotation.
async fn apply_by_kubectl(objects: &Api<VnicAttachment>, name: &str, spec: &Value) -> kube::Result<VnicAttachment> {
    let mut applied = object(name, spec);
    applied["metadata"]["annotations"] = json!({});
    let text = format!("{applied}\n");
    applied["metadata"]["annotations"] = json!({ LAST_APPLIED: text });
    let manager = Some("kubectl-client-side-apply".to_owned());
    if objects.get_opt(name).await?.is_some() {
        let params = PatchParams { field_manager: manager, ..PatchParams::default() };
        return objects.patch(name, &params, &Patch::Merge(&applied)).await;
    }
    let params = PostParams { field_manager: manager, ..PostParams::default() };
    objects.create(&params, &serde_json::from_value(applied).unwrap()).await
}

/// A usual request: bare metal with both families and two security groups; a gateway.
fn usual() -> [(&'static str, Value); 2] {
    let mut metal = large();
    metal["instanceId"] = json!(instance());
    let gateway = json!({
        "instanceId": instance(), "subnetId": ocid("subnet", 1), "name": "storage", "purpose": "Attach",
        "allowedNamespaces": ["storage-gateways", "backup"], "nsgIds": [ocid("networksecuritygroup", 1)], "mtu": 1500,
        "routes": [{ "destination": "172.16.0.0/12" }], "freeformTags": { "cost-center": "storage" }, "ipv4Count": 4,
    });
    [("metal", metal), ("object-storage-gateway-1", gateway)]
}

async fn writers(objects: &Api<VnicAttachment>, name: &str) -> Vec<(String, String)> {
    let all = objects.get(name).await.unwrap().metadata.managed_fields.unwrap_or_default().into_iter();
    // The server sorts them by the second in which they wrote.
    let mut all: Vec<_> =
        all.map(|entry| (entry.manager.unwrap_or_default(), entry.subresource.unwrap_or_default())).collect();
    all.sort();
    all
}

fn ready_says(object: &VnicAttachment) -> &str {
    &api::condition::find(&object.status.as_ref().unwrap().conditions, api::ConditionType::Ready).unwrap().message
}

#[tokio::test]
async fn users_own_vnic_is_small_and_its_refusal_complete() {
    let (_, objects) = objects().await;
    for (name, spec) in usual() {
        apply(&objects, name, &spec).await.unwrap();
        let bytes = bytes(&objects, name, &in_order()).await;
        assert!(bytes <= MAX_OBJECT_BYTES, "{name}: {bytes}");
        let ours = |subresource: &str| ("oke-node-controller".to_owned(), subresource.to_owned());
        // Who wrote the status last owns it whole: an entry for the agent is one less for the controller.
        let agents = ("oke-node-agent".to_owned(), "status".to_owned());
        assert_eq!(writers(&objects, name).await, [("kubectl".to_owned(), String::new()), agents, ours("")]);
        self::bytes(&objects, name, &verdicts()[2]).await;
        let object = objects.get(name).await.unwrap();
        let words = ready_says(&object);
        assert!(api::condition::stored(words) > api::condition::MESSAGE_MAX - 6, "{words}");
    }
}

/// Larger in etcd than they look.
fn wordy() -> Value {
    let long = "2603:c020:400e:fe00:0000:0000:0000:000";
    json!({
        "name": "v".repeat(20), "purpose": "Host", "subnetId": ocid("subnet", 1), "nsgIds": [], "allowedNamespaces": [],
        "freeformTags": {}, "skipSourceDestCheck": false, "assignPublicIp": false, "onDelete": "Detach", "ipv4Count": 0,
        "ipv6Count": 8, "requestedAddresses": (0..4).map(|n| format!("{long}{n}")).collect::<Value>(),
        "routes": [{ "destination": "fd00:0000:0000:0000:0000:0000:0000:0000/32", "via": format!("{long}a") }],
    })
}

#[tokio::test]
async fn largest_users_own_vnic_stays_within_its_bound() {
    let (_, objects) = objects().await;
    let (mut most, mut most_shared) = (0, 0);
    for (filling, mut spec) in fillings().into_iter().chain([("wordy", wordy())]) {
        spec["instanceId"] = json!(instance());
        spec["displayName"] = json!("d".repeat(120));
        let most = if filling == "shared" { &mut most_shared } else { &mut most };
        let named = |length| format!("longest-{filling}-{}", "l".repeat(length));
        let accepts = async |length| {
            let (name, params) = (named(length), PatchParams::apply("kubectl").dry_run());
            objects.patch(&name, &params, &Patch::Apply(&object(&name, &spec))).await.map(drop)
        };
        let name = named(longest(253 - named(0).len(), accepts).await);
        apply(&objects, &name, &spec).await.unwrap();
        for verdict in verdicts() {
            *most = (*most).max(bytes(&objects, &name, &verdict).await);
        }
        let mut other = spec.clone();
        other["onDelete"] = json!("Orphan");
        other["displayName"] = json!("shorter");
        apply(&objects, &name, &other).await.unwrap();
        // As large as before.
        apply(&objects, &name, &spec).await.unwrap();
        for verdict in verdicts().into_iter().rev() {
            *most = (*most).max(bytes(&objects, &name, &verdict).await);
            assert!(!ready_says(&objects.get(&name).await.unwrap()).is_empty() || verdict == in_order(), "{name}");
        }
        objects.delete(&name, &DeleteParams::default()).await.unwrap();
        *most = (*most).max(bytes(&objects, &name, &leaving()).await);
    }
    println!("the largest of a user's own takes {most} bytes, that of a VNIC that pods share {most_shared}");
    assert!(most <= MAX_OBJECT_BYTES && most_shared <= MAX_OBJECT_BYTES + POD_ADDRESSES_MAX, "{most}, {most_shared}");
}

#[tokio::test]
async fn applied_object_can_be_applied_again_without_force() {
    let (_, objects) = objects().await;
    for (name, mut spec) in usual() {
        let name = format!("again-{name}");
        apply(&objects, &name, &spec).await.unwrap();
        for (verdict, mtu) in verdicts().iter().zip(2000..) {
            bytes(&objects, &name, verdict).await;
            spec["mtu"] = json!(mtu);
            let applied = apply(&objects, &name, &spec).await.unwrap();
            assert_eq!(
                (applied.spec.vnic.mtu, applied.finalizers()),
                (Some(mtu), &["oke.oraclecloud.com/vnic".to_owned()][..])
            );
        }
        // An apply by another manager is a conflict as before.
        spec["mtu"] = json!(3000);
        let other =
            objects.patch(&name, &PatchParams::apply("another-manager"), &Patch::Apply(&object(&name, &spec))).await;
        assert!(other.unwrap_err().to_string().contains(r#"conflict with "kubectl""#));
    }
}

/// Its annotation has the spec a second time, which no definition can count.
#[tokio::test]
async fn client_side_applied_object_keeps_no_managed_fields() {
    let (_, objects) = objects().await;
    for (name, mut spec) in usual() {
        let name = format!("k-{name}");
        apply_by_kubectl(&objects, &name, &spec).await.unwrap();
        for (verdict, mtu) in verdicts().iter().zip(2000..) {
            let bytes = bytes(&objects, &name, verdict).await;
            assert!(bytes <= MAX_OBJECT_BYTES, "{name}: {bytes}");
            assert_eq!(writers(&objects, &name).await, [], "{name}");
            spec["mtu"] = json!(mtu);
            let applied = apply_by_kubectl(&objects, &name, &spec).await.unwrap();
            assert_eq!(applied.spec.vnic.mtu, Some(mtu), "{name}");
        }
        spec["mtu"] = json!(3000);
        let applied = apply(&objects, &name, &spec).await.unwrap();
        assert_eq!((applied.spec.vnic.mtu, applied.finalizers().len()), (Some(3000), 1), "{name}");
    }
}

#[tokio::test]
async fn status_is_written_only_to_the_object_that_was_read() {
    let (client, objects) = objects().await;
    let spec = json!({ "instanceId": instance(), "subnetId": ocid("subnet", 1), "name": "whole", "purpose": "Host" });
    apply(&objects, "whole", &spec).await.unwrap();
    bytes(&objects, "whole", &in_order()).await;
    let mut old = objects.get("whole").await.unwrap();
    let worker = as_the_controller(client);
    let less = VnicAttachmentStatus { observed_generation: Some(1), ..VnicAttachmentStatus::default() };
    worker.write_status(&old, &less).await.unwrap();
    assert_eq!(objects.get("whole").await.unwrap().status, Some(less.clone()));
    // Computed from an earlier version, by a process that stood still meanwhile.
    let late = VnicAttachmentStatus { observed_generation: Some(7), ..VnicAttachmentStatus::default() };
    assert!(worker.write_status(&old, &late).await.unwrap_err().is_conflict());
    assert_eq!(objects.get("whole").await.unwrap().status, Some(less.clone()));
    old = objects.get("whole").await.unwrap();
    worker.set_finalizer(&old, false).await.unwrap().unwrap();
    objects.delete("whole", &DeleteParams::default()).await.unwrap();
    worker.write_status(&old, &less).await.unwrap();
    apply(&objects, "whole", &spec).await.unwrap();
    let refused = worker.write_status(&old, &less).await.unwrap_err();
    assert!(refused.is_conflict(), "{refused:?}");
    assert_eq!(objects.get("whole").await.unwrap().status, None);
}
