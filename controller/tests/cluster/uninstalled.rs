//! Executes `docs/uninstall.md`: its commands in order, by kubectl, against a real API server with a real controller. Every
//! VNIC is detached, and none of our objects is left in the cluster. An API server without kubelets runs no pod: the drain is
//! a dry run, and in place of `rollout status` the object must exist.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, NamespaceSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use kube_harness::{Assets, wait_until};
use sandbox::OciSettings;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::agents::{HOST, NAMESPACE, NETWORK};
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
    /// A cluster of two nodes with all our objects.
    async fn installed() -> Self {
        let scene = Self::with(2, 8, OciSettings::default()).await;
        for file in ["admission.yaml", "controller.yaml", "daemonset.yaml"] {
            scene.kubernetes.apply(&manifest(file)).await.unwrap();
        }
        assert!(scene.sh("kubectl label nodes --all kubernetes.io/os=linux").await.0);
        scene
    }

    /// Runs a command in the repository as an administrator: whether it succeeded, and its output.
    async fn sh(&self, command: &str) -> (bool, String) {
        let kubectl = Assets::find().unwrap().program("kubectl");
        assert!(kubectl.is_file(), "{} is missing: run tests/kube/servers/build", kubectl.display());
        let path = format!("{}:{}", kubectl.parent().unwrap().display(), std::env::var("PATH").unwrap());
        // A command that never ends is a failure too.
        let mut shell = Command::new("timeout");
        shell.args(["240", "sh", "-c", command]).current_dir(root()).env("PATH", path).env("HOME", self.folder.path());
        shell.env("KUBECONFIG", self.folder.path().join("kubeconfig"));
        let output = spawn_blocking(move || shell.output().unwrap()).await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        println!("$ {command}\n{}", String::from_utf8_lossy(&text));
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }
}

/// Plays the namespace controller, which also deletes the namespace's content: our own ConfigMaps and Lease here.
async fn end_namespaces(client: Client) {
    let namespaces: Api<Namespace> = Api::all(client);
    loop {
        for name in [NAMESPACE, "oke-node-manager-probes"] {
            let found = namespaces.get_opt(name).await.unwrap();
            if let Some(mut namespace) = found.filter(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
                namespace.spec = Some(NamespaceSpec::default());
                // A conflict is solved in the next round.
                let _ = namespaces.replace_subresource("finalize", name, &PostParams::default(), &namespace).await;
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_the_page_remove_everything() {
    let scene = Scene::installed().await;
    let cluster = tokio::spawn(end_namespaces(scene.client.clone()));
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

    let commands = commands();
    let place = |part: &str| commands.iter().position(|command| command.contains(part)).unwrap();
    assert!(
        place("controller.yaml") < place(DRAIN),
        "its PodDisruptionBudget forbids to drain all nodes: {commands:?}"
    );
    for command in &commands {
        let as_run = command.replace(" drain ", " drain --dry-run=server ").replace(" rollout status ", " get ");
        let (succeeded, text) = scene.sh(&as_run).await;
        assert!(succeeded, "{command}: {text}");
        if command.contains("get vnica,vnicp") {
            assert!(text.contains("No resources found"), "{text}");
            assert_eq!(scene.vnics(), [""; 0], "while the controller runs, every VNIC is detached");
        } else if command.contains("controller.yaml") {
            // As its kubelet does.
            controller.terminate();
        } else if command.contains("NetworkReady") {
            let (_, left) = scene.sh("kubectl get nodes -o jsonpath='{.items[*].status.conditions[*].type}'").await;
            assert_eq!(left.trim(), "Ready");
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
