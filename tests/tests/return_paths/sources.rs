//! A pod sends from its own addresses alone, whoever it sends to; and nothing that it has to answer is lost by that.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use netlink::{Address, Socket};
use sandbox::{Container, Pod};
use vcn::Family;

use crate::kube_proxy::{CLUSTER, LOCAL, Mode};
use crate::world::{Server, World, wait_for};

/// How long a packet may be on its way.
const ARRIVES: Duration = Duration::from_secs(2);

/// What the agent is told of pods that spoof; goes with the file.
struct Setting(tempfile::TempDir);

impl Setting {
    fn change(&self, pods_may_spoof: &str) {
        fs::write(self.0.path().join("agent.conf"), format!("PODS_MAY_SPOOF={pods_may_spoof}\n")).unwrap();
    }
}

/// A node whose agent was told so, with a pod on each VNIC.
fn world(pods_may_spoof: &str) -> (World, [Server; 2], Setting) {
    let setting = Setting(tempfile::tempdir().unwrap());
    setting.change(pods_may_spoof);
    let container = Container::node_agent().unwrap().with_config_map("oke-node-agent", setting.0.path());
    let mut world = World::booted();
    let (node, other) = (Arc::clone(&world.node), Arc::clone(&world.other));
    // The kernel's own check of sources, IPv4 only, hides what ours does. (A pod's host end has no IPv4 address, so even the
    // loose one drops what comes by the wrong link.)
    world.on_node("sysctl", &["-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"], "");
    world.start_agent_in(&container, &node);
    world.start_agent(&other);
    let servers = world.servers();
    (world, servers, setting)
}

/// Gives a pod an address that nobody assigned to it.
fn take(pod: &Pod, address: IpAddr) {
    let add = || {
        let mut socket = Socket::open().unwrap();
        let index = socket.index_of(&"lo".parse().unwrap()).unwrap();
        let mut address = Address::new(index, address.into());
        address.nodad = true;
        socket.add_address(&address).unwrap();
    };
    pod.run(add).unwrap();
}

/// Whether what a pod sends from an address arrives where `listener` is.
fn arrives(pod: &Pod, from: IpAddr, (listener, at): (&UdpSocket, SocketAddr)) -> bool {
    let send = || UdpSocket::bind((from, 0)).unwrap().send_to(from.to_string().as_bytes(), at).map(|_| ());
    // What is dropped before routing tells the sender nothing.
    pod.run(send).unwrap().unwrap();
    listener.set_read_timeout(Some(ARRIVES)).unwrap();
    let mut text = [0; 64];
    match listener.recv_from(&mut text) {
        Ok((_, sender)) => sender.ip() == from,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    }
}

fn listener(pod: &Pod, family: Family) -> UdpSocket {
    let any: IpAddr = match family {
        Family::Ipv4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::Ipv6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    pod.run(|| UdpSocket::bind((any, 5300)).unwrap()).unwrap()
}

/// What a pod that sends in another's name reaches: a third pod here, the host, a pod on another node.
fn reached_by_a_liar(pods_may_spoof: &str) -> Vec<String> {
    let (world, [liar, victim], _setting) = world(pods_may_spoof);
    let third = world.server(&world.node, "third");
    let away = world.server(&world.other, "away");
    let mut reached = Vec::new();
    for family in Family::ALL {
        let stolen = *victim.address.of(family).unwrap();
        let own = *liar.address.of(family).unwrap();
        take(&liar.pod, stolen);
        let host = world.node.run(|| UdpSocket::bind((world.address(family), 5300)).unwrap()).unwrap();
        let places = [
            ("a pod on this node", listener(&third.pod, family), *third.address.of(family).unwrap()),
            ("this node", host, world.address(family)),
            ("a pod on another node", listener(&away.pod, family), *away.address.of(family).unwrap()),
        ];
        for (place, socket, address) in &places {
            let at = SocketAddr::new(*address, 5300);
            assert!(arrives(&liar.pod, own, (socket, at)), "{place}, {family}, from the pod's own address");
            if arrives(&liar.pod, stolen, (socket, at)) {
                reached.push(format!("{place}, {family}"));
            }
        }
    }
    reached
}

#[test]
fn what_a_pod_sends_in_another_pods_name_reaches_nobody() {
    assert_eq!(reached_by_a_liar("deny"), [""; 0]);
}

/// What would be reached without the check: else the test above proves nothing.
#[test]
fn where_it_is_allowed_what_a_pod_sends_in_anothers_name_arrives() {
    let reached = reached_by_a_liar("allow");
    for place in ["a pod on this node", "this node"] {
        for family in Family::ALL {
            assert!(reached.contains(&format!("{place}, {family}")), "{reached:?}");
        }
    }
}

#[test]
fn the_check_follows_the_setting_while_the_agent_runs_and_comes_back_when_somebody_removes_it() {
    let (world, _, setting) = world("deny");
    let listing = || world.node.command("nft").args(["list", "table", "inet", vcn::NFT_TABLE]).output().unwrap();
    let checks = || String::from_utf8(listing().stdout).unwrap().matches("that are not its own: drop").count();
    assert_eq!(checks(), 2);
    world.on_node("nft", &["flush", "chain", "inet", vcn::NFT_TABLE, "source"], "");
    wait_for("the agent's repair", || checks() == 2);
    setting.change("allow");
    wait_for("the agent to allow it", || checks() == 0);
    setting.change("deny");
    wait_for("the agent to deny it again", || checks() == 2);
}

/// Every way in which a pod answers or asks in its own name, with the check on: node ports on both VNICs, a Service that
/// leads back to the pod that asks (the answer comes in its own name), the VCN's services.
#[test]
fn pods_that_speak_in_their_own_name_are_heard_everywhere() {
    let (world, [one, two], _setting) = world("deny");
    for server in [&one, &two] {
        Mode::Nftables.publish(&world, server);
        for family in Family::ALL {
            for port in [LOCAL, CLUSTER] {
                let mut connection = world.works(&server.label, world.ask(world.address(family), port));
                world.works(&server.label, connection.echo());
            }
        }
        server.pod.ask_time().unwrap();
    }
    let listing = world.on_node("nft", &["list", "table", "inet", vcn::NFT_TABLE], "");
    let dropped = listing.lines().filter(|line| line.contains("that are not its own: drop"));
    let dropped: Vec<&str> = dropped.filter(|line| !line.contains("packets 0 ")).collect();
    assert_eq!(dropped, [""; 0]);
}
