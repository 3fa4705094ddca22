//! DEL in whatever circumstances: no namespace or another one, another configuration, nothing known of the pod.

use std::os::fd::OwnedFd;

use host_harness::{Families, PATIENCE, assert_success, name, sh, within};
use ipam::VnicPool;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::read;
use serde_json::Value;

use crate::node::{Node, Pod, host_link};

/// DEL of a pod with another namespace's path, or none.
fn del_with(node: &Node, id: &str, netns: &str, conf: &Value) {
    let environment = [("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", id), ("CNI_NETNS", netns)];
    assert_success(&node.call(&environment, conf));
}

fn assert_nothing_left(node: &Node, before: &[String], case: &str) {
    assert_eq!(node.snapshot(), before, "{case}");
    assert!(node.held() == 0, "{case}");
}

#[test]
fn del_keeps_other_pod_when_netns_path_leads_to_it() {
    let node = Node::new(Families::Dual);
    let before = node.snapshot();
    let (gone, other) = (Pod::new("gone"), Pod::new("other"));
    node.add(&gone);
    node.add(&other);
    // The other pod's link has the same name, in the namespace that the path leads to now.
    let links = sh(&other.netns, "ip -o link");
    for _ in 0..2 {
        del_with(&node, "gone", other.path().to_str().unwrap(), &node.conf("1.0.0"));
        assert!(other.reaches("10.0.1.1") && other.reaches("2001:db8:1::1"));
        assert_eq!(sh(&other.netns, "ip -o link"), links);
    }
    assert_eq!(node.held(), 1);
    node.del(&other);
    assert_nothing_left(&node, &before, "both gone");
}

#[test]
fn no_namespace_no_previous_result_and_any_version_are_enough() {
    let node = Node::new(Families::Dual);
    let before = node.snapshot();
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        for netns in ["", "/run/netns/gone", "/dev/null", "/proc/self/ns/net"] {
            node.add(&Pod::new("a"));
            del_with(&node, "a", netns, &node.conf(version));
            assert_nothing_left(&node, &before, &format!("{version} {netns:?}"));
        }
    }
}

#[test]
fn del_removes_everything_when_netns_is_gone() {
    let node = Node::new(Families::Dual);
    let before = node.snapshot();
    let pod = Pod::new("a");
    let host_end = host_link(&node.add(&pod));
    drop(pod);
    // The kernel takes a namespace down some time after its last holder went, and the link with it.
    let gone = || node.in_host(|socket| socket.link(&name(&host_end)).is_err_and(|error| error.is_not_found()));
    assert!(within(PATIENCE, gone), "the link goes with the namespace");
    del_with(&node, "a", "", &node.conf("1.0.0"));
    assert_nothing_left(&node, &before, "DEL");
}

#[test]
fn del_succeeds_and_keeps_foreign_link_with_our_name() {
    let node = Node::new(Families::Dual);
    let before = node.snapshot();
    let pod = Pod::new("a");
    let host_end = host_link(&node.add(&pod));
    // While the pod is on record, and after an ADD that failed for it.
    for _ in 0..2 {
        node.sh(&format!("ip link del {host_end}; ip link add {host_end} type bridge"));
        node.del(&pod);
        assert_eq!(node.refusal("ADD", &pod).0, 103);
    }
    node.del(&pod);
    node.sh(&format!("ip link del {host_end}"));
    assert_nothing_left(&node, &before, "both");
}

/// What other programs, network managers for example, do to a pod's network (`VETH` is its host end), to its record and to
/// its VNICs. That CHECK names each is in `check.rs`.
#[test]
fn del_leaves_nothing_of_a_network_that_was_changed() {
    for change in [
        "host: ip link set VETH alias mine",
        "pod: ip link del eth0",
        // As systemd-networkd does at its start with ManageForeignRoutingPolicyRules=yes.
        "host: ip link set VETH address 02:00:00:00:be:ef; for family in -4 -6; do ip $family rule del pref 1536; \
               ip $family route flush table 999; done",
        // The record alone is left.
        "host: ip rule del pref 1536; ip -6 rule del pref 1536; ip link del VETH; \
               ip neigh del proxy 10.0.0.8 dev ens5; ip neigh del proxy 2001:db8::8 dev ens5",
        "state: rm pools.json",
        "state: echo { >pools.json",
        "state: rm pools.json; mkdir pools.json",
        // Neither record nor pools are left.
        "state: rm -r pools.json allocations.json allocations",
        "state: rm pools.json; echo { >allocations.json",
    ] {
        let node = Node::new(Families::Dual);
        let (before, pod) = (node.snapshot(), Pod::new("a"));
        let link = host_link(&node.add(&pod));
        let (place, script) = change.split_once(": ").unwrap();
        match place {
            "pod" => sh(&pod.netns, script),
            "state" => node.sh(&format!("cd {}; {script}", node.state.path().display())),
            _ => node.sh(&script.replace("VETH", &link)),
        };
        node.del(&pod);
        assert_nothing_left(&node, &before, change);
    }
}

#[test]
fn del_succeeds_when_vnic_link_is_gone() {
    let node = Node::new(Families::Dual);
    let (before, pod) = (node.snapshot(), Pod::new("a"));
    node.add(&pod);
    node.sh("ip link del ens5");
    node.del(&pod);
    let left: Vec<_> = node.snapshot().into_iter().filter(|line| !before.contains(line)).collect();
    assert!(left.is_empty() && node.held() == 0, "{left:#?}");
}

/// Of a private mount of /sys, which shows the links of the namespace it was mounted in. 3 is NET_ADDR_SET: systemd-udevd's
/// MACAddressPolicy applies to addresses that the kernel made up (1, NET_ADDR_RANDOM) only.
#[test]
fn host_end_address_counts_as_set_so_udev_keeps_it() {
    let (node, pod) = (Node::new(Families::V4), Pod::new("a"));
    let link = host_link(&node.add(&pod));
    let look = format!("mount -t sysfs sysfs /sys && cat /sys/class/net/{link}/addr_assign_type");
    assert_eq!(node.sh(&format!("unshare --mount sh -ec '{look}'")).trim(), "3");
}

/// A change of the pools, and what it is called.
type Change = (&'static str, fn(&mut Vec<VnicPool>));

#[test]
fn pools_that_changed_meanwhile_are_no_obstacle() {
    let changes: [Change; 5] = [
        ("no VNIC is left", Vec::clear),
        ("the VNIC's link has another name", |vnics| vnics.iter_mut().for_each(|vnic| vnic.link = name("ens9"))),
        ("the VNIC has another table", |vnics| vnics.iter_mut().for_each(|vnic| vnic.table.0 += 10)),
        ("the VNIC is for something else", |vnics| {
            vnics.iter_mut().for_each(|vnic| vnic.purpose = vcn::Purpose::Host);
        }),
        ("the VNIC has other addresses", |vnics| {
            let pool = vnics[0].families.ipv4.as_mut().unwrap();
            pool.addresses = vec!["10.9.9.0/29".parse().unwrap()];
        }),
    ];
    for (case, change) in changes {
        let node = Node::new(Families::Dual);
        let before = node.snapshot();
        let pod = Pod::new("a");
        node.add(&pod);
        node.change_pools(change);
        node.del(&pod);
        assert_nothing_left(&node, &before, case);
    }
}

/// The kernel frees a link some 15 ms after it is gone, and a program waits for that, which must have none of our files open.
#[test]
fn del_releases_streams_and_lock_before_it_exits() {
    let node = Node::new(Families::V4);
    let store = node.store();
    let (pod, key) = (Pod::new("pod"), "vcn-native/pod/eth0".parse().unwrap());
    for round in 0..20 {
        node.add(&pod);
        let mut del = node.start("DEL", &pod, &node.conf("1.1.0"));
        assert!(del.wait().unwrap().success());
        assert!(store.try_attachment(&key).unwrap().is_some(), "round {round}: the lock is taken");
        for stream in [OwnedFd::from(del.stdout.take().unwrap()), del.stderr.take().unwrap().into()] {
            fcntl(&stream, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
            assert_eq!(read(&stream, &mut [0; 64]), Ok(0), "round {round}: the stream has no end");
        }
    }
}
