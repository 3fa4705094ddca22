//! Announcements, judged by what a neighbour on the wire believes afterwards.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use netlink::{Address, Announcer, LinkChange, LinkKind, Neighbour, NeighbourFilter, Netns, NewLink, Peer, Socket};
use vcn::{IfName, MacAddr};

const OLD: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xd]);
const NEW: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xe]);
const LINK: u32 = 10;

#[test]
fn a_neighbour_learns_where_the_address_lives_now() {
    let (here, there) = (Netns::create().unwrap(), Netns::create().unwrap());
    let mut sender = Socket::open_in(&here).unwrap();
    let mut listener = Socket::open_in(&there).unwrap();
    let peer = Peer { name: IfName::new("wire").unwrap(), mac: None, mtu: None, netns: Some(there.as_fd()) };
    let link = NewLink::new(IfName::new("ens5").unwrap(), LinkKind::Veth(peer));
    sender.add_link(&NewLink { up: true, index: Some(LINK), mac: Some(NEW), ..link }).unwrap();
    listener.change_link_named(&IfName::new("wire").unwrap(), &[LinkChange::Up]).unwrap();
    let wire = listener.index_of(&IfName::new("wire").unwrap()).unwrap();
    for address in ["10.0.1.1/24", "fd00::1/64"] {
        listener.add_address(&Address { nodad: true, ..Address::new(wire, address.parse().unwrap()) }).unwrap();
    }
    // The kernel says that it sent what it drops until a new carrier has settled; reading the link settles it.
    assert!(sender.link_at(LINK).unwrap().running);
    let announcer = here.run(Announcer::open).unwrap().unwrap();
    for text in ["10.0.1.7", "fd00::7"] {
        let address: IpAddr = text.parse().unwrap();
        listener
            .replace_neighbour(&Neighbour { permanent: false, ..Neighbour::permanent(wire, address, OLD) })
            .unwrap();
        let filter = NeighbourFilter { index: Some(wire), ..NeighbourFilter::default() };
        let mut believed = || {
            let all = listener.neighbours(&filter).unwrap();
            all.into_iter().find(|neighbour| neighbour.address == address).and_then(|neighbour| neighbour.mac)
        };
        assert_eq!(believed(), Some(OLD));
        let end = Instant::now() + Duration::from_secs(60);
        // One may be lost.
        while believed() != Some(NEW) {
            assert!(Instant::now() < end, "{text}: still {:?}", believed());
            announcer.announce(LINK, address, NEW).unwrap();
        }
    }
}

#[test]
fn an_absent_link_is_not_found() {
    let netns = Netns::create().unwrap();
    let announcer = netns.run(Announcer::open).unwrap().unwrap();
    let error = announcer.announce(4711, "10.0.1.7".parse().unwrap(), NEW).unwrap_err();
    assert!(error.is_not_found(), "{error}: {}", error.cause());
}
