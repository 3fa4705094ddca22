//! Reboots by NodeTask: the shipped controller on a real API server and the emulated OCI API. The test acts for kubelet and agent.

use std::time::Duration;

use api::node_task::TaskState;
use api::{CORDON_ANNOTATION, NODE_POOL_ANNOTATION, NodeTask, NodeTaskStatus};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use kube_harness::{Bound, ServiceAccount, wait_until};
use sandbox::{ApiFault, ApiFaultKind, OciSettings, Operation};
use serde_json::{Value, json};

use crate::agents::{FakeAgent, TrustedControllers};
use crate::leases::{make_replica, spec};
use crate::process::Controller;
use crate::scene::{POOL, Scene, manifest};

const SHOP: &str = "shop";
const ENABLED: [(&str, &str); 2] = [("TASKS", "on"), ("TASK_REBOOTS", "on")];

/// Three nodes with their agents, and a namespace.
async fn scene() -> (Scene, Vec<FakeAgent>) {
    let scene = Scene::with(3, 2, OciSettings::default()).await;
    let trusted = TrustedControllers::follow(scene.client.clone());
    let mut agents = Vec::new();
    for number in 0..3 {
        let name = format!("node-{number}");
        let agent = FakeAgent::on(&scene.client, &name, &trusted).await;
        agent.takes_policies();
        agent.booted("before");
        agents.push(agent);
        let annotation = json!({ "metadata": { "annotations": { NODE_POOL_ANNOTATION: POOL } } });
        nodes(&scene).patch(&name, &PatchParams::default(), &Patch::Merge(annotation)).await.unwrap();
        booted(&scene, &name, "before").await;
    }
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SHOP } });
    scene.kubernetes.apply_object(namespace).await.unwrap();
    scene.kubernetes.create_account(&ServiceAccount::new(SHOP, "default")).await.unwrap();
    (scene, agents)
}

fn controller(scene: &Scene, name: &str) -> Controller {
    let more: Vec<(&str, String)> = ENABLED.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    scene.controller_with(name, &more)
}

fn nodes(scene: &Scene) -> Api<Node> {
    Api::all(scene.client.clone())
}

fn tasks(scene: &Scene) -> Api<NodeTask> {
    Api::all(scene.client.clone())
}

/// As the kubelet reports a boot.
async fn booted(scene: &Scene, node: &str, boot_id: &str) {
    let status = json!({ "status": { "nodeInfo": { "bootID": boot_id } } });
    nodes(scene).patch_status(node, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn reboot(scene: &Scene, name: &str, node: &str, drain_minutes: u8) {
    let task = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodeTask", "metadata": { "name": name },
        "spec": { "node": node, "action": { "reboot": { "drainMinutes": drain_minutes } } } });
    tasks(scene).create(&PostParams::default(), &serde_json::from_value(task).unwrap()).await.unwrap();
}

async fn status(scene: &Scene, task: &str) -> NodeTaskStatus {
    tasks(scene).get(task).await.unwrap().status.unwrap_or_default()
}

async fn wait_for_step(scene: &Scene, task: &str, step: &str) {
    wait_until(&format!("{task} is {step}"), async || {
        let status = status(scene, task).await;
        assert!(!status.is_final(), "{task} is not {step} but {}: {}", status.reason, status.message);
        status.running.first().is_some_and(|running| running.step == step)
    })
    .await;
}

async fn wait_for_end(scene: &Scene, task: &str) -> NodeTaskStatus {
    wait_until(&format!("{task} ended"), async || status(scene, task).await.is_final()).await;
    status(scene, task).await
}

/// Whether a node is unschedulable, and in whose name.
async fn cordon(scene: &Scene, node: &str) -> (bool, Option<String>) {
    let node = nodes(scene).get(node).await.unwrap();
    let owner = node.annotations().get(CORDON_ANNOTATION).cloned();
    (node.spec.and_then(|spec| spec.unschedulable).unwrap_or_default(), owner)
}

/// A running pod of a ReplicaSet.
async fn pod(scene: &Scene, name: &str, node: &str) {
    let owner =
        json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": true }]);
    let pod = json!({ "metadata": { "name": name, "labels": { "app": name }, "ownerReferences": owner },
        "spec": { "nodeName": node, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "containers": [{ "name": "a", "image": "a" }] } });
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), SHOP);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let running = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(running)).await.unwrap();
}

async fn pods(scene: &Scene) -> usize {
    Api::<Pod>::namespaced(scene.client.clone(), SHOP).list(&ListParams::default()).await.unwrap().items.len()
}

/// A budget that allows so many disruptions, as the controller manager would compute it.
async fn budget(scene: &Scene, name: &str, allowed: u32) {
    let budget = json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": name, "namespace": SHOP },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": name } } } });
    scene.kubernetes.apply_object(budget).await.unwrap();
    let status = json!({ "status": { "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1 + allowed,
        "desiredHealthy": 1, "expectedPods": 1 + allowed } });
    let api: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> = Api::namespaced(scene.client.clone(), SHOP);
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_killed_at_each_step_resets_the_node_once() {
    let (scene, agents) = scene().await;
    pod(&scene, "web", "node-0").await;
    budget(&scene, "web", 0).await;
    let mut leader = controller(&scene, "one");
    reboot(&scene, "reboot-0", "node-0", 120).await;
    let mut restart = || {
        leader.kill();
        leader = controller(&scene, "one");
    };
    // Twice before the drain.
    for _ in 0..2 {
        wait_until("it began", async || !status(&scene, "reboot-0").await.running.is_empty()).await;
        restart();
    }
    wait_for_step(&scene, "reboot-0", "Draining").await;
    let (is_cordoned, owner) = cordon(&scene, "node-0").await;
    let uid = tasks(&scene).get("reboot-0").await.unwrap().uid().unwrap();
    assert_eq!((is_cordoned, owner), (true, Some(format!("reboot-0/{uid}"))));
    restart();
    wait_until("the budget is named", async || status(&scene, "reboot-0").await.message.contains("budget web")).await;
    // The request is carried out, and the leader is killed before it knows.
    scene
        .cloud
        .inject(ApiFault::new(ApiFaultKind::Delay(Duration::from_secs(120))).of(Operation::InstanceAction).times(1));
    budget(&scene, "web", 1).await;
    wait_until("OCI has the reset", async || scene.cloud.restarts().len() == 1).await;
    assert_eq!((pods(&scene).await, status(&scene, "reboot-0").await.running[0].step.as_str()), (0, "Resetting"));
    restart();
    wait_for_step(&scene, "reboot-0", "Proving").await;
    restart();
    wait_until("it waits for the boot", async || {
        status(&scene, "reboot-0").await.message.contains("boot id from before")
    })
    .await;
    booted(&scene, "node-0", "after").await;
    agents[0].booted("after");
    wait_until("the proof is held", async || status(&scene, "reboot-0").await.message.contains("healthy for")).await;
    restart();
    let ended = wait_for_end(&scene, "reboot-0").await;
    assert_eq!((ended.state, ended.reason.as_str()), (Some(TaskState::Succeeded), "Succeeded"), "{}", ended.message);
    assert_eq!(cordon(&scene, "node-0").await, (false, None));
    assert_eq!(scene.cloud.restarts(), ["node-0"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_canceled_and_skipped_reboots_reset_nothing() {
    let (scene, _agents) = scene().await;
    pod(&scene, "web", "node-0").await;
    budget(&scene, "web", 0).await;
    let _leader = controller(&scene, "one");
    // Deleted during the drain.
    reboot(&scene, "canceled", "node-0", 120).await;
    wait_for_step(&scene, "canceled", "Draining").await;
    tasks(&scene).delete("canceled", &DeleteParams::default()).await.unwrap();
    wait_until("it is gone", async || tasks(&scene).get_opt("canceled").await.unwrap().is_none()).await;
    assert_eq!(cordon(&scene, "node-0").await, (false, None));
    // A foreign cordon stays.
    let foreign = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
    nodes(&scene).patch("node-1", &PatchParams::default(), &foreign).await.unwrap();
    reboot(&scene, "skipped", "node-1", 15).await;
    assert_eq!(wait_for_end(&scene, "skipped").await.reason, "Cordoned");
    assert_eq!(cordon(&scene, "node-1").await, (true, None));
    // Pods whose data or themselves would be lost.
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), SHOP);
    let bare: Value = json!({ "metadata": { "name": "bare" }, "spec": { "nodeName": "node-2",
        "automountServiceAccountToken": false, "containers": [{ "name": "a", "image": "a" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(bare).unwrap()).await.unwrap();
    reboot(&scene, "bare", "node-2", 15).await;
    let ended = wait_for_end(&scene, "bare").await;
    assert_eq!((ended.reason.as_str(), cordon(&scene, "node-2").await), ("DrainBlocked", (false, None)));
    assert!(ended.message.contains("shop/bare") && ended.message.contains("evictBarePods"), "{}", ended.message);
    // A budget forbids it until the deadline.
    reboot(&scene, "blocked", "node-0", 1).await;
    let ended = wait_for_end(&scene, "blocked").await;
    assert_eq!((ended.state, ended.reason.as_str()), (Some(TaskState::Failed), "DrainBlocked"));
    assert!(ended.message.contains("shop/web") && ended.message.contains("budget web"), "{}", ended.message);
    assert_eq!(cordon(&scene, "node-0").await, (false, None));
    assert_eq!((scene.cloud.restarts().len(), scene.cloud.answered(Operation::InstanceAction, 200)), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_moves_before_the_leaders_node_is_cordoned() {
    let (scene, _agents) = scene().await;
    for (name, node) in [("one", "node-0"), ("two", "node-1")] {
        make_replica(&scene, name, node).await;
    }
    let one = controller(&scene, "one");
    wait_until("the first leads", async || one.leads()).await;
    let two = controller(&scene, "two");
    wait_until("the second stands by", async || two.get("/readyz").is_some()).await;
    reboot(&scene, "reboot-0", "node-0", 120).await;
    wait_until("the node is cordoned", async || cordon(&scene, "node-0").await.0).await;
    assert_eq!((spec(&scene).await.holder_identity.as_deref(), two.leads()), (Some("two"), true));
    assert!(one.log().contains(r#""event":"lease.handed_over""#), "{}", one.log());
    assert!(!one.log().contains(r#""event":"reboot.reset""#) && scene.cloud.restarts().is_empty());
}

/// The rights of manifests/reboot, without those of this resource.
async fn remove_right(scene: &Scene, resource: &str) {
    let roles: Api<ClusterRole> = Api::all(scene.client.clone());
    let all = [("nodes", "patch"), ("pods", "list"), ("pods/eviction", "create")];
    let rules = all.iter().filter(|(of, _)| *of != resource);
    let rules: Vec<Value> =
        rules.map(|(of, verb)| json!({ "apiGroups": [""], "resources": [of], "verbs": [verb] })).collect();
    let before = roles.get("oke-node-controller-reboot").await.unwrap();
    assert_eq!(before.rules.unwrap_or_default().len(), if resource == all[0].0 { all.len() } else { all.len() - 1 });
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "oke-node-controller-reboot" }, "rules": rules });
    scene.kubernetes.apply_object(role).await.unwrap();
    let reviews: Api<SubjectAccessReview> = Api::all(scene.client.clone());
    let user = "system:serviceaccount:oke-node-manager:oke-node-controller";
    for (of, verb) in all {
        let (name, subresource) = of.split_once('/').unwrap_or((of, ""));
        let attributes = json!({ "verb": verb, "resource": name, "subresource": subresource, "name": "a" });
        let review = json!({ "spec": { "user": user, "resourceAttributes": attributes } });
        let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
        wait_until(&format!("the right to {verb} {of}"), async || {
            let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
            answer.status.unwrap().allowed == (of != resource)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reboot_without_one_of_its_rights_names_it_and_resets_nothing() {
    let (scene, _agents) = scene().await;
    pod(&scene, "web", "node-0").await;
    for file in ["admission.yaml", "controller.yaml", "../reboot/reboot.yaml"] {
        scene.kubernetes.apply(&manifest(file)).await.unwrap();
    }
    // With its own account's token.
    let own = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "one", "namespace": "oke-node-manager" },
        "spec": { "serviceAccountName": "oke-node-controller", "automountServiceAccountToken": false,
            "containers": [{ "name": "controller", "image": "oke-node-manager" }] } });
    scene.kubernetes.apply_object(own).await.unwrap();
    let account = ServiceAccount::new("oke-node-manager", "oke-node-controller");
    let token = scene.kubernetes.token(&account, &Bound::Pod("one".to_owned())).await.unwrap();
    scene.kubernetes.write_kubeconfig(&token, &scene.folder.path().join("kubeconfig")).unwrap();
    let _leader = controller(&scene, "one");
    for (resource, reason, words) in [
        ("nodes", "NotEnabled", "cannot patch resource \"nodes\""),
        ("pods", "DrainBlocked", "cannot list resource \"pods\""),
        ("pods/eviction", "DrainBlocked", "cannot create resource \"pods/eviction\""),
    ] {
        remove_right(&scene, resource).await;
        let name = format!("without-{}", resource.replace('/', "-"));
        reboot(&scene, &name, "node-0", 1).await;
        let ended = wait_for_end(&scene, &name).await;
        assert_eq!(ended.reason, reason, "{resource}: {}", ended.message);
        assert!(ended.message.contains(words), "{resource}: {}", ended.message);
        assert_eq!((cordon(&scene, "node-0").await, pods(&scene).await), ((false, None), 1), "{resource}");
    }
    assert_eq!((scene.cloud.restarts().len(), scene.cloud.answered(Operation::InstanceAction, 200)), (0, 0));
}
