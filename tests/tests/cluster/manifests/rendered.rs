//! What `kubectl apply -k` applies: the base and the overlays as kubectl renders them, on a real API server.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use kube::Api;
use kube::api::ListParams;
use kube::client::Body;
use kube_harness::{ApiServer, Assets, Bound, ServiceAccount, wait_for};
use sandbox::Container;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{AGENT, documents, sources};
use crate::root;

pub(super) const FOLDERS: [&str; 4] =
    ["base", "overlays/oke-vcn-native", "overlays/oke-flannel", "overlays/self-managed"];
const NAMESPACE: &str = "oke-node-manager";
const CONTROLLER: &str = "oke-node-controller";

/// Two DaemonSets of agents: that of a pool takes over.
pub(super) const PILOT: &str = "pilot";

/// Applied after the agent's DaemonSet was deleted, on a cluster; here its objects stay.
const UNINSTALLER: &str = "uninstall";

/// The same for single nodes, next to agents of others.
const RELEASE: &str = "release";

/// Tests that apply to the shared API server take turns: each begins with the base.
static APPLYING: Mutex<()> = Mutex::const_new(());

/// Not the shared one: these tests replace all that the manifests define.
fn server() -> &'static ApiServer {
    static SERVER: OnceLock<ApiServer> = OnceLock::new();
    SERVER.get_or_init(|| ApiServer::start().unwrap())
}

fn kubectl(arguments: &[&str]) -> Output {
    let kubectl = Assets::find().unwrap().program("kubectl");
    Command::new(kubectl).args(arguments).env_clear().env("HOME", "/nonexistent").output().unwrap()
}

fn folder(name: &str) -> String {
    root().join("manifests").join(name).display().to_string()
}

pub(super) fn rendered(name: &str) -> String {
    let output = kubectl(&["kustomize", &folder(name)]);
    let error = String::from_utf8(output.stderr).unwrap();
    // Not even a warning that something is deprecated.
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{name}");
    String::from_utf8(output.stdout).unwrap()
}

/// `kubectl apply --server-side -k` with more arguments: what it printed.
fn apply(server: &ApiServer, name: &str, more: &[&str]) -> Result<String, String> {
    let kubeconfig = server.folder().join("rendered.kubeconfig");
    server.write_kubeconfig(server.admin(), &kubeconfig).unwrap();
    let (kubeconfig, folder) = (format!("--kubeconfig={}", kubeconfig.display()), folder(name));
    let apply = ["apply", "--server-side", "--warnings-as-errors", &kubeconfig, "-k", &folder];
    let output = kubectl(&[&apply[..], more].concat());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn the_sandbox_runs_the_agent_that_is_rendered() {
    let container = |name| Container::of_daemon_set(&rendered(name), &[]).unwrap();
    let agent = Container::node_agent().unwrap();
    assert_eq!(container("base"), agent);
    assert_eq!(container("overlays/self-managed"), agent);
    assert_eq!(container("overlays/oke-vcn-native"), Container::node_agent_taking_over().unwrap());
    // The pool's, which takes over, is the only other DaemonSet.
    let all = rendered(PILOT);
    let is_of_pool = |object: &&str| object.contains("kind: DaemonSet") && object.contains("oke-node-agent-pilot");
    let of_pool = all.split("\n---\n").find(is_of_pool).unwrap();
    let pilot = Container::of_daemon_set(of_pool, &[]).unwrap();
    let taking_over = Container::node_agent_taking_over().unwrap();
    let but_pod = |of: &Container| {
        of.environment().iter().filter(|(name, _)| name != "POD_NAME").cloned().collect::<Vec<(String, String)>>()
    };
    assert_eq!((but_pod(&pilot), pilot.volumes()), (but_pod(&taking_over), taking_over.volumes()));
    let flannel = container("overlays/oke-flannel");
    let (added, rest) = flannel.environment().split_first().unwrap();
    assert_eq!((added.0.as_str(), added.1.as_str()), ("POD_NETWORK", "none"));
    assert_eq!((rest, flannel.volumes()), (agent.environment(), agent.volumes()));
}

#[test]
fn every_image_is_set_in_one_place() {
    let text = std::fs::read_to_string(root().join("manifests/image/kustomization.yaml")).unwrap();
    let component: Value = serde_yaml_ng::from_str(&text).unwrap();
    let image = &component["images"][0];
    assert_eq!(image["newTag"], env!("CARGO_PKG_VERSION"));
    let name = image["newName"].as_str().unwrap();
    // CRI-O takes no name without a registry's host.
    assert!(name.split_once('/').unwrap().0.contains('.'), "{name}");
    let expected = format!("{name}:{}", env!("CARGO_PKG_VERSION"));
    for folder in FOLDERS.into_iter().chain([UNINSTALLER, RELEASE, PILOT]) {
        let rendered = rendered(folder);
        let images: Vec<&str> = rendered.lines().filter_map(|line| line.trim().strip_prefix("image: ")).collect();
        assert_eq!(images, vec![expected.as_str(); if folder == PILOT { 3 } else { 2 }], "{folder}");
    }
    for file in sources() {
        let text = std::fs::read_to_string(&file).unwrap();
        let images = text.lines().filter_map(|line| line.trim().strip_prefix("image: "));
        let names: BTreeSet<&str> = images.map(|image| image.split(':').next().unwrap()).collect();
        assert!(names.is_empty() || names == BTreeSet::from(["oke-node-manager"]), "{}: {names:?}", file.display());
    }
}

#[test]
fn gpu_folder_adds_the_kernels_log_and_nothing_else() {
    let [granted, expected] = ["gpu", "overlays/oke-vcn-native"].map(rendered);
    let more: Vec<&str> = granted.lines().filter(|line| !expected.lines().any(|other| other == *line)).collect();
    assert_eq!((more, granted.lines().count()), (vec!["            - SYSLOG"], expected.lines().count() + 1));
    assert!(Container::of_daemon_set(&granted, &[]).unwrap().capabilities().contains(&"SYSLOG".to_owned()));
}

#[test]
fn every_source_is_rendered() {
    let in_base: BTreeSet<String> = sources()
        .iter()
        .filter(|file| file.parent().unwrap().ends_with("base"))
        .map(|file| file.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    let text = std::fs::read_to_string(root().join("manifests/base/kustomization.yaml")).unwrap();
    let base: Value = serde_yaml_ng::from_str(&text).unwrap();
    let resources = base["resources"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned());
    assert_eq!(resources.collect::<BTreeSet<_>>(), in_base);
}

#[tokio::test]
async fn an_api_server_accepts_every_overlay_without_a_warning() {
    let _turn = APPLYING.lock().await;
    let server = server();
    // The one object that a dry run needs of another: docs/install.md.
    server.apply(&root().join("manifests/base/namespace.yaml")).await.unwrap();
    for name in FOLDERS.into_iter().chain([PILOT, UNINSTALLER, RELEASE]) {
        // First as an operator would look at it: nothing that one object needs of another stands in the way.
        let tried = apply(server, name, &["--dry-run=server"]).unwrap();
        let expected = match name {
            UNINSTALLER | RELEASE => "oke-node-uninstall",
            PILOT => "oke-node-agent-pilot",
            _ => AGENT,
        };
        assert!(tried.contains(&format!("daemonset.apps/{expected} serverside-applied")), "{tried}");
        let applied = apply(server, name, &[]).unwrap();
        assert_eq!(applied.lines().count(), documents(&rendered(name)).len(), "{applied}");
    }
}

#[tokio::test]
async fn the_controller_is_served_before_agents() {
    let _turn = APPLYING.lock().await;
    let server = server();
    apply(server, "base", &[]).unwrap();
    let admin = server.client(server.admin()).unwrap();
    let schemas: Api<FlowSchema> = Api::all(admin);
    for (account, schema, level) in
        [(CONTROLLER, CONTROLLER, "workload-high"), (AGENT, "service-accounts", "workload-low")]
    {
        let schema = schemas.get(schema).await.unwrap();
        assert_eq!(schema.spec.unwrap().priority_level_configuration.name, level);
        let uid = schema.metadata.uid.unwrap();
        let token = server.token(&ServiceAccount::new(NAMESPACE, account), &Bound::Nothing).await.unwrap();
        let client = server.client(&token).unwrap();
        wait_for("the account's requests are of this flow", async || {
            let list = kube::core::Request::new("/apis/oci.oraclecloud.com/v1beta1/nativepodnetworks");
            let answer = client.send(list.list(&ListParams::default()).unwrap().map(Body::from)).await.unwrap();
            answer.headers().get("x-kubernetes-pf-flowschema-uid").is_some_and(|found| *found == uid).then_some(())
        })
        .await;
    }
}

#[test]
fn every_folder_of_overlays_is_tried() {
    let overlays = std::fs::read_dir(root().join("manifests/overlays")).unwrap();
    let found: BTreeSet<String> =
        overlays.map(|entry| format!("overlays/{}", entry.unwrap().file_name().into_string().unwrap())).collect();
    let tried = FOLDERS.iter().filter(|name| Path::new(name).starts_with("overlays"));
    assert_eq!(found, tried.map(ToString::to_string).collect());
}

/// An operator's own overlay, in a folder with files of settings. `../oke-node-manager` is this checkout.
pub(super) fn rendered_overlay(overlay: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().canonicalize().unwrap();
    // kustomize takes relative paths only.
    let up = "../".repeat(own.components().count() - 1);
    let checkout = format!("{up}{}", root().canonicalize().unwrap().strip_prefix("/").unwrap().display());
    let overlay = overlay.replace("../oke-node-manager", &checkout);
    std::fs::write(own.join("kustomization.yaml"), overlay).unwrap();
    for file in ["agent.conf", "controller.conf"] {
        std::fs::write(own.join(file), format!("# of {file}\nLOG_LEVEL=debug\n")).unwrap();
    }
    let output = kubectl(&["kustomize", &own.display().to_string()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A folder with a component, as an operator's own overlay names them.
pub(super) fn with_component(folder: &str, component: &str) -> String {
    let at = "../oke-node-manager/manifests";
    rendered_overlay(&format!("resources: [{at}/{folder}]\ncomponents: [{at}/{component}]\n"))
}

#[test]
fn overlay_of_install_page_renders_with_its_own_settings() {
    let page = std::fs::read_to_string(root().join("docs/install.md")).unwrap();
    let rendered = rendered_overlay(page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap());
    let documents = documents(&rendered);
    // The controller fills the one without data.
    let maps = documents.iter().filter(|document| document["kind"] == "ConfigMap" && !document["data"].is_null());
    let data: Vec<(&Value, &Value)> = maps.map(|map| (&map["metadata"]["name"], &map["data"])).collect();
    let agent = json!({ "agent.conf": "# of agent.conf\nLOG_LEVEL=debug\n" });
    let controller = json!({ "controller.conf": "# of controller.conf\nLOG_LEVEL=debug\n" });
    assert_eq!(data, [(&json!(AGENT), &agent), (&json!(CONTROLLER), &controller)]);
    assert_eq!(
        rendered.matches(&format!("image: REGISTRY/oke-node-manager:{}\n", env!("CARGO_PKG_VERSION"))).count(),
        2
    );
}
