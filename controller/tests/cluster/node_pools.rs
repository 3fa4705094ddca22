//! VnicProfiles that select nodes by node pool, with a real API server and the emulated OCI API.

use std::process::Command;

use api::condition::{ConditionType, find};
use api::{NODE_POOL_ANNOTATION, VnicProfileStatus};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube_harness::wait_until;
use sandbox::OciSettings;
use serde_json::{Value, json};

use crate::scene::{POOL, Scene};

const OTHER: &str = "ocid1.nodepool.oc1.iad.aaaaaaaaother";

impl Scene {
    async fn profile_of_pool(&self, name: &str, pool: &str) {
        let subnet = &self.vcn.subnet("pods").unwrap().id;
        let template = json!({ "name": name, "purpose": "Host", "subnetId": subnet, "subnetRoute": true });
        let profile = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicProfile",
            "metadata": { "name": name }, "spec": { "nodePools": [pool], "attachments": [template] } });
        self.profiles().patch(name, &PatchParams::apply("kubectl"), &Patch::Apply(profile)).await.unwrap();
    }

    /// As the cloud controller manager does, or a kubelet.
    async fn name_pool(&self, node: &str, pool: Value) {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { NODE_POOL_ANNOTATION: pool } } }));
        self.nodes().patch(node, &PatchParams::default(), &patch).await.unwrap();
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Numbers of the nodes whose instances have VNICs.
    async fn served(&self, nodes: u32) -> Vec<u32> {
        let all = self.all().await;
        let has = |number: &u32| all.iter().any(|object| object.spec.instance_id.as_str() == self.instance(*number));
        (0..nodes).filter(has).collect()
    }

    async fn profile_status(&self, name: &str) -> VnicProfileStatus {
        self.profiles().get(name).await.unwrap().status.unwrap_or_default()
    }

    async fn wait_for_ready(&self, profile: &str, number: u32) {
        wait_until(&format!("{number} nodes of {profile} are ready"), async || {
            self.profile_status(profile).await.summary.is_some_and(|sum| (sum.matched, sum.ready) == (number, number))
        })
        .await;
    }
}

#[tokio::test]
async fn new_and_replaced_nodes_of_a_pool_get_vnics_by_themselves() {
    let scene = Scene::with(3, 8, OciSettings::default()).await;
    let mut controller = scene.controller("one");
    scene.name_pool("node-0", json!(POOL)).await;
    scene.profile_of_pool("pool", POOL).await;
    scene.wait_for_ready("pool", 1).await;
    // The autoscaler adds a node: its annotation comes after its registration.
    scene.name_pool("node-1", json!(POOL)).await;
    scene.wait_for_ready("pool", 2).await;
    assert_eq!(scene.served(3).await, [0, 1], "the third Node names no node pool");
    // A node is replaced: its Node goes, and another instance has the same pool.
    scene.nodes().delete("node-0", &DeleteParams::default()).await.unwrap();
    scene.name_pool("node-2", json!(POOL)).await;
    wait_until("the new node has its VNIC", async || scene.served(3).await.contains(&2)).await;
    scene.wait_for_ready("pool", 2).await;
    // The next leader changes nothing, although it reads each instance again.
    let versions =
        async || scene.all().await.into_iter().map(|object| object.metadata.resource_version).collect::<Vec<_>>();
    let before = (versions().await, scene.profiles().get("pool").await.unwrap().metadata.resource_version);
    controller.kill();
    let controller = scene.controller("one");
    wait_until("it leads", async || controller.leads()).await;
    let read = r#"oke_node_controller_oci_calls_total{operation="GetInstance""#;
    wait_until("it has read the instances", async || controller.metric(read).is_some_and(|count| count >= 4.0)).await;
    scene.wait_for_ready("pool", 2).await;
    assert_eq!((versions().await, scene.profiles().get("pool").await.unwrap().metadata.resource_version), before);
    scene.assert_exact().await;
}

#[tokio::test]
async fn node_that_names_a_foreign_pool_gets_nothing_and_a_reason() {
    let scene = Scene::with(2, 8, OciSettings::default()).await;
    let _controller = scene.controller("one");
    scene.name_pool("node-0", json!(OTHER)).await;
    scene.name_pool("node-1", json!("no OCID")).await;
    scene.profile_of_pool("other", OTHER).await;
    wait_until("the profile counts it as failed", async || {
        scene.profile_status("other").await.summary.is_some_and(|sum| (sum.matched, sum.failed) == (1, 1))
    })
    .await;
    let status = scene.profile_status("other").await;
    let ready = find(&status.conditions, ConditionType::Ready).unwrap();
    let message = "node-0 gets no VNIC: its instance's metadata does not confirm its node pool";
    assert_eq!(
        (&*ready.reason, &*ready.message, status.failing_nodes),
        ("NoNodes", message, vec!["node-0".to_owned()])
    );
    let events: Api<Event> = Api::all(scene.client.clone());
    wait_until("an Event names both pools", async || {
        let all = events.list(&ListParams::default()).await.unwrap().items;
        all.iter().any(|event| {
            let note = event.note.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some("NodePoolMismatch") && note.contains(POOL) && note.contains(OTHER)
        })
    })
    .await;
    // `plan` reads OCI, too.
    let output = Command::new(env!("CARGO_BIN_EXE_oke-node-controller"))
        .env("KUBECONFIG", scene.folder.path().join("kubeconfig"))
        .env("OCI_PRINCIPAL", "api-key")
        .env("OCI_CONFIG_FILE", scene.folder.path().join("config"))
        .env("OCI_ENDPOINT", scene.cloud.url())
        .arg("plan")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("Nothing would be changed.") && text.contains("node node-0: NodePoolMismatch: "),
        "{text}"
    );
    // Meanwhile a correct profile works, and the first Node still gets nothing.
    scene.name_pool("node-1", json!(POOL)).await;
    scene.profile_of_pool("pool", POOL).await;
    scene.wait_for_ready("pool", 1).await;
    assert_eq!(scene.served(2).await, [1]);
}
