//! `kubectl oke-node capture` against a real API server: a task that the test finishes in the controller's place, and a leader whose stream
//! is whole or broken. The task never outlives the command.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::sync::mpsc::Receiver;

use api::NodeTask;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use kube_harness::{ApiServer, wait_for};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use stream::{end, entry};
use tempfile::TempDir;

use super::bundles::{After, leader};
use super::{RBAC, VIEWER, run, server, text};
use crate::manifests_folder;

/// Has the role of tasks.
const OPERATOR: &str = "kubectl-capturer";

async fn prepared() -> &'static ApiServer {
    let server = server().await;
    for file in ["base/admission.yaml", "tasks/roles.yaml"] {
        server.apply(&manifests_folder().join(file)).await.unwrap();
    }
    let binding = json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": OPERATOR },
        "subjects": [{ "kind": "User", "name": OPERATOR, "apiGroup": RBAC }],
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": "oke-node-task-admin" } });
    server.apply_object(binding).await.unwrap();
    server
}

/// Finishes the task of a node as the controller would. Returns the task as it was created.
async fn finish(server: &ApiServer, node: &str, state: &str, reason: &str) -> NodeTask {
    let tasks: Api<NodeTask> = Api::all(server.client(server.admin()).unwrap());
    let task = wait_for("the NodeTask", async || {
        let list = tasks.list(&ListParams::default()).await.unwrap();
        list.items.into_iter().find(|task| task.spec.node.as_deref() == Some(node))
    })
    .await;
    let status = json!({ "status": { "state": state, "reason": reason, "message": "in words",
        "completionTime": Timestamp::now().to_string() } });
    tasks.patch_status(&task.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    task
}

/// Runs the command for a node while the test finishes its task. Returns the folder of its file, and the task, too.
async fn capture(node: &'static str, url: String, state: &str, reason: &str) -> (Output, TempDir, NodeTask) {
    let (server, folder) = (prepared().await, TempDir::new().unwrap());
    let file = folder.path().join("out.tar").display().to_string();
    let running = tokio::task::spawn_blocking(move || {
        let words = [
            "capture",
            node,
            "--packets",
            "5",
            "--logs",
            "kubelet,crio",
            "--file",
            &file,
            "--view-url",
            &url,
            "-o",
            "json",
        ];
        // A role takes a moment to apply.
        loop {
            let output = run(server, OPERATOR, &words);
            if !text(&output.stderr).contains("forbidden") {
                return output;
            }
        }
    });
    let task = finish(server, node, state, reason).await;
    let output = running.await.unwrap();
    let tasks: Api<NodeTask> = Api::all(server.client(server.admin()).unwrap());
    let left = tasks.list(&ListParams::default()).await.unwrap();
    assert!(!left.items.iter().any(|task| task.spec.node.as_deref() == Some(node)), "the task is left: {output:?}");
    (output, folder, task)
}

fn names(folder: &TempDir) -> Vec<String> {
    let names = fs::read_dir(folder.path()).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn tar() -> Vec<u8> {
    let mut tar = entry("capture/packets.pcap", b"packets").unwrap();
    tar.extend(entry("capture/README.txt", b"A capture.\n\x1b[2J").unwrap());
    tar.extend(end());
    tar
}

fn token(heads: &Receiver<Vec<String>>) -> String {
    let head = heads.recv().unwrap();
    assert!(head[0].starts_with("GET /capture?task=capture-"), "{head:?}");
    head.iter().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn capture_is_private_and_its_task_ends_with_the_command() {
    let (url, heads) = leader(tar(), After::End);
    let (output, folder, task) = capture("capture-whole", url, "Succeeded", "Succeeded").await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["readme"], json!(["A capture.", "\\u{1b}[2J"]), "{summary}");
    assert_eq!(summary["result"], "in words");
    let found = fs::metadata(folder.path().join("out.tar")).unwrap();
    assert_eq!((found.permissions().mode() & 0o777, summary["bytes"].as_u64()), (0o600, Some(found.len())));
    // Only the hash is in the object.
    let digest: String = Sha256::digest(token(&heads)).iter().map(|byte| format!("{byte:02x}")).collect();
    let capture = task.spec.action.capture.as_ref().unwrap();
    assert_eq!(digest, capture.token_hash);
    assert_eq!(capture.logs.as_ref().unwrap().units, ["kubelet.service", "crio.service"]);
    assert_eq!(task.annotations()[api::CREATED_BY_ANNOTATION], OPERATOR);
    assert!(serde_json::to_vec(&task).unwrap().len() <= 2048, "{task:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_capture_leaves_no_file_and_no_task() {
    let (url, _heads) = leader(tar()[..700].to_vec(), After::Break);
    let (output, folder, _) = capture("capture-broken", url, "Succeeded", "Succeeded").await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("the capture is incomplete"), "{output:?}");
    assert_eq!(names(&folder), [""; 0]);
    let (output, folder, _) = capture("capture-full", "http://127.0.0.1:1".to_owned(), "Failed", "DiskFull").await;
    let error = text(&output.stderr);
    assert!(error.contains("DiskFull: in words. Delete the NodeTasks"), "{error}");
    assert_eq!((output.status.code(), names(&folder)), (Some(1), Vec::new()));
    // Without the right nothing is created, and the role is named.
    let words = ["capture", "capture-refused", "--file", "/nonexistent/out.tar"];
    let output = run(prepared().await, VIEWER, &words);
    assert!(text(&output.stderr).contains("verb `capture` on nodetasks"), "{output:?}");
}
