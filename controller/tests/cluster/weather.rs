//! The API server restarts, forgets, and has no time.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

use crate::scene::{Scene, manifest, wait_for};

/// So that the weather does not cost the lease.
fn patient(scene: &mut Scene) {
    scene.environment.insert("LEASE_SECONDS".to_owned(), "300".to_owned());
}

#[tokio::test]
async fn a_restart_of_the_api_server_is_survived() {
    let mut scene = Scene::new().await;
    patient(&mut scene);
    let mut one = scene.controller("one");
    scene.want("before", 0, json!({})).await;
    scene.wait_for_reason("before", "Ready").await;
    scene.kubernetes.restart().unwrap();
    scene.want("after", 0, json!({})).await;
    scene.wait_for_reason("after", "Ready").await;
    assert_eq!(one.ended(), None, "by the same process");
    scene.assert_exact().await;
}

#[tokio::test]
async fn a_watch_that_expired_is_begun_anew_and_nothing_is_missed() {
    let mut scene = Scene::new().await;
    patient(&mut scene);
    let mut one = scene.controller("one");
    scene.want("before", 0, json!({})).await;
    scene.wait_for_reason("before", "Ready").await;
    one.freeze(true);
    scene.delete("before").await;
    scene.want("meanwhile", 0, json!({})).await;
    scene.kubernetes.expire().await.unwrap();
    one.freeze(false);
    scene.wait_until_gone("before").await;
    scene.wait_for_reason("meanwhile", "Ready").await;
    assert_eq!(one.ended(), None, "by the same process");
    assert!(one.log().contains("too old resource version"), "it was told 410: {}", one.log());
    scene.assert_exact().await;
}

#[tokio::test]
async fn requests_that_priority_and_fairness_refuses_are_made_again() {
    let mut scene = Scene::new().await;
    patient(&mut scene);
    // The administrator is exempt from priority and fairness: the controller is somebody else.
    let user = scene.kubernetes.user("controller", None).unwrap();
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "controller" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "controller" }] });
    scene.kubernetes.apply_object(binding).await.unwrap();
    scene.kubernetes.write_kubeconfig(&user, &scene.folder.path().join("kubeconfig")).unwrap();
    let mut one = scene.controller("one");
    wait_for("it leads", async || one.leads()).await;
    scene.kubernetes.throttle("controller").await.unwrap();
    scene.want("storage", 0, json!({})).await;
    wait_for("a write was refused", async || {
        one.metric(r#"oke_node_controller_kubernetes_writes_total{kind="finalizer",result="error"}"#).is_some()
    })
    .await;
    assert_eq!(scene.vnics(), Vec::<String>::new(), "no VNIC without a finalizer");
    scene.kubernetes.unthrottle().await.unwrap();
    scene.wait_for_reason("storage", "Ready").await;
    assert_eq!(one.ended(), None);
    scene.assert_exact().await;
}

#[tokio::test]
async fn a_kind_that_is_missing_is_told_once_and_shown_until_it_is_there() {
    let mut scene = Scene::new().await;
    patient(&mut scene);
    let (kinds, name) =
        (Api::<CustomResourceDefinition>::all(scene.client.clone()), "vnicprofiles.oke.oraclecloud.com");
    kinds.delete(name, &DeleteParams::default()).await.unwrap();
    wait_for("the kind is gone", async || kinds.get_opt(name).await.unwrap().is_none()).await;
    let one = scene.controller("one");
    let behind = |what: &str| one.metric(&format!("oke_node_controller_watch_behind_seconds{{watch=\"{what}\"}}"));
    // It has been tried several times by then.
    wait_for("it is behind", async || behind("VnicProfiles") > Some(5.0)).await;
    assert_eq!((behind("Nodes"), one.metric("oke_node_controller_leads ")), (Some(0.0), Some(1.0)));
    let log = one.log();
    assert_eq!((log.matches("watch.failed").count(), log.matches("watch.recovered").count()), (1, 0), "{log}");
    assert!(!one.leads(), "it has the lease, and does not know what to do");
    scene.kubernetes.apply(&manifest("crds.yaml")).await.unwrap();
    wait_for("it works", async || one.leads()).await;
    wait_for("nothing is behind", async || behind("VnicProfiles") == Some(0.0)).await;
    wait_for("it is told", async || one.log().contains("watch.recovered")).await;
}
