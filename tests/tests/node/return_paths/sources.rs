//! A pod sends from its own addresses alone, to every destination; and none of its answers is lost by that.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use netlink::{Address, Socket};
use sandbox::{Container, Pod};
use vcn::Family;

use super::kube_proxy::{CLUSTER, LOCAL, Mode};
use super::world::{Server, World};
use crate::wait_for;

/// How many packets with a forged source are sent.
const ROUNDS: u8 = 5;
/// Before what may have been lost is sent again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The agent's setting for pods that spoof; ends with the file.
struct Setting(tempfile::TempDir);

impl Setting {
    fn change(&self, pods_may_spoof: &str) {
        fs::write(self.0.path().join("agent.conf"), format!("PODS_MAY_SPOOF={pods_may_spoof}\n")).unwrap();
    }
}

/// A node whose agent has this setting, with a pod on each VNIC.
fn world(pods_may_spoof: &str) -> (World, [Server; 2], Setting) {
    let (world, setting) = with_agents(World::booted(), pods_may_spoof);
    let servers = world.servers();
    (world, servers, setting)
}

fn with_agents(mut world: World, pods_may_spoof: &str) -> (World, Setting) {
    let setting = Setting(tempfile::tempdir().unwrap());
    setting.change(pods_may_spoof);
    let container = Container::node_agent().unwrap().with_config_map("oke-node-agent", setting.0.path());
    let (node, other) = (Arc::clone(&world.node), Arc::clone(&world.other));
    // The kernel's own check of sources, IPv4 only, hides what our check does. (A pod's host end has no IPv4 address, so even the
    // loose one drops what comes by the wrong link.)
    world.on_node("sysctl", &["-qw", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0"], "");
    world.start_agent_in(&container, &node);
    world.start_agent(&other);
    (world, setting)
}

/// Gives a pod an address that was not assigned to it.
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

/// Whether anything that a pod sends in another's name arrives where `listener` is. Each time it sends in its own name right
/// behind it, until that arrives: then the other is lost or there, however slow the machine is.
fn is_reached(listener: &UdpSocket, pod: &Pod, stolen: IpAddr, own: IpAddr) -> bool {
    let at = listener.local_addr().unwrap();
    listener.set_read_timeout(Some(RETRY_INTERVAL)).unwrap();
    let mut reached = false;
    for round in 0..ROUNDS {
        // What is dropped before routing tells the sender nothing.
        let send = |from: IpAddr| UdpSocket::bind((from, 0)).unwrap().send_to(&[round], at).unwrap();
        let mut heard = || {
            pod.run(|| [stolen, own].map(send)).unwrap();
            let mut payload = [0];
            loop {
                match listener.recv_from(&mut payload) {
                    Ok((_, sender)) if sender.ip() == stolen => reached = true,
                    Ok((_, sender)) if sender.ip() == own && payload == [round] => return true,
                    Ok((_, sender)) => assert_eq!(sender.ip(), own),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                    Err(error) => panic!("{error}"),
                }
            }
        };
        wait_for(&format!("what the pod sends from {own} to {at}"), &mut heard);
    }
    reached
}

/// A listener, in a pod or a node, on a port that is free.
fn listener(address: IpAddr) -> UdpSocket {
    UdpSocket::bind((address, 0)).unwrap()
}

/// What a pod that sends in another's name reaches: a third pod here, the host, a pod on another node.
fn reached_by_spoofer(pods_may_spoof: &str) -> Vec<String> {
    let (world, [spoofer, victim], _setting) = world(pods_may_spoof);
    let third = world.server(&world.node, "third");
    let away = world.server(&world.other, "away");
    let mut reached = Vec::new();
    for family in Family::ALL {
        let stolen = *victim.address.of(family).unwrap();
        let own = *spoofer.address.of(family).unwrap();
        take(&spoofer.pod, stolen);
        let in_pod = |server: &Server| {
            let address = *server.address.of(family).unwrap();
            server.pod.run(|| listener(address)).unwrap()
        };
        let places = [
            ("a pod on this node", in_pod(&third)),
            ("this node", world.node.run(|| listener(world.address(family))).unwrap()),
            ("a pod on another node", in_pod(&away)),
        ];
        for (place, listener) in &places {
            if is_reached(listener, &spoofer.pod, stolen, own) {
                reached.push(format!("{place}, {family}"));
            }
        }
    }
    reached
}

#[test]
fn packet_with_source_of_another_pod_reaches_no_receiver() {
    assert_eq!(reached_by_spoofer("deny"), [""; 0]);
}

/// What would be reached without the check: else the test above proves nothing.
#[test]
fn packet_with_source_of_another_pod_arrives_when_allowed() {
    let reached = reached_by_spoofer("allow");
    for place in ["a pod on this node", "this node"] {
        for family in Family::ALL {
            assert!(reached.contains(&format!("{place}, {family}")), "{reached:?}");
        }
    }
}

#[test]
fn source_check_follows_setting_and_is_restored_after_removal() {
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

/// Whether a pod reaches an IPv6 address of its node's by one of its own choice, where no VNIC has IPv6.
fn is_reached_by_unassigned_ipv6(pods_may_spoof: &str) -> bool {
    let (world, _setting) = with_agents(World::booted_with_ipv4_alone(), pods_may_spoof);
    let spoofer = world.server(&world.node, "spoofer");
    let (here, stolen): (IpAddr, IpAddr) = ("fd00:d::1".parse().unwrap(), "fd00:d::77".parse().unwrap());
    world.on_node("ip", &["address", "add", "fd00:d::1/128", "dev", "lo", "nodad"], "");
    let ip = |arguments: &str| {
        let output = spoofer.pod.command("ip").args(arguments.split(' ')).output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let gateway = ip("neighbour show 169.254.1.1");
    let mac = gateway.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).unwrap();
    ip("address add fd00:d::77/128 dev eth0 nodad");
    ip("route add fd00:d::1 dev eth0");
    ip(&format!("neighbour replace fd00:d::1 lladdr {mac} dev eth0"));
    let (own, at_home) = (spoofer.address.ipv4.unwrap(), world.address(Family::Ipv4));
    let (ipv6, ipv4) = world.node.run(|| (listener(here), listener(at_home))).unwrap();
    ipv6.set_nonblocking(true).unwrap();
    ipv4.set_read_timeout(Some(RETRY_INTERVAL)).unwrap();
    let send = |round: u8, from: IpAddr, to: &UdpSocket| {
        UdpSocket::bind((from, 0)).unwrap().send_to(&[round], to.local_addr().unwrap()).unwrap();
    };
    let heard = || std::iter::from_fn(|| ipv6.recv_from(&mut [0]).ok()).map(|(_, sender)| sender.ip());
    // The kernel makes an address's route later than the address.
    wait_for("the node hears itself", || {
        world.node.run(|| send(0, here, &ipv6)).unwrap();
        heard().any(|sender| sender == here)
    });
    for round in 0..ROUNDS {
        // What arrives behind it tells that it is lost or there.
        wait_for("what the pod sends in its own name", || {
            spoofer.pod.run(|| [(stolen, &ipv6), (own, &ipv4)].map(|(from, to)| send(round, from, to))).unwrap();
            let mut payload = [0];
            ipv4.recv_from(&mut payload).is_ok_and(|(_, sender)| (sender.ip(), payload) == (own, [round]))
        });
    }
    heard().any(|sender| sender == stolen)
}

/// The kernel knows it all the same, and so may what listens on the node.
#[test]
fn pod_cannot_send_spoofed_ipv6_when_no_vnic_has_ipv6() {
    assert!(!is_reached_by_unassigned_ipv6("deny"));
    assert!(is_reached_by_unassigned_ipv6("allow"));
}

/// Every way in which a pod answers or requests in its own name, with the check on: node ports on both VNICs, and the VCN's
/// services. A Service that leads back to the requesting pod counts, too: its answer comes in the pod's own name.
#[test]
fn pods_that_speak_in_their_own_name_are_heard_everywhere() {
    let (world, [one, two], _setting) = world("deny");
    for server in [&one, &two] {
        Mode::Nftables.publish(&world, server);
        for family in Family::ALL {
            for port in [LOCAL, CLUSTER] {
                let mut connection = world.works(&server.label, world.connect(world.address(family), port));
                world.works(&server.label, connection.echo());
            }
        }
        server.pod.query_time().unwrap();
    }
    let listing = world.on_node("nft", &["list", "table", "inet", vcn::NFT_TABLE], "");
    let dropped = listing.lines().filter(|line| line.contains("that are not its own: drop"));
    let dropped: Vec<&str> = dropped.filter(|line| !line.contains("packets 0 ")).collect();
    assert_eq!(dropped, [""; 0]);
}
