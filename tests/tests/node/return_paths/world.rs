//! A node with pods on two secondary VNICs, another node, and a client outside of both, with the real agent and plugin.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use sandbox::{
    Agent, Attachment, Container, DropReason, Node, NodeSpec, NpnShape, Pod, Runtime, SubnetSpec, Vcn, VnicSpec,
};
use tests::built::bin_dir;
use vcn::{Family, MachineKind, PerFamily};

/// The port that pods listen on.
pub(crate) const PORT: u16 = 8080;

/// How long an answer may take before there is none. Longer than the kernel's first repetition of a SYN (1 s).
const ANSWER: Duration = Duration::from_secs(10);

pub(crate) struct World {
    pub(crate) vcn: Vcn,
    /// The node that gets the requests.
    pub(crate) node: Arc<Node>,
    /// Another node, for pods that are not on `node`.
    pub(crate) other: Arc<Node>,
    pub(crate) client: Arc<Node>,
    pub(crate) agents: Vec<Agent>,
}

/// A pod that serves: it writes its caller's address, and then returns every line.
pub(crate) struct Server {
    pub(crate) pod: Pod,
    pub(crate) address: PerFamily<IpAddr>,
    /// What it is in the words of a failing test.
    pub(crate) label: String,
}

pub(crate) struct Connection {
    lines: BufReader<TcpStream>,
    /// The client as the server sees it.
    pub(crate) seen: IpAddr,
}

impl World {
    /// The nodes as they boot, without agents.
    pub(crate) fn booted() -> Self {
        Self::booted_as(MachineKind::Virtual, &Family::ALL)
    }

    /// The same, in subnets without IPv6.
    pub(crate) fn booted_with_ipv4_alone() -> Self {
        Self::booted_as(MachineKind::Virtual, &[Family::Ipv4])
    }

    fn booted_as(kind: MachineKind, families: &[Family]) -> Self {
        let subnet = |name, ipv4, ipv6| SubnetSpec::new(name, [ipv4, ipv6].get(..families.len()).unwrap());
        let node = |name| {
            let spec = NodeSpec::of(kind, name, "nodes").metadata("oke-native-pod-networking", "true");
            spec.vnic(VnicSpec::for_pods("pods", 3))
        };
        let vcn = Vcn::builder()
            .subnet(subnet("nodes", "10.0.0.0/24", "2603:c020:0:1::/64"))
            .subnet(subnet("pods", "10.0.32.0/24", "2603:c020:0:2::/64"))
            .subnet(subnet("clients", "10.0.64.0/24", "2603:c020:0:3::/64"))
            .node(node("node-a").vnic(VnicSpec::for_pods("pods", 3)))
            .node(node("node-b"))
            .node(NodeSpec::virtual_machine("client", "clients"))
            .start()
            .unwrap();
        let named = |name| vcn.node(name).unwrap();
        let (node, other, client) = (named("node-a"), named("node-b"), named("client"));
        // As Oracle Linux boots.
        let settings = || fs::read_dir("/proc/sys/net/ipv4/conf")?.try_for_each(|link| strict(&link?.path()));
        node.run(settings).unwrap().unwrap();
        Self { vcn, node, other, client, agents: Vec::new() }
    }

    /// The same, ready for pods.
    pub(crate) fn start() -> Self {
        Self::start_as(MachineKind::Virtual)
    }

    /// Whose nodes are of a kind (the client is a virtual machine).
    pub(crate) fn start_as(kind: MachineKind) -> Self {
        let mut world = Self::booted_as(kind, &Family::ALL);
        for node in [Arc::clone(&world.node), Arc::clone(&world.other)] {
            world.start_agent(&node);
        }
        world
    }

    pub(crate) fn start_agent(&mut self, node: &Node) {
        self.start_agent_in(&Container::node_agent().unwrap(), node);
    }

    /// With another container than the manifest's.
    pub(crate) fn start_agent_in(&mut self, container: &Container, node: &Node) {
        sandbox::publish_native_pod_network(&self.vcn, node, NpnShape::PerFamily).unwrap();
        let mut agent = Agent::start_in(container, node, &bin_dir()).unwrap();
        agent.wait_ready(node).unwrap();
        self.agents.push(agent);
    }

    /// A pod that serves on `node`, by each of its secondary VNICs.
    pub(crate) fn servers(&self) -> [Server; 2] {
        let first = self.server(&self.node, "one");
        let second = self.server(&self.node, "two");
        let (one, two) = (self.vnic_of(&first), self.vnic_of(&second));
        assert_ne!(one, two, "pods are spread over VNICs");
        [first, second]
    }

    /// A pod that serves.
    pub(crate) fn server(&self, node: &Node, name: &str) -> Server {
        let (server, _) = self.server_by(node, name, &Runtime::of(node).unwrap());
        server
    }

    pub(crate) fn server_by(&self, node: &Node, name: &str, runtime: &Runtime<'_>) -> (Server, Attachment) {
        let pod = node.add_pod(name).unwrap();
        let attachment = runtime.add(&pod).unwrap();
        let mut address = PerFamily::default();
        for found in attachment.addresses() {
            *address.slot(Family::of(found)) = Some(found);
        }
        pod.run(|| serve(SocketAddr::from((Ipv6Addr::UNSPECIFIED, PORT)))).unwrap();
        let mut server = Server { pod, address, label: String::new() };
        server.label = format!("pod {name} on {} ({})", node.name(), self.vnic_of(&server).unwrap_or_default());
        (server, attachment)
    }

    /// The VNIC whose address a pod has.
    pub(crate) fn vnic_of(&self, server: &Server) -> Option<String> {
        let has = |vnic: &sandbox::Vnic| {
            vnic.secondary.ipv4.iter().flatten().any(|address| Some(*address) == server.address.ipv4)
        };
        let vnics = [self.node.vnics(), self.other.vnics()].concat();
        vnics.iter().find(|vnic| has(vnic)).map(|vnic| format!("{} tag {}", vnic.link, vnic.vlan_tag))
    }

    /// The addresses of `node` itself, one per VNIC: of IPv6, the one that OKE made for it where it made some for pods.
    pub(crate) fn own_addresses(&self, family: Family) -> Vec<IpAddr> {
        let made = |vnic: &sandbox::Vnic| vnic.secondary.of(family)?.first().copied().filter(IpAddr::is_ipv6);
        let own = |vnic: &sandbox::Vnic| made(vnic).or_else(|| vnic.address.of(family).copied());
        self.node.vnics().iter().filter_map(own).collect()
    }

    pub(crate) fn address(&self, family: Family) -> IpAddr {
        self.node.address(family).unwrap()
    }

    pub(crate) fn connect(&self, address: IpAddr, port: u16) -> io::Result<Connection> {
        self.client.run(|| Connection::open(SocketAddr::new(address, port))).unwrap()
    }

    /// What was tried must have worked; if it did not, the fabric tells why.
    #[track_caller]
    pub(crate) fn works<T>(&self, what: &str, outcome: io::Result<T>) -> T {
        match outcome {
            Ok(value) => value,
            Err(error) => panic!("{what}: {error}; dropped: {:#?}", self.vcn.drops()),
        }
    }

    /// Nothing was sent by a VNIC in another's name.
    #[track_caller]
    pub(crate) fn assert_nothing_spoofed(&self) {
        let spoofed = |drop: &sandbox::Dropped| matches!(drop.reason, DropReason::ForeignSource(_));
        let drops: Vec<_> = self.vcn.drops().into_iter().filter(spoofed).collect();
        assert!(drops.is_empty(), "{drops:?}");
    }

    /// Runs a program on `node` with this input; it must succeed. Says what it printed.
    #[track_caller]
    pub(crate) fn on_node(&self, program: &str, arguments: &[&str], input: &str) -> String {
        let output = self.node.command(program).args(arguments).output_of_input(input.as_bytes()).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {errors}\n{input}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Connection {
    /// Opens one from the calling thread's namespace, and reads who the server says we are.
    pub(crate) fn open(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&to, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        lines.read_line(&mut line)?;
        let seen = line.trim().parse().map_err(|_| io::Error::new(ErrorKind::InvalidData, line))?;
        Ok(Self { lines, seen })
    }

    /// Sends a line there and back.
    pub(crate) fn echo(&mut self) -> io::Result<()> {
        self.lines.get_mut().write_all(b"still here\n")?;
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        if line == "still here\n" { Ok(()) } else { Err(io::Error::new(ErrorKind::InvalidData, line)) }
    }
}

/// Serves in the calling thread's namespace for as long as this process lives.
pub(crate) fn serve(at: SocketAddr) {
    let listener = TcpListener::bind(at).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let Ok(from) = stream.peer_addr() else { return };
                let (Ok(mut reader), mut writer) = (stream.try_clone().map(BufReader::new), stream) else { return };
                let mut line = format!("{}\n", from.ip().to_canonical());
                // Until either side has gone.
                while writer.write_all(line.as_bytes()).is_ok() {
                    line.clear();
                    if !matches!(reader.read_line(&mut line), Ok(read) if read > 0) {
                        return;
                    }
                }
            });
        }
    });
}

fn strict(link: &Path) -> io::Result<()> {
    fs::write(link.join("rp_filter"), "1")
}
