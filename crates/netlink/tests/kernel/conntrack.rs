//! Connection tracking against the real kernel, with real packets.

mod tracked;

use std::collections::HashSet;
use std::net::{IpAddr, UdpSocket};

use netlink::conntrack::{ConntrackSocket, DeletedConnections, counts};
use tracked::{deliver, exchange, flood, fresh, ip};
use vcn::{ConntrackCounts, IfName};

#[test]
fn counts_are_those_of_proc() {
    let netns = fresh(&["10.0.1.7/32", "10.0.1.8/32"]);
    exchange(&netns, "10.0.1.7", "10.0.1.8");
    let (counted, text) = netns
        .run(|| (counts().unwrap(), std::fs::read_to_string("/proc/thread-self/net/stat/nf_conntrack").unwrap()))
        .unwrap();
    let (head, rows) = text.split_once('\n').unwrap();
    let sum = |column: &str| -> u64 {
        let at = head.split_whitespace().position(|name| name == column).unwrap();
        rows.lines().map(|row| u64::from_str_radix(row.split_whitespace().nth(at).unwrap(), 16).unwrap()).sum()
    };
    let [drop, early_drop, insert_failed] = ["drop", "early_drop", "insert_failed"].map(sum);
    assert_eq!(counted, ConntrackCounts { drop, early_drop, insert_failed });
}

#[test]
fn deletion_keeps_connections_of_other_addresses() {
    let netns = fresh(&["10.0.1.7/32", "10.0.1.8/32", "10.0.1.9/32", "fd00::7/128", "fd00::8/128"]);
    exchange(&netns, "10.0.1.7", "10.0.1.8");
    exchange(&netns, "10.0.1.9", "10.0.1.7");
    exchange(&netns, "10.0.1.8", "10.0.1.9");
    exchange(&netns, "fd00::7", "fd00::8");
    let delete = |address| {
        let deleted = netns
            .run(ConntrackSocket::open)
            .unwrap()
            .unwrap()
            .delete_by_addresses(&[ip(address)].into(), || true)
            .unwrap();
        deleted.connections
    };
    assert_eq!(delete("10.0.1.7"), 2, "as source and as destination");
    assert_eq!(["10.0.1.7", "10.0.1.9", "fd00::9", "fd00::8"].map(delete), [0, 1, 0, 1]);
}

#[test]
fn many_addresses_of_both_families_are_forgotten_together() {
    let netns = fresh(&["10.0.1.7/32", "10.0.1.8/32", "10.0.1.9/32", "fd00::7/128", "fd00::8/128", "fd00::9/128"]);
    for (from, to) in [("10.0.1.7", "10.0.1.9"), ("10.0.1.9", "10.0.1.8"), ("10.0.1.9", "10.0.1.9")] {
        exchange(&netns, from, to);
    }
    exchange(&netns, "fd00::7", "fd00::9");
    exchange(&netns, "fd00::9", "fd00::9");
    let delete = |addresses: &HashSet<IpAddr>| {
        netns.run(ConntrackSocket::open).unwrap().unwrap().delete_by_addresses(addresses, || true).unwrap()
    };
    let all = |connections| DeletedConnections { connections, all: true };
    let gone = ["10.0.1.7", "10.0.1.8", "fd00::7", "fd00::8"].map(ip).into();
    assert_eq!(delete(&gone), all(3));
    assert_eq!(delete(&gone), all(0));
    assert_eq!(delete(&[].into()), all(0));
    let others = ["10.0.1.9", "fd00::9"].map(ip).into();
    assert_eq!(delete(&others), all(2), "connections of other addresses stayed");
}

#[test]
fn stopped_deletion_reports_incomplete_and_can_continue_later() {
    let netns = fresh(&["10.0.1.7/32", "10.0.1.8/32", "fd00::7/128", "fd00::8/128"]);
    flood(&netns, "10.0.1.7", "10.0.1.8", 2000);
    exchange(&netns, "fd00::7", "fd00::8");
    let addresses = ["10.0.1.7", "fd00::7"].map(ip).into();
    let (mut rounds, mut forgotten) = (0, 0);
    loop {
        let mut calls = 0;
        let stop = || {
            calls += 1;
            calls < 2
        };
        let deleted = netns.run(ConntrackSocket::open).unwrap().unwrap().delete_by_addresses(&addresses, stop).unwrap();
        forgotten += deleted.connections;
        rounds += 1;
        assert!(deleted.all || (1..1000).contains(&deleted.connections), "{deleted:?}");
        if deleted.all {
            break;
        }
    }
    assert!(rounds > 2 && forgotten > 2000, "{forgotten} in {rounds} rounds");
    let again = netns.run(ConntrackSocket::open).unwrap().unwrap().delete_by_addresses(&addresses, || false).unwrap();
    assert_eq!(again, DeletedConnections { connections: 0, all: true }, "the end of a list is its end");
}

#[test]
fn a_connection_that_was_translated_is_found_by_either_address() {
    let netns = fresh(&["10.0.1.7/32", "10.0.1.8/32"]);
    let translate = "add table ip n; add chain ip n out { type nat hook output priority -100; }; \
                     add rule ip n out ip daddr 192.0.2.1 dnat to 10.0.1.8";
    let status = netns.run(|| std::process::Command::new("nft").arg(translate).status()).unwrap().unwrap();
    assert!(status.success());
    netns
        .run(|| {
            let mut routes = netlink::Socket::open().unwrap();
            let lo = routes.index_of(&IfName::new("lo").unwrap()).unwrap();
            let everywhere = netlink::Route::new("0.0.0.0/0".parse().unwrap(), lo, vcn::TableId::MAIN, 157);
            routes.add_route(&netlink::Route { scope_link: true, ..everywhere }).unwrap();
            let receiver = UdpSocket::bind(("10.0.1.8", 5353)).unwrap();
            let sender = UdpSocket::bind(("10.0.1.7", 0)).unwrap();
            for address in ["192.0.2.1", "10.0.1.8"] {
                deliver(&sender, (ip("192.0.2.1"), 5353).into(), &receiver);
                let deleted =
                    ConntrackSocket::open().unwrap().delete_by_addresses(&[ip(address)].into(), || true).unwrap();
                assert_eq!(deleted.connections, 1, "{address}");
            }
        })
        .unwrap();
}
