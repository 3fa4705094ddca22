//! Who may name files of the host in a NodePolicy: a verb per kind, in addition to `create` and `update`, tried with real tokens.

use std::sync::atomic::{AtomicU32, Ordering};

use api::node_policy::{FileGrant, HOST_FOLDERS, HostUnit};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::{Api, Client};
use kube_harness::{ApiServer, Bound, ServiceAccount};
use serde_json::{Value, json};

use super::controller::{controller, granted};
use super::{NAMESPACE, admin, assert_refused, grant, server, wait_until_refused};

const FILES: &str = "need the verb \"host-files\" on nodepolicies";
const CODE: &str = "need the verb \"host-code\" on nodepolicies";
const STABLE: &str =
    "status.stable of a NodePolicy may only have the mode, priority, files, restart and kubelet that its spec has";
const DROP_IN: &str = "/etc/systemd/system/crio.service.d/90-web.conf";

fn policies(client: &Client) -> Api<api::NodePolicy> {
    Api::all(client.clone())
}

fn policy(name: &str, settings: &Value) -> api::NodePolicy {
    let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodePolicy", "metadata": { "name": name },
        "spec": { "allNodes": true, "settings": settings } });
    serde_json::from_value(object).unwrap()
}

fn file(path: &str) -> Value {
    json!({ "files": [{ "path": path, "content": "# own\n" }] })
}

/// Each kind of setting that a verb permits.
fn kinds() -> Vec<(FileGrant, Value)> {
    let folders = HOST_FOLDERS.iter().map(|it| (it.grant, file(&format!("{}/90-web{}", it.path, it.suffix))));
    let drop_ins = HostUnit::ALL
        .iter()
        .map(|unit| (FileGrant::HostCode, file(&format!("/etc/systemd/system/{unit}.d/90-web.conf"))));
    let kubelet = json!({ "kubelet": { "systemReserved": { "cpu": "500m" } } });
    folders.chain(drop_ins).chain([(FileGrant::HostCode, kubelet)]).collect()
}

/// The grant of a folder whose files a unit reads, at its least.
fn grant_of(unit: HostUnit) -> FileGrant {
    HOST_FOLDERS.iter().find(|it| it.unit == Some(unit)).map_or(FileGrant::HostCode, |it| it.grant)
}

/// An account that writes policies, and has these roles in addition.
async fn account(server: &ApiServer, name: &str, roles: &[FileGrant]) -> Client {
    let account = ServiceAccount::new(NAMESPACE, name);
    server.create_account(&account).await.unwrap();
    let subject = json!({ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE });
    let may = |verb: &str| json!({ "verb": verb, "group": api::GROUP, "resource": "nodepolicies" });
    grant(server, name, "oke-node-policy-admin", subject.clone(), may("update")).await;
    for role in roles {
        let (role, verb) = match role {
            FileGrant::HostFiles => ("oke-node-host-files", "host-files"),
            FileGrant::HostCode => ("oke-node-host-code", "host-code"),
        };
        grant(server, &format!("{name}-{verb}"), role, subject.clone(), may(verb)).await;
    }
    server.client(&server.token(&account, &Bound::Nothing).await.unwrap()).unwrap()
}

async fn try_create(client: &Client, settings: &Value) -> kube::Result<api::NodePolicy> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    policies(client).create(&dry, &policy("tried", settings)).await
}

async fn ready(server: &ApiServer, name: &str) -> Client {
    let nothing = account(server, name, &[]).await;
    wait_until_refused("the policy of files", async |_| try_create(&nothing, &kinds()[0].1).await).await;
    nothing
}

#[tokio::test]
async fn each_kind_of_file_needs_its_verb() {
    use FileGrant::{HostCode, HostFiles};
    let server = server().await;
    let nothing = ready(server, "files-nothing").await;
    let (files, code) =
        (account(server, "files-files", &[HostFiles]).await, account(server, "files-code", &[HostCode]).await);
    for (grant, settings) in kinds() {
        let (may, may_not, words) = match grant {
            HostFiles => (&files, &code, FILES),
            HostCode => (&code, &files, CODE),
        };
        assert_refused(try_create(&nothing, &settings).await, words);
        assert_refused(try_create(may_not, &settings).await, words);
        assert!(try_create(may, &settings).await.is_ok(), "{settings}");
        assert!(try_create(&admin(server), &settings).await.is_ok(), "{settings}");
    }
    // A unit restarts with files of other policies, too.
    for unit in HostUnit::ALL {
        let of = |path: &str| {
            let mut settings = file(path);
            settings["restart"] = json!([unit]);
            settings
        };
        let outcome = try_create(&files, &of("/etc/security/limits.d/a.conf")).await;
        match grant_of(unit) {
            HostFiles => assert!(outcome.is_ok(), "{unit}: {:?}", outcome.err()),
            HostCode => assert_refused(outcome, CODE),
        }
        let outcome = try_create(&code, &of("/etc/modprobe.d/a.conf")).await;
        match grant_of(unit) {
            HostFiles => assert_refused(outcome, FILES),
            HostCode => assert!(outcome.is_ok(), "{unit}: {:?}", outcome.err()),
        }
    }
    assert!(try_create(&nothing, &json!({ "sysctls": { "vm.swappiness": "10" } })).await.is_ok());
}

#[tokio::test]
async fn update_of_files_or_of_their_nodes_needs_the_verb() {
    let server = server().await;
    let nothing = ready(server, "updates-nothing").await;
    let files = account(server, "updates-files", &[FileGrant::HostFiles]).await;
    let mut settings = file("/etc/sysctl.d/90-web.conf");
    settings["sysctls"] = json!({ "vm.swappiness": "10" });
    policies(&files).create(&PostParams::default(), &policy("files-updated", &settings)).await.unwrap();
    policies(&nothing)
        .create(&PostParams::default(), &policy("files-added", &json!({ "sysctls": { "vm.swappiness": "10" } })))
        .await
        .unwrap();
    let patch = async |client: &Client, name: &str, spec: Value| {
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        policies(client).patch(name, &dry, &Patch::Merge(json!({ "spec": spec }))).await
    };
    let changes = [
        json!({ "settings": { "files": [{ "path": "/etc/sysctl.d/90-web.conf", "content": "# other\n" }] } }),
        json!({ "settings": { "files": [{ "path": "/etc/sysctl.d/90-web.conf", "content": "# own\n", "mode": "0600" }] } }),
        json!({ "settings": { "files": null } }),
        json!({ "settings": { "restart": ["systemd-sysctl.service"] } }),
        json!({ "allNodes": null, "nodeSelector": { "matchLabels": { "pool": "other" } } }),
        json!({ "mode": "Apply" }),
        json!({ "priority": 500 }),
        json!({ "onDelete": "Keep" }),
        json!({ "rollout": { "maxUnavailable": "100%" } }),
        json!({ "rollout": { "maxFailures": 9 } }),
    ];
    for change in changes {
        assert_refused(patch(&nothing, "files-updated", change.clone()).await, FILES);
        assert!(patch(&files, "files-updated", change.clone()).await.is_ok(), "{change}");
    }
    assert_refused(patch(&nothing, "files-added", settings_patch(&settings)).await, FILES);
    assert!(patch(&files, "files-added", settings_patch(&settings)).await.is_ok());
    let code = json!({ "settings": file("/etc/udev/rules.d/90-web.rules") });
    assert_refused(patch(&files, "files-updated", code).await, CODE);
    // What changes no file of any node.
    for harmless in [json!({ "paused": true }), json!({ "settings": { "sysctls": { "vm.swappiness": "20" } } })] {
        assert!(patch(&nothing, "files-updated", harmless.clone()).await.is_ok(), "{harmless}");
    }
    let pause = async |client: &Client, is_paused: bool| {
        let spec = Patch::Merge(json!({ "spec": { "paused": is_paused } }));
        policies(client).patch("files-updated", &PatchParams::default(), &spec).await
    };
    pause(&nothing, true).await.unwrap();
    assert_refused(pause(&nothing, false).await, FILES);
    pause(&files, false).await.unwrap();
    let annotate = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" }, "finalizers": ["example.com/a"] } }));
    policies(&nothing).patch("files-updated", &PatchParams::default(), &annotate).await.unwrap();
    let release = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    policies(&nothing).patch("files-updated", &PatchParams::default(), &release).await.unwrap();
    for name in ["files-updated", "files-added"] {
        policies(&nothing).delete(name, &DeleteParams::default()).await.unwrap();
    }
}

fn settings_patch(settings: &Value) -> Value {
    json!({ "settings": settings })
}

/// As the controller writes it: without the file's default mode.
fn stable(content: &str) -> Value {
    let mut settings = json!({ "files": [{ "path": DROP_IN, "content": content }], "restart": ["crio.service"] });
    settings["sysctls"] = json!({ "vm.swappiness": "10" });
    json!({ "revision": "a", "mode": "Apply", "priority": 100, "settings": settings })
}

/// The stable revision with another value at a pointer.
fn stable_with(at: &str, value: Value) -> Value {
    let mut changed = stable("# one\n");
    *changed.pointer_mut(at).unwrap() = value;
    changed
}

/// Stable revisions that neither the spec nor an earlier status has.
fn foreign() -> [Value; 6] {
    [
        stable_with("/settings/files/0/content", json!("[Service]\nExecStartPre=/bin/sh\n")),
        stable_with("/settings/files/0/path", json!("/etc/systemd/system/kubelet.service.d/90-web.conf")),
        stable_with("/settings/files/0", json!({ "path": DROP_IN, "content": "# one\n", "mode": "0600" })),
        stable_with("/settings/restart", json!(["kubelet.service"])),
        stable_with("/priority", json!(1000)),
        stable_with("/settings", json!({ "kubelet": { "systemReserved": { "cpu": "500m" } } })),
    ]
}

#[tokio::test]
async fn stable_files_are_of_the_spec_or_were_stable_before() {
    let server = granted().await;
    let controller = controller(server, "stable-1").await;
    let spec = |content: &str| {
        let mut settings = stable(content)["settings"].clone();
        settings["files"][0]["mode"] = json!("0644");
        settings["kubelet"] = Value::Null;
        json!({ "allNodes": true, "mode": "Apply", "settings": settings })
    };
    let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodePolicy",
        "metadata": { "name": "stable" }, "spec": spec("# one\n") });
    server.apply_object(object.clone()).await.unwrap();
    let write = async |status: Value| {
        let patch = Patch::Merge(json!({ "status": status }));
        policies(&controller).patch_status("stable", &PatchParams::default(), &patch).await
    };
    let number = AtomicU32::new(0);
    kube_harness::wait_for("the policy of stable files", async || {
        let content = format!("# foreign {}\n", number.fetch_add(1, Ordering::Relaxed));
        write(json!({ "stable": stable(&content) })).await.err()
    })
    .await;
    let foreign = foreign();
    for stable in &foreign {
        assert_refused(write(json!({ "stable": stable })).await, STABLE);
    }
    // Before any revision is stable, and what needs no verb.
    write(json!({ "target": "a", "canaries": ["node-1"] })).await.unwrap();
    let plain = json!({ "sysctls": { "vm.swappiness": "20" } });
    write(json!({ "stable": { "revision": "b", "mode": "Apply", "priority": 1, "settings": plain } })).await.unwrap();
    // Stored as null, and absent.
    let objects: Api<DynamicObject> = Api::all_with(controller.clone(), &ApiResource::erase::<api::NodePolicy>(&()));
    for null in [json!({ "stable": null }), Value::Null] {
        let mut object = objects.get("stable").await.unwrap();
        object.data["status"] = null;
        objects.replace_status("stable", &PostParams::default(), &object).await.unwrap();
        assert_refused(write(json!({ "stable": foreign[0] })).await, STABLE);
        write(json!({ "stable": stable("# one\n") })).await.unwrap();
    }
    write(json!({ "stable": null })).await.unwrap();
    write(json!({ "stable": stable("# one\n") })).await.unwrap();
    // The spec changes; the earlier revision stays until the new one is stable.
    let mut changed = object.clone();
    changed["spec"] = spec("# two\n");
    server.apply_object(changed).await.unwrap();
    write(json!({ "target": "b" })).await.unwrap();
    write(json!({ "stable": stable_with("/settings/sysctls", json!({ "vm.swappiness": "30" })) })).await.unwrap();
    for stable in &foreign {
        assert_refused(write(json!({ "stable": stable })).await, STABLE);
    }
    write(json!({ "stable": stable("# two\n") })).await.unwrap();
    assert_refused(write(json!({ "stable": stable("# one\n") })).await, STABLE);
    let patch = Patch::Merge(json!({ "status": { "stable": stable("# one\n") } }));
    let by_admin = policies(&admin(server)).patch_status("stable", &PatchParams::default(), &patch).await;
    assert_refused(by_admin, STABLE);
    policies(&admin(server)).delete("stable", &DeleteParams::default()).await.unwrap();
}
