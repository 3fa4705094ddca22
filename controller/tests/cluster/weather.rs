//! The API server restarts, forgets, and has no time.

use serde_json::json;

use crate::scene::{Scene, wait_for};

/// So that the weather does not cost the lease.
fn patient(scene: &mut Scene) {
    scene.environment.insert("LEASE_SECONDS".to_owned(), "120".to_owned());
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
