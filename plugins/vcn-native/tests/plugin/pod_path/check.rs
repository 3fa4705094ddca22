//! CHECK names each single broken thing, and nothing when nothing is.

use crate::node::{Node, Pod, host_link};
use host_harness::{Families, assert_success, error_of, name, reaches, sh};
use serde_json::Value;
use vcn::Mtu;

/// A dual-stack pod on a node, and the configuration of its CHECK.
struct CheckedPod {
    node: Node,
    pod: Pod,
    conf: Value,
    host_link: String,
}

impl CheckedPod {
    fn new() -> Self {
        let (node, pod) = (Node::new(Families::Dual), Pod::new("a"));
        let conf = node.add_to_check(&pod);
        let checked = Self { host_link: host_link(&conf["prevResult"]), node, pod, conf };
        checked.assert_sound();
        checked
    }

    fn assert_sound(&self) {
        assert_success(&self.node.cni("CHECK", &self.pod, &self.conf));
    }

    /// CHECK names this, alone.
    fn assert_names(&self, named: &str) {
        let text = self.refusal();
        assert!(text.contains(&named.replace("VETH", &self.host_link)) && text.contains("in 1 respect(s)"), "{text}");
    }

    fn refusal(&self) -> String {
        let (code, text) = error_of(&self.node.cni("CHECK", &self.pod, &self.conf));
        assert_eq!(code, 107, "{text}");
        text
    }
}

/// Breaks one thing by `command` (`VETH` is the host end) and wants CHECK to name it, alone.
pub(crate) fn broken(inside: bool, command: &str, named: &str) {
    let checked = CheckedPod::new();
    let netns = if inside { &checked.pod.netns } else { &checked.node.host };
    sh(netns, &command.replace("VETH", &checked.host_link));
    println!("{command}");
    checked.assert_names(named);
}

/// A pod keeps the MTU that it was added with: what new pods get is another matter. So is the setting of one link where that of
/// all links is looser.
#[test]
fn check_ignores_mtu_change_after_add_and_overruled_setting() {
    let mut checked = CheckedPod::new();
    checked.node.sh("cd /proc/sys/net/ipv4/conf; echo 1 >ens5/rp_filter; echo 2 >all/rp_filter");
    checked.assert_sound();
    checked.node.change_pools(|vnics| vnics.iter_mut().for_each(|vnic| vnic.mtu = Mtu(1500)));
    checked.assert_sound();
    checked.conf["mtu"] = 1400.into();
    checked.assert_sound();
}

#[test]
fn everything_in_the_pod_that_can_break_is_named() {
    for (command, named) in [
        ("ip -6 addr del 2001:db8::8/128 dev eth0", "pod: addr add 2001:db8::8/128 dev eth0"),
        ("ip route del default", "pod: route add default via 169.254.1.1 dev eth0 proto 157"),
        ("ip -6 route del default", "pod: route add default via fe80::1 dev eth0 proto 157"),
        (
            "ip route replace default via 169.254.1.1 dev eth0 proto 157 onlink; ip route del 169.254.1.1",
            "pod: route add 169.254.1.1 dev eth0 proto 157",
        ),
        ("ip neigh del 169.254.1.1 dev eth0", "pod: neigh add 169.254.1.1 lladdr"),
        (
            "ip neigh replace fe80::1 lladdr 02:00:00:00:00:99 dev eth0 nud permanent",
            "pod: neigh replace fe80::1 lladdr",
        ),
        ("ip link set eth0 mtu 9100", "pod: link set eth0"),
        ("ip addr add 10.9.9.9/32 dev eth0; ip addr del 10.0.0.8/32 dev eth0", "pod: addr add 10.0.0.8/32 dev eth0"),
    ] {
        broken(true, command, named);
    }
}

#[test]
fn everything_on_the_host_that_can_break_is_named() {
    for (command, named) in [
        ("ip link set VETH mtu 1400", "link set VETH"),
        ("ip link set VETH address 02:00:00:00:00:99", "link set VETH"),
        ("ip link set VETH alias another", "link set VETH alias"),
        ("ip route del 10.0.0.8 table 999", "route add 10.0.0.8 dev VETH table 999 proto 157"),
        ("ip -6 route del 2001:db8::8 table 999", "route add 2001:db8::8 dev VETH table 999 proto 157"),
        ("ip neigh del proxy 169.254.1.1 dev VETH", "neigh add proxy 169.254.1.1 dev VETH"),
        ("ip -6 addr del fe80::1/128 dev VETH", "addr add fe80::1/128 dev VETH"),
        (
            "ip neigh add 10.0.0.8 lladdr 02:00:00:00:00:77 nud permanent dev VETH",
            "VETH has another program's permanent neighbour 10.0.0.8 with an Ethernet address that is not the pod's: neigh del 10.0.0.8 dev VETH",
        ),
        ("ip neigh del proxy 10.0.0.8 dev ens5", "neigh add proxy 10.0.0.8 dev ens5"),
        ("ip -6 neigh del proxy 2001:db8::8 dev ens5", "neigh add proxy 2001:db8::8 dev ens5"),
        ("ip rule del pref 1536 from 10.0.0.8", "rule add pref 1536 from 10.0.0.8 lookup 1001"),
        ("ip -6 rule del pref 1536 from 2001:db8::8", "rule add pref 1536 from 2001:db8::8 lookup 1001"),
        ("ip rule del pref 512", "rule add pref 512 from all lookup 999 suppress_prefixlength 31"),
        ("ip -6 rule del pref 512", "rule add pref 512 from ::/0 lookup 999 suppress_prefixlength 127"),
        (
            "ip rule del pref 512; ip rule add pref 512 lookup 998 proto 157",
            "rule add pref 512 from all lookup 999 suppress_prefixlength 31",
        ),
        (
            "ip -6 rule del pref 512; ip -6 rule add pref 512 lookup 998 proto 157",
            "rule add pref 512 from ::/0 lookup 999 suppress_prefixlength 127",
        ),
        ("ip route del default table 1001", "route add default via 10.0.0.1 dev ens5 table 1001"),
        ("ip -6 route del 2001:db8::1 table 1001", "route add 2001:db8::1 dev ens5 table 1001"),
        ("echo 0 >/proc/sys/net/ipv4/conf/ens5/forwarding", "sysctl net/ipv4/conf/ens5/forwarding=1"),
        ("echo 0 >/proc/sys/net/ipv4/conf/VETH/forwarding", "sysctl net/ipv4/conf/VETH/forwarding=1"),
        (
            "echo 1 >/proc/sys/net/ipv4/conf/ens5/rp_filter; echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter",
            "sysctl net/ipv4/conf/ens5/rp_filter=2",
        ),
        (
            "echo 0 >/proc/sys/net/ipv4/conf/ens5/rp_filter; echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter",
            "sysctl net/ipv4/conf/ens5/rp_filter=2",
        ),
        (
            "ip addr add 10.0.0.8/24 dev ens6 noprefixroute",
            "the host has the pod's address itself, on ens6: addr del 10.0.0.8/24 dev ens6",
        ),
        (
            "ip addr add 2001:db8::8/128 dev lo",
            "the host has the pod's address itself, on lo: addr del 2001:db8::8/128 dev lo",
        ),
        ("ip link set VETH arp off", "VETH has ARP switched off: link set VETH arp on"),
        (
            "ip link set ens5 address 02:00:17:00:00:01; ip -6 addr flush dev ens5 scope link",
            "ens5, the link of the pod's VNIC, has no IPv6 link-local address to resolve its router from: addr add \
             fe80::17ff:fe00:1/64 dev ens5 nodad",
        ),
        ("ip link set ens5 arp off", "ens5 has ARP switched off: link set ens5 arp on"),
        ("echo 0 >/proc/sys/net/ipv6/conf/ens5/proxy_ndp", "sysctl net/ipv6/conf/ens5/proxy_ndp=1"),
    ] {
        broken(false, command, named);
    }
}

/// The kernel answers for a pod by NDP only on a link that forwards itself, whatever the host as a whole does.
#[test]
fn check_names_disabled_ipv6_forwarding_and_its_fix_restores_pods() {
    let checked = CheckedPod::new();
    let setting = "net/ipv6/conf/ens5/forwarding";
    checked.node.sh(&format!("echo 0 >/proc/sys/{setting}; [ $(cat /proc/sys/net/ipv6/conf/all/forwarding) = 1 ]"));
    // No link answers for the pod.
    sh(&checked.node.routers[0], "! ping -n -c 3 -i 0.3 -W 1 2001:db8::8");
    checked.assert_names(&format!("sysctl {setting}=1 (was 0)"));
    checked.node.sh(&format!("echo 1 >/proc/sys/{setting}"));
    assert!(reaches(&checked.node.routers[0], "2001:db8::8"));
    checked.assert_sound();
}

/// It is not answered from while it is being checked for duplicates, which goes on for an hour here.
#[test]
fn an_address_of_the_pod_that_is_tentative_is_named() {
    let setting = "/proc/sys/net/ipv6/conf/eth0";
    broken(
        true,
        &format!(
            "echo 1 >{setting}/accept_dad; echo 3600 >{setting}/dad_transmits
             ip -6 addr del 2001:db8::8/128 dev eth0; ip -6 addr add 2001:db8::8/128 dev eth0"
        ),
        "pod: addr add 2001:db8::8/128 dev eth0",
    );
}

#[test]
fn a_vnic_into_which_nothing_is_plugged_is_named() {
    let checked = CheckedPod::new();
    sh(&checked.node.routers[0], "ip link set port down");
    let text = checked.refusal();
    assert!(text.contains("ens5, the link of the pod's VNIC, has no carrier"), "{text}");
    sh(&checked.node.routers[0], "ip link set port up");
    checked.node.sh("ip -6 route replace 2001:db8::1 dev ens5 table 1001 proto static");
    checked.assert_sound();
}

/// The plugin's part of a node is whole without an agent, so these are missed only where one has been.
#[test]
fn check_names_missing_agent_rule_only_when_its_sibling_exists() {
    for family in ["-4", "-6"] {
        let metadata = if family == "-4" { "169.254.169.254" } else { "fd00:c1::a9fe:a9fe" };
        let rules = [
            format!("pref 1000 to {metadata} lookup main proto 157"),
            "pref 1024 fwmark 0x1000/0x1046 lookup main proto 157".into(),
        ];
        let named = [
            format!("rule add pref 1000 from all to {metadata} lookup main"),
            "fwmark 0x1000/0x1046 lookup main".into(),
        ];
        let checked = CheckedPod::new();
        for rule in &rules {
            checked.node.sh(&format!("ip {family} rule add {rule}"));
        }
        checked.assert_sound();
        for (rule, named) in rules.iter().zip(named) {
            checked.node.sh(&format!("ip {family} rule del {rule}"));
            checked.assert_names(&named);
            checked.node.sh(&format!("ip {family} rule add {rule}"));
        }
    }
}

/// Nothing of it would pass the fabric. A bare metal port may have its own, and the pools say of which VNIC that is so.
#[test]
fn check_names_foreign_link_mac_only_when_pools_require_it() {
    let checked = CheckedPod::new();
    checked.node.sh("ip link set ens5 address 02:00:17:00:00:99");
    checked.assert_sound();
    checked.node.change_pools(|vnics| vnics.iter_mut().for_each(|vnic| vnic.link_has_mac = true));
    checked.assert_names("link set ens5 address 02:00:17:00:00:01 up (was ens5 address 02:00:17:00:00:99");
    checked.node.sh("ip link set ens5 address 02:00:17:00:00:01");
    checked.assert_sound();
}

/// With what goes with it.
#[test]
fn missing_changed_lowered_or_mute_links_are_named() {
    for (inside, command, named) in [
        (true, "ip link set eth0 down", "pod: link set eth0"),
        (true, "ip link set eth0 arp off", "pod: eth0 has ARP switched off: link set eth0 arp on"),
        (true, "ip link set eth0 address 02:00:00:00:00:99", "pod: link set eth0 address"),
        (true, "ip link del eth0", "link add VETH"),
        (false, "ip link set VETH down", "link set VETH"),
        (false, "ip link set ens5 down", "link set ens5"),
    ] {
        let checked = CheckedPod::new();
        let netns = if inside { &checked.pod.netns } else { &checked.node.host };
        sh(netns, &command.replace("VETH", &checked.host_link));
        let text = checked.refusal();
        assert!(text.contains(&named.replace("VETH", &checked.host_link)), "{command}: {text}");
        // The neighbour entries of both families at the host end name it.
        assert!(!named.ends_with("address") || text.contains("in 3 respect(s)"), "{text}");
    }
}

#[test]
fn check_accepts_changes_recorded_in_the_chain_result() {
    let mut checked = CheckedPod::new();
    sh(&checked.pod.netns, "ip link set eth0 address 02:00:00:00:00:99; ip route del default");
    checked.conf["prevResult"]["interfaces"][1]["mac"] = "02:00:00:00:00:99".into();
    checked.conf["prevResult"]["routes"] = serde_json::json!([{"dst": "::/0", "gw": "fe80::1"}]);
    checked.assert_sound();
    // And a pod whose Ethernet address was changed is reached all the same.
    sh(&checked.pod.netns, "ip route add default via 169.254.1.1 dev eth0");
    assert!(reaches(&checked.node.routers[0], "10.0.0.8"));
    assert!(reaches(&checked.node.routers[0], "2001:db8::8"));
}

#[test]
fn another_namespace_another_address_and_a_vanished_vnic_are_contradictions() {
    let mut checked = CheckedPod::new();
    let other = Pod { netns: Pod::new("b").netns, id: "a".to_owned() };
    let (code, text) = error_of(&checked.node.cni("CHECK", &other, &checked.conf));
    assert!(code == 107 && text.contains("is another network namespace than the one ADD was given"), "{text}");

    let before = checked.conf["prevResult"]["ips"][0]["address"].take();
    checked.conf["prevResult"]["ips"][0]["address"] = "10.0.0.99/32".into();
    assert!(checked.refusal().contains("prevResult says that the pod has 10.0.0.99/32"));
    checked.conf["prevResult"]["ips"][0]["address"] = before;

    checked.node.change_pools(|vnics| vnics.retain(|vnic| vnic.link != name("ens5")));
    let text = checked.refusal();
    assert!(
        text.contains("10.0.0.8 is on VNIC ocid1.vnic.oc1.iad.v0, which is not among this node's any more"),
        "{text}"
    );
}

#[test]
fn check_rejects_another_sandbox_but_accepts_another_path_to_it() {
    let mut checked = CheckedPod::new();
    let named = tempfile::tempdir().unwrap();
    let same = named.path().join("same");
    std::os::unix::fs::symlink(checked.pod.path(), &same).unwrap();
    checked.conf["prevResult"]["interfaces"][1]["sandbox"] = same.to_str().into();
    checked.assert_sound();

    let other = Pod::new("b");
    let path = other.path();
    checked.conf["prevResult"]["interfaces"][1]["sandbox"] = path.to_str().into();
    checked.assert_names(&format!("prevResult says that eth0 is in {}", path.display()));
}

#[test]
fn a_pods_mtu_may_be_set_below_the_vnics() {
    let (node, pod) = (Node::new(Families::V4), Pod::new("a"));
    let mut conf = node.conf("1.1.0");
    conf["mtu"] = 1400.into();
    let result: Value = serde_json::from_slice(&node.cni("ADD", &pod, &conf).stdout).unwrap();
    assert_eq!(result["interfaces"][1]["mtu"], 1400);
    conf["prevResult"] = result;
    assert_success(&node.cni("CHECK", &pod, &conf));
    // A result of this version says what a later plugin made of it.
    sh(&pod.netns, "ip link set eth0 mtu 1300");
    let (code, text) = error_of(&node.cni("CHECK", &pod, &conf));
    assert!(code == 107 && text.contains("pod: link set eth0") && text.contains("in 1 respect(s)"), "{code} {text}");
    conf["prevResult"]["interfaces"][1]["mtu"] = 1300.into();
    assert_success(&node.cni("CHECK", &pod, &conf));
    conf["mtu"] = 100.into();
    let (code, text) = error_of(&node.cni("ADD", &Pod::new("b"), &conf));
    assert!(code == 6 && text.contains("an MTU of 100 is below 1280"), "{code} {text}");
}
