//! Links that not every kernel has: 802.1Q VLANs (bare metal VNICs). `tests/uml/run` has them:
//!
//! ```text
//! CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=tests/uml/run cargo test -p netlink --test kernel -- --ignored vlan
//! ```

use netlink::{Address, LinkChange, LinkKind, Netns, NewLink, Peer, Route, RouteFilter, Socket};
use vcn::{Family, IfName, MacAddr, Mtu, TableId, VlanTag};

const PORT_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const VNIC_MAC: MacAddr = MacAddr([2, 0, 0x17, 0, 0, 9]);

fn name(text: &str) -> IfName {
    IfName::new(text).unwrap()
}

/// A bare metal machine: a physical port that is up, whose cable ends in another namespace.
fn machine() -> (Netns, Socket, u32, Netns) {
    let (netns, switch) = (Netns::create().unwrap(), Netns::create().unwrap());
    let mut socket = Socket::open_in(&netns).unwrap();
    let peer =
        Peer { name: name("port"), mac: None, mtu: Some(Mtu(9000)), netns: Some(std::os::fd::AsFd::as_fd(&switch)) };
    let port = NewLink {
        mac: Some(PORT_MAC),
        mtu: Some(Mtu(9000)),
        up: true,
        ..NewLink::new(name("ens300f0np0"), LinkKind::Veth(peer))
    };
    socket.add_link(&port).unwrap();
    Socket::open_in(&switch).unwrap().change_link_named(&name("port"), &[LinkChange::Up]).unwrap();
    let index = socket.index_of(&name("ens300f0np0")).unwrap();
    (netns, socket, index, switch)
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn vlan_link_for_vnic_has_its_own_mac() {
    let (_netns, mut socket, parent, _switch) = machine();
    let tag = VlanTag::new(100).unwrap();
    let new = NewLink::new(name("vnic.100"), LinkKind::Vlan { parent, tag });
    socket.add_link(&NewLink { mac: Some(VNIC_MAC), mtu: Some(Mtu(9000)), up: true, ..new }).unwrap();
    let link = socket.link(&name("vnic.100")).unwrap();
    assert_eq!((link.kind.as_deref(), link.vlan, link.parent), (Some("vlan"), Some(tag), Some(parent)));
    assert_eq!((link.mac, link.mtu, link.up, link.running), (Some(VNIC_MAC), Mtu(9000), true, true));
    let port = socket.link_at(parent).unwrap();
    assert_eq!((port.mac, port.vlan), (Some(PORT_MAC), None), "the port is as it was");
}

/// The oldest kernel that is at hand: what the other files prove on a new one must hold here too.
#[test]
#[ignore = "needs an older kernel: run by tests/uml/run"]
fn routes_are_read_back_equal_on_an_older_kernel() {
    let (_netns, mut socket, parent, _switch) = machine();
    let table = TableId(1001);
    socket.add_address(&Address::new(parent, "10.0.1.7/24".parse().unwrap())).unwrap();
    let gateway = Some("10.0.1.1".parse().unwrap());
    let default = Route { gateway, onlink: true, ..Route::new("0.0.0.0/0".parse().unwrap(), parent, table, 157) };
    socket.add_route(&default).unwrap();
    let filter = RouteFilter { table: Some(table), protocol: Some(157), ..RouteFilter::all(Family::Ipv4) };
    assert_eq!(socket.routes(&filter).unwrap(), [default]);
    let absent = RouteFilter { table: Some(TableId(4711)), ..filter };
    assert_eq!(socket.routes(&absent).unwrap(), []);
}
