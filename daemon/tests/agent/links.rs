//! What happens to the links of VNICs: each time the pods on them are connected again, judged by packets.

use std::process::Command;

use netlink::{Address, LinkChange, Socket};
use vcn::{Family, MacAddr, Mtu};

use crate::follow_up::{dual_stack_node, raise_neighbour};
use crate::metadata::{dual_stack, vnic};
use crate::node::{Agent, Node, name, wait_for};
use crate::pod::Pod;
use crate::pods::left;
use crate::running::{SECOND, in_time};

/// So that only events can be the cause of what is seen within seconds.
fn node_with_a_pod() -> (Node, Agent, Pod) {
    let node = dual_stack_node();
    let mut agent = node.agent(&["--resync-seconds", "600"]);
    node.wait_ready(&mut agent);
    let pod = Pod::add(&node, "a");
    pod.wait_connected();
    (node, agent, pod)
}

fn change(node: &Node, link: &str, change: LinkChange<'_>) {
    node.on(|socket| socket.change_link_named(&name(link), &[change]).unwrap());
}

fn ip(node: &Node, arguments: &str) {
    let words: Vec<&str> = arguments.split(' ').collect();
    let output = node.inside(|| Command::new("ip").args(words).output().unwrap());
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Repaired within a second; then the pod's packets pass.
fn mended(
    (node, agent, pod): (&Node, &Agent, &Pod),
    broken: impl Fn(),
    what: &str,
    whole: impl Fn(&mut Socket) -> bool + Send + Sync,
) {
    in_time(SECOND, what, || {
        broken();
        agent.timed(|| wait_for(what, || node.on(|socket| whole(socket)), || agent.log()))
    });
    connected(node, agent, pod);
}

/// The pod's packets pass, and the condition of the link is cleared.
fn connected(node: &Node, agent: &Agent, pod: &Pod) {
    pod.wait_connected();
    wait_for("no condition to stay", || node.conditions().is_empty(), || agent.log());
}

/// The table of the VNIC has its routes. A reconcile adds them after it raised the link.
fn wait_routes(node: &Node, agent: &Agent) {
    wait_for("the VNIC's routes", || node.routes(Family::Ipv4, 1000).len() == 2, || agent.log());
}

#[test]
fn mac_of_a_vnic_link_is_repaired() {
    let (node, agent, pod) = node_with_a_pod();
    let mac = MacAddr([2, 0, 0x17, 0, 0, 33]);
    let other = || change(&node, "ens5", LinkChange::Mac(MacAddr([2, 0, 0, 0, 0, 9])));
    let own = |socket: &mut Socket| socket.link(&name("ens5")).unwrap().mac == Some(mac);
    mended((&node, &agent, &pod), other, "the address", own);
    assert_eq!(node.pools()["vnics"][0]["mac"], mac.to_string());
    wait_routes(&node, &agent);
}

#[test]
fn mtu_of_a_vnic_link_is_repaired() {
    let (node, agent, pod) = node_with_a_pod();
    let other = || change(&node, "ens5", LinkChange::Mtu(Mtu(1500)));
    mended((&node, &agent, &pod), other, "the MTU", |socket| socket.link(&name("ens5")).unwrap().mtu == Mtu::VCN);
}

#[test]
fn vnic_link_that_flaps_carries_its_pods_again() {
    let (node, agent, pod) = node_with_a_pod();
    let flap = || {
        for _ in 0..5 {
            change(&node, "ens5", LinkChange::Down);
            change(&node, "ens5", LinkChange::Up);
        }
        change(&node, "ens5", LinkChange::Down);
    };
    mended((&node, &agent, &pod), flap, "the link", |socket| socket.link(&name("ens5")).unwrap().up);
    wait_routes(&node, &agent);
    let ipv6 = || node.routes(Family::Ipv6, 1000).contains(&"::/0 fe80::200:17ff:fe00:1".into());
    wait_for("its IPv6 routes", ipv6, || agent.log());
}

/// The other side of the link loses and regains its carrier, as when a switch port flaps.
#[test]
fn vnic_link_with_flapping_carrier_carries_its_pods_again() {
    let (node, agent, pod) = node_with_a_pod();
    let far =
        |change: LinkChange<'_>| node.on_fabric(|socket| socket.change_link_named(&name("ens5"), &[change]).unwrap());
    far(LinkChange::Down);
    far(LinkChange::Up);
    raise_again(&node);
    wait_for("its carrier", || node.on(|socket| socket.link(&name("ens5")).unwrap().running), || agent.log());
    connected(&node, &agent, &pod);
}

/// IPv6 addresses go with a link that is lowered.
fn raise_again(node: &Node) {
    node.on_fabric(|socket| {
        let index = socket.index_of(&name("ens5")).unwrap();
        for address in ["2603:c020:0:33::1/64", "fe80::200:17ff:fe00:1/64"] {
            let address = Address { nodad: true, ..Address::new(index, address.parse().unwrap()) };
            socket.replace_address(&address).unwrap();
        }
    });
}

/// With what it knows of its neighbours, or it would go on for a while.
const MUTE: [&str; 2] = ["-6 addr flush dev ens5 scope link", "-6 neigh flush dev ens5"];

fn link_locals(socket: &mut Socket) -> Vec<String> {
    let index = socket.index_of(&name("ens5")).unwrap();
    let all = socket.addresses(Some(index)).unwrap().into_iter().map(|it| it.address.to_string());
    all.filter(|address| address.starts_with("fe80:")).collect()
}

/// For what is forwarded the kernel asks for the router from such an address only.
#[test]
fn lost_link_local_address_of_a_vnic_link_is_restored() {
    let (node, agent, pod) = node_with_a_pod();
    let flush = || MUTE.iter().for_each(|arguments| ip(&node, arguments));
    mended((&node, &agent, &pod), flush, "its link-local address", |socket| {
        link_locals(socket) == ["fe80::17ff:fe00:21/64"]
    });
}

/// NetworkManager leaves the links so that it raises and has no profile for.
#[test]
fn vnic_link_without_kernel_link_local_address_gets_one() {
    let node = dual_stack_node();
    ip(&node, "link set ens5 addrgenmode none");
    MUTE.iter().for_each(|arguments| ip(&node, arguments));
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    assert_eq!(node.on(link_locals), ["fe80::17ff:fe00:21/64"]);
    Pod::add(&node, "a").wait_connected();
}

#[test]
fn foreign_link_local_address_suffices_and_stays() {
    let node = dual_stack_node();
    ip(&node, "link set ens5 addrgenmode none");
    MUTE.iter().for_each(|arguments| ip(&node, arguments));
    ip(&node, "link set ens5 up");
    ip(&node, "-6 addr add fe80::77/64 dev ens5 nodad");
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    Pod::add(&node, "a").wait_connected();
    node.wait_timer_passes(&agent, 2);
    assert_eq!(node.on(link_locals), ["fe80::77/64"]);
}

#[test]
fn renamed_vnic_link_is_followed() {
    let (node, agent, pod) = node_with_a_pod();
    let whole = left(&node);
    ip(&node, "link set ens5 down");
    ip(&node, "link set ens5 name storage0");
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
        ip(&node, "link del ens5");
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

#[test]
fn detached_vnic_leaves_nothing_and_affects_no_other() {
    let node = dual_stack_node();
    node.plug("ens6", 34);
    node.metadata.set_vnics(vec![vnic("primary", 10), dual_stack("pods", 33), vnic("late", 34)]);
    node.publish_dual_stack(&[("pods", 33), ("late", 34)]);
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    let pod = Pod::add(&node, "a");
    assert!(node.rules(Family::Ipv4).contains(&"1537 10.0.34.7/32 all 1001".into()));
    ip(&node, "link del ens6");
    node.metadata.set_vnics(vec![vnic("primary", 10), dual_stack("pods", 33)]);
    node.publish_dual_stack(&[("pods", 33)]);
    let gone = || !node.rules(Family::Ipv4).iter().any(|rule| rule.ends_with("1001"));
    wait_for("its rules to go", gone, || format!("{:?}\n{}", node.rules(Family::Ipv4), agent.log()));
    wait_for("no condition to stay", || node.conditions().is_empty(), || format!("{:?}", node.conditions()));
    assert_eq!(node.pools()["vnics"].as_array().unwrap().len(), 1);
    pod.wait_connected();
}

/// Its link goes before the metadata service's list shortens.
#[test]
fn detached_vnic_raises_no_condition() {
    let node = dual_stack_node();
    node.plug("ens6", 34);
    let listed = [vnic("primary", 10), dual_stack("pods", 33)];
    node.metadata.set_vnics([&listed[..], &[vnic("late", 34)]].concat());
    let mut agent = node.agent(&["--detach-grace-seconds", "600"]);
    node.wait_ready(&mut agent);
    ip(&node, "link del ens6");
    let is_missing = || node.run(&["status"]).1.contains("LinkMissing");
    wait_for("its state", is_missing, || agent.log());
    node.wait_timer_passes(&agent, 1);
    node.metadata.set_vnics(listed.to_vec());
    node.wait_timer_passes(&agent, 3);
    assert_eq!((node.conditions(), agent.events("condition.raised").len()), (vec![], 0), "{}", agent.log());
}

/// With a VNIC that is detached its device goes, and OKE no longer names it. A list may be short for any other reason.
#[test]
fn unlisted_vnic_with_a_link_carries_its_pods() {
    let node = dual_stack_node();
    let mut agent = node.agent(&[]);
    node.wait_ready(&mut agent);
    let pod = Pod::add(&node, "a");
    pod.wait_connected();
    let rules = || [Family::Ipv4, Family::Ipv6].map(|family| (node.rules(family), node.routes(family, 1000)));
    let (whole, offered) = (rules(), node.pools()["vnics"].clone());
    node.metadata.set_vnics(vec![vnic("primary", 10)]);
    // Beyond the grace.
    wait_for("the report", || node.conditions() == ["VnicNotListed"], || format!("{:?}", node.conditions()));
    node.wait_timer_passes(&agent, 3);
    assert_eq!(
        (rules(), &node.pools()["vnics"], node.get("/readyz").0),
        (whole.clone(), &offered, 200),
        "{}",
        agent.log()
    );
    pod.wait_connected();
    agent.stop();

    // One that never saw it listed does not know what it is, and leaves what is there.
    let mut agent = node.agent(&[]);
    wait_for("the condition again", || node.conditions().contains(&"VnicNotListed".into()), || agent.log());
    node.wait_timer_passes(&agent, 3);
    assert_eq!(rules(), whole, "{}", agent.log());
    pod.wait_connected();
    node.metadata.set_vnics(vec![vnic("primary", 10), dual_stack("pods", 33)]);
    node.wait_ready(&mut agent);
    assert_eq!(rules(), whole);
}

#[test]
fn first_list_without_the_primary_vnic_is_rejected() {
    let node = dual_stack_node();
    let before = node.on(|socket| socket.link(&name("ens5")).unwrap());
    node.metadata.set_vnics(vec![dual_stack("pods", 33)]);
    let mut agent = node.agent(&[]);
    let told = || node.get("/readyz").1.contains("not the one of this host's default route (02:00:17:00:00:0a)");
    wait_for("the reason", told, || format!("{:?}\n{}", node.get("/readyz"), agent.log()));
    assert_eq!(node.on(|socket| socket.link(&name("ens5")).unwrap()), before);
    node.metadata.set_vnics(vec![vnic("primary", 10), dual_stack("pods", 33)]);
    node.wait_ready(&mut agent);
    assert_eq!(node.routes(Family::Ipv4, 1000).len(), 2);
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
    let mut agent = node.agent(&["--pod-network", "none"]);
    wait_for("its condition", || node.conditions() == ["LinkMissing"], || agent.log());
    agent.stop();
    let mut agent = node.agent(&["--pod-network", "none", "--bm-port-1", "ens6"]);
    let rules = || node.rules(Family::Ipv4);
    wait_for("its rule", || rules() == ["1537 10.0.34.7/32 all 1000"], || format!("{:?}\n{}", rules(), agent.log()));
    wait_for("no condition", || node.conditions().is_empty(), || agent.log());
    // The primary VNIC is known by its port, too.
    node.metadata.set_vnics(vec![untagged("primary", 11, 0), untagged("second", 34, 1)]);
    let missing = || node.conditions().contains(&"PrimaryLinkMissing".to_owned());
    node.on(|socket| {
        let mac = LinkChange::Mac("02:00:17:00:00:63".parse().unwrap());
        socket.change_link_named(&name("ens3"), &[mac]).unwrap();
    });
    wait_for("its condition", missing, || format!("{:?}\n{}", node.conditions(), agent.log()));
    agent.stop();
    let agent = node.agent(&["--pod-network", "none", "--bm-port-1", "ens6", "--bm-port-0", "ens3"]);
    wait_for("its end", || !missing(), || format!("{:?}\n{}", node.conditions(), agent.log()));
}
