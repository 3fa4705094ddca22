//! VNICs on request, whole: a VnicProfile on a real API server, the real controller, the emulated OCI API, and the real agent on
//! the node, judged by packets.

pub(crate) mod multi_homed_pods;

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use api::condition::find;
use api::{ConditionType, NodeReport, VnicAttachment, VnicProfile};
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use kube_harness::{ApiServer, Bound, ServiceAccount};
use sandbox::{Agent, Container, Node, NodeSpec, NpnShape, OciApi, OciSettings, SubnetSpec, Vcn};
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::built::bin_dir;
use vcn::Family;

use crate::{DEADLINE, manifests_folder};

const NODES: [&str; 2] = ["node-a", "node-b"];
const POOL: &str = "ocid1.nodepool.oc1.iad.aaaaaaaasandbox";

/// Two nodes with their agents, a cluster that knows them, and a controller.
struct Scene {
    vcn: Arc<Vcn>,
    cloud: OciApi,
    client: Client,
    folder: TempDir,
    controller: Child,
    /// Where the controller serves `kubectl oke-node`.
    view: SocketAddr,
    agents: Vec<Agent>,
    kubernetes: ApiServer,
}

impl Scene {
    async fn new() -> Self {
        let node = |name| NodeSpec::virtual_machine(name, "nodes").shape("VM.Standard.E5.Flex", 4).node_pool(POOL);
        let vcn = Vcn::builder()
            .subnet(SubnetSpec::new("nodes", &["10.0.0.0/24", "2603:c020:0:1::/64"]))
            .subnet(SubnetSpec::new("storage", &["10.0.64.0/24", "2603:c020:0:3::/64"]))
            .node(node("node-a"))
            .node(node("node-b"))
            .start()
            .unwrap();
        let vcn = Arc::new(vcn);
        let cloud = OciApi::start(Arc::clone(&vcn), OciSettings::default()).unwrap();
        let kubernetes = ApiServer::start().unwrap();
        for file in ["namespace.yaml", "crds.yaml", "daemonset.yaml", "admission.yaml"] {
            kubernetes.apply(&manifests_folder().join("base").join(file)).await.unwrap();
        }
        let folder = TempDir::new().unwrap();
        kubernetes.write_kubeconfig(kubernetes.admin(), &folder.path().join("kubeconfig")).unwrap();
        cloud.write_user(folder.path()).unwrap();
        let mut agents = Vec::new();
        for node in vcn.nodes() {
            let object = json!({ "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": node.name(), "labels": { "kubernetes.io/hostname": node.name() } },
                "spec": { "providerID": format!("oci://{}", node.id()) } });
            kubernetes.apply_object(object).await.unwrap();
            sandbox::publish_native_pod_network(&vcn, node, NpnShape::PerFamily).unwrap();
            agents.push(agent(node, &kubernetes, &folder.path().join(node.name()), |container| container).await);
        }
        let client = kubernetes.client(kubernetes.admin()).unwrap();
        // Its own address: the usual port of 127.0.0.1 may be another test's.
        static STARTED: AtomicU16 = AtomicU16::new(0);
        let [high, low] = STARTED.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let view = SocketAddr::from(([127, 2, high, low], 9811));
        let controller = controller(folder.path(), &cloud.url(), view);
        Self { vcn, cloud, client, folder, controller, view, agents, kubernetes }
    }

    fn node(&self, name: &str) -> Arc<Node> {
        self.vcn.node(name).unwrap()
    }

    /// As `kubectl apply --server-side` does.
    async fn apply(&self, name: &str, spec: Value) {
        let profile = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicProfile",
            "metadata": { "name": name }, "spec": spec });
        let api: Api<VnicProfile> = Api::all(self.client.clone());
        api.patch(name, &PatchParams::apply("kubectl").force(), &Patch::Apply(profile)).await.unwrap();
    }

    /// A profile's one VNIC, in the subnet for storage.
    fn storage(&self) -> Value {
        let subnet = &self.vcn.subnet("storage").unwrap().id;
        json!([{ "name": "storage", "purpose": "Host", "subnetId": subnet, "subnetRoute": true }])
    }

    async fn annotate(&self, node: &str, key: &str, value: &str) {
        let patch = json!({ "metadata": { "annotations": { key: value } } });
        let api: Api<KubeNode> = Api::all(self.client.clone());
        api.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// What `kubectl oke-node` prints.
    fn shown(&self, arguments: &[&str]) -> String {
        let mut program = Command::new(bin_dir().join("kubectl-oke_node"));
        program.args(arguments).args(["--view-url", &format!("http://{}", self.view)]).arg("--kubeconfig");
        let output = program.arg(self.folder.path().join("kubeconfig")).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until a profile is Ready with one node, and tells its VNIC's own addresses.
    async fn addresses(&self, profile: &str) -> Vec<IpAddr> {
        let profiles: Api<VnicProfile> = Api::all(self.client.clone());
        let ready = async || {
            let status = profiles.get(profile).await.unwrap().status?;
            let one = status.summary.is_some_and(|sum| (sum.matched, sum.ready) == (1, 1));
            (one && status.conditions.iter().any(|condition| condition.reason == "Ready")).then_some(())
        };
        self.wait_for(&format!("{profile} is ready"), ready).await;
        self.attachment(profile).await.unwrap().status.unwrap().own_addresses
    }

    /// The VnicAttachment of a profile.
    async fn attachment(&self, profile: &str) -> Option<VnicAttachment> {
        let attachments: Api<VnicAttachment> = Api::all(self.client.clone());
        let label = ListParams::default().labels(&format!("oke.oraclecloud.com/profile={profile}"));
        attachments.list(&label).await.unwrap().items.pop()
    }

    async fn delete(&self, profile: &str) {
        let api: Api<VnicProfile> = Api::all(self.client.clone());
        api.delete(profile, &DeleteParams::default()).await.unwrap();
    }

    /// Tries until there is an outcome; else shows what the controller and the agents say.
    async fn wait_for<T>(&self, what: &str, mut outcome: impl AsyncFnMut() -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            if let Some(found) = outcome().await {
                println!("{what}: {:?}", started.elapsed());
                return found;
            }
            if started.elapsed() > DEADLINE {
                let log = fs::read_to_string(self.folder.path().join("controller.log")).unwrap();
                let agents = self.vcn.nodes().map(|node| Agent::log(node).unwrap()).collect::<String>();
                let attachments: Api<VnicAttachment> = Api::all(self.client.clone());
                let objects = attachments.list(&ListParams::default()).await.unwrap().items;
                println!(
                    "controller:\n{log}\nagents:\n{agents}\nobjects:\n{}",
                    serde_json::to_string_pretty(&objects).unwrap()
                );
            }
            assert!(started.elapsed() <= DEADLINE, "not in time: {what}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.controller.kill();
        let _ = self.controller.wait();
        for agent in self.agents.drain(..) {
            let _ = agent.stop();
        }
    }
}

/// One that believes sooner than usual that a VNIC is gone. It reads VnicAttachments from the API server with the token of a pod on
/// its node, which is kept in the folder.
pub(crate) async fn agent(
    node: &Node,
    kubernetes: &ApiServer,
    folder: &Path,
    change: impl FnOnce(Container) -> Container,
) -> Agent {
    let directory = Path::new("/etc/oke-node-agent-map");
    // The container says another Node's name, about which the policy allows no Events.
    let conf = "KUBERNETES_EVENTS=deny\nDETACH_GRACE_SECONDS=2\nRESYNC_SECONDS=2\nNPN_FILE=/var/lib/vcn-native/nativepodnetwork.json\n";
    let configure = || fs::create_dir(directory).and_then(|()| fs::write(directory.join("agent.conf"), conf));
    node.run(configure).unwrap().unwrap();
    let pod = format!("oke-node-agent-{}", node.name());
    let object = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": pod, "namespace": "oke-node-manager",
        "labels": { "app.kubernetes.io/name": "oke-node-agent" } },
        "spec": { "nodeName": node.name(), "serviceAccountName": "oke-node-agent",
                  "containers": [{ "name": "agent", "image": "agent" }] } });
    kubernetes.apply_object(object).await.unwrap();
    let account = ServiceAccount::new("oke-node-manager", "oke-node-agent");
    let token = kubernetes.token(&account, &Bound::Pod(pod)).await.unwrap();
    kubernetes.write_in_cluster(&token, "oke-node-manager", folder).unwrap();
    let (host, port) = kubernetes.service();
    relay(node, format!("{host}:{port}"));
    let container = Container::node_agent().unwrap().with_config_map("oke-node-agent", directory);
    Agent::start_in(&change(container.with_api_server(folder, &host, &port)), node, &bin_dir()).unwrap()
}

/// The API server is on this machine's loopback; the node reaches it at the same address on its own.
pub(crate) fn relay(node: &Node, server: String) {
    forward(node.run(|| TcpListener::bind(&server)).unwrap().unwrap(), server);
}

/// Forwards the connections of a listener, which may be in another namespace.
pub(crate) fn forward(listener: TcpListener, server: String) {
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(&server) else { continue };
            for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
}

fn controller(folder: &Path, cloud: &str, view: SocketAddr) -> Child {
    let log = File::create(folder.join("controller.log")).unwrap();
    Command::new(bin_dir().join("oke-node-controller"))
        .env("KUBECONFIG", folder.join("kubeconfig"))
        .env("OCI_PRINCIPAL", "api-key")
        .env("OCI_CONFIG_FILE", folder.join("config"))
        .env("OCI_ENDPOINT", cloud)
        .env("POLL_SECONDS", "0.2")
        // Another test's controller may have the usual port.
        .env("LISTEN", "127.0.0.1:0")
        .env("VIEW_LISTEN", view.to_string())
        // Who is alone does not lose it because the machine is busy.
        .env("LEASE_SECONDS", "120")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn output(node: &Node, words: &str) -> String {
    let mut words = words.split(' ');
    let output = node.command(words.next().unwrap()).args(words).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What the agent and the fabric together made of a node's network: links, rules, and the agent's tables.
fn network(node: &Node) -> String {
    let routes = ["-4", "-6"].map(|family| output(node, &format!("ip {family} route show table 1000"))).concat();
    let links = output(node, "ip -o link");
    // Without numbers of links and namespaces, which are never the same again.
    let links =
        links.lines().map(|line| line.split(": ").nth(1).unwrap_or_default().split('@').next().unwrap_or_default());
    let links = links.collect::<Vec<_>>().join(" ");
    format!("{links}\n{}{}{routes}", output(node, "ip -4 rule"), output(node, "ip -6 rule"))
}

#[tokio::test]
async fn requested_vnic_replies_from_its_subnet_until_request_is_deleted() {
    let scene = Scene::new().await;
    let (a, b) = (scene.node("node-a"), scene.node("node-b"));
    for node in [&a, &b] {
        let set_up = async || Agent::log(node).unwrap().contains("pools.written").then_some(());
        scene.wait_for(&format!("{} is set up", node.name()), set_up).await;
    }
    let before = NODES.map(|name| network(&scene.node(name)));

    // One by its node pool, one by its annotation.
    scene.apply("by-pool", json!({ "nodePools": [POOL], "attachments": scene.storage() })).await;
    scene.annotate("node-a", api::NODE_POOL_ANNOTATION, POOL).await;
    let spec =
        json!({ "nodeSelector": {}, "allNodes": true, "allowNodeAnnotation": true, "attachments": scene.storage() });
    scene.apply("by-annotation", spec).await;
    scene.annotate("node-b", api::VNICS_ANNOTATION, "by-annotation").await;

    let (of_a, of_b) = (scene.addresses("by-pool").await, scene.addresses("by-annotation").await);
    let families = |addresses: &[IpAddr]| addresses.iter().map(|address| Family::of(*address)).collect::<Vec<_>>();
    assert_eq!((families(&of_a), families(&of_b)), (Family::ALL.to_vec(), Family::ALL.to_vec()));
    for (from, to) in of_b.iter().zip(&of_a) {
        scene
            .wait_for(&format!("{to} answers {from}"), async || b.pings(Some(*from), *to).unwrap().then_some(()))
            .await;
        scene
            .wait_for(&format!("{from} answers {to}"), async || a.pings(Some(*to), *from).unwrap().then_some(()))
            .await;
        // Without a source, by the VNIC as well: the primary VNIC is in another subnet.
        scene.wait_for(&format!("{to} answers the host"), async || b.pings(None, *to).unwrap().then_some(())).await;
        let route = output(&b, &format!("ip route get {to}"));
        assert!(route.contains(&format!("src {from}")), "{route}");
    }

    scene.delete("by-pool").await;
    scene.delete("by-annotation").await;
    let detached = async || {
        let live = scene.cloud.attachments().into_iter().filter(|it| !it.primary && it.state != "DETACHED");
        (live.count() == 0).then_some(())
    };
    scene.wait_for("the VNICs are detached", detached).await;
    for (name, before) in NODES.iter().zip(&before) {
        let node = scene.node(name);
        scene.wait_for(&format!("{name} is as it was"), async || (network(&node) == *before).then_some(())).await;
    }
    let attachments: Api<VnicAttachment> = Api::all(scene.client.clone());
    let profiles: Api<VnicProfile> = Api::all(scene.client.clone());
    let gone = async || {
        let left = attachments.list(&ListParams::default()).await.unwrap().items.len();
        let profiles = profiles.list(&ListParams::default()).await.unwrap().items.len();
        (left + profiles == 0).then_some(())
    };
    scene.wait_for("the objects are gone", gone).await;

    scene.annotate("node-b", api::VNICS_ANNOTATION, "nosuch").await;
    for (command, parts) in [
        (&["status"][..], &["UnknownVnicProfile"][..]),
        (&["node", "node-b"], &["UnknownVnicProfile", "nosuch", "Next: Run `kubectl get vnicprofiles`"]),
    ] {
        let names = async || {
            let shown = scene.shown(command);
            parts.iter().all(|part| shown.contains(part)).then_some(())
        };
        scene.wait_for(&format!("kubectl oke-node {} names the annotation", command[0]), names).await;
    }
}

/// What the node offers to pods by name.
fn offer(node: &Node) -> Option<Value> {
    let read = node.run(|| fs::read("/run/vcn-native/pools.json")).unwrap().ok()?;
    let pools: Value = serde_json::from_slice(&read).unwrap();
    pools["vnics"].as_array().unwrap().iter().find(|vnic| vnic["attach"]["name"] == "storage").cloned()
}

#[tokio::test]
async fn shared_vnic_is_offered_on_its_node_and_then_ready() {
    let scene = Scene::new().await;
    let node = scene.node("node-a");
    let hostname = json!({ "matchLabels": { "kubernetes.io/hostname": "node-a" } });
    let shared = json!([{ "name": "storage", "purpose": "Attach", "subnetId": scene.vcn.subnet("storage").unwrap().id,
        "ipv4Count": 2, "allowedNamespaces": ["backup"], "mtu": 1500 }]);
    scene.apply("shared", json!({ "nodeSelector": hostname, "attachments": shared })).await;
    let reported = async || {
        let object = scene.attachment("shared").await?;
        let status = object.status?;
        let expected = NodeReport { configured: true, generation: object.metadata.generation, ..NodeReport::default() };
        let ready = find(&status.conditions, ConditionType::Ready).is_some_and(api::Condition::is_true);
        let configured = find(&status.conditions, ConditionType::Configured).is_some_and(api::Condition::is_true);
        (status.node == Some(expected) && ready && configured).then_some(status.pod_addresses)
    };
    let addresses = scene.wait_for("the node reports that it is set up", reported).await;
    let blocks: Vec<String> = addresses.iter().map(|address| format!("{address}/32")).collect();
    let offered = async || offer(&node).filter(|offer| offer["ipv4"]["addresses"] == json!(blocks));
    let offer_of_two = scene.wait_for("the node offers both addresses", offered).await;
    assert_eq!((blocks.len(), &offer_of_two["mtu"]), (2, &json!(1500)));
    assert_eq!(offer_of_two["attach"]["allowedNamespaces"], json!(["backup"]));
    scene.delete("shared").await;
    scene.wait_for("the object is gone", async || scene.attachment("shared").await.is_none().then_some(())).await;
    scene.wait_for("the offer is gone", async || offer(&node).is_none().then_some(())).await;
}
