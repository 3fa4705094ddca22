//! NodePolicies, from the object to the agents and back: by the shipped controller, on a real API server.

use api::{ConditionType, NodePolicy, NodePolicyStatus, condition};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use kube_harness::wait_until;
use sandbox::OciSettings;
use serde_json::{Value, json};
use tunables::view::{PoliciesView, PolicyView};

use crate::agents::{FakeAgent, NAMESPACE, TrustedControllers};
use crate::process::Controller;
use crate::scene::{Scene, manifest};

const KEY: &str = "vm.swappiness";

fn policies(scene: &Scene) -> Api<NodePolicy> {
    Api::all(scene.client.clone())
}

async fn create(scene: &Scene, spec: &Value) {
    let mut object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodePolicy", "metadata": { "name": "web" },
        "spec": { "allNodes": true, "settings": { "sysctls": { KEY: "10" } },
            "rollout": { "canary": { "soakSeconds": 60 }, "soakSeconds": 5, "maxUnavailable": 1 } } });
    object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    policies(scene).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

async fn change(scene: &Scene, spec: &Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    policies(scene).patch("web", &PatchParams::default(), &patch).await.unwrap();
}

async fn status(scene: &Scene) -> NodePolicyStatus {
    policies(scene).get("web").await.unwrap().status.unwrap_or_default()
}

async fn reason(scene: &Scene, kind: ConditionType) -> String {
    let status = status(scene).await;
    condition::find(&status.conditions, kind).map(|it| it.reason.clone()).unwrap_or_default()
}

async fn agents(scene: &Scene, count: usize) -> Vec<FakeAgent> {
    let trusted = TrustedControllers::follow(scene.client.clone());
    let mut agents = Vec::new();
    for number in 0..count {
        let agent = FakeAgent::on(&scene.client, &format!("node-{number}"), &trusted).await;
        agent.takes_policies();
        agents.push(agent);
    }
    agents
}

fn having(agents: &[FakeAgent], value: &str) -> usize {
    agents.iter().filter(|agent| agent.applied(KEY).as_deref() == Some(value)).count()
}

fn shown(controller: &Controller) -> Option<PolicyView> {
    let (code, text) = controller.view("/policies/web")?;
    (code == 200).then(|| serde_json::from_str(&text).unwrap())
}

/// The reasons of the Events about the policy.
async fn events(scene: &Scene) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(scene.client.clone(), "default");
    let all = events.list(&ListParams::default()).await.unwrap().items.into_iter();
    let about = |event: &Event| event.regarding.as_ref().and_then(|it| it.kind.as_deref()) == Some("NodePolicy");
    all.filter(about).filter_map(|event| event.reason).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_is_reported_applied_by_canary_and_undone() {
    let scene = Scene::with(3, 2, OciSettings::default()).await;
    let agents = agents(&scene, 3).await;
    create(&scene, &json!({})).await;
    let one = scene.controller("one");
    wait_until("drift is counted", async || status(&scene).await.nodes.is_some_and(|it| it.drifted == 3)).await;
    assert_eq!((having(&agents, "10"), reason(&scene, ConditionType::Applied).await.as_str()), (0, "Drifted"));
    change(&scene, &json!({ "mode": "Apply" })).await;
    wait_until("the canary has the value", async || having(&agents, "10") == 1).await;
    let canary = status(&scene).await.canaries;
    assert_eq!(canary.len(), 1, "written before it was sent");
    wait_until("all have the value", async || having(&agents, "10") == 3).await;
    wait_until("it is stable", async || {
        let status = status(&scene).await;
        status.stable.is_some_and(|stable| stable.revision == status.target && stable.settings.sysctls[KEY] == "10")
    })
    .await;
    wait_until("the view shows it", async || {
        shown(&one).is_some_and(|view| view.nodes.len() == 3 && view.nodes.iter().all(|node| node.progress == "Done"))
    })
    .await;
    let (_, all) = one.view("/policies").unwrap();
    assert_eq!(serde_json::from_str::<PoliciesView>(&all).unwrap().policies[0].progress, "Done");
    wait_until("Events about the rollout", async || {
        let reasons = events(&scene).await;
        ["Canary", "Done"].iter().all(|reason| reasons.contains(&(*reason).to_owned()))
    })
    .await;
    policies(&scene).delete("web", &DeleteParams::default()).await.unwrap();
    wait_until("it is undone and gone", async || {
        having(&agents, "10") == 0 && policies(&scene).get_opt("web").await.unwrap().is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_canary_is_rolled_back_and_next_leader_does_not_retry() {
    let scene = Scene::with(3, 2, OciSettings::default()).await;
    let agents = agents(&scene, 3).await;
    create(&scene, &json!({ "mode": "Apply" })).await;
    let mut one = scene.controller("one");
    wait_until("all have the value", async || status(&scene).await.stable.is_some()).await;
    assert_eq!(having(&agents, "10"), 3);
    agents.iter().for_each(FakeAgent::fails_policies);
    change(&scene, &json!({ "settings": { "sysctls": { KEY: "20" } } })).await;
    wait_until("it is rejected", async || !status(&scene).await.rejected.is_empty()).await;
    let rejected = status(&scene).await.rejected;
    one.kill();
    let _two = scene.controller("two");
    wait_until("the next leader takes it back", async || having(&agents, "10") == 3).await;
    wait_until("nothing is to be done", async || reason(&scene, ConditionType::Progressing).await == "Rejected").await;
    assert_eq!(agents.iter().filter(|agent| agent.ever_had(&rejected)).count(), 1);
    assert_eq!(status(&scene).await.failing[0].reason, "Failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_switch_halts_the_rollout_at_once() {
    let scene = Scene::with(2, 2, OciSettings::default()).await;
    let agents = agents(&scene, 2).await;
    let maps: Api<ConfigMap> = Api::namespaced(scene.client.clone(), NAMESPACE);
    let switch = json!({ "metadata": { "name": "oke-node-controller" }, "data": { "stop": "alice: not today" } });
    maps.create(&PostParams::default(), &serde_json::from_value(switch).unwrap()).await.unwrap();
    create(&scene, &json!({ "mode": "Apply" })).await;
    let one = scene.controller("one");
    wait_until("it is stopped", async || reason(&scene, ConditionType::Progressing).await == "Stopped").await;
    wait_until("the view says why", async || {
        one.view("/policies").is_some_and(|(_, text)| text.contains("alice: not today"))
    })
    .await;
    assert_eq!(having(&agents, "10"), 0);
    let off = Patch::Merge(json!({ "data": { "stop": "false" } }));
    maps.patch("oke-node-controller", &PatchParams::default(), &off).await.unwrap();
    wait_until("it goes on", async || having(&agents, "10") == 2).await;
    assert!(status(&scene).await.created_by.starts_with("program "), "{:?}", status(&scene).await.created_by);
    assert_eq!(policies(&scene).get("web").await.unwrap().finalizers(), [api::POLICY_FINALIZER]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollout_goes_on_when_a_user_removes_the_stable_revision() {
    let scene = Scene::with(1, 2, OciSettings::default()).await;
    // Only this policy: others refuse the administrator, who the controller is here.
    let all = std::fs::read_to_string(manifest("admission.yaml")).unwrap();
    let documents = all.split("---\n").filter(|document| document.contains("  name: oke-node-policy-stable\n"));
    let file = scene.folder.path().join("policy.yaml");
    std::fs::write(&file, documents.collect::<Vec<_>>().join("---\n")).unwrap();
    scene.kubernetes.apply(&file).await.unwrap();
    let _agents = agents(&scene, 1).await;
    let settings = |content: &str| {
        let file = json!({ "path": "/etc/sysctl.d/90-web.conf", "content": content });
        json!({ "settings": { "sysctls": { KEY: "10" }, "files": [file] } })
    };
    create(&scene, &settings("# one\n")).await;
    let _one = scene.controller("one");
    let content = async || Some(status(&scene).await.stable?.settings.files.first()?.content.clone());
    wait_until("it is stable", async || content().await.is_some()).await;
    let removed = Patch::Merge(json!({ "status": { "stable": null } }));
    policies(&scene).patch_status("web", &PatchParams::default(), &removed).await.unwrap();
    change(&scene, &settings("# two\n")).await;
    wait_until("the new one is stable", async || content().await.as_deref() == Some("# two\n")).await;
}
