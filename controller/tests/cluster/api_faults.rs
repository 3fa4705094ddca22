//! An API server that restarts, drops its history, or has no time.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube_harness::wait_until;
use serde_json::json;

use crate::process::Controller;
use crate::scene::{Scene, manifest};

/// The controllers' user, if it must not be the administrator.
const USER: &str = "controller";

/// Long enough that a busy machine does not cost the Lease.
fn patient(scene: &mut Scene) {
    scene.environment.insert("LEASE_SECONDS".to_owned(), "300".to_owned());
}

/// From here on the controllers have their own user, because the administrator is exempt from priority and fairness. Its
/// leases are exempt too, if requested.
async fn start_as_plain_user(scene: &mut Scene, leases_are_exempt: bool) {
    patient(scene);
    let user = scene.kubernetes.user(USER, None).unwrap();
    let subject = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER });
    let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": USER },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin" },
        "subjects": [subject] });
    scene.kubernetes.apply_object(binding).await.unwrap();
    if leases_are_exempt {
        // Of two with one precedence, the first by name counts: before the harness's own.
        let flow = json!({ "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
            "metadata": { "name": "exempt-leases" },
            "spec": { "priorityLevelConfiguration": { "name": "exempt" }, "matchingPrecedence": 2, "rules": [{
                "subjects": [{ "kind": "User", "user": { "name": USER } }],
                "resourceRules": [{ "verbs": ["*"], "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                    "clusterScope": true, "namespaces": ["*"] }] }] } });
        scene.kubernetes.apply_object(flow).await.unwrap();
    }
    scene.kubernetes.write_kubeconfig(&user, &scene.folder.path().join("kubeconfig")).unwrap();
}

fn refusals(controller: &Controller) -> f64 {
    controller.metric("oke_node_controller_kubernetes_refusals_total ").unwrap_or_default()
}

#[tokio::test]
async fn requests_refused_by_priority_and_fairness_are_retried() {
    let mut scene = Scene::new().await;
    start_as_plain_user(&mut scene, false).await;
    let mut one = scene.controller("one");
    // The leader has read its objects, and may not watch yet: only watches would be refused.
    scene.want("before", 0, json!({})).await;
    scene.wait_for_reason("before", "Ready").await;
    let before = scene.vnics();
    scene.kubernetes.throttle(USER).await.unwrap();
    scene.want("storage", 0, json!({})).await;
    // The node's pod network is read before anything is written.
    wait_until("a read was refused, and retried", async || refusals(&one) > 1.0).await;
    wait_until("the reconcile was given up", async || one.log().contains("instance.unreadable")).await;
    assert_eq!(scene.vnics(), before, "no VNIC without a finalizer");
    scene.kubernetes.unthrottle().await.unwrap();
    scene.wait_for_reason("storage", "Ready").await;
    assert_eq!(one.ended(), None);
    scene.assert_exact().await;
}

#[tokio::test]
async fn refused_lists_of_a_new_leader_continue() {
    let mut scene = Scene::new().await;
    start_as_plain_user(&mut scene, true).await;
    // A controller with a configured cluster id starts with the lists.
    scene.environment.insert("CLUSTER_ID".to_owned(), "a-cluster".to_owned());
    scene.want("storage", 0, json!({})).await;
    scene.kubernetes.throttle(USER).await.unwrap();
    let mut one = scene.controller("one");
    wait_until("each of three lists was refused, more than once", async || refusals(&one) >= 9.0).await;
    assert_eq!(one.metric("oke_node_controller_leads "), Some(1.0), "its Lease requests are served");
    assert!(!one.leads(), "it does not know what to do");
    scene.kubernetes.unthrottle().await.unwrap();
    scene.wait_for_reason("storage", "Ready").await;
    assert!(!one.log().contains("watch.failed"), "no list was given up: {}", one.log());
    assert_eq!(one.ended(), None);
    scene.assert_exact().await;
}

/// How often the API server answered 429 to writes of Events, by its own count.
async fn events_refused(scene: &Scene) -> f64 {
    let request = hyper::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = scene.client.request_text(request).await.unwrap();
    let of = |line: &&str| {
        let has = |label: &str| line.contains(label);
        has("apiserver_request_total{") && has(r#"code="429""#) && has(r#"resource="events""#) && has(r#"verb="POST""#)
    };
    text.lines().filter(of).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

#[tokio::test]
async fn a_refused_event_is_written_later() {
    let mut scene = Scene::new().await;
    start_as_plain_user(&mut scene, false).await;
    let one = scene.controller("one");
    wait_until("it leads", async || one.leads()).await;
    let nodes: Api<Node> = Api::all(scene.client.clone());
    let annotate = async |vnics: &str| {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "oke.oraclecloud.com/vnics": vnics } } }));
        nodes.patch("node-0", &PatchParams::default(), &patch).await.unwrap();
    };
    let written = |result: &str| {
        one.metric(&format!(r#"oke_node_controller_kubernetes_writes_total{{kind="event",result="{result}"}}"#))
    };
    // It may not watch Nodes yet: that would be refused, and nothing reported.
    annotate("Before!").await;
    wait_until("an event is written", async || written("ok") == Some(1.0)).await;
    scene.kubernetes.throttle(USER).await.unwrap();
    annotate("Storage!").await;
    wait_until("its event was refused", async || written("error").is_some()).await;
    scene.kubernetes.unthrottle().await.unwrap();
    let events: Api<Event> = Api::namespaced(scene.client.clone(), "default");
    let event_count = async || {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.iter().filter(|event| event.reason.as_deref() == Some("InvalidVnicsAnnotation")).count()
    };
    wait_until("it is reported all the same", async || event_count().await > 1).await;
    wait_until("its writing is counted", async || written("ok") == Some(2.0)).await;
    let refused = events_refused(&scene).await;
    assert!(refused >= 1.0 && written("error") >= Some(refused), "each attempt: {refused}, {:?}", written("error"));
    assert_eq!((event_count().await, one.metric("oke_node_controller_events_lost_total ")), (2, Some(0.0)));
}

#[tokio::test]
async fn a_missing_kind_is_reported_until_it_is_served() {
    let mut scene = Scene::new().await;
    patient(&mut scene);
    let (kinds, name) =
        (Api::<CustomResourceDefinition>::all(scene.client.clone()), "vnicprofiles.oke.oraclecloud.com");
    kinds.delete(name, &DeleteParams::default()).await.unwrap();
    wait_until("the kind is gone", async || kinds.get_opt(name).await.unwrap().is_none()).await;
    let one = scene.controller("one");
    let behind = |what: &str| one.metric(&format!("oke_node_controller_watch_behind_seconds{{watch=\"{what}\"}}"));
    // It has been tried several times by then.
    wait_until("it is behind", async || behind("VnicProfiles") > Some(5.0)).await;
    assert_eq!((behind("Nodes"), one.metric("oke_node_controller_leads ")), (Some(0.0), Some(1.0)));
    let log = one.log();
    assert_eq!((log.matches("watch.failed").count(), log.matches("watch.recovered").count()), (1, 0), "{log}");
    assert!(!one.leads(), "it is the leader and cannot read its objects");
    scene.kubernetes.apply(&manifest("crds.yaml")).await.unwrap();
    wait_until("it works", async || one.leads()).await;
    wait_until("nothing is behind", async || behind("VnicProfiles") == Some(0.0)).await;
    wait_until("it is logged", async || one.log().contains("watch.recovered")).await;
}
