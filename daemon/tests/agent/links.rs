//! What happens to the links of VNICs: each time the pods on them are connected again, judged by packets.

use std::process::Command;
use std::time::Duration;

use netlink::{Address, LinkChange, Socket};
use vcn::{Family, MacAddr, Mtu};

use crate::aftercare::{dual_stack_node, raise_neighbour};
use crate::metadata::{dual_stack, vnic};
use crate::node::{Agent, Node, name, wait_for};
use crate::pod::Pod;
use crate::pods::left;

/// So that only events can be the cause of what is seen within seconds.
fn node_with_a_pod() -> (Node, Agent, Pod) {
    let node = dual_stack_node();
    let mut agent = node.agent(&["--resync-seconds", "600"]);
    node.wait_ready(&mut agent);
    let pod = Pod::add(&node, "a");
    wait_for("the pod to be connected", || pod.is_connected(), || agent.log());
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
fn mended(what: &str, (node, agent, pod): (&Node, &Agent, &Pod), whole: impl Fn(&mut Socket) -> bool + Send + Sync) {
    let took = wait_for(what, || node.on(|socket| whole(socket)), || agent.log());
    println!("{what}: {took:?}");
    assert!(took < Duration::from_secs(1), "{what} took {took:?}");
    wait_for("the pod to be connected again", || pod.is_connected(), || agent.log());
    wait_for("no condition to stay", || node.conditions().is_empty(), || agent.log());
}

#[test]
fn a_vnics_link_that_somebody_gave_another_ethernet_address_gets_its_own_back() {
    let (node, agent, pod) = node_with_a_pod();
    let mac = MacAddr([2, 0, 0x17, 0, 0, 33]);
    change(&node, "ens5", LinkChange::Mac(MacAddr([2, 0, 0, 0, 0, 9])));
    mended("the address", (&node, &agent, &pod), |socket| socket.link(&name("ens5")).unwrap().mac == Some(mac));
    assert_eq!(node.pools()["vnics"][0]["mac"], mac.to_string());
    assert_eq!(node.routes(Family::Ipv4, 1000).len(), 2);
}

#[test]
fn a_vnics_link_that_somebody_gave_another_mtu_gets_its_own_back() {
    let (node, agent, pod) = node_with_a_pod();
    change(&node, "ens5", LinkChange::Mtu(Mtu(1500)));
    mended("the MTU", (&node, &agent, &pod), |socket| socket.link(&name("ens5")).unwrap().mtu == Mtu::VCN);
}

#[test]
fn a_vnics_link_that_flaps_carries_its_pods_again() {
    let (node, agent, pod) = node_with_a_pod();
    for _ in 0..5 {
        change(&node, "ens5", LinkChange::Down);
        change(&node, "ens5", LinkChange::Up);
    }
    change(&node, "ens5", LinkChange::Down);
    mended("the link", (&node, &agent, &pod), |socket| socket.link(&name("ens5")).unwrap().up);
    assert_eq!(node.routes(Family::Ipv4, 1000).len(), 2);
    assert!(node.routes(Family::Ipv6, 1000).contains(&"::/0 fe80::200:17ff:fe00:1".into()));
}

/// The other side of the link loses and regains its carrier, as when a switch port flaps.
#[test]
fn a_vnics_link_whose_carrier_flaps_carries_its_pods_again() {
    let (node, agent, pod) = node_with_a_pod();
    let far =
        |change: LinkChange<'_>| node.on_fabric(|socket| socket.change_link_named(&name("ens5"), &[change]).unwrap());
    far(LinkChange::Down);
    far(LinkChange::Up);
    raise_again(&node);
    mended("the link", (&node, &agent, &pod), |socket| socket.link(&name("ens5")).unwrap().running);
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

#[test]
fn a_vnics_link_that_was_renamed_is_followed() {
    let (node, agent, pod) = node_with_a_pod();
    let whole = left(&node);
    ip(&node, "link set ens5 down");
    ip(&node, "link set ens5 name storage0");
    let followed = || node.pools()["vnics"][0]["link"] == "storage0";
    let took = wait_for("the pools to follow", followed, || agent.log());
    assert!(took < Duration::from_secs(1), "{took:?}");
    mended("the link", (&node, &agent, &pod), |socket| socket.link(&name("storage0")).unwrap().up);
    assert_eq!(node.sysctl("net/ipv4/conf/storage0/rp_filter"), "2");
    // With the link's carrier went what answers for the pod.
    wait_for("the pod's proxies", || left(&node) == whole, || format!("{:#?} of {whole:#?}", left(&node)));
    let (_, attachments) = node.run(&["attachments"]);
    assert!(!attachments.contains("cut off"), "{attachments}");
    // And so do pods made from now on.
    let new = Pod::add(&node, "b");
    wait_for("a new pod to be connected", || new.is_connected(), || agent.log());
}

#[test]
fn a_vnic_that_is_unplugged_leaves_the_pools_at_once_and_comes_back_as_it_was() {
    let (node, agent, pod) = node_with_a_pod();
    let pools = node.pools();
    ip(&node, "link del ens5");
    let withdrawn = || node.pools()["vnics"].as_array().is_some_and(Vec::is_empty);
    let took = wait_for("the pools to be withdrawn", withdrawn, || agent.log());
    assert!(took < Duration::from_secs(1), "{took:?}");
    wait_for("the reason", || node.conditions().contains(&"LinkMissing".into()), || format!("{:?}", node.conditions()));
    assert!(node.pools()["reason"].as_str().unwrap().contains("LinkMissing"), "{}", node.pools());
    assert_eq!(node.get("/readyz").0, 503);
    node.plug("ens5", 33);
    raise_neighbour(&node);
    mended("the link", (&node, &agent, &pod), |socket| socket.link(&name("ens5")).unwrap().up);
    assert_eq!(node.pools(), pools);
    assert_eq!(node.get("/readyz").0, 200);
}

#[test]
fn a_vnic_that_is_detached_for_good_leaves_nothing_and_touches_no_other() {
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
    assert!(pod.is_connected());
}

#[test]
fn a_first_list_without_the_primary_vnic_is_not_believed() {
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
