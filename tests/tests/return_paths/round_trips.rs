//! What nobody here has is not sent round: the router brings a packet to the VNIC whose address it is for, and the node would give it
//! back to the router by the rule from who sent it, until its hop limit ends.

use std::fs;
use std::net::{IpAddr, UdpSocket};

use sandbox::{DropReason, Vnic};
use vcn::Family;

use crate::surroundings::counted;
use crate::world::{PORT, Server, World, wait_for};

/// How many are sent, at least.
const DATAGRAMS: u64 = 10;
/// As many routers as the protocols allow.
const HOPS: &str = "255";

/// Sends one in the calling thread's namespace.
fn datagram(to: IpAddr) {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    UdpSocket::bind(any).unwrap().send_to(b"round", (to, PORT)).unwrap();
}

fn listing(world: &World) -> String {
    world.on_node("nft", &["list", "ruleset"], "")
}

/// Sends to an address here that no pod has until the rule of this comment has dropped as many as it shall; none of them has
/// left the node twice.
#[track_caller]
fn goes_out_once(world: &World, to: IpAddr, rule: &str, send: impl Fn()) {
    let family = if to.is_ipv4() { "ip" } else { "ip6" };
    let counting = format!(
        "table inet counting {{
            chain out {{
                type filter hook postrouting priority 300;
                oifname \"ens*\" {family} daddr {to} counter comment \"out to {to}\"
            }}
        }}"
    );
    world.on_node("nft", &["-f", "-"], &counting);
    let (before, mut sent) = (counted(&listing(world), rule), 0);
    wait_for(&format!("\"{rule}\" on the way to {to}"), || {
        send();
        sent += 1;
        let listing = listing(world);
        let out = counted(&listing, &format!("out to {to}"));
        assert!(out <= sent, "{out} times out by VNICs for {sent} datagrams to {to}");
        counted(&listing, rule) >= before + DATAGRAMS
    });
    let spent = |drop: &sandbox::Dropped| matches!(drop.reason, DropReason::HopLimit(_));
    assert!(!world.vcn.drops().iter().any(spent), "{:?}", world.vcn.drops());
    world.on_node("nft", &["delete", "table", "inet", "counting"], "");
}

/// A pod on each of two VNICs, the first of which sends for as many hops as there may be.
fn pods(world: &World) -> [Server; 2] {
    let [one, two] = world.servers();
    let hops = || {
        fs::write("/proc/sys/net/ipv4/ip_default_ttl", HOPS).unwrap();
        fs::write("/proc/sys/net/ipv6/conf/eth0/hop_limit", HOPS).unwrap();
    };
    one.pod.run(hops).unwrap();
    [one, two]
}

/// A pod removes its own link. Its proxy neighbours on its VNIC stay until its DEL, so whoever asks for its addresses is answered.
fn leave(world: &World, pod: &Server) {
    let output = pod.pod.command("ip").args(["link", "delete", "eth0"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let routes = || Family::ALL.map(|family| world.on_node("ip", &[flag(family), "route", "show", "table", "999"], ""));
    let addresses = Family::ALL.map(|family| pod.address.of(family).unwrap().to_string());
    wait_for("its routes go", || {
        let routes = routes().concat();
        !routes.lines().any(|route| addresses.iter().any(|address| route.starts_with(&format!("{address} "))))
    });
}

fn flag(family: Family) -> &'static str {
    match family {
        Family::Ipv4 => "-4",
        Family::Ipv6 => "-6",
    }
}

/// The VNIC of a pod.
fn vnic(world: &World, pod: &Server) -> Vnic {
    let has = |vnic: &Vnic| vnic.secondary.ipv4.iter().flatten().any(|address| Some(*address) == pod.address.ipv4);
    world.node.vnics().into_iter().find(has).unwrap()
}

fn from_pods(by: &Vnic) -> String {
    format!("in by {} from a pod of this node to none of it: drop", by.link)
}

#[test]
fn what_a_pod_sends_to_one_that_removed_its_own_link_leaves_the_node_once() {
    let world = World::start();
    let [one, two] = pods(&world);
    leave(&world, &two);
    for family in Family::ALL {
        let to = *two.address.of(family).unwrap();
        goes_out_once(&world, to, &from_pods(&vnic(&world, &two)), || one.pod.run(|| datagram(to)).unwrap());
    }
}

/// The fabric that asks before it delivers is answered in the address's place; the real one need not ask.
#[test]
fn what_a_pod_sends_to_an_address_that_no_pod_has_leaves_the_node_once() {
    let world = World::start();
    let [one, two] = pods(&world);
    let vnic = vnic(&world, &two);
    for family in Family::ALL {
        // The last: of IPv6 the first that no pod has may be the host's.
        let addresses = vnic.secondary.of(family).unwrap();
        let free = *addresses.iter().rfind(|address| two.address.of(family) != Some(*address)).unwrap();
        let proxy = [flag(family), "neighbour", "add", "proxy", &free.to_string(), "dev", vnic.link.as_str()];
        world.on_node("ip", &proxy, "");
        goes_out_once(&world, free, &from_pods(&vnic), || one.pod.run(|| datagram(free)).unwrap());
    }
}

/// As a probe of the kubelet's is. Of IPv4 the kernel itself drops what comes from its own address.
#[test]
fn what_the_node_sends_to_a_pod_that_removed_its_own_link_leaves_it_once() {
    let world = World::start();
    let [_, two] = pods(&world);
    leave(&world, &two);
    let (to, by) = (two.address.ipv6.unwrap(), vnic(&world, &two));
    let rule = format!("in by {} from this node to elsewhere: drop", by.link);
    goes_out_once(&world, to, &rule, || world.node.run(|| datagram(to)).unwrap());
}
