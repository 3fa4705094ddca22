//! Executes `docs/uninstall.md`: its commands in order, by kubectl, against a real API server with a real controller. Every
//! VNIC is detached, every node can be drained by evictions, and none of our objects is left in the cluster.

use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube_harness::{Assets, ServiceAccount, wait_until};
use sandbox::OciSettings;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::agents::{HOST, NETWORK};
use crate::kube_controllers::{is_ready, play};
use crate::scene::{Scene, manifest};

const DRAIN: &str = "kubectl drain --selector=kubernetes.io/os=linux --ignore-daemonsets --delete-emptydir-data";
const EVERYTHING: &str = "namespaces,deployments,daemonsets,pods,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings,\
                          poddisruptionbudgets,validatingadmissionpolicies,validatingadmissionpolicybindings,\
                          customresourcedefinitions";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The commands of the page's numbered steps, without their comments.
fn commands() -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/uninstall.md")).unwrap();
    let steps = page.lines().filter_map(|line| line.strip_prefix("   $ "));
    steps.map(|line| line.split("  #").next().unwrap().trim().to_owned()).collect()
}

impl Scene {
    /// A cluster of two nodes with all our objects, as its own controllers would run them, and a user's pod on each node.
    async fn installed() -> Self {
        let scene = Self::with(2, 8, OciSettings::default()).await;
        let server = &scene.kubernetes;
        server.create_account(&ServiceAccount::new("default", "default")).await.unwrap();
        for file in ["admission.yaml", "controller.yaml", "daemonset.yaml"] {
            server.apply(&manifest(file)).await.unwrap();
        }
        let pods: Api<Pod> = Api::namespaced(scene.client.clone(), "default");
        for node in ["node-0", "node-1"] {
            assert!(scene.sh(&format!("kubectl label node {node} kubernetes.io/os=linux")).await.0);
            // Of a kind whose controller the test does not play.
            let owner = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "shop", "uid": "1", "controller": true });
            let pod = json!({ "metadata": { "name": format!("shop-{node}"), "ownerReferences": [owner] },
                "spec": { "nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{ "name": "a", "image": "a" }] } });
            pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        }
        scene
    }

    /// Runs a command in the repository as an administrator: whether it succeeded, and its output.
    async fn sh(&self, command: &str) -> (bool, String) {
        let kubectl = Assets::find().unwrap().program("kubectl");
        assert!(kubectl.is_file(), "{} is missing: run tests/kube/servers/build", kubectl.display());
        let path = format!("{}:{}", kubectl.parent().unwrap().display(), std::env::var("PATH").unwrap());
        // A drain that never ends is a failure too.
        let mut shell = Command::new("timeout");
        shell.args(["240", "sh", "-c", command]).current_dir(root()).env("PATH", path).env("HOME", self.folder.path());
        shell.env("KUBECONFIG", self.folder.path().join("kubeconfig"));
        let output = spawn_blocking(move || shell.output().unwrap()).await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        println!("$ {command}\n{}", String::from_utf8_lossy(&text));
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// The ready replicas of the controller; each other one may be evicted.
    async fn replicas(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), "oke-node-manager");
        let label = ListParams::default().labels("app.kubernetes.io/name=oke-node-controller");
        pods.list(&label).await.unwrap().items.into_iter().filter(is_ready).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_page_remove_everything() {
    let scene = Scene::installed().await;
    let cluster = tokio::spawn(play(scene.client.clone()));
    let mut controller = scene.controller("one");
    let template = json!({ "name": "storage", "purpose": "Host", "subnetId": scene.vcn.subnet("pods").unwrap().id });
    let profile: Value = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicProfile",
        "metadata": { "name": "storage" },
        "spec": { "nodeSelector": {}, "allNodes": true, "attachments": [template] } });
    scene.kubernetes.apply_object(profile).await.unwrap();
    scene.want("own", 0, json!({})).await;
    wait_until("three VNICs", async || scene.vnics().len() == 3).await;
    let good = |kind: &str| json!({ "type": kind, "status": "True", "reason": "NoCriticalProblem", "message": "" });
    let conditions = [NETWORK, HOST, "Ready"].map(good);
    let conditions = json!({ "status": { "conditions": conditions } });
    let patch = format!("kubectl patch node node-0 --subresource=status --type=strategic -p '{conditions}'");
    assert!(scene.sh(&patch).await.0);
    wait_until("two replicas", async || scene.replicas().await.len() == 2).await;

    let commands = commands();
    assert!(commands.iter().any(|command| command == DRAIN), "{commands:?}");
    for command in &commands {
        let (succeeded, text) = scene.sh(command).await;
        assert!(succeeded, "{command}: {text}");
        if command.contains("get vnica,vnicp") {
            assert!(text.contains("No resources found"), "{text}");
            assert_eq!(scene.vnics(), [""; 0], "while the controller runs, every VNIC is detached");
        } else if command.contains("controller.yaml") {
            // As its kubelet does.
            controller.terminate();
            wait_until("no replica", async || scene.replicas().await.is_empty()).await;
        } else if command.contains("NetworkReady") {
            let (_, left) = scene.sh("kubectl get nodes -o jsonpath='{.items[*].status.conditions[*].type}'").await;
            assert_eq!(left.trim(), "Ready");
        } else if command == DRAIN {
            let (_, left) = scene.sh("kubectl get pods --all-namespaces -o name").await;
            let only_agents = left.lines().all(|pod| pod.starts_with("pod/oke-node-agent-"));
            assert!(only_agents && left.lines().count() == 2, "{left}");
        }
    }
    let gone = async || {
        let get = format!("kubectl get {EVERYTHING} --all-namespaces -l app.kubernetes.io/part-of=oke-node-manager");
        scene.sh(&get).await.1.contains("No resources found")
    };
    wait_until("none of our objects", gone).await;
    let (_, kinds) = scene.sh("kubectl get customresourcedefinitions -o name").await;
    assert!(!kinds.contains("oke.oraclecloud.com"), "{kinds}");
    cluster.abort();
}
