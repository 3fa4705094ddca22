//! Addresses against the real kernel.

use ipnetwork::IpNetwork;
use netlink::{Address, Errno, LinkChange, LinkKind, Netns, NewLink, Socket};
use vcn::IfName;

/// A socket in a fresh namespace with one link that is up.
fn fresh() -> (Netns, Socket, u32) {
    let netns = Netns::create().unwrap();
    let mut socket = Socket::open_in(&netns).unwrap();
    let link = NewLink { up: true, index: Some(10), ..NewLink::new(IfName::new("br0").unwrap(), LinkKind::Bridge) };
    socket.add_link(&link).unwrap();
    (netns, socket, 10)
}

fn network(text: &str) -> IpNetwork {
    text.parse().unwrap()
}

#[test]
fn added_objects_are_read_back_equal() {
    let (_netns, mut socket, index) = fresh();
    let addresses = [
        Address::new(index, network("10.0.1.7/24")),
        Address { noprefixroute: true, ..Address::new(index, network("10.9.0.1/16")) },
        Address { nodad: true, ..Address::new(index, network("fd00::7/128")) },
        Address { nodad: true, noprefixroute: true, ..Address::new(index, network("fd01::7/64")) },
    ];
    for address in &addresses {
        socket.add_address(address).unwrap();
    }
    let found = socket.addresses(Some(index)).unwrap();
    for address in &addresses {
        assert!(found.contains(address), "{address} is not in {found:?}");
    }
}

#[test]
fn address_list_is_limited_to_the_requested_link() {
    let (_netns, mut socket, index) = fresh();
    let lo = socket.index_of(&IfName::new("lo").unwrap()).unwrap();
    socket.change_link(lo, &[LinkChange::Up]).unwrap();
    socket.add_address(&Address::new(index, network("10.0.1.7/24"))).unwrap();
    let on_lo = socket.addresses(Some(lo)).unwrap();
    assert!(!on_lo.is_empty() && on_lo.iter().all(|address| address.index == lo), "{on_lo:?}");
    let all = socket.addresses(None).unwrap();
    assert!(all.iter().any(|address| address.index == lo) && all.iter().any(|address| address.index == index));
    assert!(socket.addresses(Some(4711)).unwrap_err().is_not_found());
}

#[test]
fn existing_and_absent_addresses_have_different_errors() {
    let (_netns, mut socket, index) = fresh();
    for (text, other_prefix) in [("10.0.1.7/24", "10.0.1.7/32"), ("fd00::7/64", "fd00::7/128")] {
        let address = Address::new(index, network(text));
        let error = socket.delete_address(&address).unwrap_err();
        assert!(error.is_not_found() && error.errno() == Some(Errno::EADDRNOTAVAIL), "{text}: {error}");
        assert!(socket.add_address(&Address { index: 4711, ..address }).unwrap_err().is_not_found(), "no such link");
        socket.add_address(&address).unwrap();
        assert!(socket.add_address(&address).unwrap_err().is_already_exists());
        socket.replace_address(&address).unwrap();
        let other = Address::new(index, network(other_prefix));
        assert!(socket.delete_address(&other).unwrap_err().is_not_found(), "the very prefix counts");
        socket.delete_address(&address).unwrap();
    }
}
