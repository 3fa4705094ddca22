//! Captures of NodeTasks by the leader: for the token of the task only, whole or without an end, in little memory.

use api::capture::AGENT_CAPTURES_PATH;
use api::operation::OperationReport;
use api::{NodeTask, NodeTaskStatus, TaskReason};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use kube_harness::{ServiceAccount, wait_for, wait_until};
use sandbox::OciSettings;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use stream::{end, entry};

use crate::agents::{FakeAgent, FakeBundle, NAMESPACE, TrustedControllers};
use crate::bundles::{GROWTH_MAX, begin_at, entries, rest, wait_for_answers};
use crate::process::Controller;
use crate::scene::Scene;

const TOKEN: &str = "a-token-of-256-random-bits";
/// The namespace of the Pods that write logs.
const OPERATIONS: &str = "oke-node-tasks";

/// A capture of a node.
async fn task(scene: &Scene, name: &str, node: &str) -> Api<NodeTask> {
    let hash: String = Sha256::digest(TOKEN).iter().map(|byte| format!("{byte:02x}")).collect();
    let task: Value = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodeTask", "metadata": { "name": name },
        "spec": { "node": node, "action": { "capture": { "tokenHash": hash, "state": true } } } });
    let tasks: Api<NodeTask> = Api::all(scene.client.clone());
    tasks.create(&PostParams::default(), &serde_json::from_value(task).unwrap()).await.unwrap();
    tasks
}

async fn finished(scene: &Scene, name: &str, node: &str) -> Api<NodeTask> {
    let tasks = task(scene, name, node).await;
    let status = json!({ "status": { "state": "Succeeded", "completionTime": Timestamp::now().to_string() } });
    tasks.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    tasks
}

fn request(controller: &Controller, query: &str, token: Option<&str>) -> (u16, Vec<u8>) {
    rest(&mut begin_at(controller, &format!("/capture?{query}"), token))
}

async fn scene() -> (Scene, TrustedControllers, FakeAgent) {
    let mut scene = Scene::with(1, 1, OciSettings::default()).await;
    scene.environment.insert("AGENT_POLL_SECONDS".to_owned(), "10".to_owned());
    let trusted = TrustedControllers::follow(scene.client.clone());
    let agent = FakeAgent::on(&scene.client, "node-0", &trusted).await;
    (scene, trusted, agent)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capture_is_for_the_token_of_its_task_only() {
    let (scene, _trusted, agent) = scene().await;
    let tasks = finished(&scene, "one", "node-0").await;
    finished(&scene, "elsewhere", "node-9").await;
    let one = scene.controller("one");
    wait_for_answers(&[&agent], 1).await;
    let long = "x".repeat(300);
    for (query, token, expected) in [
        ("task=one", None, 401),
        ("task=one", Some(""), 401),
        ("task=one", Some(long.as_str()), 401),
        ("task=one", Some("another-token"), 403),
        ("task=two", Some(TOKEN), 404),
        ("task=elsewhere", Some(TOKEN), 502),
        ("task=one", Some(TOKEN), 410),
        ("", Some(TOKEN), 400),
        ("task=", Some(TOKEN), 400),
        ("task=../nodes/node-0", Some(TOKEN), 400),
        ("task=one%2f..%2ftwo", Some(TOKEN), 400),
        ("task=one&task=two", Some(TOKEN), 400),
    ] {
        let (status, body) = request(&one, query, token);
        assert_eq!(status, expected, "{query} {token:?}: {}", String::from_utf8_lossy(&body));
    }
    // The agent chooses no other folder.
    let whole = entry("another/packets.pcap", b"packets").unwrap();
    agent.has_bundle(FakeBundle::Whole([whole.as_slice(), &end()].concat()));
    let (status, tar) = request(&one, "task=one", Some(TOKEN));
    let found = entries(&tar);
    assert_eq!((status, found["capture/packets.pcap"].as_slice()), (200, &b"packets"[..]));
    assert_eq!(found.len(), 1);
    assert_eq!(agent.last_stream(), format!("{AGENT_CAPTURES_PATH}/{}/file", uid(&tasks, "one").await));
    // What is not whole has no end.
    agent.has_bundle(FakeBundle::Broken(whole.clone()));
    let (_, tar) = request(&one, "task=one", Some(TOKEN));
    assert!(!tar.ends_with(&end()), "{} bytes", tar.len());
    // A wrong token delays no other request.
    agent.has_bundle(FakeBundle::Whole([whole.as_slice(), &end()].concat()));
    let took = std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| request(&one, "task=one", Some("another-token")));
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        let began = std::time::Instant::now();
        assert_eq!(request(&one, "task=one", Some(TOKEN)).0, 200);
        began.elapsed()
    });
    assert!(took < std::time::Duration::from_secs(4), "{took:?}");
    tasks.delete("one", &DeleteParams::default()).await.unwrap();
    assert_eq!(request(&one, "task=one", Some(TOKEN)).0, 404);
    let log = one.log();
    assert!(
        log.contains("capture.sent") && log.contains("capture.not_sent") && log.contains("capture.refused"),
        "{log}"
    );
    assert!(!log.contains(TOKEN), "the token is in the log");
}

async fn uid(tasks: &Api<NodeTask>, name: &str) -> String {
    tasks.get(name).await.unwrap().metadata.uid.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn capture_lives_as_long_as_its_task() {
    let (mut scene, _trusted, agent) = scene().await;
    agent.takes_policies();
    scene.environment.insert("TASKS".to_owned(), "on".to_owned());
    let tasks = task(&scene, "one", "node-0").await;
    let mut one = scene.controller("one");
    let state = async |name: &str| {
        let status = tasks.get(name).await.ok()?.status?;
        Some((status.state?.as_str().to_owned(), status.reason, status.message))
    };
    let is_complete = async || {
        let found = state("one").await;
        assert!(
            found.as_ref().is_none_or(|(state, ..)| state != "Failed" && state != "Refused"),
            "{found:?} {}",
            one.log()
        );
        found.is_some_and(|(state, ..)| state == "Succeeded")
    };
    wait_until("the capture", is_complete).await;
    let object = tasks.get("one").await.unwrap();
    assert!(serde_json::to_vec(&object).unwrap().len() <= 2048, "{object:?}");
    assert_eq!(agent.captures(), [uid(&tasks, "one").await]);
    agent.has_bundle(FakeBundle::Megabytes(1));
    assert_eq!(request(&one, "task=one", Some(TOKEN)).0, 200);
    // Nothing is captured again by the next leader.
    one.terminate();
    let two = scene.controller("two");
    wait_until("it leads", async || two.view("/fleet").is_some_and(|(status, _)| status == 200)).await;
    // It may not have heard of the agent yet.
    wait_until("the capture", async || request(&two, "task=one", Some(TOKEN)).0 == 200).await;
    assert_eq!(agent.captures().len(), 1);
    tasks.delete("one", &DeleteParams::default()).await.unwrap();
    wait_until("its end", async || tasks.get_opt("one").await.unwrap().is_none()).await;
    assert_eq!(agent.captures(), Vec::<String>::new());
}

/// The namespace of operations, and the Pod of the controller, whose image they have.
async fn permit_operations(scene: &Scene, controller: &str) -> Api<Pod> {
    for object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": OPERATIONS } }),
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": controller, "namespace": NAMESPACE },
            "spec": { "nodeName": "node-0", "serviceAccountName": "oke-node-agent", "automountServiceAccountToken": false,
                "containers": [{ "name": "controller", "image": "registry.test/own:1" }] } }),
    ] {
        scene.kubernetes.apply_object(object).await.unwrap();
    }
    scene.kubernetes.create_account(&ServiceAccount::new(OPERATIONS, "oke-node-task")).await.unwrap();
    Api::namespaced(scene.client.clone(), OPERATIONS)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_come_from_a_pod_that_is_gone_when_the_capture_is_complete() {
    let (mut scene, _trusted, agent) = scene().await;
    agent.takes_policies();
    scene.environment.insert("TASKS".to_owned(), "on".to_owned());
    let pods = permit_operations(&scene, "one").await;
    let one = scene.controller("one");
    let logs = json!({ "units": ["kubelet.service", "crio.service"], "hours": 6 });
    for (name, is_alone, reason, expected) in [
        ("whole", true, TaskReason::Succeeded, ("Succeeded", "; logs")),
        ("unread", false, TaskReason::CaptureFailed, ("Succeeded", "; no logs: CaptureFailed")),
        ("failed", true, TaskReason::CaptureFailed, ("CaptureFailed", "the end")),
    ] {
        let capture = json!({ "tokenHash": "0".repeat(64), "state": !is_alone, "logs": logs });
        let task = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodeTask", "metadata": { "name": name },
            "spec": { "node": "node-0", "action": { "capture": capture } } });
        let tasks: Api<NodeTask> = Api::all(scene.client.clone());
        let uid =
            tasks.create(&PostParams::default(), &serde_json::from_value(task).unwrap()).await.unwrap().uid().unwrap();
        let pod =
            wait_for("its Pod", async || pods.list(&ListParams::default()).await.unwrap().items.into_iter().next())
                .await;
        let container = &pod.spec.as_ref().unwrap().containers[0];
        assert_eq!(
            container.args.as_ref().unwrap(),
            &["operation", "logs", "--hours=6", "kubelet.service", "crio.service"]
        );
        assert!(pod.name_any().starts_with(&uid) && agent.captures().contains(&uid), "the agent's folder is first");
        let report = OperationReport::new(reason, "the end").to_text();
        let terminated = json!({ "exitCode": 0, "message": report });
        let status = json!({ "status": { "containerStatuses": [{ "name": "operation", "ready": false, "restartCount": 0,
            "image": "", "imageID": "", "state": { "terminated": terminated } }] } });
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        let end =
            wait_for("its end", async || tasks.get(name).await.unwrap().status.filter(NodeTaskStatus::is_final)).await;
        let is_expected = end.reason == expected.0 && end.message.ends_with(expected.1);
        assert!(is_expected, "{name}: {end:?} {}", one.log());
        wait_until("no Pod is left", async || pods.list(&ListParams::default()).await.unwrap().items.is_empty()).await;
        assert_eq!(agent.captures().contains(&uid), end.reason == "Succeeded", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_capture_takes_little_memory_and_delays_no_poll() {
    let (scene, _trusted, agent) = scene().await;
    finished(&scene, "one", "node-0").await;
    agent.has_bundle(FakeBundle::Megabytes(100));
    let one = scene.controller("one");
    wait_for_answers(&[&agent], 2).await;
    let before = one.peak();
    let mut readers = [0, 1].map(|_| begin_at(&one, "/capture?task=one", Some(TOKEN)));
    // Both stall: polls continue, and a third is refused.
    wait_until("both are sent", async || request(&one, "task=one", Some(TOKEN)).0 == 429).await;
    wait_for_answers(&[&agent], 2).await;
    for reader in &mut readers {
        let (status, tar) = rest(reader);
        assert_eq!((status, entries(&tar).len(), tar.ends_with(&end())), (200, 100, true));
    }
    let growth = one.peak() - before;
    println!("the peak grew by {growth} kB");
    assert!(growth < 2 * GROWTH_MAX, "the peak grew by {growth} kB");
    // Readers that go away end their captures.
    drop([0, 1].map(|_| begin_at(&one, "/capture?task=one", Some(TOKEN))));
    wait_until("the next one", async || request(&one, "task=one", Some(TOKEN)).0 == 200).await;
}
