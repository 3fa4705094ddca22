//! Link kinds that not every kernel has: 802.1Q VLANs (bare metal VNICs), ipvlan, dummy. `tests/uml/run` has them all:
//!
//! ```text
//! CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=tests/uml/run cargo test -p netlink --test kernel -- --ignored vlan
//! ```

use std::net::UdpSocket;

use ipnetwork::IpNetwork;
use netlink::{
    Address, Errno, IpvlanMode, LinkChange, LinkKind, MacvlanMode, Netns, NewLink, Peer, Route, RouteFilter, Socket,
    Sysctls,
};
use vcn::{Family, IfName, MacAddr, Mtu, TableId, VlanTag};

const PORT_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const VNIC_MAC: MacAddr = MacAddr([2, 0, 0x17, 0, 0, 9]);

fn name(text: &str) -> IfName {
    IfName::new(text).unwrap()
}

fn tag(number: u16) -> VlanTag {
    VlanTag::new(number).unwrap()
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

fn vnic<'a>(link: &str, parent: u32, number: u16) -> NewLink<'a> {
    let kind = LinkKind::Vlan { parent, tag: tag(number) };
    NewLink { mac: Some(VNIC_MAC), mtu: Some(Mtu(9000)), ..NewLink::new(name(link), kind) }
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn vlan_link_for_vnic_has_its_own_mac() {
    let (_netns, mut socket, parent, _switch) = machine();
    socket.add_link(&NewLink { up: true, ..vnic("vnic.100", parent, 100) }).unwrap();
    let link = socket.link(&name("vnic.100")).unwrap();
    assert_eq!((link.kind.as_deref(), link.vlan, link.parent), (Some("vlan"), Some(tag(100)), Some(parent)));
    assert_eq!((link.mac, link.mtu, link.up, link.running), (Some(VNIC_MAC), Mtu(9000), true, true));
    let port = socket.link_at(parent).unwrap();
    assert_eq!((port.mac, port.vlan), (Some(PORT_MAC), None), "the port is as it was");
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn vlan_tag_is_unique_per_port_across_namespaces() {
    let (_netns, mut socket, parent, _switch) = machine();
    let pod = Netns::create().unwrap();
    socket.add_link(&vnic("net1", parent, 100).in_netns(&pod)).unwrap();
    let made = Socket::open_in(&pod).unwrap().link(&name("net1")).unwrap();
    assert_eq!((made.vlan, made.mac, made.parent), (Some(tag(100)), Some(VNIC_MAC), Some(parent)));
    assert!(made.peer_netns_id.is_some(), "its port is in another namespace");
    let error = socket.add_link(&vnic("again", parent, 100)).unwrap_err();
    assert!(error.is_already_exists(), "{error}: {}", error.cause());
    socket.add_link(&vnic("other", parent, 101)).unwrap();
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn vlan_can_be_up_only_while_its_port_is_up() {
    let (_netns, mut socket, parent, _switch) = machine();
    socket.change_link(parent, &[LinkChange::Down]).unwrap();
    socket.add_link(&vnic("vnic.100", parent, 100)).unwrap();
    let error = socket.change_link_named(&name("vnic.100"), &[LinkChange::Up]).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ENETDOWN));
    socket.change_link(parent, &[LinkChange::Up]).unwrap();
    socket.change_link_named(&name("vnic.100"), &[LinkChange::Up]).unwrap();
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn vlan_in_pod_netns_still_tags_its_packets() {
    let (_netns, mut socket, parent, switch) = machine();
    let pod = Netns::create().unwrap();
    socket.add_link(&vnic("vnic.100", parent, 100)).unwrap();
    let index = socket.index_of(&name("vnic.100")).unwrap();
    socket.change_link(index, &[LinkChange::Netns(&pod), LinkChange::Rename(name("net1"))]).unwrap();

    // The other end of the cable knows the tag too.
    let mut router = Socket::open_in(&switch).unwrap();
    let port = router.index_of(&name("port")).unwrap();
    let kind = LinkKind::Vlan { parent: port, tag: tag(100) };
    router.add_link(&NewLink { up: true, ..NewLink::new(name("subnet"), kind) }).unwrap();
    let mut inside = Socket::open_in(&pod).unwrap();
    inside.change_link_named(&name("net1"), &[LinkChange::Up]).unwrap();
    for (socket, link, address) in [(&mut router, "subnet", "10.0.1.1/24"), (&mut inside, "net1", "10.0.1.7/24")] {
        let index = socket.index_of(&name(link)).unwrap();
        socket.add_address(&Address::new(index, address.parse::<IpNetwork>().unwrap())).unwrap();
    }
    let answer = switch
        .run(|| {
            let receiver = UdpSocket::bind(("10.0.1.1", 7)).unwrap();
            receiver.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
            pod.run(|| UdpSocket::bind(("10.0.1.7", 0)).unwrap().send_to(b"tagged", ("10.0.1.1", 7)).unwrap()).unwrap();
            let mut buffer = [0; 16];
            let (length, _) = receiver.recv_from(&mut buffer).unwrap();
            buffer[..length].to_vec()
        })
        .unwrap();
    assert_eq!(answer, b"tagged");
    let untagged = router.link_at(port).unwrap();
    assert_eq!(untagged.vlan, None);
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn vlans_go_with_their_port() {
    let (_netns, mut socket, parent, _switch) = machine();
    let pod = Netns::create().unwrap();
    socket.add_link(&vnic("net1", parent, 100).in_netns(&pod)).unwrap();
    socket.delete_link(parent).unwrap();
    assert!(Socket::open_in(&pod).unwrap().index_of(&name("net1")).unwrap_err().is_not_found());
}

#[test]
#[ignore = "needs 802.1Q: run by tests/uml/run"]
fn sysctls_of_a_dotted_vlan_name_are_reached() {
    let (netns, mut socket, parent, _switch) = machine();
    socket.add_link(&vnic("vnic.100", parent, 100)).unwrap();
    let key = ["net", "ipv4", "conf", "vnic.100", "rp_filter"];
    let value = netns.run(|| {
        let sysctls = Sysctls::default();
        sysctls.write(&key, "2").unwrap();
        sysctls.read(&key).unwrap()
    });
    assert_eq!(value.unwrap(), "2");
}

#[test]
#[ignore = "needs ipvlan and dummy: run by tests/uml/run"]
fn ipvlan_macvlan_and_dummy_links_are_created() {
    let (_netns, mut socket, parent, _switch) = machine();
    let pod = Netns::create().unwrap();
    let ipvlan = LinkKind::Ipvlan { parent, mode: IpvlanMode::L3s };
    socket.add_link(&NewLink::new(name("net1"), ipvlan).in_netns(&pod)).unwrap();
    let made = Socket::open_in(&pod).unwrap().link(&name("net1")).unwrap();
    assert_eq!((made.kind.as_deref(), made.mac), (Some("ipvlan"), Some(PORT_MAC)), "it shares its parent's address");
    socket.add_link(&NewLink::new(name("dummy0"), LinkKind::Dummy)).unwrap();
    assert_eq!(socket.link(&name("dummy0")).unwrap().kind.as_deref(), Some("dummy"));
    let parent = socket.index_of(&name("dummy0")).unwrap();
    let macvlan = LinkKind::Macvlan { parent, mode: MacvlanMode::Bridge };
    socket.add_link(&NewLink::new(name("mac0"), macvlan)).unwrap();
    assert_eq!(socket.link(&name("mac0")).unwrap().parent, Some(parent));
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
