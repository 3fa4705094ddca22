//! `nettest` of a Pod and a Service against a real API server without a controller: facts are found with the user's rights, and
//! a proven one starts no test.

use std::time::{Duration, Instant};

use api::NetworkTest;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube_harness::{ApiServer, ServiceAccount};
use serde_json::json;

use super::{RBAC, json_of, program, run, server, text};

const NAMESPACE: &str = "connections";
const USER: &str = "connections-viewer";
const FROM: &str = "pod/connections/front";

/// A Pod, and a Service whose one endpoint is not ready.
async fn prepare(server: &ApiServer) {
    let pod = |name: &str, app: &str| {
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "app": app } },
            "spec": { "nodeName": "kubectl-node", "automountServiceAccountToken": false,
                "containers": [{ "name": "web", "image": "none", "ports": [{ "containerPort": 8080 }] }] } })
    };
    let object = |version: &str, kind: &str, name: &str| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": NAMESPACE } });
    let mut namespace = object("v1", "Namespace", NAMESPACE);
    namespace["metadata"].as_object_mut().unwrap().remove("namespace");
    server.apply_object(namespace).await.unwrap();
    server.create_account(&ServiceAccount::new(NAMESPACE, "default")).await.unwrap();
    let mut service = object("v1", "Service", "cart");
    service["spec"] = json!({ "selector": { "app": "cart" }, "ports": [{ "port": 80, "targetPort": 8080 }] });
    let mut slice = object("discovery.k8s.io/v1", "EndpointSlice", "cart-1");
    slice["metadata"]["labels"] = json!({ "kubernetes.io/service-name": "cart" });
    slice["addressType"] = json!("IPv4");
    slice["endpoints"] = json!([{ "addresses": ["10.0.33.7"], "conditions": { "ready": false },
        "targetRef": { "kind": "Pod", "namespace": NAMESPACE, "name": "cart-0" } }]);
    slice["ports"] = json!([{ "port": 8080 }]);
    // As `view`, whose rules a controller writes that does not run here.
    let mut role = object(&format!("{RBAC}/v1"), "Role", USER);
    let may = |group: &str, resources: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": ["get", "list"] });
    role["rules"] = json!([
        may("", &["pods", "services"]),
        may("discovery.k8s.io", &["endpointslices"]),
        may("networking.k8s.io", &["networkpolicies"])
    ]);
    let mut binding = object(&format!("{RBAC}/v1"), "RoleBinding", USER);
    binding["roleRef"] = json!({ "apiGroup": RBAC, "kind": "Role", "name": USER });
    binding["subjects"] = json!([{ "kind": "User", "name": USER, "apiGroup": RBAC }]);
    for object in [service, slice, pod("front", "front"), pod("cart-0", "cart"), role, binding] {
        server.apply_object(object).await.unwrap();
    }
    let client = server.client(server.admin()).unwrap();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, NAMESPACE);
    let running = json!({ "status": { "phase": "Running", "podIP": "10.0.32.5", "podIPs": [{ "ip": "10.0.32.5" }] } });
    pods.patch_status("front", &PatchParams::default(), &Patch::Merge(running)).await.unwrap();
    kube_harness::wait_for("the user's role", async || {
        let output = run(server, USER, &["nettest", FROM, "service/connections/cart"]);
        (!text(&output.stderr).contains("forbidden")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_without_ready_endpoints_is_named_without_a_test() {
    let server = server().await;
    prepare(server).await;
    let began = Instant::now();
    let output = run(server, USER, &["nettest", FROM, "service/connections/cart:80", "-o", "json"]);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let answer = json_of(&output);
    assert_eq!((output.status.code(), answer["cause"].as_str()), (Some(1), Some("NoReadyEndpoint")), "{answer}");
    assert!(answer["findings"][0]["message"].as_str().unwrap().contains("connections/cart-0"), "{answer}");
    // The answer names what this user may not read, and still shows everything else.
    assert!(answer["findings"].to_string().contains("Node kubectl-node not read"), "{answer}");
    for (to, cause) in [("service/connections/nothing", "NoService"), ("service/connections/cart:81", "NoServicePort")]
    {
        let answer = json_of(&run(server, USER, &["nettest", FROM, to, "-o", "json"]));
        assert_eq!(answer["cause"].as_str(), Some(cause), "{answer}");
    }
    let tests = Api::<NetworkTest>::all(server.client(server.admin()).unwrap())
        .list(&ListParams::default())
        .await
        .unwrap()
        .items;
    assert!(tests.iter().all(|test| test.spec.sources.iter().all(|source| !source.pod_network)), "{tests:?}");

    for misuse in [
        &["nettest", "pod/connections", "service/a/b"][..],
        &["nettest", FROM, "service/a"],
        &["nettest", FROM, "service/a/b", "--port", "80"],
        &["nettest", FROM, "pod/a/b", "--throughput", "10"],
    ] {
        assert_eq!(program().args(misuse).output().unwrap().status.code(), Some(2), "{misuse:?}");
    }
}
