//! A kernel without IPv6 (`ipv6.disable=1`, or no such module): an IPv4-only node is a node. The guest has none unless requested:
//!
//! ```text
//! UML_MODULES="dummy veth" CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=tests/uml/run \
//!     cargo test -p netlink --test kernel -- --ignored ipv4_only
//! ```

use std::path::Path;

use netlink::{Address, LinkKind, Netns, NewLink, Peer, Route, RouteFilter, Rule, Socket};
use vcn::{Family, IfName, Priority, TableId};

fn without_ipv6() {
    assert!(!Path::new("/proc/sys/net/ipv6").exists(), "this kernel has IPv6: run it as the file says");
}

#[test]
#[ignore = "needs a kernel without IPv6"]
fn kernel_without_ipv6_lists_no_ipv6_objects() {
    without_ipv6();
    let netns = Netns::create().unwrap();
    let mut socket = Socket::open_in(&netns).unwrap();
    let peer = Peer { name: IfName::new("cable").unwrap(), mac: None, mtu: None, netns: None };
    let link = NewLink { up: true, ..NewLink::new(IfName::new("ens5").unwrap(), LinkKind::Veth(peer)) };
    socket.add_link(&link).unwrap();
    let index = socket.index_of(&link.name).unwrap();
    socket.add_address(&Address::new(index, "10.0.33.7/32".parse().unwrap())).unwrap();
    socket.add_route(&Route::new("10.0.33.1/32".parse().unwrap(), index, TableId(1000), 157)).unwrap();
    socket.add_rule(&Rule::new(Family::Ipv4, Priority(1537), TableId(1000), 157)).unwrap();
    assert_eq!(socket.rules(Family::Ipv6).unwrap(), []);
    assert_eq!(socket.routes(&RouteFilter::all(Family::Ipv6)).unwrap(), []);
    assert_eq!(socket.addresses(Some(index)).unwrap().len(), 1);
    assert!(socket.rules(Family::Ipv4).unwrap().iter().any(|rule| rule.protocol == 157));
    assert!(socket.routes(&RouteFilter::all(Family::Ipv4)).unwrap().iter().any(|route| route.protocol == 157));
}
