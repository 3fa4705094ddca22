//! What the agent does after plugins' runs: judged by what neighbours believe and by which connections the kernel knows.

use std::cell::Cell;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use host_harness::ip;
use ipam::{BootTime, COOLDOWN, FreedAddress};
use netlink::{Neighbour, NeighbourFilter, Socket};
use telemetry::{Delivery, Sink, VerbRecord};
use vcn::MacAddr;

use crate::metadata::{dual_stack, vnic};
use crate::node::{Agent, Node, name, wait_for};
use crate::pod::{published, reserve, store};
use crate::running::{SECOND, in_time};

/// The previous owner of the address.
const OLD: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xd]);
/// The VNIC's.
const NEW: MacAddr = MacAddr([2, 0, 0x17, 0, 0, 33]);

fn notify(node: &Node, verb: &str, addresses: &[&str]) {
    let mut record = VerbRecord::begin("vcn-native", "0.1.0", verb);
    record.addresses = addresses.iter().map(|address| ip(address)).collect();
    assert_eq!(Sink::new(node.path("run")).send(&record), Delivery::Agent);
}

/// Someone on the VNIC's subnet: its router.
pub(crate) fn raise_neighbour(node: &Node) {
    node.fabric_sh(
        "ip link set ens5 up; ip addr add 10.0.33.1/24 dev ens5
         ip addr add 2603:c020:0:33::1/64 dev ens5 nodad; ip addr add fe80::200:17ff:fe00:1/64 dev ens5 nodad",
    );
}

fn believe(socket: &mut Socket, address: IpAddr, mac: MacAddr) {
    let index = socket.index_of(&name("ens5")).unwrap();
    let entry = Neighbour { permanent: false, ..Neighbour::permanent(index, address, mac) };
    socket.replace_neighbour(&entry).unwrap();
}

fn believed(socket: &mut Socket, address: IpAddr) -> Option<MacAddr> {
    let filter = NeighbourFilter { index: Some(socket.index_of(&name("ens5")).unwrap()), ..NeighbourFilter::default() };
    let all = socket.neighbours(&filter).unwrap();
    all.into_iter().find(|entry| entry.address == address).and_then(|entry| entry.mac)
}

pub(crate) fn dual_stack_node() -> Node {
    let node = Node::new();
    node.plug("ens5", 33);
    node.metadata.set_vnics(vec![vnic("primary", 10), dual_stack("pods", 33)]);
    node.publish_dual_stack(&[("pods", 33)]);
    raise_neighbour(&node);
    node
}

#[test]
fn new_addresses_are_announced_twice() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    let addresses = ["10.0.33.33", "2603:c020:0:33::21"];
    let wait_learned = |what: &str| {
        let all = || node.on_fabric(|socket| addresses.iter().all(|it| believed(socket, ip(it)) == Some(NEW)));
        wait_for(what, all, || agent.log())
    };
    let mislead = || node.on_fabric(|socket| addresses.iter().for_each(|it| believe(socket, ip(it), OLD)));
    let announced = Cell::new((0, Instant::now()));
    let counted = || {
        let line = format!(
            "oke_node_agent_follow_up_addresses_total{{what=\"announce\",result=\"ok\"}} {}\n",
            4 * announced.get().0
        );
        wait_for(
            "the count",
            || announced.get().0 == 0 || node.get("/metrics").1.contains(&line),
            || node.get("/metrics").1,
        )
    };
    in_time(SECOND, "the first announcement", || {
        counted();
        mislead();
        announced.set((announced.get().0 + 1, Instant::now()));
        notify(&node, "ADD", &addresses);
        wait_learned("the first announcement");
        mislead();
        announced.get().1.elapsed()
    });
    // The second comes a second after the first, and so it comes only now.
    wait_learned("the second announcement");
    assert!(announced.get().1.elapsed() >= SECOND, "{:?}", announced.get().1.elapsed());
    counted();
    assert!(agent.events("follow_up.failed").is_empty(), "{}", agent.log());
}

#[test]
fn missing_right_to_announce_is_logged_once() {
    let node = Node::with_pods();
    raise_neighbour(&node);
    let agent = node.agent_without("NET_RAW");
    node.wait_ready(&agent);
    let failed = |count: u32| {
        let counted = format!(r#"oke_node_agent_follow_up_addresses_total{{what="announce",result="error"}} {count}"#);
        wait_for("the failures", || node.get("/metrics").1.contains(&counted), || node.get("/metrics").1);
    };
    // Each is tried again a second later.
    notify(&node, "ADD", &["10.0.33.33"]);
    failed(2);
    notify(&node, "ADD", &["10.0.33.34"]);
    failed(4);
    let said = agent.events("follow_up.failed");
    assert!(said.len() == 1 && said[0]["message"].as_str().unwrap().contains("packet socket"), "{said:?}");
    assert_eq!(node.get("/healthz").0, 200);
}

/// Has the kernel know connections, one by UDP and one by TCP for each pair.
fn connect(node: &Node, pairs: &[(&str, &str)]) {
    for (from, to) in pairs {
        for kind in ["udp", "tcp --state ESTABLISHED"] {
            let ends = format!("-s {from} -d {to} --sport 4000 --dport 80");
            node.sh(&format!("conntrack -I -p {kind} {ends} --timeout 36000"));
        }
    }
}

/// How many connections an address has.
fn count(node: &Node, address: &str) -> usize {
    let all = node.sh("conntrack -L -f ipv4; conntrack -L -f ipv6");
    all.lines().filter(|line| line.contains(&format!("={address} "))).count()
}

/// Puts addresses on the list of those that were freed some time ago.
fn free(node: &Node, addresses: &[(&str, Duration)]) {
    let now = BootTime::now().unwrap();
    let ago = |(address, ago): &(_, Duration)| (*address, BootTime(now.0 - u64::try_from(ago.as_millis()).unwrap()));
    free_at(node, addresses.iter().map(ago));
}

fn free_at<'a>(node: &Node, addresses: impl Iterator<Item = (&'a str, BootTime)>) {
    let freed: Vec<FreedAddress> =
        addresses.map(|(address, at)| FreedAddress { address: ip(address), at, forgotten: false }).collect();
    let noted = store(node).update(|held| {
        held.freed.extend(freed);
        Ok::<_, ipam::Error>(())
    });
    noted.unwrap();
}

fn forgotten(node: &Node, agent: &Agent, count: u32) {
    let counted = format!("oke_node_agent_connections_forgotten_total {count}\n");
    wait_for("the connections to go", || node.get("/metrics").1.contains(&counted), || agent.log());
}

/// A record has room for a few addresses, and a GC may free hundreds: all freed ones count, and only those.
#[test]
fn only_connections_of_freed_addresses_are_removed() {
    let (node, agent) = dual_stack_node().with_agent(&[]);
    // Three of pods, then two of others, of each family.
    let addresses = [
        ["10.0.33.33", "10.0.33.34", "10.0.33.35", "10.9.9.9", "10.9.9.8"],
        ["2603:c020:0:33::21", "2603:c020:0:33::22", "2603:c020:0:33::23", "2001:db8::9", "2001:db8::8"],
    ];
    for [a, b, c, peer, other] in addresses {
        connect(&node, &[(a, peer), (peer, b), (peer, other), (c, peer)]);
    }
    let [[a4, b4, c4, ..], [a6, b6, c6, ..]] = addresses;
    // As if time were ahead by a day: the cooldown does not end in a test.
    let at = BootTime::now().unwrap().after(Duration::from_secs(86_400));
    free_at(&node, [a4, a6, b4, b6].map(|address| (address, at)).into_iter());
    // The last of them was assigned to another pod.
    notify(&node, "DEL", &[a4, a6, c4, c6]);
    forgotten(&node, &agent, 8);
    for [a, b, c, _, other] in addresses {
        assert_eq!(
            [a, b, other, c].map(|address| count(&node, address)),
            [0, 0, 2, 2],
            "connections of other addresses stay"
        );
    }
    // Counted after the connections are.
    let done = "oke_node_agent_follow_up_addresses_total{what=\"forget\",result=\"ok\"} 4\n";
    wait_for("the count", || node.get("/metrics").1.contains(done), || node.get("/metrics").1);
}

#[test]
fn connections_are_removed_again_when_the_cooldown_ends() {
    let (node, agent) = Node::with_pods().with_agent(&[]);
    agent.stop();
    connect(&node, &[("10.0.33.33", "10.9.9.9"), ("10.0.33.34", "10.9.9.9"), ("10.0.33.32", "10.9.9.9")]);
    let begun = Instant::now();
    let reserved = reserve(&node, &published(&node), "vcn-native/c1/eth0", name("vcn0123456789ab"));
    assert_eq!(reserved.addresses[0].address, ip("10.0.33.32"));
    let seconds = Duration::from_secs;
    free(&node, &[("10.0.33.33", COOLDOWN + seconds(1)), ("10.0.33.34", COOLDOWN - seconds(3))]);
    let agent = node.agent(&[]);
    let marked = |address: &str| {
        let held = store(&node).read().unwrap();
        held.freed.iter().find(|freed| freed.address == ip(address)).unwrap().forgotten
    };
    wait_for("the first address", || marked("10.0.33.33"), || agent.log());
    assert!(!marked("10.0.33.34") || begun.elapsed() > Duration::from_secs(3), "it still cools down");
    wait_for("the second address", || marked("10.0.33.34"), || agent.log());
    assert!(begun.elapsed() > Duration::from_secs(3), "{:?}", begun.elapsed());
    forgotten(&node, &agent, 4);
    assert_eq!(count(&node, "10.0.33.32"), 2, "an address in use keeps its connections");
}
