//! Executes `docs/network-tests.md` and the examples of `docs/kubectl.md`: a real API server, and the controller and agents on nodes of an emulated VCN with the
//! fault that the page names. The commands are run, and print what the page says.

mod prometheus;
mod service;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use api::{CONTROLLER_KEYS, NetworkTest};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use kube_harness::{ApiServer, Assets, Bound, ServiceAccount, wait_for};
use sandbox::{
    Agent, DeniedAt, DeniedTraffic, Node, NodeSpec, NpnShape, OciApi, OciSettings, PathMtu, Policy, SubnetSpec,
    Traffic, Vcn,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::built::bin_dir;

use crate::vnics_on_request::{agent, relay};
use crate::{manifests_folder, root};

const PAGE: &str = "docs/network-tests.md";
const KUBECTL_PAGE: &str = "docs/kubectl.md";
const NAMESPACE: &str = "oke-node-manager";
/// Where the controller runs; the other nodes have agents.
const CONTROL: &str = "10.0.40.2";
/// Each node and its subnet. A node has the first free address of its subnet.
const NODES: [(&str, &str); 6] = [
    ("10.0.10.2", "front"),
    ("10.0.10.3", "front"),
    ("10.0.20.2", "back"),
    ("10.0.20.3", "back"),
    ("10.0.30.2", "third"),
    (CONTROL, "control"),
];
/// Where a server listens on each node.
const PORT: u16 = 8443;
/// Below the scene's folder, and in a container: the certificates of the metrics' ports.
const CERTIFICATES: &str = "certificates";
const MOUNTED: &str = "/etc/oke-node-metrics";

/// A command of the page and what it prints, with the fault that is injected before.
#[derive(Clone, Debug)]
struct Example {
    fault: String,
    command: String,
    output: String,
}

struct Scene {
    vcn: Arc<Vcn>,
    kubernetes: ApiServer,
    client: Client,
    folder: TempDir,
    agents: Vec<(String, Agent)>,
    controller: Option<Child>,
    cloud: OciApi,
}

impl Scene {
    async fn new() -> Self {
        let subnet = |name, block: &str| SubnetSpec::new(name, &[block]);
        let mut vcn = Vcn::builder()
            .subnet(subnet("front", "10.0.10.0/24"))
            .subnet(subnet("back", "10.0.20.0/24"))
            .subnet(subnet("third", "10.0.30.0/24"))
            .subnet(subnet("control", "10.0.40.0/24"));
        for (node, subnet) in NODES {
            vcn = vcn.node(NodeSpec::virtual_machine(node, subnet));
        }
        let vcn = Arc::new(vcn.start().unwrap());
        let cloud = OciApi::start(Arc::clone(&vcn), OciSettings::default()).unwrap();
        let kubernetes = ApiServer::start().unwrap();
        for file in ["namespace.yaml", "crds.yaml", "daemonset.yaml", "controller.yaml", "admission.yaml"] {
            kubernetes.apply(&manifests_folder().join("base").join(file)).await.unwrap();
        }
        let folder = TempDir::new().unwrap();
        kubernetes.write_kubeconfig(kubernetes.admin(), &folder.path().join("kubeconfig")).unwrap();
        cloud.write_user(folder.path()).unwrap();
        let client = kubernetes.client(kubernetes.admin()).unwrap();
        let keys = folder.path().join("keys");
        fs::create_dir(&keys).unwrap();
        tokio::spawn(mount_keys(client.clone(), keys));
        let mut scene = Self { vcn, kubernetes, client, folder, agents: Vec::new(), controller: None, cloud };
        for (node, _) in NODES {
            scene.start(node).await;
        }
        scene
    }

    /// A Node with its server, and its agent or the controller.
    async fn start(&mut self, name: &str) {
        let node = self.vcn.node(name).unwrap();
        let object = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
            "spec": { "providerID": format!("oci://{}", node.id()) } });
        self.kubernetes.apply_object(object).await.unwrap();
        if name == CONTROL {
            self.controller = Some(self.controller(&node).await);
            return;
        }
        let listener = node.run(|| TcpListener::bind(("::", PORT))).unwrap().unwrap();
        thread::spawn(move || listener.incoming().for_each(drop));
        sandbox::publish_native_pod_network(&self.vcn, &node, NpnShape::PerFamily).unwrap();
        let (keys, pod) = (self.folder.path().join("keys"), format!("oke-node-agent-{name}"));
        let folder = self.folder.path().join(name);
        let certificates = self.folder.path().join(CERTIFICATES);
        let agent = agent(&node, &self.kubernetes, &folder, |container| {
            let program = "/usr/local/bin/oke-node-agent";
            let words = [
                program,
                "run",
                "--pod-name",
                &pod,
                "--node-name",
                name,
                "--node-ip",
                name,
                "--metrics-port",
                "9808",
                "--metrics-tls-dir",
                MOUNTED,
            ];
            let container = container.with_volume(&certificates, Path::new(MOUNTED));
            container.with_config_map(CONTROLLER_KEYS, &keys).running(words)
        });
        self.agents.push((name.to_owned(), agent.await));
        self.publish_address(&pod, name).await;
    }

    /// As the kubelet does.
    async fn publish_address(&self, pod: &str, address: &str) {
        let status = json!({ "status": { "podIP": address, "podIPs": [{ "ip": address }] } });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        pods.patch_status(pod, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }

    /// With exactly the shipped rights, which its Pod's token has.
    async fn controller(&self, node: &Node) -> Child {
        let pod = "oke-node-controller-0";
        let object = json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": pod, "namespace": NAMESPACE, "labels": { "app.kubernetes.io/name": "oke-node-controller" } },
            "spec": { "nodeName": node.name(), "serviceAccountName": "oke-node-controller",
                      "containers": [{ "name": "controller", "image": "controller" }] } });
        self.kubernetes.apply_object(object).await.unwrap();
        self.publish_address(pod, node.name()).await;
        let account = ServiceAccount::new(NAMESPACE, "oke-node-controller");
        let token = self.kubernetes.token(&account, &Bound::Pod(pod.to_owned())).await.unwrap();
        self.kubernetes.write_kubeconfig(&token, &self.folder.path().join("controller.kubeconfig")).unwrap();
        let (host, port) = self.kubernetes.service();
        relay(node, format!("{host}:{port}"));
        relay(node, self.cloud.url().trim_start_matches("http://").to_owned());
        let folder = self.folder.path();
        let log = fs::File::create(folder.join("controller.log")).unwrap();
        node.command(bin_dir().join("oke-node-controller"))
            .env("KUBECONFIG", folder.join("controller.kubeconfig"))
            .env("POD_NAME", pod)
            .env("OCI_PRINCIPAL", "api-key")
            .env("OCI_CONFIG_FILE", folder.join("config"))
            .env("OCI_ENDPOINT", self.cloud.url())
            .env("NODE_IP", node.name())
            .env("METRICS_PORT", "9809")
            .env("METRICS_TLS_DIR", folder.join(CERTIFICATES))
            // Who is alone does not lose it because the machine is busy.
            .env("LEASE_SECONDS", "120")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// Runs a command of the page; its exit status and what it prints.
    fn run(&self, command: &str) -> (i32, String) {
        let kubectl = Assets::find().unwrap().program("kubectl");
        let path = format!("{}:{}:/usr/bin:/bin", kubectl.parent().unwrap().display(), bin_dir().display());
        let mut shell = Command::new("sh");
        shell.args(["-ec", command]).current_dir(self.folder.path()).env_clear().env("PATH", path);
        shell.env("HOME", "/nonexistent").env("KUBECONFIG", self.folder.path().join("kubeconfig"));
        let output = shell.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        eprintln!("$ {command}\n{text}{}", String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap(), text)
    }

    /// Each agent has published its key, and trusts the controller's.
    async fn wait_ready(&self) {
        for (node, _) in &self.agents {
            let command = format!("kubectl oke-node nettest {node} gateway");
            wait_for(&command, async || (self.run(&command).0 == 0).then_some(())).await;
        }
    }

    fn inject(&mut self, fault: &str) {
        let mut policy = Policy::default();
        match fault {
            "none" => {}
            "path MTU" => policy.path_mtu = Some(PathMtu { bytes: 1500, reported: false }),
            "security list" => policy.denied = vec![list()],
            "no route" => {
                let unrouted = |subnet: &str| (subnet.to_owned(), "10.0.20.0/24".parse().unwrap());
                policy.unrouted = vec![unrouted("front"), unrouted("third")];
            }
            "stopped agent" => {
                let at = self.agents.iter().position(|(node, _)| node == "10.0.30.2").unwrap();
                let _ = self.agents.remove(at).1.stop();
            }
            other => panic!("a page names an unknown fault: {other}"),
        }
        self.vcn.set_policy(policy).unwrap();
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut controller) = self.controller.take() {
            let _ = controller.kill().and_then(|()| controller.wait());
        }
        for (_, agent) in self.agents.drain(..) {
            let _ = agent.stop();
        }
        if thread::panicking() {
            let log = fs::read_to_string(self.folder.path().join("controller.log")).unwrap_or_default();
            let agents = self.vcn.nodes().filter_map(|node| Agent::log(node).ok()).collect::<String>();
            eprintln!("controller:\n{log}\nagents:\n{agents}");
        }
    }
}

fn list() -> DeniedTraffic {
    DeniedTraffic { at: DeniedAt::SubnetIngress("back".to_owned()), traffic: Traffic::TcpPort(PORT), except: [].into() }
}

/// Writes the controllers' keys to a folder, as kubelets mount them.
async fn mount_keys(client: Client, folder: std::path::PathBuf) {
    let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
    while folder.exists() {
        let found = maps.get_opt(CONTROLLER_KEYS).await.ok().flatten();
        for (name, key) in found.and_then(|map| map.data).unwrap_or_default() {
            // Once, and whole: agents read it at any time.
            if !folder.join(&name).exists() {
                let _ = fs::write(folder.join(".new"), key)
                    .and_then(|()| fs::rename(folder.join(".new"), folder.join(&name)));
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn examples(page: &str) -> Vec<Example> {
    let read = |part: &str| {
        let (fault, rest) = part.split_once(" -->\n```console\n$ ")?;
        let (command, rest) = rest.split_once('\n')?;
        let (output, _) = rest.split_once("```")?;
        Some(Example { fault: fault.to_owned(), command: command.to_owned(), output: output.to_owned() })
    };
    page.split("<!-- fault: ").skip(1).map(|part| read(part).unwrap()).collect()
}

/// Without times and rates, which differ from run to run.
fn timeless(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let is_measured = |next: &&str| next.starts_with("µs") || next.starts_with("Mbit/s");
    let kept = words.iter().enumerate();
    let kept = kept.map(|(at, word)| if words.get(at + 1).is_some_and(is_measured) { "N" } else { word });
    kept.collect::<Vec<_>>().join(" ")
}

/// The exit status of a verdict.
fn status_of(output: &str) -> i32 {
    let label = output.lines().next().and_then(|line| line.split(": ").nth(1)).unwrap_or_default();
    match label.split(' ').next().unwrap() {
        "Reachable" => 0,
        "Proven" | "Likely" => 1,
        "OneOf" if output.contains("\n5 of 5 lost") => 1,
        _ => 3,
    }
}

/// How often an example runs until it prints what the page says.
const TRIES: usize = 3;

/// Runs the examples of a page, which must print what it says. Returns the page.
fn run_examples(scene: &mut Scene, name: &str) -> String {
    let shown = fs::read_to_string(root().join(name)).unwrap();
    let mut page = shown.clone();
    for example in examples(&shown) {
        scene.inject(&example.fault);
        let is_as_shown = |output: &str| timeless(output) == timeless(&example.output);
        // On a busy machine an answer can be late, and a test then proves less: it is repeated.
        let (status, found) = (0..TRIES)
            .map(|_| scene.run(&example.command))
            .enumerate()
            .find(|(index, (_, output))| is_as_shown(output) || index + 1 == TRIES)
            .map(|(_, answer)| answer)
            .unwrap();
        assert_eq!(status, status_of(&found), "{example:?}");
        if !is_as_shown(&found) {
            let block =
                |output| format!("<!-- fault: {} -->\n```console\n$ {}\n{output}```", example.fault, example.command);
            page = page.replace(&block(example.output.as_str()), &block(found.as_str()));
        }
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(root().join(name), &page).unwrap();
    } else {
        assert!(shown == page, "{name} prints something else, UPDATE_DOCS=1 writes it:\n{page}");
    }
    page
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_network_tests_prints_what_its_commands_print() {
    let mut scene = Scene::new().await;
    scene.wait_ready().await;
    scene.serve().await;
    // First, because a fault of the other page stays.
    assert!(run_examples(&mut scene, KUBECTL_PAGE).contains("\n  path: "));
    let page = run_examples(&mut scene, PAGE);
    for label in ["Reachable", "Proven", "Likely", "OneOf", "Unknown"] {
        let headline =
            |example: &Example| example.output.lines().next().is_some_and(|line| line.contains(&format!(": {label}")));
        assert!(examples(&page).iter().any(headline), "no example has the label {label}");
    }
    scene.inject("security list");
    first_object_of_the_page(&scene, &page).await;
    scene.inject("none");
    other_objects_of_the_page(&scene, &page).await;
}

/// The first manifest and the commands below it.
async fn first_object_of_the_page(scene: &Scene, page: &str) {
    let block = |after: &str| page.split(after).nth(1).unwrap().split("```").next().unwrap().to_owned();
    let (manifest, commands) = (block("```yaml\n"), block("\n\n```\n"));
    fs::write(scene.folder.path().join("front-to-back.yaml"), manifest).unwrap();
    let commands: Vec<&str> = commands.lines().collect();
    assert_eq!(commands.len(), 4);
    for command in commands {
        let (status, found) = scene.run(command.trim_end_matches(" --watch"));
        assert_eq!(status, 0, "{command}");
        if command.contains(" --watch") {
            let tests: Api<NetworkTest> = Api::all(scene.client.clone());
            let finished = async || tests.get("front-to-back").await.unwrap().status?.finished_at.map(drop);
            wait_for("the test is finished", finished).await;
        } else if command.contains("jsonpath") {
            assert!(found.starts_with("TCP/8443\tLikely\tSecurityList\n\tAllow the port"), "{found}");
        }
    }
}

/// The command that lets pods be tested, a test of pods, and the API server's opinion of the other manifests. Those without a
/// head are part of the first one's spec.
async fn other_objects_of_the_page(scene: &Scene, page: &str) {
    let blocks: Vec<&str> = page.split("```").skip(1).step_by(2).collect();
    let manifests: Vec<&str> = blocks.iter().filter_map(|block| block.strip_prefix("yaml\n")).collect();
    let read = |text: &str| serde_yaml_ng::from_str::<Value>(text).unwrap();
    let parts = blocks.iter().filter(|block| block.starts_with("\n  ")).map(|part| {
        let mut whole = read(manifests[0]);
        whole["spec"].as_object_mut().unwrap().extend(read(part).as_object().unwrap().clone());
        whole
    });
    let all: Vec<Value> = manifests.iter().map(|text| read(text)).chain(parts).collect();
    assert_eq!((manifests.len(), all.len()), (2, 7));
    let apply = |object: &Value, options: &str| {
        fs::write(scene.folder.path().join("object.json"), object.to_string()).unwrap();
        scene.run(&format!("kubectl apply {options} -f object.json")).0
    };
    for object in &all {
        assert_eq!(apply(object, "--dry-run=server"), 0, "{object}");
    }

    let pods = ServiceAccount::new("shop", "default");
    scene.kubernetes.create_account(&pods).await.unwrap();
    let pod = json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "cart", "namespace": "shop", "labels": { "app": "cart" } },
        "spec": { "nodeName": "10.0.20.2", "containers": [{ "name": "cart", "image": "cart" }] } });
    scene.kubernetes.apply_object(pod).await.unwrap();
    // Another node, which has an address.
    let status = json!({ "status": { "phase": "Running", "podIP": "10.0.20.3", "podIPs": [{ "ip": "10.0.20.3" }] } });
    let pods: Api<Pod> = Api::namespaced(scene.client.clone(), "shop");
    pods.patch_status("cart", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let command = blocks.iter().find(|block| block.contains("create rolebinding")).unwrap();
    assert_eq!(scene.run(command).0, 0);
    let account = "system:serviceaccount:oke-node-manager:oke-node-controller";
    let may = format!("kubectl -n shop auth can-i list pods --as={account}");
    wait_for(&may, async || (scene.run(&may).0 == 0).then_some(())).await;
    let test = all.iter().find(|object| !object["spec"]["targets"][0]["pods"].is_null()).unwrap();
    assert_eq!(apply(test, ""), 0);
    let tests: Api<NetworkTest> = Api::all(scene.client.clone());
    let name = test["metadata"]["name"].as_str().unwrap();
    let finished = async || tests.get(name).await.unwrap().status.filter(|status| status.finished_at.is_some());
    let status = wait_for("the test of pods is finished", finished).await;
    assert_eq!((status.worst_verdict.as_str(), status.counts.unwrap().pairs), ("Reachable", 2));
}
