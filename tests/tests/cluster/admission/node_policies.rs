//! Who may write NodePolicies and the stop switch, and whose name a policy carries.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kube_harness::ApiServer;
use serde_json::{Value, json};

use super::{NAMESPACE, admin, assert_refused, grant, server, user, wait_until_refused};

const CREATOR: &str = "the annotation oke.oraclecloud.com/created-by names the user that creates the object";
const ONLY_STOP: &str = "without the right to update this ConfigMap, only its key stop may change";
const ROLE: &str = "oke-node-policy-admin";

fn policies(client: Client) -> Api<api::NodePolicy> {
    Api::all(client)
}

fn policy(name: &str, creator: Option<&str>) -> api::NodePolicy {
    let annotations = creator.map(|creator| json!({ api::CREATED_BY_ANNOTATION: creator }));
    let spec = json!({ "allNodes": true, "settings": { "sysctls": { "vm.max_map_count": "262144" } } });
    let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodePolicy",
        "metadata": { "name": name, "annotations": annotations }, "spec": spec });
    serde_json::from_value(object).unwrap()
}

async fn grant_policies(server: &ApiServer, name: &str) -> Client {
    let may = json!({ "verb": "create", "group": api::GROUP, "resource": "nodepolicies" });
    grant(server, &format!("policies-{name}"), ROLE, json!({ "kind": "User", "name": name }), may).await;
    user(server, name)
}

#[tokio::test]
async fn policies_are_written_by_holders_of_their_role_only() {
    let server = server().await;
    let writer = grant_policies(server, "policy-writer").await;
    let may = json!({ "verb": "list", "group": api::GROUP, "resource": "nodepolicies" });
    let viewer = json!({ "kind": "User", "name": "policy-viewer" });
    grant(server, "policies-viewer", "oke-vnic-viewer", viewer, may).await;
    for name in ["policy-viewer", "policy-stranger"] {
        let refused = policies(user(server, name)).create(&PostParams::default(), &policy("written", None)).await;
        assert_refused(refused, "cannot create resource \"nodepolicies\"");
    }
    policies(writer.clone()).create(&PostParams::default(), &policy("written", None)).await.unwrap();
    let pause = Patch::Merge(json!({ "spec": { "paused": true } }));
    let refused = policies(user(server, "policy-viewer")).patch("written", &PatchParams::default(), &pause).await;
    assert_refused(refused, "cannot patch resource \"nodepolicies\"");
    let status = Patch::Merge(json!({ "status": { "target": "a" } }));
    let refused = policies(writer.clone()).patch_status("written", &PatchParams::default(), &status).await;
    assert_refused(refused, "cannot patch resource \"nodepolicies/status\"");
    policies(writer.clone()).patch("written", &PatchParams::default(), &pause).await.unwrap();
    policies(writer).delete("written", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn policy_names_the_user_that_created_it_and_no_other() {
    let server = server().await;
    let alice = grant_policies(server, "alice").await;
    let bob = grant_policies(server, "bob").await;
    wait_until_refused("the creator's policy", async |value| {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        policies(alice.clone()).create(&dry, &policy("creator", Some(value))).await
    })
    .await;
    let create = async |client: &Client, object| policies(client.clone()).create(&PostParams::default(), &object).await;
    assert_refused(create(&alice, policy("of-bob", Some("bob"))).await, CREATOR);
    create(&alice, policy("of-alice", Some("alice"))).await.unwrap();
    create(&bob, policy("without-name", None)).await.unwrap();
    let annotate = async |client: &Client, name: &str, creator: Value| {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { api::CREATED_BY_ANNOTATION: creator } } }));
        policies(client.clone()).patch(name, &PatchParams::default(), &patch).await
    };
    assert_refused(annotate(&bob, "of-alice", json!("bob")).await, CREATOR);
    assert_refused(annotate(&bob, "of-alice", Value::Null).await, CREATOR);
    // Even an administrator.
    assert_refused(annotate(&admin(server), "of-alice", json!("bob")).await, CREATOR);
    assert_refused(annotate(&bob, "without-name", json!("bob")).await, CREATOR);
    // Others may change the rest.
    let pause = Patch::Merge(json!({ "spec": { "paused": true } }));
    policies(bob).patch("of-alice", &PatchParams::default(), &pause).await.unwrap();
}

#[tokio::test]
async fn policy_admin_stops_rollouts_and_changes_no_setting_of_the_controller() {
    let server = server().await;
    let maps = |client: Client| Api::<ConfigMap>::namespaced(client, NAMESPACE);
    let object = json!({ "metadata": { "name": "oke-node-controller" }, "data": { "controller.conf": "# none\n" } });
    let object: ConfigMap = serde_json::from_value(object).unwrap();
    maps(admin(server)).create(&PostParams::default(), &object).await.unwrap();
    let rbac = "rbac.authorization.k8s.io";
    let binding = json!({ "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding",
        "metadata": { "name": "stopper", "namespace": NAMESPACE },
        "subjects": [{ "kind": "User", "name": "stopper", "apiGroup": rbac }],
        "roleRef": { "apiGroup": rbac, "kind": "Role", "name": ROLE } });
    server.apply_object(binding).await.unwrap();
    let stopper = user(server, "stopper");
    let patch = async |client: &Client, value: Value| {
        maps(client.clone()).patch("oke-node-controller", &PatchParams::default(), &Patch::Merge(value)).await
    };
    kube_harness::wait_for("the role and the policy", async || {
        let number = json!({ "data": { "controller.conf": "# other\n" } });
        let refused = patch(&stopper, number).await.err().map(|error| error.to_string()).unwrap_or_default();
        patch(&admin(server), json!({ "data": { "controller.conf": "# none\n" } })).await.unwrap();
        refused.contains(ONLY_STOP).then_some(())
    })
    .await;
    patch(&stopper, json!({ "data": { "stop": "an incident" } })).await.unwrap();
    patch(&stopper, json!({ "data": { "stop": null } })).await.unwrap();
    for other in [
        json!({ "data": { "stop": "x", "controller.conf": null } }),
        json!({ "data": { "health-rules.json": "{}" } }),
        json!({ "data": { "stop": "x".repeat(257) } }),
        json!({ "binaryData": { "a": "AA==" } }),
        json!({ "immutable": true }),
        json!({ "metadata": { "labels": { "a": "b" } } }),
        json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a" }] } }),
    ] {
        assert_refused(patch(&stopper, other).await, ONLY_STOP);
    }
    patch(&admin(server), json!({ "data": { "controller.conf": "# more\n" } })).await.unwrap();
}

#[tokio::test]
async fn growth_of_root_disks_needs_its_verb() {
    const VERB: &str = "need the verb \"grow-root-disk\" on nodetasks";
    let server = server().await;
    let writer = policies(grant_policies(server, "growth-writer").await);
    let grower = policies(grant_policies(server, "growth-grower").await);
    let may = json!({ "verb": "grow-root-disk", "group": api::GROUP, "resource": "nodetasks" });
    let subject = json!({ "kind": "User", "name": "growth-grower" });
    grant(server, "growth-grower", "oke-node-task-admin", subject, may).await;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let growing = |name: &str| {
        let mut policy = policy(name, None);
        policy.spec.settings.root_disk = Some(api::node_policy::RootDisk::Grow);
        policy
    };
    wait_until_refused("the policy of growths", async |_| writer.create(&dry, &growing("growth-tried")).await).await;
    assert_refused(writer.create(&dry, &growing("growth-tried")).await, VERB);
    writer.create(&PostParams::default(), &policy("growth-plain", None)).await.unwrap();
    grower.create(&PostParams::default(), &growing("growth")).await.unwrap();
    let patch = async |policies: &Api<api::NodePolicy>, name: &str, spec: Value| {
        policies.patch(name, &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await
    };
    let grow = json!({ "settings": { "rootDisk": "Grow" } });
    assert_refused(patch(&writer, "growth-plain", grow.clone()).await, VERB);
    // Other nodes, or another mode, of a policy with it.
    let selector = json!({ "allNodes": null, "nodeSelector": { "matchLabels": { "pool": "web" } } });
    assert_refused(patch(&writer, "growth", selector).await, VERB);
    assert_refused(patch(&writer, "growth", json!({ "mode": "Apply" })).await, VERB);
    patch(&grower, "growth-plain", grow).await.unwrap();
    patch(&grower, "growth", json!({ "mode": "Apply" })).await.unwrap();
    // The role of policies is enough to hold growths back.
    patch(&writer, "growth", json!({ "paused": true })).await.unwrap();
    assert_refused(patch(&writer, "growth", json!({ "paused": null })).await, VERB);
    assert_refused(patch(&writer, "growth", json!({ "rollout": { "maxUnavailable": "100%" } })).await, VERB);
    patch(&writer, "growth", json!({ "settings": { "rootDisk": null } })).await.unwrap();
}
