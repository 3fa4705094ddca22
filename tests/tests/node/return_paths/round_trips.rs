//! A packet to an unassigned address does not loop, and does not leave through the primary VNIC. The router brings a packet to
//! the VNIC whose address it is for. By the rule of its sender, the node would return it to the router until its hop limit ends.

use std::fs;
use std::net::{IpAddr, UdpSocket};

use sandbox::{DropReason, Vnic};
use vcn::{Family, MachineKind};

use super::surroundings::counted;
use super::world::{PORT, Server, World};
use crate::wait_for;

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

/// A pod removes its own link. Its proxy neighbours on its VNIC stay until its DEL, so requests for its addresses are answered.
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
fn packet_to_pod_that_removed_its_link_leaves_node_once() {
    let world = World::start();
    let [one, two] = pods(&world);
    leave(&world, &two);
    for family in Family::ALL {
        let to = *two.address.of(family).unwrap();
        goes_out_once(&world, to, &from_pods(&vnic(&world, &two)), || one.pod.run(|| datagram(to)).unwrap());
    }
}

/// The fabric that resolves neighbours before it delivers is answered in the address's place; the real one need not.
#[test]
fn packet_to_unassigned_address_leaves_the_node_once() {
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

/// As a probe of the kubelet's is, from the primary VNIC's address or another of the node's own. Of IPv4 the kernel itself drops
/// what comes from its own address.
#[test]
fn packet_from_node_to_pod_without_link_leaves_node_once() {
    let world = World::start();
    let [one, two] = world.servers();
    leave(&world, &two);
    let (to, by) = (two.address.ipv6.unwrap(), vnic(&world, &two));
    let send = |from: IpAddr| {
        world.node.run(|| UdpSocket::bind((from, 0)).unwrap().send_to(b"round", (to, PORT)).unwrap()).unwrap();
    };
    let rule = unused(&world, by.link.as_str(), "2603:c020:0:2::/64");
    goes_out_once(&world, to, &rule, || send(world.address(Family::Ipv6)));
    let other = vnic(&world, &one).link;
    let at = world.node.vnics().iter().position(|it| it.link == other).unwrap();
    let own = world.own_addresses(Family::Ipv6).swap_remove(at);
    let rule = format!("in by {} from this node to elsewhere: drop", by.link);
    goes_out_once(&world, to, &rule, || send(own));
}

/// The comment of the rule about what comes in by a VNIC for an address of its subnet that no pod has.
fn unused(world: &World, by: &str, subnet: &str) -> String {
    let primary = world.node.vnics().remove(0).link;
    format!("in by {by} to {subnet}, which no pod here has, out by {primary}: drop")
}

/// The link of a pod's VNIC, which answers for the pod. On bare metal it is the agent's.
fn link(world: &World, pod: &Server) -> String {
    let (proxies, address) =
        (world.on_node("ip", &["-4", "neighbour", "show", "proxy"], ""), pod.address.ipv4.unwrap());
    let proxy = proxies.lines().find(|line| line.starts_with(&format!("{address} dev "))).unwrap();
    proxy.split(' ').nth(2).unwrap().to_owned()
}

/// Another program gives an address of a VNIC's subnet to a network of its own on the node: packets reach it.
fn passes_to_another_network(world: &World, to: IpAddr) {
    let ip = format!("ip {}", flag(Family::of(to)));
    let network = format!(
        "ip link add others type veth peer name others-end
         ip link set others up
         ip link set others-end up
         {ip} route add {to} dev others
         {ip} neighbour replace {to} lladdr 02:00:00:00:00:77 dev others"
    );
    world.on_node("sh", &["-ec", &network], "");
    let counting = "add table inet counting
        add chain inet counting out { type filter hook postrouting priority 300; }
        add rule inet counting out oifname others udp dport 8080 counter comment \"another network\"";
    world.on_node("nft", &["-f", "-"], counting);
    wait_for("a datagram to another network", || {
        world.client.run(|| datagram(to)).unwrap();
        counted(&listing(world), "another network") > 0
    });
    world.on_node("sh", &["-ec", "nft delete table inet counting; ip link delete others"], "");
}

/// Packets of others to an address that no pod has are dropped; a pod that gets the address later is resolved at once.
fn packets_to_an_address_that_no_pod_has_are_dropped(kind: MachineKind) {
    let world = World::start_as(kind);
    let [one, two] = world.servers();
    let (vnic, link) = (vnic(&world, &two), link(&world, &two));
    let mut pods = vec![one, two];
    let dropped = [(Family::Ipv4, "10.0.32.0/24"), (Family::Ipv6, "2603:c020:0:2::/64")].map(|(family, subnet)| {
        let addresses = vnic.secondary.of(family).unwrap();
        let is_free = |address: &&IpAddr| !pods.iter().any(|it| it.address.of(family) == Some(*address));
        let free = *addresses.iter().rfind(is_free).unwrap();
        // The fabric resolves neighbours before it delivers.
        let proxy = |verb| {
            let arguments = [flag(family), "neighbour", verb, "proxy", &free.to_string(), "dev", &link];
            world.on_node("ip", &arguments, "")
        };
        proxy("add");
        let rule = unused(&world, &link, subnet);
        wait_for(&format!("\"{rule}\""), || {
            world.client.run(|| datagram(free)).unwrap();
            counted(&listing(&world), &rule) >= DATAGRAMS
        });
        passes_to_another_network(&world, free);
        proxy("delete");
        (free, rule)
    });
    world.assert_nothing_spoofed();
    for (free, rule) in dropped {
        let has = |it: &Server| it.address.of(Family::of(free)) == Some(&free);
        while !pods.iter().any(has) {
            pods.push(world.server(&world.node, &format!("later-{}", pods.len())));
        }
        let before = counted(&listing(&world), &rule);
        let mut connection = world.works("the pod that has it now", world.connect(free, PORT));
        world.works("the pod that has it now", connection.echo());
        assert_eq!(counted(&listing(&world), &rule), before);
    }
}

#[test]
fn packets_to_unassigned_address_are_dropped_on_virtual_machine() {
    packets_to_an_address_that_no_pod_has_are_dropped(MachineKind::Virtual);
}

#[test]
#[ignore = "needs VLANs and nf_tables in one kernel: run by tests/qemu/run"]
fn packets_to_unassigned_address_are_dropped_on_bare_metal() {
    packets_to_an_address_that_no_pod_has_are_dropped(MachineKind::BareMetal);
}
