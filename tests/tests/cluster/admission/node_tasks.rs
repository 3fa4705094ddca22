//! Who may create which NodeTask: a verb per action, in addition to `create`, tried with real certificates; and whose name it carries.

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kube_harness::ApiServer;
use serde_json::{Value, json};

use crate::manifests_folder;

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

/// Metadata of a task that its limits allow, and the same with too much of each kind.
fn metadata() -> [(&'static str, Value, Value); 10] {
    let map = |count: usize, value: &str| -> Value { (0..count).map(|n| (format!("k{n}"), json!(value))).collect() };
    let owner = |name: String| json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": "a" });
    let owners = |count: usize| -> Value { (0..count).map(|n| owner(format!("a{n}"))).collect() };
    let finalizers = |count: usize| -> Value { (0..count).map(|n| json!(format!("example.com/f{n}"))).collect() };
    let manager = |name: usize, fields: Value| {
        json!({ "manager": format!("m{name}"), "operation": "Apply", "apiVersion": "oke.oraclecloud.com/v1alpha1",
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": { "f:metadata": fields } })
    };
    let managers =
        |count: usize| -> Value { (0..count).map(|n| manager(n, json!({ "f:labels": { "f:a": {} } }))).collect() };
    let managed = |fields: Value| json!({ "managedFields": [manager(0, fields)] });
    [
        ("16 managedFields", json!({ "managedFields": managers(14) }), json!({ "managedFields": managers(17) })),
        (
            "16384 bytes",
            managed(json!({ "f:labels": { "f:a": {} } })),
            managed(json!({ "f:labels": { format!("f:{}", "a".repeat(17000)): {} } })),
        ),
        (
            "16384 bytes",
            managed(json!({ "f:labels": {} })),
            managed(json!({ "f:labels": { "f:a": { "f:b": { "f:c": {} } } } })),
        ),
        ("16 annotations", json!({ "annotations": map(16, "a") }), json!({ "annotations": map(17, "a") })),
        (
            "8192 bytes",
            json!({ "annotations": { "k": "a".repeat(8191) } }),
            json!({ "annotations": { "k": "a".repeat(8192) } }),
        ),
        (
            "8192 bytes",
            json!({ "annotations": map(16, "\u{1f600}") }),
            json!({ "annotations": map(16, &"\u{1f600}".repeat(130)) }),
        ),
        ("32 labels", json!({ "labels": map(32, "a") }), json!({ "labels": map(33, "a") })),
        ("4 ownerReferences", json!({ "ownerReferences": owners(4) }), json!({ "ownerReferences": owners(5) })),
        (
            "512 bytes",
            json!({ "ownerReferences": [owner("a".repeat(253))] }),
            json!({ "ownerReferences": [owner("a".repeat(512))] }),
        ),
        ("8 finalizers", json!({ "finalizers": finalizers(8) }), json!({ "finalizers": finalizers(9) })),
    ]
}

fn with_metadata(name: &str, metadata: &Value) -> api::NodeTask {
    let mut object = serde_json::to_value(task(name, &actions()[1].1)).unwrap();
    object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

#[tokio::test]
async fn metadata_of_tasks_are_bounded_at_creation_and_later() {
    let server = server().await;
    let grower = user_with(server, "task-large", &["grow-root-disk"]).await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let create = async |metadata: &Value| tasks(&grower).create(&dry, &with_metadata("large", metadata)).await;
    wait_until_refused("the bounds of tasks", async |_| create(&metadata()[0].2).await).await;
    tasks(&admin(server)).create(&PostParams::default(), &task("small", &actions()[1].1)).await.unwrap();
    let patch = async |metadata: &Value| {
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        tasks(&admin(server)).patch("small", &PatchParams { dry_run: true, ..PatchParams::default() }, &patch).await
    };
    for (words, allowed, refused) in metadata() {
        create(&allowed).await.unwrap();
        assert_refused(create(&refused).await, words);
        patch(&allowed).await.unwrap();
        assert_refused(patch(&refused).await, words);
    }
}

#[tokio::test]
async fn large_task_of_a_time_without_policies_can_lose_its_finalizers() {
    let server = ApiServer::start().unwrap();
    let apply = async |file: &str| server.apply(&manifests_folder().join("base").join(file)).await.unwrap();
    apply("crds.yaml").await;
    let finalizers: Vec<String> = (0..10).map(|n| format!("example.com/f{n}")).collect();
    let fields = json!({ "f:metadata": { "f:labels": { format!("f:{}", "a".repeat(17000)): {} } } });
    let large = json!({ "annotations": { "k": "a".repeat(9000) }, "finalizers": finalizers,
        "managedFields": [{ "manager": "m", "operation": "Apply", "apiVersion": "oke.oraclecloud.com/v1alpha1",
            "fieldsType": "FieldsV1", "fieldsV1": fields }] });
    let admin = tasks(&admin(&server));
    admin.create(&PostParams::default(), &with_metadata("large", &large)).await.unwrap();
    apply("namespace.yaml").await;
    apply("admission.yaml").await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let other = async |_: &str| admin.create(&dry, &with_metadata("other", &large)).await;
    wait_until_refused("the bounds of tasks", other).await;
    let patch = async |metadata: Value| {
        admin.patch("large", &PatchParams::default(), &Patch::Merge(json!({ "metadata": metadata }))).await
    };
    assert_refused(patch(json!({ "labels": { "a": "b" } })).await, "8 finalizers");
    let longer = json!({ "annotations": { "k": "b".repeat(9000) }, "finalizers": finalizers[1..] });
    assert_refused(patch(longer).await, "8192 bytes");
    patch(json!({ "finalizers": finalizers[1..] })).await.unwrap();
    admin.delete("large", &Default::default()).await.unwrap();
    patch(json!({ "finalizers": null })).await.unwrap();
    assert!(admin.get_opt("large").await.unwrap().is_none());
}
