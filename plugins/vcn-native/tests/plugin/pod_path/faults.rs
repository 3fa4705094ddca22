//! What must hold when things are not as they should be: lost and damaged records, names that are taken, closed streams.

use std::fs;

use crate::node::{Families, Node, PATIENCE, Pod, error_of, within};
use ipam::{BootTime, Store};
use netlink::{LinkKind, NewLink, Peer, Socket, Sysctls};
use vcn::Family;

/// Leaves one address on one VNIC.
fn with_one_address(node: &Node) {
    let mut vnics = node.pools().vnics;
    vnics.truncate(1);
    vnics[0].families.ipv4.as_mut().unwrap().addresses = vec!["10.0.0.9/32".parse().unwrap()];
    node.write_pools(vnics);
}

fn record(node: &Node) -> std::path::PathBuf {
    node.state.path().join("allocations.json")
}

#[test]
fn pods_keep_network_when_index_is_lost_or_damaged() {
    for damage in [None, Some("{\"version\":1,")] {
        let node = Node::new(Families::Dual);
        let pods: Vec<_> = (0..3).map(|id| Pod::new(&format!("p{id}"))).collect();
        let before: Vec<_> = pods.iter().map(|pod| node.add(pod)["ips"].clone()).collect();
        match damage {
            None => fs::remove_file(record(&node)).unwrap(),
            Some(text) => fs::write(record(&node), text).unwrap(),
        }
        let late = Pod::new("late");
        assert!(!before.contains(&node.add(&late)["ips"]), "an address of its own");
        let goes_out = |pod: &Pod| within(PATIENCE, || pod.pings("10.0.0.1") || pod.pings("10.0.1.1"));
        assert!(pods.iter().chain([&late]).all(goes_out), "by the VNIC's table, so the rules are there");
        assert_eq!(node.allocations().allocations.len(), 4, "the record is whole again");
        assert_eq!(node.state.path().join("allocations.json.damaged").exists(), damage.is_some());
        // And with it, taking down works as ever.
        pods.iter().chain([&late]).for_each(|pod| node.del(pod));
        assert!(Family::ALL.into_iter().all(|family| node.pod_rules(family).is_empty()));
    }
}

#[test]
fn add_refuses_index_of_newer_format_by_name() {
    let node = Node::new(Families::V4);
    fs::write(record(&node), r#"{"version":2,"everything":"different"}"#).unwrap();
    let (code, text) = error_of(&node.cni("ADD", &Pod::new("a"), &node.conf("1.0.0")));
    assert!(code == 101 && text.contains("has format version 2"), "{text}");
}

#[test]
fn full_add_removes_expired_attachment_and_reuses_its_address() {
    let node = Node::new(Families::V4);
    with_one_address(&node);
    node.add(&Pod::new("killed"));
    // As if it had been killed just before it committed, and no DEL was ever sent.
    Store::new(node.state.path(), ipam::BootId::current().unwrap())
        .update(|held| {
            held.allocations[0].tentative_until = Some(BootTime(1));
            Ok::<_, ipam::Error>(())
        })
        .unwrap();
    let next = Pod::new("next");
    assert_eq!(node.add(&next)["ips"][0]["address"], "10.0.0.9/32");
    assert!(next.reaches("10.0.0.1"));
    node.del(&next);
    assert!(node.pod_rules(Family::Ipv4).is_empty());
}

#[test]
fn add_fails_when_netns_has_foreign_link_of_that_name() {
    let node = Node::new(Families::V4);
    node.add(&Pod::new("a"));
    let again = Pod::new("a");
    again
        .netns
        .run(|| {
            let peer = Peer { name: crate::node::name("other"), mac: None, mtu: None, netns: None };
            Socket::open().unwrap().add_link(&NewLink::new(crate::node::name("eth0"), LinkKind::Veth(peer))).unwrap();
        })
        .unwrap();
    let (code, text) = error_of(&node.cni("ADD", &again, &node.conf("1.0.0")));
    assert_eq!(code, 106, "{text}");
}

#[test]
fn ipv6_works_when_host_disables_it_for_new_links() {
    let node = Node::new(Families::Dual);
    let off = || Sysctls::new("/proc/sys".as_ref()).write(&["net", "ipv6", "conf", "default", "disable_ipv6"], "1");
    node.host.run(off).unwrap().unwrap();
    let pod = Pod::new("a");
    node.add(&pod);
    assert!(pod.reaches("2001:db8::1"));
}

#[test]
fn del_of_an_unreadable_record_without_link_still_leaves_nothing() {
    let node = Node::new(Families::V4);
    let (a, b) = (Pod::new("a"), Pod::new("b"));
    node.add(&a);
    node.add(&b);
    fs::write(record(&node), "{").unwrap();
    node.del(&a);
    assert!(b.reaches("10.0.1.1"), "the other pod is not touched");
    assert_eq!(node.pod_rules(Family::Ipv4).len(), 1);
}

#[test]
fn closed_stream_never_redirects_reply_into_a_state_file() {
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let node = Node::new(Families::V4);
        let pod = Pod::new("a");
        node.add(&Pod::new("before"));
        let held = fs::read(record(&node)).unwrap();
        let conf = node.state.path().join("conf");
        fs::write(&conf, node.conf("1.0.0").to_string()).unwrap();
        let netns = std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(&pod.netns));
        let script = format!(
            "CNI_COMMAND=ADD CNI_CONTAINERID=a CNI_IFNAME=eth0 CNI_NETNS=/proc/{}/fd/{netns} exec {} <{} {closed}",
            std::process::id(),
            env!("CARGO_BIN_EXE_vcn-native"),
            conf.display()
        );
        node.host.run(|| std::process::Command::new("sh").args(["-c", &script]).output().unwrap()).unwrap();
        let now = node.allocations();
        assert!(!now.allocations.is_empty() && fs::read(record(&node)).unwrap().starts_with(&held[..20]), "{closed}");
        assert!(node.pools().vnics.len() == 2);
        node.del(&pod);
        assert_eq!(node.allocations().allocations.len(), 1, "{closed}");
    }
}
