//! What happens to the links of VNICs: each time the pods on them are connected again, judged by packets.

use std::fs;

use netlink::{Link, Socket};
use vcn::{Family, MacAddr, Mtu};

use crate::follow_up::{dual_stack_node, raise_neighbour};
use crate::metadata::{dual_stack, vnic};
use crate::node::{Agent, Node, SLOW_RESYNC, name, wait_for};
use crate::pod::Pod;
use crate::pods::left;
use crate::running::{SECOND, at_once, in_time};

/// So that only events can be the cause of what is seen within seconds.
fn node_with_a_pod() -> (Node, Agent, Pod) {
    let (node, agent) = dual_stack_node().with_agent(&SLOW_RESYNC);
    let pod = Pod::add(&node, "a");
    pod.wait_connected();
    (node, agent, pod)
}

/// The pod's packets pass, and the condition of the link is cleared.
fn connected(node: &Node, agent: &Agent, pod: &Pod) {
    pod.wait_connected();
    node.wait_conditions(agent, &[]);
}

/// What befalls the VNIC's link, and what is whole again within a second.
type Drift = (&'static str, fn(&mut Socket) -> bool);

fn link(socket: &mut Socket) -> Link {
    socket.link(&name("ens5")).unwrap()
}

#[test]
fn drift_of_a_vnic_link_is_repaired() {
    let drifts: [Drift; 4] = [
        ("ip link set ens5 address 02:00:00:00:00:09", |socket| {
            link(socket).mac == Some(MacAddr([2, 0, 0x17, 0, 0, 33]))
        }),
        ("ip link set ens5 mtu 1500", |socket| link(socket).mtu == Mtu::VCN),
        (
            "for flap in 1 2 3 4 5; do ip link set ens5 down; ip link set ens5 up; done; ip link set ens5 down",
            |socket| link(socket).up,
        ),
        // For what is forwarded the kernel resolves the router from such an address only.
        (MUTE, |socket| link_locals(socket) == ["fe80::17ff:fe00:21/64"]),
    ];
    at_once(drifts, |(drift, is_whole)| {
        let (node, agent, pod) = node_with_a_pod();
        in_time(SECOND, drift, || {
            node.sh(drift);
            agent.timed(|| wait_for(drift, || node.on(is_whole), || agent.log()))
        });
        connected(&node, &agent, &pod);
        // A reconcile adds the routes after it raised the link.
        wait_for("the VNIC's routes", || node.routes(Family::Ipv4, 1000).len() == 2, || agent.log());
        let ipv6 = || node.routes(Family::Ipv6, 1000).contains(&"::/0 fe80::200:17ff:fe00:1".into());
        wait_for("its IPv6 routes", ipv6, || agent.log());
        assert_eq!(node.pools()["vnics"][0]["mac"], "02:00:17:00:00:21");
    });
}

/// The other side of the link loses and regains its carrier, as when a switch port flaps.
#[test]
fn vnic_link_with_flapping_carrier_carries_its_pods_again() {
    let (node, agent, pod) = node_with_a_pod();
    // IPv6 addresses go with a link that is lowered.
    node.fabric_sh(
        "ip link set ens5 down; ip link set ens5 up
         ip addr replace 2603:c020:0:33::1/64 dev ens5 nodad; ip addr replace fe80::200:17ff:fe00:1/64 dev ens5 nodad",
    );
    wait_for("its carrier", || node.on(|socket| socket.link(&name("ens5")).unwrap().running), || agent.log());
    connected(&node, &agent, &pod);
}

/// With what it knows of its neighbours, or it would go on for a while.
const MUTE: &str = "ip -6 addr flush dev ens5 scope link; ip -6 neigh flush dev ens5";

fn link_locals(socket: &mut Socket) -> Vec<String> {
    let index = socket.index_of(&name("ens5")).unwrap();
    let all = socket.addresses(Some(index)).unwrap().into_iter().map(|it| it.address.to_string());
    all.filter(|address| address.starts_with("fe80:")).collect()
}

/// NetworkManager leaves the links so that it raises and has no profile for.
#[test]
fn vnic_link_gets_link_local_address_unless_it_has_one() {
    let foreign = "ip link set ens5 up; ip -6 addr add fe80::77/64 dev ens5 nodad";
    at_once([("", "fe80::17ff:fe00:21/64"), (foreign, "fe80::77/64")], |(before, address)| {
        let node = dual_stack_node();
        node.sh(&format!("ip link set ens5 addrgenmode none; {MUTE}; {before}"));
        let agent = node.ready_agent(&[]);
        Pod::add(&node, "a").wait_connected();
        node.wait_timer_passes(&agent, 2);
        assert_eq!(node.on(link_locals), [address]);
    });
}

#[test]
fn renamed_vnic_link_is_followed() {
    let (node, agent, pod) = node_with_a_pod();
    let whole = left(&node);
    node.sh("ip link set ens5 down");
    node.sh("ip link set ens5 name storage0");
    let followed = || node.pools()["vnics"][0]["link"] == "storage0";
    wait_for("the pools to follow", followed, || agent.log());
    wait_for("the link", || node.on(|socket| socket.link(&name("storage0")).unwrap().up), || agent.log());
    connected(&node, &agent, &pod);
    wait_for("its setting", || node.sysctl("net/ipv4/conf/storage0/rp_filter") == "2", || agent.log());
    // With the lowered link went what answers for the pod.
    wait_for("the pod's proxies", || left(&node) == whole, || format!("{:#?} of {whole:#?}", left(&node)));
    let (_, attachments) = node.run(&["attachments"]);
    assert!(!attachments.contains("cut off"), "{attachments}");
    // And so do pods made from now on.
    Pod::add(&node, "b").wait_connected();
}

#[test]
fn unplugged_vnic_leaves_the_pools_at_once_and_returns_unchanged() {
    let (node, agent, pod) = node_with_a_pod();
    let pools = node.pools();
    let plug = || {
        node.plug("ens5", 33);
        raise_neighbour(&node);
    };
    let withdrawn = || node.pools()["vnics"].as_array().is_some_and(Vec::is_empty);
    in_time(SECOND, "the pools are withdrawn", || {
        if withdrawn() {
            plug();
            wait_for("the pools to be back", || node.pools() == pools, || agent.log());
        }
        node.sh("ip link del ens5");
        agent.timed(|| wait_for("the pools to be withdrawn", withdrawn, || agent.log()))
    });
    wait_for("the reason", || node.conditions().contains(&"LinkMissing".into()), || format!("{:?}", node.conditions()));
    assert!(node.pools()["reason"].as_str().unwrap().contains("LinkMissing"), "{}", node.pools());
    assert_eq!(node.get("/readyz").0, 503);
    plug();
    wait_for("the pools to be back", || node.pools() == pools, || agent.log());
    connected(&node, &agent, &pod);
    assert_eq!(node.get("/readyz").0, 200);
}

/// Its link goes before the metadata service's list shortens.
#[test]
fn detached_vnic_raises_no_condition() {
    let node = dual_stack_node();
    node.plug("ens6", 34);
    let listed = [vnic("primary", 10), dual_stack("pods", 33)];
    node.metadata.set_vnics([&listed[..], &[vnic("late", 34)]].concat());
    let agent = node.ready_agent(&["--detach-grace-seconds", "600"]);
    // A reconcile for the kernel's events of the start would fail if the link disappeared meanwhile.
    node.wait_timer_passes(&agent, 2);
    node.sh("ip link del ens6");
    let is_missing = || node.run(&["status"]).1.contains("LinkMissing");
    wait_for("its state", is_missing, || agent.log());
    node.wait_timer_passes(&agent, 1);
    node.metadata.set_vnics(listed.to_vec());
    node.wait_timer_passes(&agent, 3);
    assert_eq!((node.conditions(), agent.events("condition.raised").len()), (vec![], 0), "{}", agent.log());
}

#[test]
fn first_list_without_the_primary_vnic_is_rejected() {
    let node = dual_stack_node();
    let before = node.on(|socket| socket.link(&name("ens5")).unwrap());
    node.metadata.set_vnics(vec![dual_stack("pods", 33)]);
    let agent = node.agent(&[]);
    let reason =
        "not the one of this host's default route (02:00:17:00:00:0a): default via 10.0.10.1 dev ens3 metric 0";
    let is_reported = || node.get("/readyz").1.contains(reason);
    wait_for("the reason", is_reported, || format!("{:?}\n{}", node.get("/readyz"), agent.log()));
    assert_eq!(node.on(|socket| socket.link(&name("ens5")).unwrap()), before);
    node.metadata.set_vnics(vec![vnic("primary", 10), dual_stack("pods", 33)]);
    node.wait_ready(&agent);
    assert_eq!(node.routes(Family::Ipv4, 1000).len(), 2);
}

#[test]
fn bridge_over_the_primary_vnic_is_used_in_its_place() {
    let node = dual_stack_node();
    node.sh(
        "ip link add br0 address 02:00:17:00:00:0a mtu 9000 type bridge; ip link set ens3 master br0; ip link set br0 up
         ip addr flush dev ens3; ip addr add 10.0.10.7/24 dev br0; ip route add default via 10.0.10.1
         ip link add mv5 link ens5 address 02:00:17:00:00:21 type macvlan",
    );
    node.fabric_sh("ip link set ens3 up; ip addr add 10.0.10.1/24 dev ens3; ip addr add 169.254.169.254 dev ens3");
    let agent = node.ready_agent(&[]);
    let pod = Pod::add(&node, "a");
    pod.wait_connected();
    assert_eq!(node.conditions(), [""; 0]);
    assert!(node.run(&["status"]).1.contains(" br0 "), "{}", node.run(&["status"]).1);
    // As the primary VNIC, which alone is answered.
    let masquerade = "nft list chain inet vcn-native postrouting 2>/dev/null || nft list table inet vcn-native";
    assert!(node.sh(masquerade).contains("by br0: masquerade"), "{}", agent.log());
    assert_eq!(node.addresses("mv5").iter().filter(|it| it.starts_with("10.")).count(), 0, "it is another program's");
}

/// Two network cards have the VNIC's Ethernet address, and the kernel lists the other one first.
#[test]
fn network_card_with_an_address_is_the_vnics() {
    let node = dual_stack_node();
    node.sh("ip link del ens5");
    node.plug("other", 33);
    node.plug("ens5", 33);
    raise_neighbour(&node);
    node.sh("ip addr add 10.0.33.7/32 dev ens5");
    let agent = node.ready_agent(&[]);
    assert_eq!(node.pools()["vnics"][0]["link"], "ens5", "{}", agent.log());
    assert_eq!(node.conditions(), ["ConflictingConfiguration"]);
    assert!(node.get("/readyz").1.contains("network cards ens5 and other have its Ethernet address"));
    Pod::add(&node, "a").wait_connected();
    assert_eq!(node.addresses("other"), [""; 0]);
    agent.stop();
    let _agent = node.ready_agent(&[]);
    assert_eq!(node.pools()["vnics"][0]["link"], "ens5");
}

/// As an RDMA network does by DHCP or by router advertisements. With the metric that IPv6 routes have by default it is not
/// the preferred one.
#[test]
fn default_route_by_a_device_without_vnic_is_reported() {
    let node = dual_stack_node();
    node.plug("rdma0", 99);
    node.sh("ip addr add 2603:c020:0:10::7/64 dev ens3 nodad; ip -6 route add default via fe80::1 dev ens3 metric 100
         ip link set rdma0 up; ip addr add 10.9.0.7/24 dev rdma0; ip -6 route add default via fe80::9 dev rdma0
         ip route del default; ip route add default via 10.0.10.1 dev ens3 metric 100");
    let agent = node.ready_agent(&[]);
    assert_eq!(node.conditions(), [""; 0]);
    for route in ["via 10.9.0.1 dev rdma0 metric 50", "via fe80::9 dev rdma0 metric 9"] {
        let family = if route.contains(':') { "-6" } else { "-4" };
        node.sh(&format!("ip {family} route add default {route}"));
        let reported =
            || node.conditions().contains(&"ConflictingConfiguration".into()) && node.get("/readyz").0 == 200;
        let report = || format!("{:?}", node.get("/readyz"));
        wait_for(route, || reported() && report().contains(&format!("default {route}")), report);
        node.sh(&format!("ip {family} route del default {route}"));
        node.wait_conditions(&agent, &[]);
    }
    agent.stop();
    node.sh(
        "ip route del default; ip route add default via 10.9.0.1 dev rdma0 metric 50; ip -6 route del default dev ens3",
    );
    fs::remove_dir_all(node.path("lib")).unwrap();
    let agent = node.agent(&[]);
    let named = || node.get("/readyz").1.contains("(02:00:17:00:00:63): default via 10.9.0.1 dev rdma0 metric 50");
    wait_for("the route", named, || format!("{:?}\n{}", node.get("/readyz"), agent.log()));
}

/// If no link has the address of a physical port, only the operator can name the link.
#[test]
fn named_link_is_the_physical_port_without_a_matching_address() {
    let node = Node::new();
    node.plug("ens6", 77);
    let untagged = |name: &str, last, index: u8| {
        let mut vnic = vnic(name, last);
        (vnic["nicIndex"], vnic["vlanTag"]) = (index.into(), 0.into());
        vnic
    };
    node.metadata.set_vnics(vec![untagged("primary", 10, 0), untagged("second", 34, 1)]);
    let agent = node.agent(&["--pod-network", "none"]);
    node.wait_conditions(&agent, &["LinkMissing"]);
    agent.stop();
    let agent = node.agent(&["--pod-network", "none", "--bm-port-1", "ens6"]);
    let rules = || node.rules(Family::Ipv4);
    wait_for("its rule", || rules() == ["1537 10.0.34.7/32 all 1000"], || format!("{:?}\n{}", rules(), agent.log()));
    node.wait_conditions(&agent, &[]);
    // The primary VNIC is known by its port, too.
    node.metadata.set_vnics(vec![untagged("primary", 11, 0), untagged("second", 34, 1)]);
    let missing = || node.conditions().contains(&"PrimaryLinkMissing".to_owned());
    node.sh("ip link set ens3 address 02:00:17:00:00:63");
    wait_for("its condition", missing, || format!("{:?}\n{}", node.conditions(), agent.log()));
    agent.stop();
    let agent = node.agent(&["--pod-network", "none", "--bm-port-1", "ens6", "--bm-port-0", "ens3"]);
    wait_for("its end", || !missing(), || format!("{:?}\n{}", node.conditions(), agent.log()));
}
