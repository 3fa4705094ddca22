//! `restart`, `grow`, `reboot` and `task` with exactly the shipped rights. The controller's part is played: it writes statuses.

use std::time::Duration;

use api::NodeTask;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use kube_harness::{ApiServer, wait_for};
use serde_json::{Value, json};

use super::{RBAC, json_of, run, server, text};
use crate::manifests_folder;

const ADMIN: &str = "kubectl-task-admin";

async fn grant(server: &ApiServer) {
    for file in ["base/admission.yaml", "tasks/roles.yaml"] {
        server.apply(&manifests_folder().join(file)).await.unwrap();
    }
    let binding = json!({ "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": ADMIN },
        "subjects": [{ "kind": "User", "name": ADMIN, "apiGroup": RBAC }],
        "roleRef": { "apiGroup": RBAC, "kind": "ClusterRole", "name": "oke-node-task-admin" } });
    server.apply_object(binding).await.unwrap();
}

/// Gives the task of a node a status, once it exists.
async fn play(tasks: &Api<NodeTask>, node: &str, status: Value) {
    wait_for("the task", async || {
        let all = tasks.list(&ListParams::default()).await.unwrap();
        let task = all.into_iter().find(|task| task.spec.node.as_deref() == Some(node))?;
        let patch = Patch::Merge(json!({ "status": status }));
        tasks.patch_status(&task.name_any(), &PatchParams::default(), &patch).await.unwrap();
        Some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_waits_for_its_task_and_shows_progress_and_result() {
    let server = server().await;
    grant(server).await;
    let tasks: Api<NodeTask> = Api::all(server.client(server.admin()).unwrap());
    wait_for("the role of tasks", async || {
        let created = run(server, ADMIN, &["restart", "10.9.0.1", "crio", "--no-wait"]);
        created.status.success().then_some(())
    })
    .await;
    let created = tasks.list(&ListParams::default()).await.unwrap();
    let created = created.into_iter().find(|task| task.spec.node.as_deref() == Some("10.9.0.1")).unwrap();
    assert_eq!(created.annotations()[api::CREATED_BY_ANNOTATION], ADMIN);
    let name = created.name_any();
    assert!(name.starts_with("restart-"), "{name}");

    for (node, state, reason, code) in [
        ("10.9.0.2", "Succeeded", "Succeeded", 0),
        ("10.9.0.3", "Failed", "NotGrown", 1),
        ("10.9.0.4", "Refused", "NotEnabled", 2),
    ] {
        let command = tokio::task::spawn_blocking(move || run(server, ADMIN, &["grow", node]));
        play(&tasks, node, json!({ "state": "Running", "message": "its Pod runs" })).await;
        tokio::time::sleep(Duration::from_secs(4)).await;
        play(&tasks, node, json!({ "state": state, "reason": reason, "message": "the end" })).await;
        let output = command.await.unwrap();
        let (shown, progress) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{shown}{progress}");
        assert!(shown.contains(&format!("grow-root-disk on {node}: {state}")) && shown.contains("the end"), "{shown}");
        assert!(progress.contains("Running, its Pod runs"), "after two seconds: {progress}");
    }
    let list = json_of(&run(server, ADMIN, &["task", "-o", "json"]));
    assert!(list["tasks"].as_array().unwrap().len() >= 4, "{list}");
    let shown = text(&run(server, ADMIN, &["task", &name]).stdout);
    assert!(shown.contains(&format!("NodeTask {name}, restart crio.service on 10.9.0.1: created")), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_verb_is_named_before_anything_happens() {
    let server = server().await;
    grant(server).await;
    wait_for("the policy of verbs", async || {
        let refused = run(server, ADMIN, &["reboot", "10.9.1.1", "--no-wait"]);
        text(&refused.stderr).contains("the verb \"reboot\"").then_some(())
    })
    .await;
    let stranger = run(server, "kubectl-task-stranger", &["restart", "10.9.1.2", "crio"]);
    assert_eq!(stranger.status.code(), Some(1));
    assert!(text(&stranger.stderr).contains("nodetasks"), "{}", text(&stranger.stderr));
    let wrong = run(server, ADMIN, &["restart", "10.9.1.2", "sshd"]);
    assert_eq!(wrong.status.code(), Some(2));
}
