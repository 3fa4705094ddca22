//! Nodes of three subnets, and the investigation of one pair of them, requested as by the controller.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use api::TargetService;
use netlink::Netns;
use nettest::probe::{Party, ProbeKind, ProbeReport, ProbeRequest, ProbeTarget, SendTask};
use nettest::{Case, Cause, Compared, Investigation, Label, Verdict};
use oke_node_agent::probes::{ProbeEnvironment, TaskError, perform};
use sandbox::{Container, DeniedAt, DeniedTraffic, Image, Node, NodeSpec, Policy, SubnetSpec, Traffic, Vcn, VnicSpec};
use vcn::Family;

use crate::hosts::run;

/// Where a server of TCP and one of UDP are on each node.
pub(crate) const PORT: u16 = 8443;

/// Two nodes each of the subnets `front` and `back`, one of `third`.
pub(crate) struct Lab {
    pub(crate) vcn: Vcn,
    /// The namespace of the node of this name, if not the sandbox's.
    pub(crate) machine: Option<(String, Netns)>,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let node = |name: &str, subnet: &str| NodeSpec::virtual_machine(name, subnet);
        let vcn = Vcn::builder()
            .subnet(SubnetSpec::new("front", &["10.0.10.0/24", "2603:c020:0:1::/64"]))
            .subnet(SubnetSpec::new("back", &["10.0.20.0/24", "2603:c020:0:2::/64"]))
            .subnet(SubnetSpec::new("third", &["10.0.30.0/24", "2603:c020:0:3::/64"]))
            .node(node("front-1", "front"))
            .node(node("front-2", "front"))
            .node(node("back-1", "back").vnic(VnicSpec::new("third")))
            .node(node("back-2", "back"))
            .node(node("third-1", "third"))
            .start()
            .unwrap();
        vcn.nodes().for_each(|node| serve(node));
        Self { vcn, machine: None }
    }

    pub(crate) fn address(&self, node: &str) -> IpAddr {
        self.vcn.node(node).unwrap().address(Family::Ipv4).unwrap()
    }

    /// Runs code on a node, outside any container: as its administrator.
    pub(crate) fn on<T: Send>(&self, node: &str, work: impl FnOnce() -> T + Send) -> T {
        let named = self.vcn.node(node).unwrap();
        match &self.machine {
            Some((name, netns)) if name == node => named.run(|| netns.run(work).unwrap()).unwrap(),
            _ => named.run(work).unwrap(),
        }
    }

    pub(crate) fn party(&self, node: &str) -> Party {
        Party { node: Some(node.to_owned()), address: Some(self.address(node)) }
    }

    pub(crate) fn compared<'a>(&self, nodes: impl IntoIterator<Item = &'a str>) -> Vec<Compared> {
        let addresses = |name: &str| {
            let node = self.vcn.node(name).unwrap();
            [Family::Ipv4, Family::Ipv6].into_iter().filter_map(|family| node.address(family)).collect()
        };
        nodes.into_iter().map(|node| Compared { node: node.to_owned(), addresses: addresses(node) }).collect()
    }

    /// A case from `front-1` to an address of `back-1`.
    pub(crate) fn case(&self, kind: ProbeKind, port: u16) -> Case {
        let target = self.party("back-1");
        Case {
            source: self.party("front-1"),
            target_has_agent: true,
            service: None,
            send: SendTask {
                kind,
                source: None,
                target: ProbeTarget::Address(target.address.unwrap()),
                port,
                source_port: 23_456,
                count: 5,
                interval_ms: 50,
                timeout_ms: 400,
                size: 0,
                force_link: false,
                name: None,
                path: None,
                over_tcp: false,
                mbits: (kind == ProbeKind::Throughput).then_some(100),
            },
            target,
            others: self.compared(["front-2", "back-2", "third-1"]),
        }
    }

    /// The same by IPv6.
    pub(crate) fn case_v6(&self, kind: ProbeKind, port: u16) -> Case {
        self.case(kind, port).to(self.vcn.node("back-1").unwrap().address(Family::Ipv6).unwrap())
    }

    /// A case from `front-1` to a service.
    pub(crate) fn service(&self, kind: ProbeKind, service: TargetService) -> Case {
        let mut case = self.case(kind, 0);
        case.send.target = ProbeTarget::Service(service);
        Case { target: Party::default(), target_has_agent: false, service: Some(service), ..case }
    }

    /// One request to the agent of a node.
    pub(crate) fn probe(&self, node: &str, request: &ProbeRequest) -> Result<ProbeReport, TaskError> {
        let container = Container::node_agent().unwrap();
        let api_server = Some(SocketAddr::new(self.address("back-1"), PORT));
        let surroundings = ProbeEnvironment { proc: PathBuf::from("/proc"), api_server };
        // As kubelets do by its policy of DNS.
        let image = Image::default().file("/etc/resolv.conf", "/etc/resolv.conf");
        self.on(node, || container.run(&image, || perform(request, &surroundings)).unwrap())
    }

    /// All rounds of a case.
    pub(crate) fn investigate(&self, case: Case) -> Verdict {
        let mut investigation = Investigation::new(case);
        loop {
            let round = investigation.next_round();
            if round.is_empty() {
                break;
            }
            let answers: Vec<_> = thread::scope(|scope| {
                let threads = round.iter().map(|request| {
                    scope.spawn(|| {
                        thread::sleep(Duration::from_millis(request.after_ms.into()));
                        self.probe(&request.node, &request.probe)
                    })
                });
                let threads: Vec<_> = threads.collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            for (request, answer) in round.iter().zip(answers) {
                investigation.answer(request.role, Some(answer.unwrap()));
            }
        }
        let verdict = investigation.verdict().unwrap();
        eprintln!("{verdict}\n{:#?}\n{:#?}", investigation.evidence(), self.vcn.drops());
        verdict
    }

    /// From now on the network has these faults.
    pub(crate) fn set(&self, policy: Policy) {
        self.vcn.set_policy(policy).unwrap();
    }

    /// From now on it denies this, as [`denied`] makes it.
    pub(crate) fn deny(&self, list: DeniedTraffic) {
        self.set(Policy { denied: vec![list], ..Policy::default() });
    }

    /// A node drops or rejects packets in a hook, `input` or `output`, by nft's `rule`.
    pub(crate) fn filter(&self, node: &str, hook: &str, rule: &str) {
        self.on(node, || {
            run("nft flush ruleset");
            run("nft add table inet filter");
            run(&format!("nft add chain inet filter {hook} {{ type filter hook {hook} priority 0 ; }}"));
            run(&format!("nft add rule inet filter {hook} {rule}"));
        });
    }

    /// The verdict's label and causes.
    pub(crate) fn named(&self, case: Case) -> (Label, Vec<Cause>) {
        let verdict = self.investigate(case);
        (verdict.label, verdict.causes)
    }
}

/// Runs all cases of a table at the same time, each in a lab of its own: most of their time is waiting.
pub(crate) fn at_once<T: Send>(cases: impl IntoIterator<Item = T>, run: impl Fn(&Lab, T) + Sync) {
    thread::scope(|scope| cases.into_iter().for_each(|case| drop(scope.spawn(|| run(&Lab::new(), case)))));
}

/// TCP to the servers' port is lost there.
pub(crate) fn denied(at: DeniedAt) -> DeniedTraffic {
    DeniedTraffic { at, traffic: Traffic::TcpPort(PORT), except: BTreeSet::new() }
}

/// A case to another address.
pub(crate) trait To {
    fn to(self, target: IpAddr) -> Self;
}

impl To for Case {
    fn to(mut self, target: IpAddr) -> Self {
        self.target.address = Some(target);
        self.send.target = ProbeTarget::Address(target);
        self
    }
}

/// Accepts connections and returns datagrams on a node until the test ends.
fn serve(node: &Node) {
    let bind = || (TcpListener::bind(("::", PORT)).unwrap(), UdpSocket::bind(("::", PORT)).unwrap());
    let (streams, datagrams) = node.run(bind).unwrap();
    thread::spawn(move || streams.incoming().for_each(drop));
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((length, from)) = datagrams.recv_from(&mut buffer) {
            let _ = datagrams.send_to(&buffer[..length], from);
        }
    });
}
