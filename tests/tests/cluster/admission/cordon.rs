//! Whatever the controller was granted, it cordons Nodes in the name of a task only, and lifts no other cordon.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::controller::{controller, granted};
use super::{NAMESPACE, admin, assert_refused, make_node, patch_node, wait_until_refused};
use crate::manifests_folder;

const FIELDS: &str = "may only write conditions of Nodes, spec.unschedulable and the annotation";
const CORDONS: &str = "may only write conditions of Nodes, cordon one with the annotation";
const PODS: &str = "may only create and delete probe Pods";
const OWNER: &str = "reboot-a/3f0c8a1e-1111-2222-3333-444455556666";

fn cordon(owner: impl Into<Value>, unschedulable: bool) -> Value {
    json!({ "metadata": { "annotations": { api::CORDON_ANNOTATION: owner.into() } }, "spec": { "unschedulable": unschedulable } })
}

#[tokio::test]
async fn controller_lifts_only_cordons_with_its_annotation() {
    let server = granted().await;
    let controller = controller(server, "cordons").await;
    let admin = admin(server);
    for name in ["cordon-own", "cordon-foreign", "cordon-bare"] {
        make_node(server, name, json!({ "a": "b" })).await;
    }
    wait_until_refused("the policy", async |value| {
        patch_node(&controller, "cordon-own", &json!({ "metadata": { "labels": { "probe": value } } })).await
    })
    .await;
    for owner in [json!(null), json!(""), json!("someone"), json!("a/b"), json!(format!("{OWNER}x"))] {
        assert_refused(patch_node(&controller, "cordon-bare", &cordon(owner, true)).await, CORDONS);
    }
    assert_refused(patch_node(&controller, "cordon-bare", &cordon(OWNER, false)).await, CORDONS);
    let nodes: Api<Node> = Api::all(admin.clone());
    let is_cordoned = async |name: &str| nodes.get(name).await.unwrap().spec.unwrap().unschedulable == Some(true);

    patch_node(&controller, "cordon-own", &cordon(OWNER, true)).await.unwrap();
    patch_node(&controller, "cordon-own", &cordon(OWNER, true)).await.unwrap();
    let another = OWNER.replace("reboot-a", "reboot-b");
    assert_refused(patch_node(&controller, "cordon-own", &cordon(another.clone(), true)).await, CORDONS);
    assert_refused(patch_node(&controller, "cordon-own", &cordon(OWNER, false)).await, CORDONS);
    assert_refused(patch_node(&controller, "cordon-own", &cordon(Value::Null, true)).await, CORDONS);
    patch_node(&controller, "cordon-own", &cordon(Value::Null, false)).await.unwrap();
    assert!(!is_cordoned("cordon-own").await);

    patch_node(&admin, "cordon-foreign", &json!({ "spec": { "unschedulable": true } })).await.unwrap();
    assert_refused(patch_node(&controller, "cordon-foreign", &cordon(Value::Null, false)).await, CORDONS);
    assert_refused(patch_node(&controller, "cordon-foreign", &cordon(OWNER, true)).await, CORDONS);
    assert!(is_cordoned("cordon-foreign").await);
    // The annotation that an earlier cordon left is replaced, or removed without a cordon.
    patch_node(&admin, "cordon-bare", &cordon(OWNER, false)).await.unwrap();
    patch_node(&controller, "cordon-bare", &cordon(another, true)).await.unwrap();
    patch_node(&admin, "cordon-bare", &json!({ "spec": { "unschedulable": false } })).await.unwrap();
    patch_node(&controller, "cordon-bare", &cordon(Value::Null, false)).await.unwrap();

    for (part, field, value) in [
        ("spec", "taints", json!([{ "key": "a", "effect": "NoExecute" }])),
        ("spec", "providerID", json!("oci://ocid1.instance.oc1.iad.other")),
        ("spec", "podCIDRs", json!(["10.244.9.0/24"])),
        ("metadata", "labels", json!({ "a": "b" })),
        ("metadata", "annotations", json!({ api::CORDON_ANNOTATION: OWNER, "a": null })),
        ("metadata", "annotations", json!({ api::CORDON_ANNOTATION: OWNER, "c": "d" })),
        ("metadata", "finalizers", json!(["example.com/kept"])),
        ("metadata", "ownerReferences", json!([{ "apiVersion": "v1", "kind": "Node", "name": "a", "uid": "a" }])),
    ] {
        let mut patch = cordon(OWNER, true);
        patch[part][field] = value;
        if field == "podCIDRs" {
            patch[part]["podCIDR"] = json!("10.244.9.0/24");
        }
        assert_refused(patch_node(&controller, "cordon-own", &patch).await, FIELDS);
    }
}

#[tokio::test]
async fn controller_evicts_pods_only_with_their_own_grace_period() {
    let server = granted().await;
    server.apply(&manifests_folder().join("base/probe-pods.yaml")).await.unwrap();
    let controller = controller(server, "evicts").await;
    let pods: Api<Pod> = Api::namespaced(admin(server), NAMESPACE);
    let pod = json!({ "metadata": { "name": "evicted" },
        "spec": { "serviceAccountName": "oke-node-controller", "containers": [{ "name": "a", "image": "a" }] } });
    let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let own: Api<Pod> = Api::namespaced(controller, NAMESPACE);
    let evict = async |options: Value| {
        let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "evicted", "namespace": NAMESPACE },
            "deleteOptions": options });
        own.create_subresource::<Value, Value>("eviction", "evicted", &PostParams::default(), &body).await
    };
    wait_until_refused("the policy", async |_| {
        own.delete("evicted", &kube::api::DeleteParams::default().dry_run()).await
    })
    .await;
    for options in [json!({ "gracePeriodSeconds": 0 }), json!({ "propagationPolicy": "Orphan" })] {
        assert_refused(evict(options).await, PODS);
    }
    evict(json!({ "preconditions": { "uid": pod.metadata.uid } })).await.unwrap();
}
