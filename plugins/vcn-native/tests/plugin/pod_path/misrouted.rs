//! CHECK names what leads a pod's packets elsewhere, by the kernel's own word.

use host_harness::{Families, assert_success, error_of, ip, sh};

use crate::node::{Node, Pod};
use crate::pod_path::check::broken;

/// Routes and rules of other programs that come before our own, each in its own family and direction.
#[test]
fn check_names_foreign_routes_and_rules_that_divert_pod_packets() {
    let to_pod = "packets from ens5 to 10.0.0.8";
    let to_pod6 = "packets from ens5 to 2001:db8::8";
    for (command, named) in [
        (
            "ip -6 route add blackhole 2001:db8::8 table 999 metric 1",
            format!("{to_pod6} are refused (Invalid argument), expected VETH: ip route get 2001:db8::8 from 2001:db8::1 iif ens5"),
        ),
        (
            "ip -6 route add unreachable 2001:db8::8 table 999 metric 1",
            format!("{to_pod6} are refused (No route to host), expected VETH:"),
        ),
        (
            "ip route prepend 10.0.0.8 dev ens6 table 999",
            format!("{to_pod} use ens6 (table 999), expected VETH: ip route get 10.0.0.8 from 10.0.0.1 iif ens5"),
        ),
        (
            "ip route prepend blackhole 10.0.0.8 table 999",
            format!("{to_pod} are refused (Invalid argument), expected VETH: ip route get 10.0.0.8 from 10.0.0.1 iif ens5"),
        ),
        (
            "ip rule add pref 500 iif ens5 to 10.0.0.8 lookup 1001",
            format!("{to_pod} use ens5 via 10.0.0.1 (table 1001), expected VETH:"),
        ),
        (
            "ip rule add pref 1535 from 10.0.0.8 lookup 1002",
            "packets from 10.0.0.8 use ens6 via 10.0.1.1 (table 1002), expected ens5 via 10.0.0.1: ip route get \
             192.0.2.157 from 10.0.0.8 iif VETH"
                .into(),
        ),
        (
            "ip -6 rule add pref 1535 from 2001:db8::8 lookup 1002",
            "packets from 2001:db8::8 use ens6 via 2001:db8:1::1 (table 1002), expected ens5 via 2001:db8::1: ip route \
             get 3fff:fff::9d from 2001:db8::8 iif VETH"
                .into(),
        ),
        (
            "ip route add 128.0.0.0/1 via 10.0.0.9 dev ens5 onlink table 1001",
            "packets from 10.0.0.8 use ens5 via 10.0.0.9 (table 1001), expected ens5 via 10.0.0.1:".into(),
        ),
        ("ip -6 rule add pref 1535 from 2001:db8::8 prohibit", "packets from 2001:db8::8 are refused (".into()),
    ] {
        broken(false, command, &named);
    }
}

#[test]
fn check_ignores_foreign_routes_to_single_destinations() {
    let (node, pod) = (Node::new(Families::Dual), Pod::new("a"));
    let conf = node.add_to_check(&pod);
    node.sh("ip addr add 203.0.113.157/32 dev lo; ip rule add pref 600 to 198.51.100.0/24 lookup 1002
         ip -6 route add unreachable 2001:db8:ffff::/48 table 1001");
    assert_success(&node.cni("CHECK", &pod, &conf));
}

/// As OCI's routers are: the kernel is queried for packets from a link-local address then.
#[test]
fn check_accepts_link_local_router_and_names_routes_bypassing_it() {
    let (node, pod) = (Node::new(Families::Dual), Pod::new("a"));
    sh(&node.routers[0], "ip -6 addr add fe80::a/64 dev port nodad");
    node.sh("ip -6 route add fe80::a dev ens5 table 1001; ip -6 route replace default via fe80::a dev ens5 table 1001");
    node.change_pools(|vnics| vnics[0].families.ipv6.as_mut().unwrap().router = ip("fe80::a"));
    let conf = node.add_to_check(&pod);
    assert_success(&node.cni("CHECK", &pod, &conf));
    assert!(pod.reaches("2001:db8::1"));
    node.sh("ip -6 route add 2000::/3 via fe80::b dev ens5 table 1001");
    let (code, text) = error_of(&node.cni("CHECK", &pod, &conf));
    let named = "packets from 2001:db8::8 use ens5 via fe80::b (table 1001), expected ens5 via fe80::a: ip route get";
    assert!(code == 107 && text.contains(named) && text.contains("in 1 respect(s)"), "{code} {text}");
}
