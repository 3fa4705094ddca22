//! Neighbours against the real kernel.

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use netlink::{LinkChange, LinkKind, Neighbour, NeighbourFilter, Netns, NewLink, Peer, Socket};
use vcn::{Family, IfName, MacAddr};

const LINK: u32 = 10;
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const ADDRESSES: [&str; 2] = ["169.254.1.1", "fe80::1"];
const LEARNED: [&str; 2] = ["10.0.0.9", "fe80::9"];

/// A socket in a fresh namespace with one link that is up.
fn fresh() -> (Netns, Socket) {
    let netns = Netns::create().unwrap();
    let mut socket = Socket::open_in(&netns).unwrap();
    let new = NewLink::new(IfName::new("br0").unwrap(), LinkKind::Bridge);
    socket.add_link(&NewLink { up: true, index: Some(LINK), ..new }).unwrap();
    (netns, socket)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn permanent_entries_are_read_back_equal() {
    let (_netns, mut socket) = fresh();
    let neighbours = ADDRESSES.map(|address| Neighbour::permanent(LINK, ip(address), MAC).by(157));
    for neighbour in &neighbours {
        socket.add_neighbour(neighbour).unwrap();
        assert!(socket.add_neighbour(neighbour).unwrap_err().is_already_exists());
        let other = Neighbour { mac: Some(MacAddr([2, 0, 0, 0, 0, 8])), ..*neighbour };
        socket.replace_neighbour(&other).unwrap();
        socket.replace_neighbour(neighbour).unwrap();
    }
    let filter = NeighbourFilter { index: Some(LINK), ..NeighbourFilter::default() };
    let found = socket.neighbours(&filter).unwrap();
    assert!(neighbours.iter().all(|neighbour| found.contains(neighbour)), "{found:?}");
    for neighbour in &neighbours {
        socket.delete_neighbour(neighbour).unwrap();
        assert!(socket.delete_neighbour(neighbour).unwrap_err().is_not_found());
    }
    let on_no_link = Neighbour { index: 4711, ..neighbours[0] };
    assert!(socket.add_neighbour(&on_no_link).unwrap_err().is_not_found());
}

#[test]
fn proxy_entries_are_a_list_of_their_own() {
    let (_netns, mut socket) = fresh();
    for (family, address) in Family::ALL.into_iter().zip(ADDRESSES) {
        let proxy = Neighbour::proxy(LINK, ip(address)).by(157);
        socket.add_neighbour(&proxy).unwrap();
        let filter = NeighbourFilter { family: Some(family), index: Some(LINK), proxy: true };
        assert_eq!(socket.neighbours(&filter).unwrap(), [proxy]);
        let elsewhere = NeighbourFilter { index: Some(1), ..filter };
        assert_eq!(socket.neighbours(&elsewhere).unwrap(), []);
        let others = NeighbourFilter { proxy: false, ..filter };
        assert!(!socket.neighbours(&others).unwrap().contains(&proxy));
        socket.delete_neighbour(&proxy).unwrap();
        assert!(socket.delete_neighbour(&proxy).unwrap_err().is_not_found());
    }
}

/// As when a switch port flaps: a later request for a pod's address has to be answered.
#[test]
fn proxy_entries_outlast_the_loss_of_a_links_carrier() {
    let (_netns, mut socket) = fresh();
    let [near, far] = ["ens5", "port"].map(|name| IfName::new(name).unwrap());
    let peer = Peer { name: far.clone(), mac: None, mtu: None, netns: None };
    let new = NewLink::new(near.clone(), LinkKind::Veth(peer));
    socket.add_link(&NewLink { up: true, ..new }).unwrap();
    socket.change_link_named(&far, &[LinkChange::Up]).unwrap();
    let index = socket.index_of(&near).unwrap();
    let mut wait_for = |what: &str, condition: &mut dyn FnMut(&mut Socket) -> bool| {
        let started = Instant::now();
        while !condition(&mut socket) {
            assert!(started.elapsed() < Duration::from_secs(120), "{what}");
            thread::sleep(Duration::from_millis(10));
        }
    };
    wait_for("the carrier", &mut |socket| socket.link(&near).unwrap().running);

    for (family, address) in Family::ALL.into_iter().zip(ADDRESSES) {
        let proxy = Neighbour::proxy(index, ip(address));
        // One that was learned; once that is gone, the kernel has taken note of the loss.
        let learned = Neighbour { permanent: false, ..Neighbour::permanent(index, ip(LEARNED[family as usize]), MAC) };
        let filter = NeighbourFilter { family: Some(family), index: Some(index), proxy: false };
        let listed = |socket: &mut Socket| {
            socket.neighbours(&filter).unwrap().iter().any(|neighbour| neighbour.address == learned.address)
        };
        wait_for("the entries", &mut |socket| {
            socket.replace_neighbour(&proxy).unwrap();
            socket.replace_neighbour(&learned).unwrap();
            listed(socket)
        });
        wait_for("the loss", &mut |socket| {
            socket.change_link_named(&far, &[LinkChange::Down]).unwrap();
            !listed(socket)
        });
        wait_for("the proxies", &mut |socket| {
            assert_eq!(socket.neighbours(&NeighbourFilter { proxy: true, ..filter }).unwrap(), [proxy]);
            socket.change_link_named(&far, &[LinkChange::Up]).unwrap();
            socket.link(&near).unwrap().running
        });
    }
}
