//! NodeTasks by the shipped controller, on a real API server: their states, Events, the stop switch, two leaders, and their end.

use api::node_task::{TaskCounts, TaskState};
use api::{NodeTask, NodeTaskStatus, TASK_FINALIZER};
use health::Fleet;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use kube_harness::wait_until;
use sandbox::OciSettings;
use serde_json::{Value, json};

use crate::agents::{FakeAgent, NAMESPACE, TrustedControllers};
use crate::process::Controller;
use crate::scene::Scene;

fn tasks(scene: &Scene) -> Api<NodeTask> {
    Api::all(scene.client.clone())
}

async fn create(scene: &Scene, name: &str, spec: &Value) {
    let annotations = json!({ api::CREATED_BY_ANNOTATION: "alice" });
    let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodeTask",
        "metadata": { "name": name, "annotations": annotations }, "spec": spec });
    tasks(scene).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

async fn status(scene: &Scene, name: &str) -> NodeTaskStatus {
    tasks(scene).get(name).await.unwrap().status.unwrap_or_default()
}

fn enabled(scene: &Scene, name: &str) -> Controller {
    scene.controller_with(name, &[("TASKS", "on".to_owned()), ("TASK_REBOOTS", "on".to_owned())])
}

/// Agents of release 0.2.0: they take no policies, and their nodes have the label.
async fn old_agents(scene: &Scene, count: usize) -> Vec<FakeAgent> {
    let trusted = TrustedControllers::follow(scene.client.clone());
    let nodes: Api<Node> = Api::all(scene.client.clone());
    let mut agents = Vec::new();
    for number in 0..count {
        let name = format!("node-{number}");
        let label = Patch::Merge(json!({ "metadata": { "labels": { "pool": "web" } } }));
        nodes.patch(&name, &PatchParams::default(), &label).await.unwrap();
        agents.push(FakeAgent::on(&scene.client, &name, &trusted).await);
    }
    agents
}

/// How many agents the leader heard.
fn answered(leader: &Controller) -> usize {
    let fleet: Fleet = leader.view("/fleet").and_then(|(_, text)| serde_json::from_str(&text).ok()).unwrap_or_default();
    fleet.nodes.iter().filter(|node| node.age_seconds.is_some()).count()
}

async fn switch(scene: &Scene, text: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(scene.client.clone(), NAMESPACE);
    let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "oke-node-controller" }, "data": { "stop": text } });
    maps.patch("oke-node-controller", &PatchParams::apply("tasks").force(), &Patch::Apply(map)).await.unwrap();
}

/// The notes of the Events about Nodes that name a task.
async fn notes(scene: &Scene) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(scene.client.clone(), "default");
    let all = events.list(&ListParams::default()).await.unwrap().items.into_iter();
    let about = |event: &Event| event.regarding.as_ref().and_then(|it| it.kind.as_deref()) == Some("Node");
    all.filter(about).filter_map(|event| event.note).filter(|note| note.contains("NodeTask")).collect()
}

fn selecting() -> Value {
    json!({ "nodeSelector": { "matchLabels": { "pool": "web" } }, "action": { "growRootDisk": {} }, "concurrency": 2 })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_old_agents_are_unsupported_and_reported() {
    let scene = Scene::with(3, 2, OciSettings::default()).await;
    let agents = old_agents(&scene, 3).await;
    switch(&scene, "false").await;
    let one = enabled(&scene, "one");
    wait_until("the agents answered", async || answered(&one) == agents.len()).await;
    create(&scene, "grow", &selecting()).await;
    wait_until("it is finished", async || status(&scene, "grow").await.is_final()).await;
    let finished = status(&scene, "grow").await;
    let counts = TaskCounts { matched: 3, skipped: 3, ..TaskCounts::default() };
    assert_eq!((finished.state, finished.nodes), (Some(TaskState::Succeeded), Some(counts)));
    assert_eq!((finished.created_by.as_str(), finished.conditions[0].kind.as_str()), ("alice", "Complete"));
    wait_until("each Node has its Events", async || {
        let notes = notes(&scene).await;
        let of =
            |end: &str| notes.iter().filter(|note| note.contains(end) && note.ends_with("(created by alice)")).count();
        of("started") == 3 && of("Unsupported: its agent has version") == 3
    })
    .await;
    // One node alone: the task failed.
    let single = json!({ "node": "node-1", "action": { "restartUnit": { "unit": "crio.service" } }, "ttlSecondsAfterFinished": 2 });
    create(&scene, "restart", &single).await;
    wait_until("it failed", async || {
        let found = tasks(&scene).get_opt("restart").await.unwrap();
        found.and_then(|task| task.status).is_some_and(|status| status.reason == "Unsupported")
    })
    .await;
    wait_until("it is deleted in the end", async || tasks(&scene).get_opt("restart").await.unwrap().is_none()).await;
    wait_until("nothing keeps the other one", async || {
        !tasks(&scene).get("grow").await.unwrap().finalizers().iter().any(|it| it == TASK_FINALIZER)
    })
    .await;
    wait_until("metrics count them", async || {
        let line = "oke_node_controller_node_task_results_total{action=\"grow-root-disk\",reason=\"Unsupported\"}";
        one.metric(line) == Some(3.0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_task_goes_on_with_the_next_leader() {
    let scene = Scene::with(2, 2, OciSettings::default()).await;
    let _agents = old_agents(&scene, 2).await;
    switch(&scene, "alice: an incident").await;
    let mut one = enabled(&scene, "one");
    create(&scene, "grow", &selecting()).await;
    wait_until("it is stopped", async || status(&scene, "grow").await.state == Some(TaskState::Stopped)).await;
    assert!(status(&scene, "grow").await.message.contains("alice: an incident"));
    create(&scene, "deleted", &selecting()).await;
    wait_until("another waits, too", async || status(&scene, "deleted").await.state.is_some()).await;
    tasks(&scene).delete("deleted", &DeleteParams::default()).await.unwrap();
    wait_until("it is gone", async || tasks(&scene).get_opt("deleted").await.unwrap().is_none()).await;
    one.kill();
    let two = enabled(&scene, "two");
    wait_until("the agents answered", async || answered(&two) == 2).await;
    switch(&scene, "false").await;
    wait_until("the next leader ends it", async || status(&scene, "grow").await.is_final()).await;
    assert_eq!(status(&scene, "grow").await.nodes.map(|nodes| nodes.matched), Some(2));
    assert!(notes(&scene).await.iter().all(|note| !note.contains("deleted")), "nothing was started for it");
}
