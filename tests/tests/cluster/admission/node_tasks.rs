//! Who may create which NodeTask: a verb per action, in addition to `create`, tried with real certificates; and whose name it carries.

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kube_harness::ApiServer;
use serde_json::{Value, json};

use super::{admin, assert_refused, grant, server, user, wait_until_refused};

const TASK_ADMIN: &str = "oke-node-task-admin";
const REBOOT: &str = "oke-node-reboot";
const CREATOR: &str = "the annotation oke.oraclecloud.com/created-by names the user that creates the object";
const HASH: &str = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";

fn tasks(client: &Client) -> Api<api::NodeTask> {
    Api::all(client.clone())
}

fn task(name: &str, action: &Value) -> api::NodeTask {
    let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodeTask", "metadata": { "name": name },
        "spec": { "node": "a", "action": action } });
    serde_json::from_value(object).unwrap()
}

/// Each action with its verbs.
fn actions() -> [(&'static [&'static str], Value); 5] {
    let capture = |more: Value| {
        let mut capture = json!({ "tokenHash": HASH });
        capture.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "capture": capture })
    };
    [
        (&["restart-unit"], json!({ "restartUnit": { "unit": "crio.service" } })),
        (&["grow-root-disk"], json!({ "growRootDisk": {} })),
        (&["reboot"], json!({ "reboot": {} })),
        (&["capture"], capture(json!({ "state": true, "packets": {} }))),
        (&["capture", "capture-payload"], capture(json!({ "packets": { "payload": true } }))),
    ]
}

/// A user with `create` and these verbs.
async fn user_with(server: &ApiServer, name: &str, verbs: &[&str]) -> Client {
    let verbs: Vec<&str> = verbs.iter().copied().chain(["create"]).collect();
    let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name },
        "rules": [{ "apiGroups": [api::GROUP], "resources": ["nodetasks"], "verbs": verbs }] });
    server.apply_object(role).await.unwrap();
    for verb in verbs {
        let may = json!({ "verb": verb, "group": api::GROUP, "resource": "nodetasks" });
        grant(server, name, name, json!({ "kind": "User", "name": name }), may).await;
    }
    user(server, name)
}

async fn try_create(client: &Client, action: &Value) -> kube::Result<api::NodeTask> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    tasks(client).create(&dry, &task("tried", action)).await
}

#[tokio::test]
async fn each_action_needs_its_verb() {
    let server = server().await;
    let nothing = user_with(server, "task-creator", &[]).await;
    wait_until_refused("the policy of verbs", async |_| try_create(&nothing, &actions()[0].1).await).await;
    for (verbs, action) in &actions() {
        let name = format!("task-{}", verbs.join("-"));
        let client = user_with(server, &name, verbs).await;
        try_create(&client, action).await.unwrap();
        for missing in *verbs {
            let rest: Vec<&str> = verbs.iter().copied().filter(|verb| verb != missing).collect();
            let client = user_with(server, &format!("{name}-without-{missing}"), &rest).await;
            assert_refused(try_create(&client, action).await, &format!("the verb \"{missing}\" on nodetasks"));
        }
        for (_, other) in actions().iter().filter(|(needed, _)| !needed.iter().all(|verb| verbs.contains(verb))) {
            assert_refused(try_create(&client, other).await, "verb");
        }
    }
    assert_refused(
        try_create(&user(server, "task-stranger"), &actions()[0].1).await,
        "cannot create resource \"nodetasks\"",
    );
}

#[tokio::test]
async fn roles_of_tasks_allow_their_actions_and_no_other() {
    let server = server().await;
    let may = json!({ "verb": "capture-payload", "group": api::GROUP, "resource": "nodetasks" });
    grant(server, "task-admin", TASK_ADMIN, json!({ "kind": "User", "name": "task-admin" }), may).await;
    let may = json!({ "verb": "reboot", "group": api::GROUP, "resource": "nodetasks" });
    grant(server, "rebooter", REBOOT, json!({ "kind": "User", "name": "rebooter" }), may).await;
    let nothing = user_with(server, "task-verbless", &[]).await;
    wait_until_refused("the policy of verbs", async |_| try_create(&nothing, &actions()[0].1).await).await;
    for (verbs, action) in &actions() {
        for (name, is_allowed) in [("task-admin", !verbs.contains(&"reboot")), ("rebooter", verbs.contains(&"reboot"))]
        {
            let outcome = try_create(&user(server, name), action).await;
            assert_eq!(outcome.is_ok(), is_allowed, "{name} {action}: {:?}", outcome.err());
        }
    }
    let status = Patch::Merge(json!({ "status": { "state": "Succeeded" } }));
    tasks(&admin(server)).create(&PostParams::default(), &task("written", &actions()[1].1)).await.unwrap();
    let refused = tasks(&user(server, "task-admin")).patch_status("written", &PatchParams::default(), &status).await;
    assert_refused(refused, "cannot patch resource \"nodetasks/status\"");
    tasks(&user(server, "task-admin")).delete("written", &Default::default()).await.unwrap();
}

#[tokio::test]
async fn task_names_the_user_that_created_it_and_no_other() {
    let server = server().await;
    let admin = admin(server);
    let named = |creator: &str| {
        let mut task = task("named", &actions()[1].1);
        task.metadata.annotations = Some([(api::CREATED_BY_ANNOTATION.to_owned(), creator.to_owned())].into());
        task
    };
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    wait_until_refused("the creator's policy", async |value| tasks(&admin).create(&dry, &named(value)).await).await;
    assert_refused(tasks(&admin).create(&dry, &named("alice")).await, CREATOR);
    let alice = user_with(server, "task-alice", &["grow-root-disk"]).await;
    tasks(&alice).create(&dry, &named("task-alice")).await.unwrap();
    assert_refused(tasks(&alice).create(&dry, &named("bob")).await, CREATOR);
}
