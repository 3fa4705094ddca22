//! Addresses and routes of a link come back as they were, as `ip` shows them.

use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::{Duration, Instant};

use netlink::{LinkKind, Netns, NewLink, Peer, Socket};

pub(crate) fn sh(netns: &Netns, script: &str) -> String {
    let output = netns.run(|| Command::new("sh").args(["-ec", script]).output().unwrap()).unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const SHOW: &str = "ip addr; ip route show table all; ip -6 addr; ip -6 route show table all";

/// Once no address is being detected, and the carrier is back.
fn settled(netns: &Netns) -> String {
    let begun = Instant::now();
    loop {
        let shown = sh(netns, SHOW);
        let is_settled = !shown.contains("tentative") && !shown.contains("NO-CARRIER");
        if is_settled || begun.elapsed() > Duration::from_secs(60) {
            return shown;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn network_that_a_small_mtu_removed_is_restored_whole() {
    let (netns, router) = (Netns::create().unwrap(), Netns::create().unwrap());
    // Elsewhere: routes of several links to the same network change their order when one is added again.
    let peer = Peer { name: "router".parse().unwrap(), mac: None, mtu: None, netns: Some(router.as_fd()) };
    let link = NewLink { up: true, ..NewLink::new("ens3".parse().unwrap(), LinkKind::Veth(peer)) };
    Socket::open_in(&netns).unwrap().add_link(&link).unwrap();
    sh(&router, "ip link set router up");
    sh(
        &netns,
        "ip link set lo up
         ip addr add 10.0.10.7/24 brd + dev ens3 label ens3:a
         ip addr add 10.0.10.8/24 dev ens3 valid_lft 3000 preferred_lft 2000
         ip route add default via 10.0.10.1 proto dhcp metric 100 mtu 1400
         ip route add 10.0.77.0/24 proto 157 table 1001 nexthop via 10.0.10.2 nexthop via 10.0.10.3
         ip addr add 2603:c020::7/64 dev ens3 nodad; ip addr add 2603:c020::8/128 dev ens3
         ip addr add 2603:c020::9/64 dev ens3 noprefixroute
         ip -6 route add default via 2603:c020::1 proto ra metric 50 mtu 1400
         ip -6 route add 2603:c021::/48 via 2603:c020::2 expires 900
         ip -6 route add 2603:c022::/48 table 1001 nexthop via 2603:c020::2 nexthop via 2603:c020::3
         ip -6 route add unreachable 2603:c023::/48",
    );
    let before = settled(&netns);
    let mut socket = Socket::open_in(&netns).unwrap();
    let index = socket.link(&"ens3".parse().unwrap()).unwrap().index;
    let saved = socket.saved_network(index).unwrap();
    for (how, script) in [
        ("IPv6 removed", "ip link set ens3 mtu 1200; ip link set ens3 mtu 1500"),
        ("all removed", "ip link set ens3 down; ip addr flush dev ens3; ip link set ens3 up"),
        ("an MTU of routes changed", "ip link set ens3 mtu 1300; ip link set ens3 mtu 1500"),
        ("nothing changed", "true"),
    ] {
        sh(&netns, script);
        let failures = socket.restore_network(index, &saved);
        let after = settled(&netns);
        let without_times = |text: &str| -> String {
            let mut after_time = false;
            let words = text.split_inclusive(char::is_whitespace).map(|word| {
                let is_time = after_time && word.trim() != "forever";
                after_time = matches!(word.trim(), "valid_lft" | "preferred_lft" | "expires");
                if is_time { "TIME " } else { word }
            });
            words.collect()
        };
        assert_eq!(without_times(&before), without_times(&after), "{how}: {failures:?}");
        assert!(saved.is_within(&socket.saved_network(index).unwrap()), "{how}");
    }
}
