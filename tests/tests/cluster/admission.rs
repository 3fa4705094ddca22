//! manifests/base/admission.yaml on a real API server: who may request VNICs with a Node's annotation, and what an agent cannot
//! write, whatever it was granted. The tests use the tokens and certificates of those it keeps out.

mod controller;
mod cordon;
mod events;
mod files;
mod node_policies;
mod node_tasks;

use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use kube_harness::{ApiServer, Bound, Identity, ServiceAccount, wait_for};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::manifests_folder;

const NAMESPACE: &str = "oke-node-manager";
const NO_USE: &str = "needs the verb \"use\" on vnicprofiles";
const KUBELET: &str = "a kubelet must not change the annotation";
const OWN_POD: &str =
    "an agent may only write annotations of its own Pod, Events about its own Node and reports on its VNICs";
const OWN_VNIC: &str = "an agent may only report on VNICs of its own Node, which status.nodeName names";
const ONLY_REPORT: &str = "an agent may only write status.node of a VnicAttachment";
const ONLY_OURS: &str = "the annotation oke.oraclecloud.com/agent-channel of its Pod";
const UNBOUND: &str = "an agent's token must be bound to its pod and node";

/// The server with our definitions and policies, once these are enforced, and an agent's account that was granted
/// everything: what is refused to it, the policies refuse.
async fn server() -> &'static ApiServer {
    static READY: OnceCell<()> = OnceCell::const_new();
    let server = ApiServer::shared().unwrap();
    READY.get_or_init(async || prepare(server).await).await;
    server
}

async fn prepare(server: &ApiServer) {
    for file in ["namespace.yaml", "crds.yaml", "admission.yaml"] {
        server.apply(&manifests_folder().join("base").join(file)).await.unwrap();
    }
    for file in ["tasks/roles.yaml", "reboot/reboot.yaml"] {
        server.apply(&manifests_folder().join(file)).await.unwrap();
    }
    server.create_account(&agent()).await.unwrap();
    let who = json!({ "kind": "ServiceAccount", "name": agent().name, "namespace": NAMESPACE });
    grant(server, "agent-everything", "cluster-admin", who, anything()).await;
    // A policy takes a moment to be enforced.
    make_node(server, "probe", json!({})).await;
    let agent = server.client(&server.token(&agent(), &Bound::Nothing).await.unwrap()).unwrap();
    grant_nodes(server, "probe-user").await;
    let user = user(server, "probe-user");
    wait_until_refused("the annotation's policy", async |value| annotate(&user, "probe", value).await).await;
    wait_until_refused("the agents' policy", async |value| {
        patch_node(&agent, "probe", &json!({ "metadata": { "labels": { "probe": value } } })).await
    })
    .await;
}

/// By a policy. Another value each time: a policy does not refuse a write without a change.
async fn wait_until_refused<T>(what: &str, attempt: impl AsyncFn(&str) -> kube::Result<T>) {
    let number = AtomicU32::new(0);
    wait_for(what, async || match attempt(&format!("a-{}", number.fetch_add(1, Ordering::Relaxed))).await {
        Err(kube::Error::Api(status)) if status.message.contains("denied request") => Some(()),
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => None,
    })
    .await;
}

fn agent() -> ServiceAccount {
    ServiceAccount::new(NAMESPACE, "oke-node-agent")
}

fn admin(server: &ApiServer) -> Client {
    server.client(server.admin()).unwrap()
}

fn user(server: &ApiServer, name: &str) -> Client {
    server.client(&server.user(name, None).unwrap()).unwrap()
}

fn anything() -> Value {
    json!({ "verb": "*", "group": "*", "resource": "*" })
}

fn use_of(profile: &str) -> Value {
    json!({ "verb": "use", "group": api::GROUP, "resource": "vnicprofiles", "name": profile })
}

/// Binds a role and waits until the user may do this by it: the API server applies it a moment later.
async fn grant(server: &ApiServer, name: &str, role: &str, mut subject: Value, may: Value) {
    let word = |key: &str| subject[key].as_str().unwrap().to_owned();
    let user = match word("kind").as_str() {
        "ServiceAccount" => format!("system:serviceaccount:{}:{}", word("namespace"), word("name")),
        _ => word("name"),
    };
    if subject["kind"] != "ServiceAccount" {
        subject["apiGroup"] = json!("rbac.authorization.k8s.io");
    }
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": [subject],
    });
    server.apply_object(binding).await.unwrap();
    let review = json!({ "spec": { "user": user, "resourceAttributes": may } });
    let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
    let reviews: Api<SubjectAccessReview> = Api::all(admin(server));
    wait_for(&format!("{user} may {may}"), async || {
        reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed.then_some(())
    })
    .await;
}

/// Lets a user write Nodes, as a cluster's autoscaler may, and nothing else.
async fn grant_nodes(server: &ApiServer, name: &str) {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": "nodes-writer" },
        "rules": [{ "apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"] }],
    });
    server.apply_object(role).await.unwrap();
    let may = json!({ "verb": "patch", "resource": "nodes", "subresource": "status" });
    grant(server, &format!("nodes-{name}"), "nodes-writer", json!({ "kind": "User", "name": name }), may).await;
}

async fn make_node(server: &ApiServer, name: &str, annotations: Value) {
    let nodes: Api<Node> = Api::all(admin(server));
    nodes.create(&PostParams::default(), &node(name, annotations)).await.unwrap();
}

fn node(name: &str, annotations: Value) -> Node {
    serde_json::from_value(json!({ "metadata": { "name": name, "annotations": annotations } })).unwrap()
}

fn vnics(value: impl Into<Value>) -> Value {
    json!({ "metadata": { "annotations": { api::VNICS_ANNOTATION: value.into() } } })
}

/// Requests VNICs in a Node's name.
async fn annotate(client: &Client, node: &str, value: &str) -> kube::Result<Node> {
    patch_node(client, node, &vnics(value)).await
}

async fn patch_node(client: &Client, node: &str, patch: &Value) -> kube::Result<Node> {
    Api::all(client.clone()).patch(node, &PatchParams::default(), &Patch::Merge(patch)).await
}

async fn patch_status(client: &Client, node: &str, patch: &Value) -> kube::Result<Node> {
    Api::all(client.clone()).patch_status(node, &PatchParams::default(), &Patch::Merge(patch)).await
}

/// A policy refused the request, for this reason.
fn assert_refused<T>(outcome: kube::Result<T>, why: &str) {
    match outcome {
        Err(kube::Error::Api(status)) => {
            assert!(status.code == 403 && status.message.contains(why), "{status:?}, not {why:?}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was not refused: {why}"),
    }
}

#[tokio::test]
async fn node_writer_without_profile_use_cannot_request_vnics() {
    let server = server().await;
    make_node(server, "requested-1", json!({})).await;
    grant_nodes(server, "autoscaler").await;
    let autoscaler = user(server, "autoscaler");
    assert_refused(annotate(&autoscaler, "requested-1", "storage").await, NO_USE);
    assert_refused(patch_status(&autoscaler, "requested-1", &vnics("storage")).await, NO_USE);
    assert_refused(create_with_vnics(&autoscaler, "requested-2").await, NO_USE);
    patch_node(&autoscaler, "requested-1", &json!({ "metadata": { "annotations": { "other": "x" } } })).await.unwrap();
}

async fn create_with_vnics(client: &Client, name: &str) -> kube::Result<Node> {
    let node = node(name, json!({ api::VNICS_ANNOTATION: "storage" }));
    Api::all(client.clone()).create(&PostParams::default(), &node).await
}

#[tokio::test]
async fn user_with_profile_use_can_request_change_and_withdraw_vnics() {
    let server = server().await;
    make_node(server, "used-1", json!({})).await;
    for name in ["operator", "bystander"] {
        grant_nodes(server, name).await;
    }
    let who = json!({ "kind": "User", "name": "operator" });
    grant(server, "operator-vnics", "oke-vnic-admin", who, use_of("storage")).await;
    let (operator, bystander) = (user(server, "operator"), user(server, "bystander"));
    let take_back = vnics(Value::Null);
    annotate(&operator, "used-1", "storage").await.unwrap();
    // Existing objects stay writable.
    patch_node(&bystander, "used-1", &json!({ "metadata": { "labels": { "a": "b" } } })).await.unwrap();
    annotate(&bystander, "used-1", "storage").await.unwrap();
    assert_refused(annotate(&bystander, "used-1", "storage,backup").await, NO_USE);
    assert_refused(patch_node(&bystander, "used-1", &take_back).await, NO_USE);
    annotate(&operator, "used-1", "storage,backup").await.unwrap();
    patch_node(&operator, "used-1", &take_back).await.unwrap();
    create_with_vnics(&operator, "used-2").await.unwrap();
}

/// `use` is checked for vnicprofiles as a whole.
#[tokio::test]
async fn user_of_a_single_named_profile_cannot_request_it() {
    let server = server().await;
    make_node(server, "named-1", json!({})).await;
    grant_nodes(server, "narrow").await;
    let rule = json!({ "apiGroups": ["oke.oraclecloud.com"], "resources": ["vnicprofiles"], "verbs": ["use"],
        "resourceNames": ["storage"] });
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "uses-storage" }, "rules": [rule] });
    server.apply_object(role).await.unwrap();
    let who = json!({ "kind": "User", "name": "narrow" });
    grant(server, "narrow-storage", "uses-storage", who, use_of("storage")).await;
    assert_refused(annotate(&user(server, "narrow"), "named-1", "storage").await, NO_USE);
}

#[tokio::test]
async fn network_tests_are_created_by_holders_of_their_role_only() {
    let server = server().await;
    let may = |verb: &str| json!({ "verb": verb, "group": api::GROUP, "resource": "networktests" });
    let who = |name: &str| json!({ "kind": "User", "name": name });
    grant(server, "tester", "oke-network-tester", who("tester"), may("create")).await;
    grant(server, "viewer", "oke-vnic-viewer", who("viewer"), may("list")).await;
    let tests = |name: &str| Api::<api::NetworkTest>::all(user(server, name));
    let spec =
        json!({ "sources": [{ "node": "a" }], "targets": [{ "service": "imds" }], "probes": [{ "type": "HTTP" }] });
    let test = api::NetworkTest::new("admission", serde_json::from_value(spec).unwrap());
    for name in ["viewer", "stranger"] {
        let refused = tests(name).create(&PostParams::default(), &test).await;
        assert_refused(refused, "cannot create resource \"networktests\"");
    }
    tests("tester").create(&PostParams::default(), &test).await.unwrap();
    let refused = tests("viewer").delete("admission", &DeleteParams::default()).await;
    assert_refused(refused, "cannot delete resource \"networktests\"");
    tests("tester").delete("admission", &DeleteParams::default()).await.unwrap();
    // What a cluster's roles view, edit and admin gain by the labels of our roles.
    let roles = Api::<ClusterRole>::all(admin(server)).list(&ListParams::default()).await.unwrap();
    for role in roles {
        let labels = role.metadata.labels.unwrap_or_default();
        let rules = role.rules.unwrap_or_default().into_iter();
        let rules = rules.filter(|rule| rule.api_groups.iter().flatten().any(|group| group == api::GROUP));
        if labels.keys().any(|label| label.starts_with("rbac.authorization.k8s.io/aggregate-to-")) {
            rules.for_each(|rule| assert_eq!(rule.verbs, ["get", "list", "watch"], "{:?}", role.metadata.name));
        }
    }
}

#[tokio::test]
async fn kubelet_cannot_request_vnics_whatever_it_was_granted() {
    let server = server().await;
    make_node(server, "kubelet-1", json!({})).await;
    for name in ["kubelet-1", "kubelet-2"] {
        let who = json!({ "kind": "User", "name": format!("system:node:{name}") });
        grant(server, &format!("{name}-all"), "cluster-admin", who, anything()).await;
    }
    let kubelet = |name: &str| server.client(&server.node(name).unwrap()).unwrap();
    assert_refused(annotate(&kubelet("kubelet-1"), "kubelet-1", "storage").await, KUBELET);
    assert_refused(patch_status(&kubelet("kubelet-1"), "kubelet-1", &vnics("storage")).await, KUBELET);
    assert_refused(create_with_vnics(&kubelet("kubelet-2"), "kubelet-2").await, KUBELET);
    annotate(&admin(server), "kubelet-1", "storage").await.unwrap();
    assert_refused(patch_node(&kubelet("kubelet-1"), "kubelet-1", &vnics(Value::Null)).await, KUBELET);
}

#[tokio::test]
async fn kubelet_can_register_its_node_and_report_status() {
    let server = server().await;
    let kubelet = server.client(&server.node("beats-1").unwrap()).unwrap();
    let nodes: Api<Node> = Api::all(kubelet.clone());
    nodes.create(&PostParams::default(), &node("beats-1", json!({ "a": "b" }))).await.unwrap();
    annotate(&admin(server), "beats-1", "storage").await.unwrap();
    let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "" });
    let beat = json!({ "metadata": { "annotations": { "c": "d" } }, "status": { "conditions": [ready] } });
    patch_status(&kubelet, "beats-1", &beat).await.unwrap();
}

/// Why docs/access.md says by which labels a profile had better select.
#[tokio::test]
async fn kubelet_can_set_any_label_except_node_restriction_labels() {
    let server = server().await;
    make_node(server, "labels-1", json!({})).await;
    let kubelet = server.client(&server.node("labels-1").unwrap()).unwrap();
    let label = |key: &str| json!({ "metadata": { "labels": { key: "x" } } });
    patch_node(&kubelet, "labels-1", &label("pool")).await.unwrap();
    let kept = patch_node(&kubelet, "labels-1", &label("node-restriction.kubernetes.io/vnics")).await;
    assert_refused(kept, "is not allowed to modify labels: node-restriction.kubernetes.io/vnics");
}

/// An agent's pod on a node, and the token that the kubelet there would give it.
async fn agent_on(server: &ApiServer, node: &str) -> (String, Client) {
    make_node(server, node, json!({})).await;
    // Of a pool's DaemonSet: policies know accounts and tokens, and no names of pods.
    let name = format!("oke-node-agent-pilot-{node}");
    make_pod(server, NAMESPACE, &name, Some(node)).await;
    let client = client_of(server, &name).await;
    (name, client)
}

async fn make_pod(server: &ApiServer, namespace: &str, name: &str, node: Option<&str>) {
    let pod = json!({
        "metadata": { "name": name, "annotations": { "foreign": "x" }, "labels": { "app": "agent" } },
        "spec": { "nodeName": node, "serviceAccountName": "oke-node-agent", "automountServiceAccountToken": false,
                  "containers": [{ "name": "agent", "image": "agent" }] },
    });
    let pod: Pod = serde_json::from_value(pod).unwrap();
    Api::namespaced(admin(server), namespace).create(&PostParams::default(), &pod).await.unwrap();
}

async fn client_of(server: &ApiServer, pod: &str) -> Client {
    server.client(&server.token(&agent(), &Bound::Pod(pod.to_owned())).await.unwrap()).unwrap()
}

fn pods(client: &Client) -> Api<Pod> {
    Api::namespaced(client.clone(), NAMESPACE)
}

async fn patch_pod(client: &Client, pod: &str, patch: Value) -> kube::Result<Pod> {
    pods(client).patch(pod, &PatchParams::default(), &Patch::Merge(patch)).await
}

fn annotation(key: &str, value: Value) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

const KEY: &str = "oke.oraclecloud.com/agent-channel";

#[tokio::test]
async fn agent_can_write_only_its_annotations_on_its_own_pod() {
    let server = server().await;
    let (pod, agent) = agent_on(server, "own-1").await;
    patch_pod(&agent, &pod, annotation(KEY, json!("one"))).await.unwrap();
    patch_pod(&agent, &pod, annotation(KEY, json!("two"))).await.unwrap();
    patch_pod(&agent, &pod, annotation(KEY, Value::Null)).await.unwrap();
    let others = [
        annotation("foreign", json!("y")),
        annotation("foreign", Value::Null),
        annotation("new", json!("y")),
        annotation(api::VNICS_ANNOTATION, json!("storage")),
        json!({ "metadata": { "labels": { "app": "another" } } }),
        json!({ "metadata": { "finalizers": ["oke.oraclecloud.com/mine"] } }),
        json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "own-1", "uid": "1" }] } }),
        json!({ "spec": { "containers": [{ "name": "agent", "image": "another" }] } }),
    ];
    for patch in others {
        assert_refused(patch_pod(&agent, &pod, patch).await, ONLY_OURS);
    }
    assert_refused(pods(&agent).delete(&pod, &DeleteParams::default()).await, OWN_POD);
    let ready = json!({ "status": { "message": "x" } });
    let status = pods(&agent).patch_status(&pod, &PatchParams::default(), &Patch::Merge(ready)).await;
    assert_refused(status, OWN_POD);
}

#[tokio::test]
async fn an_agent_writes_nothing_about_another_node() {
    let server = server().await;
    let (_, agent) = agent_on(server, "here-1").await;
    let (other_pod, other) = agent_on(server, "there-1").await;
    assert_refused(patch_pod(&agent, &other_pod, annotation(KEY, json!("x"))).await, OWN_POD);
    assert_refused(pods(&agent).delete(&other_pod, &DeleteParams::default()).await, OWN_POD);
    for node in ["there-1", "here-1"] {
        assert_refused(patch_node(&agent, node, &json!({ "metadata": { "labels": { "a": "b" } } })).await, OWN_POD);
        assert_refused(annotate(&agent, node, "storage").await, OWN_POD);
        assert_refused(Api::<Node>::all(agent.clone()).delete(node, &DeleteParams::default()).await, OWN_POD);
    }
    // The same by the one whose pod it is.
    patch_pod(&other, &other_pod, annotation(KEY, json!("x"))).await.unwrap();
}

#[tokio::test]
async fn agent_cannot_write_other_pods_on_its_node_or_namesakes() {
    let server = server().await;
    let (pod, agent) = agent_on(server, "next-1").await;
    make_pod(server, NAMESPACE, "next-2", Some("next-1")).await;
    assert_refused(patch_pod(&agent, "next-2", annotation(KEY, json!("x"))).await, OWN_POD);
    server.create_account(&ServiceAccount::new("default", "oke-node-agent")).await.unwrap();
    make_pod(server, "default", &pod, Some("next-1")).await;
    let others: Api<Pod> = Api::namespaced(agent, "default");
    let patch = Patch::Merge(annotation(KEY, json!("x")));
    assert_refused(others.patch(&pod, &PatchParams::default(), &patch).await, OWN_POD);
}

#[tokio::test]
async fn agent_cannot_request_vnics_or_create_objects() {
    let server = server().await;
    let (_, agent) = agent_on(server, "requests-1").await;
    let kind = GroupVersionKind::gvk(api::GROUP, api::VERSION, "VnicAttachment");
    let attachments = |client: Client| Api::<DynamicObject>::all_with(client, &ApiResource::from_gvk(&kind));
    let object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment", "metadata": { "name": "admission" },
        "spec": { "instanceId": "ocid1.instance.oc1.iad.a", "subnetId": "ocid1.subnet.oc1.iad.a", "name": "a", "purpose": "Host" },
    }))
    .unwrap();
    assert_refused(attachments(agent.clone()).create(&PostParams::default(), &object).await, OWN_POD);
    attachments(admin(server)).create(&PostParams::default(), &object).await.unwrap();
    let status = Patch::Merge(json!({ "status": { "nodeName": "requests-1" } }));
    let patched = attachments(agent.clone()).patch_status("admission", &PatchParams::default(), &status).await;
    assert_refused(patched, OWN_VNIC);
    assert_refused(attachments(agent.clone()).delete("admission", &DeleteParams::default()).await, OWN_POD);
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "admission" } })).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(agent, NAMESPACE);
    assert_refused(maps.create(&PostParams::default(), &map).await, OWN_POD);
}

#[tokio::test]
async fn agent_can_report_only_on_vnics_of_its_own_node() {
    let server = server().await;
    let ((_, own), (_, other)) = (agent_on(server, "reports-1").await, agent_on(server, "reports-2").await);
    let attachments = |client: &Client| Api::<api::VnicAttachment>::all(client.clone());
    let spec = json!({ "instanceId": "ocid1.instance.oc1.iad.r", "subnetId": "ocid1.subnet.oc1.iad.a", "name": "r",
        "purpose": "Attach" });
    let object = api::VnicAttachment::new("reports", serde_json::from_value(spec).unwrap());
    attachments(&admin(server)).create(&PostParams::default(), &object).await.unwrap();
    let write = async |client: &Client, status: Value| {
        let patch = Patch::Merge(json!({ "status": status }));
        attachments(client).patch_status("reports", &PatchParams::default(), &patch).await
    };
    let report = json!({ "node": { "configured": true, "inUse": 1, "generation": 1 } });
    assert_refused(write(&own, report.clone()).await, OWN_VNIC);
    let vnic = json!({ "nodeName": "reports-1", "vnicId": "ocid1.vnic.oc1.iad.r", "observedGeneration": 1 });
    write(&admin(server), vnic).await.unwrap();
    write(&own, report.clone()).await.unwrap();
    assert_refused(write(&other, report).await, OWN_VNIC);
    let condition = json!({ "type": "Ready", "status": "True", "reason": "Ready",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    for more in [
        json!({ "nodeName": "reports-2" }),
        json!({ "vnicId": null }),
        json!({ "ownAddresses": ["10.0.0.9"] }),
        json!({ "conditions": [condition] }),
    ] {
        assert_refused(write(&own, more).await, ONLY_REPORT);
    }
    let spec = Patch::Merge(json!({ "spec": { "mtu": 1500 } }));
    let patched = attachments(&own).patch("reports", &PatchParams::default(), &spec).await;
    assert_refused(patched, OWN_POD);
}

#[tokio::test]
async fn agent_token_without_pod_and_node_cannot_write() {
    let server = server().await;
    let (pod, _) = agent_on(server, "bound-1").await;
    for bound in [Bound::Nothing, Bound::Node("bound-1".into())] {
        let token: Identity = server.token(&agent(), &bound).await.unwrap();
        let agent = server.client(&token).unwrap();
        assert_refused(patch_pod(&agent, &pod, annotation(KEY, json!("x"))).await, UNBOUND);
        assert_refused(events::create(&agent, &events::event("bound-1", &pod)).await, UNBOUND);
    }
    make_pod(server, NAMESPACE, "nowhere", None).await;
    let nowhere = client_of(server, "nowhere").await;
    assert_refused(patch_pod(&nowhere, "nowhere", annotation(KEY, json!("x"))).await, UNBOUND);
    assert_refused(events::create(&nowhere, &events::event("bound-1", "nowhere")).await, UNBOUND);
}

#[tokio::test]
async fn other_accounts_can_write_as_before() {
    let server = server().await;
    let account = ServiceAccount::new("default", "oke-node-agent");
    server.create_account(&account).await.unwrap();
    let who = json!({ "kind": "ServiceAccount", "name": account.name, "namespace": account.namespace });
    grant(server, "namesake", "cluster-admin", who, anything()).await;
    let client = server.client(&server.token(&account, &Bound::Nothing).await.unwrap()).unwrap();
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "others" } })).unwrap();
    Api::<ConfigMap>::namespaced(client, NAMESPACE).create(&PostParams::default(), &map).await.unwrap();
    let mut event = events::event("bound-1", "another");
    event["reportingController"] = json!("example.com/another");
    events::create(&admin(server), &event).await.unwrap();
}
