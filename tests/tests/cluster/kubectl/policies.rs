//! `policy` and `stop` with exactly the shipped rights: the stop switch is the controller's ConfigMap.

use api::NodePolicy;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube_harness::{ApiServer, wait_for};
use serde_json::{Value, json};

use super::{NAMESPACE, RBAC, VIEWER, json_of, run, server, text};
use crate::manifests_folder;

const ADMIN: &str = "kubectl-policy-admin";

/// Gives the user both roles of policies, and the viewer's.
async fn grant(server: &ApiServer) {
    server.apply(&manifests_folder().join("base/admission.yaml")).await.unwrap();
    for (kind, role) in [
        ("ClusterRole", "oke-node-policy-admin"),
        ("Role", "oke-node-policy-admin"),
        ("ClusterRole", "oke-node-viewer"),
        ("Role", "oke-node-viewer"),
    ] {
        let binding = json!({ "apiVersion": format!("{RBAC}/v1"), "kind": format!("{kind}Binding"),
            "metadata": { "name": format!("{ADMIN}-{role}"), "namespace": (kind == "Role").then_some(NAMESPACE) },
            "subjects": [{ "kind": "User", "name": ADMIN, "apiGroup": RBAC }],
            "roleRef": { "apiGroup": RBAC, "kind": kind, "name": role } });
        server.apply_object(binding).await.unwrap();
    }
}

async fn controller_config(server: &ApiServer) -> Api<ConfigMap> {
    let maps: Api<ConfigMap> = Api::namespaced(server.client(server.admin()).unwrap(), NAMESPACE);
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "oke-node-controller" } });
    let params = PatchParams::apply("kubectl-policies");
    maps.patch("oke-node-controller", &params, &Patch::Apply(map)).await.unwrap();
    maps
}

#[tokio::test(flavor = "multi_thread")]
async fn rollouts_are_stopped_by_holders_of_the_role_and_status_says_so_first() {
    let server = server().await;
    grant(server).await;
    let maps = controller_config(server).await;
    wait_for("the role of policies", async || {
        let stopped = run(server, ADMIN, &["stop", "nodes", "lose", "packets"]);
        stopped.status.success().then_some(())
    })
    .await;
    let data = maps.get("oke-node-controller").await.unwrap().data.unwrap();
    assert!(data["stop"].ends_with(&format!("by {ADMIN}: nodes lose packets")), "{data:?}");
    for command in [&["status"][..], &["policy"]] {
        let shown = text(&run(server, VIEWER, command).stdout);
        assert!(shown.starts_with(&format!("All rollouts have been stopped {}\n", data["stop"])), "{shown}");
    }
    assert_eq!(json_of(&run(server, VIEWER, &["status", "-o", "json"]))["stopped"], json!(data["stop"]));
    let refused = run(server, VIEWER, &["stop", "--off"]);
    assert!(text(&refused.stderr).contains("Your user needs the Role oke-node-policy-admin"), "{refused:?}");
    assert_eq!(refused.status.code(), Some(1));
    let output = run(server, ADMIN, &["stop", "--off"]);
    assert!(text(&output.stdout).starts_with("Rollouts continue. They had been stopped since "), "{output:?}");
    assert_eq!(maps.get("oke-node-controller").await.unwrap().data.unwrap_or_default().get("stop"), None);
    assert_eq!(text(&run(server, ADMIN, &["stop", "--off"]).stdout), "Rollouts were not stopped.\n");
    let shown = text(&run(server, VIEWER, &["status"]).stdout);
    assert!(!shown.contains("stopped"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_leader_policy_shows_the_status_of_the_object() {
    let server = server().await;
    let policies: Api<NodePolicy> = Api::all(server.client(server.admin()).unwrap());
    let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodePolicy",
        "metadata": { "name": "kubectl-policy" },
        "spec": { "allNodes": true, "mode": "Apply", "settings": { "sysctls": { "vm.swappiness": "10" } } } });
    server.apply_object(object).await.unwrap();
    let since = "2026-01-02T03:04:05Z";
    let status = json!({ "target": "5f0c", "failing": [{ "node": "n7", "item": "vm.swappiness", "reason": "Failed" }],
        "conditions": [{ "type": "Progressing", "status": "True", "reason": "RollingBack", "lastTransitionTime": since },
            { "type": "Applied", "status": "False", "reason": "Failed", "lastTransitionTime": since }] });
    let patch: Patch<Value> = Patch::Merge(json!({ "status": status }));
    policies.patch_status("kubectl-policy", &PatchParams::default(), &patch).await.unwrap();
    let list = json_of(&run(server, VIEWER, &["policy", "-o", "json"]));
    let listed = list["policies"].as_array().unwrap().iter().find(|it| it["name"] == "kubectl-policy").unwrap();
    assert_eq!((&listed["progress"], &listed["mode"]), (&json!("RollingBack"), &json!("Apply")));
    let output = run(server, VIEWER, &["policy", "kubectl-policy"]);
    let shown = text(&output.stdout);
    for line in ["The controller is not reachable: ", "progress            RollingBack", "n7    vm.swappiness  Failed"]
    {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert_eq!(output.status.code(), Some(1));
    let output = run(server, VIEWER, &["policy", "nowhere"]);
    assert!(text(&output.stderr).contains("there is no NodePolicy nowhere"), "{output:?}");
}
