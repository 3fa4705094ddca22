//! A VNIC's link that we raised: lowered again if it is unused, and never while another program uses it.

use std::fs;
use std::os::unix::fs::symlink;

use super::kernel::Host;
use crate::node::{FLANNEL, Node};

/// A host whose VNIC link was down, like a hot-plugged one, before we installed.
fn raised_by_us() -> (Node, Host, String) {
    let (node, host) = (Node::installed(), Host::new());
    host.ip("link set ens5 down mtu 1500");
    let before = host.snapshot();
    host.populate(&node.path("lib"));
    assert_eq!(link(&host), "up 9000");
    (node, host, before)
}

fn link(host: &Host) -> String {
    let state = host.ip("-oneline link show ens5");
    let mtu = state.split(' ').skip_while(|word| *word != "mtu").nth(1).unwrap();
    format!("{} {mtu}", if state.contains(",UP") { "up" } else { "down" })
}

#[test]
fn link_that_we_raised_is_restored_if_unused() {
    let (node, host, before) = raised_by_us();
    let (code, printed) = node.uninstall(&host, &["--force", "--dry-run"]);
    // In this order: with forwarding, the kernel honors router advertisements only while accept_ra is 2.
    let settings = ["net/ipv6/conf/all/forwarding", "net/ipv6/conf/ens3/accept_ra", "link/ens5/mtu", "link/ens5/state"];
    let would = settings.map(|key| printed.find(&format!("would: restore {key} to ")));
    assert!(code == 0 && would.iter().all(Option::is_some) && would.is_sorted(), "{printed}");
    assert_eq!(link(&host), "up 9000");
    let (code, printed) = node.uninstall(&host, &["--force"]);
    assert!(code == 0 && !printed.contains("left: "), "{printed}");
    assert_eq!(host.snapshot(), before);
}

#[test]
fn link_that_another_program_uses_stays_up() {
    for (commands, why) in [
        (&["addr add 10.0.32.9/24 dev ens5"][..], "10.0.32.9/24 on the link is foreign"),
        (&["-6 addr add fe80::9/64 dev ens5 nodad"], "fe80::9/64 on the link is foreign"),
        (&["link add link ens5 name foreign type macvlan"], "foreign stands on the link"),
        (&["link add foreign type bridge", "link set ens5 master foreign"], "the link belongs to foreign"),
        (&["route add 10.5.0.0/16 dev ens5 table 77"], "there is a foreign route to 10.5.0.0/16 by the link"),
    ] {
        let (node, host, _) = raised_by_us();
        commands.iter().for_each(|command| drop(host.ip(command)));
        for how in [&["--force", "--dry-run"][..], &["--force"]] {
            let (code, printed) = node.uninstall(&host, how);
            let left = ["mtu", "state"].map(|key| format!("left: setting link/ens5/{key}: {why}\n"));
            assert!(code == 0 && left.iter().all(|line| printed.contains(line)), "{why}: {printed}");
            assert!(printed.contains("rule"), "our objects are removed all the same: {printed}");
        }
        assert_eq!(link(&host), "up 9000", "{why}");
        assert!(!host.ip("rule").contains("from 10.0.32.2"), "{}", host.ip("rule"));
        // With a link's last address the kernel drops foreign routes.
        let kept = host.ip("route show table all").contains("10.5.0.0/16");
        assert_eq!(host.ip("addr show ens5").contains("10.0.32.2/32"), kept, "{why}");
        assert_eq!(kept, why.starts_with("there is a foreign route"), "{why}");
    }
}

/// Interfaces of its pods are in other namespaces.
#[test]
fn no_link_is_lowered_next_to_another_pod_network() {
    let (node, host, _) = raised_by_us();
    let conflist = node.path("net.d/10-flannel.conflist");
    symlink("/nowhere/at/all", &conflist).unwrap();
    let (_, printed) = node.uninstall(&host, &["--force", "--dry-run"]);
    assert!(printed.contains("10-flannel.conflist may be of another pod network, which may use it\n"), "{printed}");
    fs::remove_file(&conflist).unwrap();
    fs::write(&conflist, FLANNEL).unwrap();
    let (code, printed) = node.uninstall(&host, &["--force"]);
    let left = "left: setting link/ens5/state: 10-flannel.conflist is of another pod network, which may use it\n";
    assert!(code == 0 && printed.contains(left), "{printed}");
    // The kernel may send its pods' router solicitations from it.
    let kept = "left: address fe80::17ff:fe00:1/64 dev ens5: 10-flannel.conflist is of another pod network";
    assert!(printed.contains(kept), "{printed}");
    assert_eq!(link(&host), "up 9000");

    // Its configuration went before its pods.
    let (node, host, _) = raised_by_us();
    let elsewhere = host.beside();
    host.ip("link add foreign type veth peer name eth0");
    host.inside(|| {
        let mut socket = netlink::Socket::open().unwrap();
        let index = socket.index_of(&"eth0".parse().unwrap()).unwrap();
        socket.change_link(index, &[netlink::LinkChange::Netns(&elsewhere)]).unwrap();
    });
    host.ip("link set foreign up");
    host.ip("route add 10.0.32.40/32 dev foreign");
    let (code, printed) = node.uninstall(&host, &["--force"]);
    let left = "left: setting link/ens5/state: pods of another network may use it: a route to 10.0.32.40 by foreign\n";
    assert!(code == 0 && printed.contains(left), "{printed}");
    assert_eq!(link(&host), "up 9000");
}

/// A hardened host switches IPv6 off on new links; switching it off again would remove every address.
#[test]
fn link_that_another_program_uses_keeps_ipv6() {
    for used in [false, true] {
        let (node, host) = (Node::installed(), Host::new());
        let key = "/proc/sys/net/ipv6/conf/ens5/disable_ipv6";
        host.inside(|| fs::write(key, "1").unwrap());
        host.populate(&node.path("lib"));
        if used {
            host.ip("-6 addr add 2001:db8::9/64 dev ens5 nodad");
        }
        let (code, printed) = node.uninstall(&host, &["--force"]);
        assert_eq!(code, 0, "{printed}");
        let now = host.inside(|| fs::read_to_string(key).unwrap());
        assert_eq!(now.trim(), if used { "0" } else { "1" }, "{printed}");
        let left = "left: setting net/ipv6/conf/ens5/disable_ipv6: 2001:db8::9/64 on the link is foreign\n";
        assert_eq!(printed.contains(left), used, "{printed}");
    }
}
