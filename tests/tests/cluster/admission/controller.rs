//! What the controller cannot write, whatever it was granted: anything of Nodes but our conditions, and another key than its
//! own.

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kube_harness::{ApiServer, Bound, ServiceAccount, wait_for};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::{
    NAMESPACE, admin, annotate, anything, assert_refused, grant, make_node, patch_node, patch_status, server,
    wait_until_refused,
};

const CONDITIONS: &str = "the controller may only write conditions of Nodes";
const TYPES: &str = "of the types oke.oraclecloud.com/NetworkReady";
const WORDS: &str = "a condition of the controller must be True, False or Unknown";
const TRUSTED: &str = "only a controller may change the keys that agents trust";
const OWN_KEY: &str = "a controller may only publish the key of its own pod";
const MUTABLE: &str = "must have no binaryData and stay mutable";
const KEY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn account() -> ServiceAccount {
    ServiceAccount::new(NAMESPACE, "oke-node-controller")
}

/// A server on which the controller's account was granted everything.
pub(super) async fn granted() -> &'static ApiServer {
    static READY: OnceCell<()> = OnceCell::const_new();
    let server = server().await;
    let prepare = async || {
        server.create_account(&account()).await.unwrap();
        let who = json!({ "kind": "ServiceAccount", "name": account().name, "namespace": NAMESPACE });
        grant(server, "controller-everything", "cluster-admin", who, anything()).await;
    };
    READY.get_or_init(prepare).await;
    server
}

/// With the token of a pod of the controller.
pub(super) async fn controller(server: &ApiServer, pod: &str) -> Client {
    let object = json!({ "metadata": { "name": pod }, "spec": { "serviceAccountName": account().name,
        "automountServiceAccountToken": false, "containers": [{ "name": "a", "image": "a" }] } });
    let pods: Api<Pod> = Api::namespaced(admin(server), NAMESPACE);
    pods.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    server.client(&server.token(&account(), &Bound::Pod(pod.to_owned())).await.unwrap()).unwrap()
}

fn condition(kind: &str, status: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": "A", "message": "a" })
}

fn conditions(all: &[Value]) -> Value {
    json!({ "status": { "conditions": all } })
}

/// As the controller writes.
async fn merge(client: &Client, node: &str, all: &[Value]) -> kube::Result<Node> {
    let patch = Patch::Strategic(conditions(all));
    Api::<Node>::all(client.clone()).patch_status(node, &PatchParams::default(), &patch).await
}

/// A Node with images and conditions as usual, of a kubelet that knows later fields.
async fn usual_node(server: &ApiServer, name: &str) {
    make_node(server, name, json!({ "a": "b" })).await;
    let image = |image| json!({ "names": [format!("iad.ocir.io/of-usual-length/image@sha256:{image:064x}")], "sizeBytes": image });
    let conditions = ["Ready", "MemoryPressure", "KernelDeadlock"].map(|kind| condition(kind, "True"));
    let status = json!({ "status": {
        "capacity": { "cpu": "4" }, "addresses": [{ "type": "InternalIP", "address": "10.0.0.7" }],
        "images": (0..50).map(image).collect::<Vec<_>>(), "volumesInUse": ["a"],
        "conditions": conditions,
    } });
    patch_status(&admin(server), name, &status).await.unwrap();
}

#[tokio::test]
async fn controller_writes_our_conditions_and_nothing_else_of_nodes() {
    let server = granted().await;
    usual_node(server, "judged-1").await;
    let controller = controller(server, "writes-1").await;
    wait_until_refused("the policy", async |value| {
        patch_node(&controller, "judged-1", &json!({ "metadata": { "labels": { "probe": value } } })).await
    })
    .await;
    let ours = ["NetworkReady", "HostHealthy", "AcceleratorsHealthy"];
    let ours = ours.map(|kind| format!("oke.oraclecloud.com/{kind}"));
    for status in ["True", "False", "Unknown"] {
        let all: Vec<_> = ours.iter().map(|kind| condition(kind, status)).collect();
        merge(&controller, "judged-1", &all).await.unwrap();
    }
    let gone = json!({ "type": ours[0], "$patch": "delete" });
    let left = merge(&controller, "judged-1", &[gone]).await.unwrap().status.unwrap();
    assert_eq!((left.conditions.unwrap().len(), left.images.unwrap().len()), (5, 50));

    for kind in ["Ready", "KernelDeadlock", "oke.oraclecloud.com/Other", "New"] {
        assert_refused(merge(&controller, "judged-1", &[condition(kind, "False")]).await, TYPES);
    }
    let with = |more: Value| {
        let mut wrong = condition(&ours[1], "False");
        wrong.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        wrong
    };
    for more in [json!({ "message": "m".repeat(512) }), json!({ "message": "größer <b>" }), json!({ "message": "" })]
    {
        merge(&controller, "judged-1", &[with(more)]).await.unwrap();
    }
    for more in [
        json!({ "message": "m".repeat(513) }),
        json!({ "message": "a\nb" }),
        json!({ "message": "\u{1b}[2J" }),
        json!({ "message": "\u{200b}" }),
        json!({ "message": "\u{202e}" }),
        json!({ "status": "Maybe" }),
        json!({ "reason": "" }),
        json!({ "reason": "two words" }),
        json!({ "reason": "R".repeat(65) }),
    ] {
        assert_refused(merge(&controller, "judged-1", &[with(more)]).await, WORDS);
    }
    let removed = json!({ "type": "Ready", "$patch": "delete" });
    assert_refused(merge(&controller, "judged-1", &[removed]).await, TYPES);
    for status in [
        json!({ "status": { "capacity": { "cpu": "8" } } }),
        json!({ "status": { "addresses": null } }),
        json!({ "status": { "volumesAttached": [{ "name": "a", "devicePath": "" }] } }),
        json!({ "metadata": { "labels": { "a": "b" } } }),
        json!({ "metadata": { "annotations": { "a": null } } }),
    ] {
        assert_refused(patch_status(&controller, "judged-1", &status).await, CONDITIONS);
    }
    let cordon = json!({ "spec": { "unschedulable": true } });
    assert_refused(patch_node(&controller, "judged-1", &cordon).await, CONDITIONS);
    assert_refused(annotate(&controller, "judged-1", "storage").await, CONDITIONS);
    let nodes: Api<Node> = Api::all(controller.clone());
    assert_refused(nodes.delete("judged-1", &DeleteParams::default()).await, CONDITIONS);
}

#[tokio::test]
async fn controller_publishes_its_own_key_only() {
    let server = granted().await;
    let keys: Api<ConfigMap> = Api::namespaced(admin(server), NAMESPACE);
    let object = |data: Value| {
        let object = json!({ "metadata": { "name": api::CONTROLLER_KEYS }, "data": data });
        serde_json::from_value::<ConfigMap>(object).unwrap()
    };
    wait_for("the policy", async || {
        let created = keys.create(&PostParams::default(), &object(json!({ "planted": KEY }))).await;
        if created.is_ok() {
            keys.delete(api::CONTROLLER_KEYS, &DeleteParams::default()).await.unwrap();
        }
        created.err()
    })
    .await;
    assert_refused(keys.create(&PostParams::default(), &object(json!({ "planted": KEY }))).await, TRUSTED);
    keys.create(&PostParams::default(), &object(Value::Null)).await.unwrap();
    let [one, two] = [controller(server, "keys-1").await, controller(server, "keys-2").await];
    let write = async |client: &Client, data: Value| {
        let keys: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
        let patch = Patch::Merge(json!({ "data": data }));
        keys.patch(api::CONTROLLER_KEYS, &PatchParams::default(), &patch).await
    };
    write(&one, json!({ "keys-1": KEY })).await.unwrap();
    write(&two, json!({ "keys-2": KEY })).await.unwrap();
    let other = KEY.replace('e', "f");
    assert_refused(write(&one, json!({ "keys-2": other })).await, OWN_KEY);
    assert_refused(write(&one, json!({ "planted": KEY })).await, OWN_KEY);
    assert_refused(write(&one, json!({ "keys-1": "-----BEGIN" })).await, OWN_KEY);
    write(&one, json!({ "keys-2": null })).await.unwrap();

    let unbound = server.client(&server.token(&account(), &Bound::Nothing).await.unwrap()).unwrap();
    for client in [&unbound, &admin(server)] {
        assert_refused(write(client, json!({ "planted": KEY })).await, TRUSTED);
        assert_refused(write(client, json!({ "keys-1": null })).await, TRUSTED);
    }
    let label = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    keys.patch(api::CONTROLLER_KEYS, &PatchParams::default(), &label).await.unwrap();
    for more in [json!({ "immutable": true }), json!({ "binaryData": { "planted": "YQ==" } })] {
        let patch = Patch::Merge(more);
        let one: Api<ConfigMap> = Api::namespaced(one.clone(), NAMESPACE);
        assert_refused(one.patch(api::CONTROLLER_KEYS, &PatchParams::default(), &patch).await, MUTABLE);
    }
}
