//! Connection tracking against the real kernel, with real packets.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use ipnetwork::IpNetwork;
use netlink::conntrack::{Deleted, Socket};
use netlink::nft::{Chain, ChainKind, CtStates, Expression, Hook, Rule, Table};
use netlink::{Address, LinkChange, Netns, nft};
use vcn::IfName;

/// A namespace that tracks connections over its loopback, which has some addresses.
fn fresh(addresses: &[&str]) -> Netns {
    let netns = Netns::create().unwrap();
    let mut socket = netlink::Socket::open_in(&netns).unwrap();
    let lo = socket.index_of(&IfName::new("lo").unwrap()).unwrap();
    socket.change_link(lo, &[LinkChange::Up]).unwrap();
    for address in addresses {
        let network: IpNetwork = address.parse().unwrap();
        socket.add_address(&Address { nodad: true, ..Address::new(lo, network) }).unwrap();
    }
    // The kernel tracks only where some rule asks for a connection's state.
    let rules = vec![Rule::new("track", [Expression::CtState(CtStates::NEW), Expression::Accept])];
    let chain = Chain { name: "out".to_owned(), hook: Hook::Output, kind: ChainKind::Filter, priority: 0, rules };
    let table = Table { name: "track".to_owned(), chains: vec![chain] };
    nft::Socket::open_in(&netns).unwrap().replace_table(&table).unwrap();
    netns
}

fn talk(netns: &Netns, from: &'static str, to: &'static str) {
    netns
        .run(|| {
            let receiver = UdpSocket::bind((to, 0)).unwrap();
            let sender = UdpSocket::bind((from, 0)).unwrap();
            deliver(&sender, receiver.local_addr().unwrap(), &receiver);
        })
        .unwrap();
}

/// Sends until it arrives: what is sent right after a link was raised may be lost.
fn deliver(sender: &UdpSocket, to: SocketAddr, receiver: &UdpSocket) {
    receiver.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let arrives = || {
        sender.send_to(b"hello", to).unwrap();
        receiver.recv(&mut [0; 8]).is_ok()
    };
    assert!((0..50).any(|_| arrives()), "nothing arrives at {to}");
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn an_addresss_connections_go_and_others_stay() {
    let netns = fresh(&["10.0.1.7/32", "10.0.1.8/32", "10.0.1.9/32", "fd00::7/128", "fd00::8/128"]);
    talk(&netns, "10.0.1.7", "10.0.1.8");
    talk(&netns, "10.0.1.9", "10.0.1.7");
    talk(&netns, "10.0.1.8", "10.0.1.9");
    talk(&netns, "fd00::7", "fd00::8");
    let delete = |address| Socket::open_in(&netns).unwrap().delete_by_address(ip(address)).unwrap();
    assert_eq!(delete("10.0.1.7"), 2, "as source and as destination");
    assert_eq!(["10.0.1.7", "10.0.1.9", "fd00::9", "fd00::8"].map(delete), [0, 1, 0, 1]);
}

#[test]
fn many_addresses_of_both_families_are_forgotten_together() {
    let netns = fresh(&["10.0.1.7/32", "10.0.1.8/32", "10.0.1.9/32", "fd00::7/128", "fd00::8/128", "fd00::9/128"]);
    for (from, to) in [("10.0.1.7", "10.0.1.9"), ("10.0.1.9", "10.0.1.8"), ("10.0.1.9", "10.0.1.9")] {
        talk(&netns, from, to);
    }
    talk(&netns, "fd00::7", "fd00::9");
    talk(&netns, "fd00::9", "fd00::9");
    let delete =
        |addresses: &HashSet<IpAddr>| Socket::open_in(&netns).unwrap().delete_by_addresses(addresses, || true).unwrap();
    let all = |connections| Deleted { connections, all: true };
    let gone = ["10.0.1.7", "10.0.1.8", "fd00::7", "fd00::8"].map(ip).into();
    assert_eq!(delete(&gone), all(3));
    assert_eq!(delete(&gone), all(0));
    assert_eq!(delete(&[].into()), all(0));
    let others = ["10.0.1.9", "fd00::9"].map(ip).into();
    assert_eq!(delete(&others), all(2), "the others' own stayed");
}

/// So many connections of one address, each to a port of its own of another.
fn flood(netns: &Netns, from: &'static str, to: &'static str, connections: u16) {
    let send = || {
        let sender = UdpSocket::bind((from, 9)).unwrap();
        // Nobody listens: the kernel's word that it is so fails the next call, and the packet after it goes out.
        let told = |port| (0..3).any(|_| sender.send_to(b"hello", (ip(to), port)).is_ok());
        assert!((1000..1000 + connections).all(told));
    };
    netns.run(send).unwrap();
}

/// The most memory that this process has ever had.
fn memory_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn forgetting_many_connections_needs_memory_for_a_few() {
    let netns = fresh(&["10.0.1.7/32", "10.0.1.8/32", "10.0.1.9/32"]);
    flood(&netns, "10.0.1.7", "10.0.1.8", 40_000);
    talk(&netns, "10.0.1.8", "10.0.1.9");
    let before = memory_peak();
    let deleted = Socket::open_in(&netns).unwrap().delete_by_address(ip("10.0.1.7")).unwrap();
    assert!(deleted >= 40_000, "{deleted}");
    // As keys they are 10 MB; other tests of this process take some, too.
    let taken = memory_peak().saturating_sub(before);
    assert!(taken < 4 << 20, "{taken} bytes");
    let others = Socket::open_in(&netns).unwrap().delete_by_address(ip("10.0.1.9")).unwrap();
    assert_eq!(others, 1, "another's stayed");
}

#[test]
fn who_is_told_to_stop_leaves_the_rest_says_so_and_may_go_on_later() {
    let netns = fresh(&["10.0.1.7/32", "10.0.1.8/32", "fd00::7/128", "fd00::8/128"]);
    flood(&netns, "10.0.1.7", "10.0.1.8", 2000);
    talk(&netns, "fd00::7", "fd00::8");
    let addresses = ["10.0.1.7", "fd00::7"].map(ip).into();
    let (mut rounds, mut forgotten) = (0, 0);
    loop {
        let mut asked = 0;
        let stop = || {
            asked += 1;
            asked < 2
        };
        let deleted = Socket::open_in(&netns).unwrap().delete_by_addresses(&addresses, stop).unwrap();
        forgotten += deleted.connections;
        rounds += 1;
        assert!(deleted.all || (1..1000).contains(&deleted.connections), "{deleted:?}");
        if deleted.all {
            break;
        }
    }
    assert!(rounds > 2 && forgotten > 2000, "{forgotten} in {rounds} rounds");
    let again = Socket::open_in(&netns).unwrap().delete_by_addresses(&addresses, || false).unwrap();
    assert_eq!(again, Deleted { connections: 0, all: true }, "the end of a list is its end");
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
                assert_eq!(Socket::open().unwrap().delete_by_address(ip(address)).unwrap(), 1, "{address}");
            }
        })
        .unwrap();
}
