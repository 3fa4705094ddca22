//! The demo's cluster: a real API server on a node of its own, the agents that watch it, and the controller. The controller
//! attaches VNICs through the emulated OCI API for a VnicProfile. The user's part is done, and shown, with kubectl.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube_harness::{ApiServer, Bound, Building, Identity, ServiceAccount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sandbox::{Agent, Container, Node, NpnShape, OciApi, OciSettings, Runtime, Vcn};
use serde_json::{Value, json};
use vcn::Family;

use super::report;

const MANIFESTS: [&str; 5] = [
    include_str!("../../../../manifests/base/namespace.yaml"),
    include_str!("../../../../manifests/base/crds.yaml"),
    include_str!("../../../../manifests/base/admission.yaml"),
    include_str!("../../../../manifests/base/daemonset.yaml"),
    include_str!("../../../../manifests/base/controller.yaml"),
];

/// Where a node has its agent's token, in its own memory.
const SECRETS: &str = "/run/demo-service-account";
const LOG: &str = "/run/oke-node-controller.log";
const SEEN: &str = "/var/lib/vcn-native/nativepodnetwork-seen.json";
const DOCUMENT: &str = "/var/lib/vcn-native/nativepodnetwork.json";
/// Far more than any step needs.
const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

/// A running cluster. Its programs end with it.
pub(crate) struct Cluster {
    controller: Option<Child>,
    pub(super) kubectl: PathBuf,
    pub(super) home: PathBuf,
    pub(super) node: Arc<Node>,
    server: ApiServer,
    oci: OciApi,
}

/// Sets it up around nodes whose agents have read files so far; `None` where no API server can be had.
pub(crate) fn set_up(
    building: Building,
    vcn: &Arc<Vcn>,
    control_plane: &Arc<Node>,
    bin_dir: &Path,
) -> Result<Option<Cluster>> {
    report::title("Kubernetes: a real API server on a node of its own (built the first time, for some minutes)");
    let assets = match building.wait() {
        Ok(assets) => assets,
        Err(error) => {
            report::line(&format!("left out: {error}"));
            return Ok(None);
        }
    };
    let kubectl = assets.program("kubectl");
    if !kubectl.is_file() {
        report::line(&format!("left out: {} is missing", kubectl.display()));
        return Ok(None);
    }
    let started = Instant::now();
    let address = control_plane.address(Family::Ipv4).context("the control plane has no IPv4 address")?;
    let server = control_plane.run(|| ApiServer::start_at(&assets, address, Path::new("/run")))??;
    let oci = OciApi::start(Arc::clone(vcn), OciSettings::default())?;
    let home = server.folder().to_owned();
    // The server's folder is in the node's own memory, and seen there only.
    control_plane.run(|| server.write_kubeconfig(server.admin(), &home.join("config")))??;
    report::row(&format!("{address}: etcd, kube-apiserver"), "ready", started.elapsed());
    let mut cluster = Cluster { controller: None, kubectl, home, node: Arc::clone(control_plane), server, oci };
    cluster.fill(vcn)?;
    cluster.controller = Some(cluster.start_controller(bin_dir)?);
    Ok(Some(cluster))
}

impl Cluster {
    /// Applies what OKE and the operator would.
    fn fill(&self, vcn: &Vcn) -> Result<()> {
        let definition = std::fs::read_to_string(ApiServer::native_pod_networks()).context("read OKE's definition")?;
        self.apply(&definition)?;
        self.kubectl(&["wait", "--for=condition=Established", "customresourcedefinition", "--all"])?;
        for manifest in MANIFESTS {
            self.apply(manifest)?;
        }
        self.kubectl(&["wait", "--for=condition=Established", "customresourcedefinition", "--all"])?;
        for node in workers(vcn, &self.node) {
            let object = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": node.name() },
                "spec": { "providerID": node.id() },
            });
            self.apply(&object.to_string())?;
            let mut npn = vcn.native_pod_network(node.name(), NpnShape::PerFamily)?;
            self.apply(&npn.to_string())?;
            let status = npn.get_mut("status").map(Value::take);
            let patch = json!({ "status": status }).to_string();
            let name = node.id().unique_id();
            self.kubectl(&["patch", "nativepodnetwork", name, "--subresource=status", "--type=merge", "-p", &patch])?;
        }
        Ok(())
    }

    /// Restarts the agents, which now find an API server, and removes the documents that they read before.
    pub(crate) fn join(&self, nodes: &[Arc<Node>], agents: Vec<Agent>, bin_dir: &Path) -> Result<Vec<Agent>> {
        let (host, port) = self.server.service();
        let mut joined = Vec::new();
        for (node, agent) in nodes.iter().zip(agents) {
            agent.stop()?;
            let started = Instant::now();
            let account = ServiceAccount::new("oke-node-manager", "oke-node-agent");
            self.give_token(node, &account)?;
            node.run(|| std::fs::remove_file(DOCUMENT))?.with_context(|| format!("remove {DOCUMENT}"))?;
            let container = Container::node_agent()?.with_api_server(Path::new(SECRETS), &host, &port);
            let mut agent = Agent::start_in(&container, node, bin_dir)?;
            until("the agent has not seen its NativePodNetwork", || {
                node.run(|| Path::new(SEEN).exists()).unwrap_or(false)
            })?;
            agent.wait_ready(node)?;
            let what = format!("{}: agent restarted, in the cluster", node.name());
            report::row(&what, "NativePodNetwork watched", started.elapsed());
            joined.push(agent);
        }
        self.show(&["get", "nativepodnetworks"])?;
        Ok(joined)
    }

    /// What a kubelet does for a pod.
    fn give_token(&self, node: &Node, account: &ServiceAccount) -> Result<()> {
        let token = self.token(account, &Bound::Node(node.name().to_owned()))?;
        node.run(|| self.server.write_in_cluster(&token, &account.namespace, Path::new(SECRETS)))??;
        Ok(())
    }

    fn token(&self, account: &ServiceAccount, bound: &Bound) -> Result<Identity> {
        self.node.run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            anyhow::Ok(runtime.block_on(self.server.token(account, bound))?)
        })?
    }

    /// With the rights of its service account, and as the instance that it runs on towards OCI.
    fn start_controller(&self, bin_dir: &Path) -> Result<Child> {
        let account = ServiceAccount::new("oke-node-manager", "oke-node-controller");
        let config = self.home.join("controller");
        let token = self.token(&account, &Bound::Nothing)?;
        self.node.run(|| self.server.write_kubeconfig(&token, &config))??;
        let log = self.node.run(|| File::create(LOG))?.with_context(|| format!("make {LOG}"))?;
        let endpoint = self.oci.url_in_nodes();
        let command = self.node.command(bin_dir.join("oke-node-controller")).arg("run").env_clear();
        let child = command
            .env("KUBECONFIG", config)
            .env("OCI_PRINCIPAL", "instance-principal")
            .env("OCI_ENDPOINT", &endpoint)
            .env("OCI_AUTH_ENDPOINT", &endpoint)
            .env("POLL_SECONDS", "1")
            // A single controller must not lose it because the machine is busy.
            .env("LEASE_SECONDS", "120")
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(child)
    }

    /// Three VNICs more on every node, for pods that share one, for one pod and for the host, and off again, for one object.
    pub(crate) fn profile(&self, vcn: &Vcn, nodes: &[Arc<Node>]) -> Result<()> {
        report::title("oke-node-controller: a VnicProfile for the nodes of a pool");
        let subnet = vcn.subnets().into_iter().find(|subnet| subnet.name == "pods").context("no subnet for pods")?;
        let profile = json!({
            "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicProfile",
            "metadata": { "name": "storage" },
            "spec": {
                "nodeSelector": { "matchLabels": { "pool": "storage" } },
                "attachments": [
                    { "name": "storage", "purpose": "Attach", "mode": "Shared", "ipv4Count": 2,
                      "allowedNamespaces": ["default"], "subnetId": subnet.id },
                    { "name": "fast", "purpose": "Attach", "mode": "Exclusive",
                      "allowedNamespaces": ["default"], "subnetId": subnet.id },
                    { "name": "backup", "purpose": "Host", "subnetId": subnet.id, "subnetRoute": true },
                ],
            },
        });
        self.apply(&profile.to_string())?;
        let before: Vec<usize> = nodes.iter().map(|node| node.vnics().len()).collect();
        let started = Instant::now();
        self.kubectl(&["label", "node", "--all", "pool=storage"])?;
        let ready = vec!["True"; 3 * nodes.len()].join(" ");
        until("the VNICs are not ready", || self.ready().is_ok_and(|now| now == ready)).with_context(|| self.log())?;
        self.kubectl(&["wait", "--for=condition=Ready", "--timeout=60s", "vnicprofile/storage"])?;
        report::row("kubectl label node --all pool=storage", "every node has three VNICs more", started.elapsed());
        self.show(&["get", "vnicprofiles,vnicattachments"])?;
        nodes.iter().try_for_each(|node| self.use_vnics(node))?;
        let path = r#"jsonpath={.items[?(@.spec.purpose=="Host")].status.ownAddresses[0]}"#;
        let of_hosts = self.kubectl(&["get", "vnicattachments", "-o", path])?;
        of_hosts.split_whitespace().try_for_each(|address| self.answers(address, "of the host"))?;
        let started = Instant::now();
        self.kubectl(&["delete", "vnicprofile", "storage", "--timeout=60s"]).with_context(|| self.log())?;
        let gone = || nodes.iter().zip(&before).all(|(node, before)| node.vnics().len() == *before);
        until("the VNICs are still there", || gone() && self.ready().is_ok_and(|now| now.is_empty()))
            .with_context(|| self.log())?;
        report::row("kubectl delete vnicprofile storage", "detached", started.elapsed());
        Ok(())
    }

    /// A pod that names the VNICs gets an interface on each.
    fn use_vnics(&self, node: &Node) -> Result<()> {
        let pod = node.add_pod(&format!("storage-{}", node.name()))?;
        let annotations = json!({ "oke.oraclecloud.com/interfaces": "storage@net1,fast@net2" });
        let runtime = Runtime::of(node)?.with_capability("io.kubernetes.cri.pod-annotations", annotations);
        let attachment = runtime.add(&pod)?;
        let what = format!("{}: a pod annotated storage@net1,fast@net2", node.name());
        report::row(&what, "has both interfaces", attachment.took);
        for (interface, mode) in [("net1", "shared"), ("net2", "exclusive")] {
            let address = attachment.addresses_of(interface).next();
            let address = address.with_context(|| format!("the pod has no interface {interface}"))?;
            self.answers(&address.to_string(), &format!("{interface}, {mode}"))?;
        }
        runtime.del(&pod, &attachment)?;
        pod.remove()?;
        Ok(())
    }

    /// Requests an address from the control plane.
    fn answers(&self, address: &str, whose: &str) -> Result<()> {
        let started = Instant::now();
        let ping = self.node.command("ping").args(["-n", "-q", "-c", "1", "-w", "10"]).arg(address);
        if !ping.output()?.status.success() {
            bail!("{address} does not answer the control plane");
        }
        report::row(&format!("{address} ({whose}), from the control plane"), "answers", started.elapsed());
        Ok(())
    }

    /// The status of every VnicAttachment's condition Ready.
    fn ready(&self) -> Result<String> {
        let path = r#"jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {end}"#;
        Ok(self.kubectl(&["get", "vnicattachments", "-o", path])?.trim().to_owned())
    }

    /// How to use kubectl from a shell in the control plane's namespaces.
    pub(crate) fn hint(&self) -> String {
        format!(
            "KUBECONFIG={} {} get nodes,npn,vnicp,vnica",
            self.home.join("config").display(),
            self.kubectl.display()
        )
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    fn log(&self) -> String {
        let log = self.node.run(|| std::fs::read_to_string(LOG));
        format!("the controller's log:\n{}", log.ok().and_then(Result::ok).unwrap_or_default())
    }

    /// Ends the controller as a kubelet would, then the API server.
    pub(crate) fn stop(mut self) -> Result<()> {
        let Some(mut controller) = self.controller.take() else { return Ok(()) };
        let started = Instant::now();
        kill(Pid::from_raw(controller.id().try_into()?), Signal::SIGTERM).context("end the controller")?;
        let status = controller.wait().context("wait for the controller")?;
        if !status.success() {
            bail!("the controller ended by SIGTERM with {status}; {}", self.log());
        }
        report::row("controller ended by SIGTERM", "ok", started.elapsed());
        Ok(())
    }
}

/// The nodes that run pods.
pub(crate) fn workers<'a>(vcn: &'a Vcn, control_plane: &'a Node) -> impl Iterator<Item = &'a Arc<Node>> {
    vcn.nodes().filter(|node| node.name() != control_plane.name())
}

fn until(otherwise: &str, condition: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        if Instant::now() > deadline {
            bail!("{otherwise} after {} s", DEADLINE.as_secs());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}
