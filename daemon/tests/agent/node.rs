//! A node for one test.

use std::borrow::Borrow;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

pub(crate) use host_harness::name;
use netlink::{LinkKind, Netns, NewLink, Peer, Route, RouteFilter, Rule, Socket, ethtool};
use sandbox::{Container, Image, spawn_first};
use serde_json::{Value, json};
use vcn::{Family, MacAddr, TableId};

use crate::metadata::{Metadata, vnic};
pub(crate) use crate::running::{Agent, wait_for};

/// The configuration of OKE's own CNI.
pub(crate) const OKE: &str = r#"{"name":"oci","cniVersion":"0.3.1","plugins":[{"type":"oci-ipvlan"}]}"#;

const PORT: &str = "127.0.0.1:9808";

/// The agent's program, in its container.
const PROGRAM: &str = "/usr/local/bin/oke-node-agent";

/// The volumes of the agent's manifest, and where below a node's directory each is.
const VOLUMES: [(&str, &str); 11] = [
    ("/opt/cni/bin", "bin"),
    ("/etc/cni/net.d", "net.d"),
    ("/run/vcn-native", "run"),
    ("/var/lib/vcn-native", "lib"),
    ("/etc/systemd", "host/etc/systemd"),
    ("/run/systemd/netif", "host/run/systemd/netif"),
    ("/run/systemd/networkd.conf.d", "host/run/systemd/networkd.conf.d"),
    ("/usr", "host/usr"),
    ("/run/NetworkManager/devices", "host/run/NetworkManager/devices"),
    ("/etc/oci-utils.conf.d", "host/etc/oci-utils.conf.d"),
    ("/sys/fs/cgroup", "host/sys/fs/cgroup"),
];

/// A node: a namespace, its directories and its metadata service.
pub(crate) struct Node {
    pub(crate) metadata: Metadata,
    directory: tempfile::TempDir,
    netns: Netns,
    /// Where the other ends of its links are.
    fabric: Netns,
    /// Host and port of the API server, where the node is in a cluster; the token is in `secrets`.
    pub(crate) api_server: OnceLock<(String, String)>,
}

impl Node {
    /// A node with its primary link `ens3` (10.0.10.7, default route) and nothing else.
    pub(crate) fn new() -> Self {
        let (netns, fabric) = (Netns::create().unwrap(), Netns::create().unwrap());
        host_harness::sh(&netns, "ip link set lo up");
        let metadata = Metadata::start(&netns);
        let node =
            Self { metadata, directory: tempfile::tempdir().unwrap(), netns, fabric, api_server: OnceLock::new() };
        node.plug("ens3", 10);
        node.sh(
            "ip link set ens3 up; ip addr add 10.0.10.7/24 dev ens3; ip route add default via 10.0.10.1 proto dhcp",
        );
        for directory in ["source", "bin", "net.d", "host/usr", "host/sys/fs/cgroup"] {
            fs::create_dir_all(node.path(directory)).unwrap();
        }
        let plugin = node.path("source/vcn-native");
        let answer = r#"{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0","1.1.0"]}"#;
        let script = format!("#!/bin/sh\n# {}\necho '{answer}'\n", vcn::PLUGIN_MARKS[0]);
        sandbox::write_program(&plugin, script.as_bytes()).unwrap();
        node
    }

    /// With the link and the NativePodNetwork of a VNIC `pods`.
    pub(crate) fn with_pods() -> Self {
        let node = Self::new();
        node.plug("ens5", 33);
        node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33)]);
        node.publish("SUCCESS", &[("pods", 33)]);
        node
    }

    /// A link appears, as a hot-plugged VNIC's does: down, with its Ethernet address.
    pub(crate) fn plug(&self, link: &str, last: u8) {
        self.on(|socket| {
            let peer = Peer { name: name(link), mac: None, mtu: None, netns: Some(self.fabric.as_fd()) };
            let mut new = NewLink::new(name(link), LinkKind::Veth(peer));
            new.mac = Some(MacAddr([2, 0, 0x17, 0, 0, last]));
            socket.add_link(&new).unwrap();
        });
    }

    pub(crate) fn on<T: Send>(&self, work: impl FnOnce(&mut Socket) -> T + Send) -> T {
        self.netns.run(|| work(&mut Socket::open().unwrap())).unwrap()
    }

    /// Runs a script on the node.
    pub(crate) fn sh(&self, script: &str) -> String {
        host_harness::sh(&self.netns, script)
    }

    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.netns.run(work).unwrap()
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join(below)
    }

    /// The file with the NativePodNetwork.
    pub(crate) fn npn(&self) -> PathBuf {
        self.path("lib/nativepodnetwork.json")
    }

    /// The options of every agent here, less those that `more` says otherwise.
    pub(crate) fn options(&self, more: &[&str]) -> Vec<String> {
        [
            ("--oci-metadata-base-url", self.metadata.base_url()),
            ("--listen", PORT.into()),
            ("--resync-seconds", "1".into()),
            ("--detach-grace-seconds", "1".into()),
            ("--dead-after-seconds", "1".into()),
            ("--reload-jitter-seconds", "0".into()),
            // Its links are veths.
            ("--test-nic-kind", "veth".into()),
        ]
        .into_iter()
        .filter(|(option, _)| !more.contains(option))
        .flat_map(|(option, value)| [option.to_owned(), value])
        .collect()
    }

    /// Runs a script where the other ends of its links are.
    pub(crate) fn fabric_sh(&self, script: &str) -> String {
        host_harness::sh(&self.fabric, script)
    }

    /// Works on the other ends of its links, which have the same names.
    pub(crate) fn on_fabric<T: Send>(&self, work: impl FnOnce(&mut Socket) -> T + Send) -> T {
        self.fabric.run(|| work(&mut Socket::open().unwrap())).unwrap()
    }

    /// Where the other ends of its links are.
    pub(crate) fn fabric(&self) -> Netns {
        Netns::open(&host_harness::path_of(&self.fabric)).unwrap()
    }

    /// Both ends of a link make packets as long as those of the wire.
    pub(crate) fn without_segmentation(&self, link: &str) {
        let off = ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-generic-segmentation", "rx-gro"];
        let off = off.map(|feature| (feature.to_owned(), false)).into();
        for netns in [&self.netns, &self.fabric] {
            netns
                .run(|| ethtool::EthtoolSocket::open().unwrap().unwrap().set_features(&name(link), &off).unwrap())
                .unwrap();
        }
    }

    /// Works where the other ends of its links are.
    pub(crate) fn inside_fabric<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.fabric.run(work).unwrap()
    }

    /// Starts the agent, under what its manifest gives it.
    pub(crate) fn agent(&self, more: &[&str]) -> Agent {
        self.start(self.container(), more)
    }

    /// The node with an agent that is ready.
    pub(crate) fn with_agent(self, more: &[&str]) -> (Self, Agent) {
        let agent = self.ready_agent(more);
        (self, agent)
    }

    /// The same, and waits until it is ready.
    pub(crate) fn ready_agent(&self, more: &[&str]) -> Agent {
        let agent = self.agent(more);
        self.wait_ready(&agent);
        agent
    }

    /// Starts the agent without a capability.
    pub(crate) fn agent_without(&self, capability: &str) -> Agent {
        self.start(self.container().without_capability(capability), &[])
    }

    /// Delivers the configuration file as a ConfigMap's volume shows it: it is a link by way of `..data`, which is replaced as
    /// a whole. The version is another each time.
    pub(crate) fn deliver(&self, version: u32, text: &str) {
        let volume = self.path("conf");
        let directory = volume.join(format!("..{version}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("agent.conf"), text).unwrap();
        symlink(format!("..{version}"), volume.join("..data_tmp")).unwrap();
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
        let _ = symlink("..data/agent.conf", volume.join("agent.conf"));
    }

    pub(crate) fn container(&self) -> Container {
        let container = self.placed(Container::node_agent().unwrap());
        let conf = self.path("conf");
        let container = if conf.exists() { container.with_config_map("oke-node-agent", &conf) } else { container };
        match self.api_server.get() {
            Some((host, port)) => container.with_api_server(&self.path("secrets"), host, port),
            None => container,
        }
    }

    /// A container with its volumes in this node's directory.
    pub(crate) fn placed(&self, container: Container) -> Container {
        let place = |container: Container, (host, below): &(&str, &str)| {
            container.with_volume_at(host.as_ref(), &self.path(below))
        };
        VOLUMES.iter().fold(container, place)
    }

    /// What it brings to this node. The shell is for the plugins of these tests, which are scripts.
    pub(crate) fn image(&self) -> Image {
        Image::default()
            .file(PROGRAM, env!("CARGO_BIN_EXE_oke-node-agent"))
            .file("/usr/libexec/vcn-native", self.path("source"))
            .file("/bin/sh", "/bin/sh")
    }

    fn command(&self, container: &Container) -> Command {
        container.command(&self.image()).unwrap()
    }

    pub(crate) fn start(&self, container: Container, more: &[&str]) -> Agent {
        let more_of_them = more.iter().map(|option| (*option).to_owned());
        self.start_with(container, &self.options(more).into_iter().chain(more_of_them).collect::<Vec<_>>())
    }

    fn start_with(&self, container: Container, options: &[String]) -> Agent {
        let log = self.path("agent.log");
        let out = fs::File::create(&log).unwrap();
        // As the manifest has it, with options before the subcommand.
        let mut command = self.command(&container.running([PROGRAM]));
        command.args(options).arg("run");
        command.stderr(out.try_clone().unwrap()).stdout(out);
        let child = self.inside(|| spawn_first(&mut command).unwrap());
        Agent::new(child, log)
    }

    /// Runs a subcommand to its end, as `kubectl exec` does.
    pub(crate) fn run(&self, subcommand: &[&str]) -> (bool, String) {
        let output = self.output(subcommand);
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    /// The same: its exit status and what it says on each of its outputs.
    pub(crate) fn output(&self, subcommand: &[&str]) -> Output {
        self.output_of(|command| command.args(subcommand).args(self.options(subcommand)))
    }

    /// The same with only the manifest's environment and these arguments.
    pub(crate) fn output_of(&self, tell: impl FnOnce(&mut Command) -> &mut Command) -> Output {
        let mut command = self.command(&self.container().running([PROGRAM]));
        tell(&mut command);
        self.inside(|| command.stderr(Stdio::piped()).output().unwrap())
    }

    /// Requests a path from the agent's port; 0 without an answer.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let exchange = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect(PORT)?;
            write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = self.inside(exchange).unwrap_or_default();
        // One that ends during a request answers nothing, too.
        let Some((head, body)) = answer.split_once("\r\n\r\n") else { return (0, String::new()) };
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// How many passes ran for a cause.
    pub(crate) fn passes(&self, cause: &str) -> u32 {
        self.metric(&format!("reconciles_total{{cause=\"{cause}\""))
    }

    /// The sum of the agent's metrics that begin so.
    pub(crate) fn metric(&self, series: &str) -> u32 {
        let series = format!("oke_node_agent_{series}");
        let metrics = self.get("/metrics").1;
        let these = metrics.lines().filter(|line| line.starts_with(&series));
        these.map(|line| line.rsplit(' ').next().unwrap().trim_end_matches(".0").parse::<u32>().unwrap()).sum()
    }

    /// So many passes more that a timer begins; three are beyond the grace, after which what is no longer wanted goes.
    pub(crate) fn wait_timer_passes(&self, agent: &Agent, more: u32) {
        let before = self.passes("timer");
        wait_for("reconciles", || self.passes("timer") >= before + more, || agent.log());
    }

    /// So many answers of the metadata service, and passes of the timer, that the grace is over.
    pub(crate) fn wait_grace(&self, agent: &Agent) {
        let (requests, passes) = (self.metadata.list_requests(), self.passes("timer"));
        let is_over = || self.metadata.list_requests() >= requests + 4 && self.passes("timer") >= passes + 3;
        wait_for("answers and passes", is_over, || agent.log());
    }

    /// The words of the conditions that /readyz reports.
    pub(crate) fn conditions(&self) -> Vec<String> {
        let body: Value = serde_json::from_str(&self.get("/readyz").1).unwrap_or_default();
        let conditions = body["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().map(|condition| condition["reason"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until these conditions, and no others, are reported.
    pub(crate) fn wait_conditions(&self, agent: &Agent, expected: &[&str]) {
        let seen = || format!("{:?}\n{}", self.get("/readyz"), agent.log());
        wait_for(&format!("the conditions {expected:?}"), || self.conditions() == expected, seen);
    }

    pub(crate) fn wait_ready(&self, agent: impl Borrow<Agent>) {
        wait_for(
            "/readyz to say 200",
            || self.get("/readyz").0 == 200,
            || format!("{:?}\n{}", self.get("/readyz"), agent.borrow().log()),
        );
    }

    /// Publishes a NativePodNetwork with these VNICs (name, last byte), 16 addresses each.
    pub(crate) fn publish(&self, state: &str, vnics: &[(&str, u8)]) {
        self.publish_as(state, vnics, false);
    }

    /// The same with as many IPv6 addresses.
    pub(crate) fn publish_dual_stack(&self, vnics: &[(&str, u8)]) {
        self.publish_as("SUCCESS", vnics, true);
    }

    fn publish_as(&self, state: &str, vnics: &[(&str, u8)], dual: bool) {
        self.publish_document(&native_pod_network(state, vnics, dual));
    }

    pub(crate) fn publish_document(&self, npn: &Value) {
        let new = self.npn().with_extension("new");
        fs::create_dir_all(self.path("lib")).unwrap();
        fs::write(&new, npn.to_string()).unwrap();
        fs::rename(new, self.npn()).unwrap();
    }

    /// pools.json as it is; null when there is none.
    pub(crate) fn pools(&self) -> Value {
        fs::read(self.path("run/pools.json")).map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap())
    }

    /// Our rules, as `priority from to [fwmark] table`.
    pub(crate) fn rules(&self, family: Family) -> Vec<String> {
        let ours = |rule: &Rule| rule.protocol == vcn::PROTOCOL;
        let text = |rule: Rule| {
            let or_all =
                |network: Option<ipnetwork::IpNetwork>| network.map_or("all".into(), |network| network.to_string());
            let mark = rule.fwmark.map_or(String::new(), |mark| format!(" fwmark {mark}"));
            format!("{} {} {}{mark} {}", rule.priority, or_all(rule.from), or_all(rule.to), rule.table)
        };
        self.on(|socket| socket.rules(family).unwrap()).into_iter().filter(ours).map(text).collect()
    }

    /// The routes of a table, as `destination gateway`.
    pub(crate) fn routes(&self, family: Family, table: u32) -> Vec<String> {
        let filter = RouteFilter { table: Some(TableId(table)), ..RouteFilter::all(family) };
        let text = |route: Route| {
            let gateway = route.gateway.map_or("-".into(), |gateway| gateway.to_string());
            format!("{} {gateway}", route.destination)
        };
        let mut routes: Vec<String> = self.on(|socket| socket.routes(&filter).unwrap()).into_iter().map(text).collect();
        routes.sort();
        routes
    }

    /// The addresses of a link.
    pub(crate) fn addresses(&self, link: &str) -> Vec<String> {
        let held = self.on(|socket| {
            let index = socket.index_of(&name(link)).unwrap();
            socket.addresses(Some(index)).unwrap()
        });
        held.iter().map(|it| it.address.to_string()).collect()
    }

    pub(crate) fn delete_rule(&self, family: Family, priority: u32) {
        self.sh(&format!("ip -{} rule del pref {priority}", if family == Family::Ipv4 { 4 } else { 6 }));
    }

    pub(crate) fn sysctl(&self, below: &str) -> String {
        self.inside(|| fs::read_to_string(format!("/proc/sys/{below}")).unwrap().trim().to_owned())
    }
}

/// The NativePodNetwork of every node here, as OKE writes it.
pub(crate) fn native_pod_network(state: &str, vnics: &[(&str, u8)], dual: bool) -> Value {
    let entry = |(vnic, last): &(&str, u8)| {
        let mut addresses = vec![json!({"v4": format!("10.0.{last}.32/28")})];
        addresses.extend(dual.then(|| json!({"v6": format!("2603:c020:0:{last}::20/124")})));
        json!({
            "vnicId": format!("ocid1.vnic.oc1.iad.{vnic}"),
            "macAddress": format!("02:00:17:00:00:{last:02x}"),
            "routerIps": [{"v4": format!("10.0.{last}.1")}],
            "subnetCidrs": [{"v4": format!("10.0.{last}.0/24")}],
            "hostAddresses": [{"v4": format!("10.0.{last}.7")}],
            "podAddresses": addresses,
        })
    };
    json!({
        "apiVersion": "oci.oraclecloud.com/v1beta1",
        "kind": "NativePodNetwork",
        "metadata": {"name": "node"},
        "spec": {"id": "ocid1.instance.oc1.iad.node"},
        "status": {
            "state": state,
            "reason": if state == "SUCCESS" { "COMPLETED" } else { "FailedToCreatePrivateIP" },
            "vnics": vnics.iter().map(entry).collect::<Vec<_>>(),
        },
    })
}

/// Reconciles so rare that only an event can be the cause of what a test sees within seconds.
pub(crate) const SLOW_RESYNC: [&str; 2] = ["--resync-seconds", "600"];
