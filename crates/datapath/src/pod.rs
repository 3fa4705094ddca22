//! A pod's network: a routed veth, no bridge.
//!
//! ```text
//!   pod   eth0 10.0.4.7/32, default via 169.254.1.1 (a permanent neighbour answers with the host end's MAC)
//!    │ veth
//!   host  vcn… ── 10.0.4.7 dev vcn… in the table of pods, which a rule of the host's reads first
//!    │            rule 1536 from the pod ─▶ table of its VNIC ─▶ default via the virtual router
//!   VNIC  ens5 (a proxy neighbour answers for 10.0.4.7)
//! ```

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink::Rule;
use serde::{Deserialize, Serialize};
use vcn::{
    Family, HOST_LINK_PREFIX, IfName, LINK_ALIAS_PREFIX, MacAddr, Mtu, POD_GATEWAY_V4, POD_GATEWAY_V6, PODS_TABLE,
    PROTOCOL, RulePriorities, TableId, fnv1a,
};

use crate::object::net_v6;
use crate::{AddressSpec, LinkKind, LinkSpec, NeighbourSpec, Object, Place, RouteSpec, SysctlSpec, VethPeer};

mod blockers;
mod extra;
mod observed;
mod orphans;
mod owners;
mod uplink;

pub use crate::object::everything;
pub use blockers::{Blocker, blockers};
pub use extra::{ExtraNetwork, identify, observe_extra, observe_rules, own_ways, retrieve, taken_routes, used_names};
pub(crate) use observed::{accept_ra_of, source_of_a_pod};
pub use observed::{misleading, observe, recorded};
pub use orphans::{Orphan, orphans};
pub use owners::owners;
pub use uplink::{Uplink, needed, observe_needed};

/// What one attachment's network must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodNetwork {
    /// Names and Ethernet addresses of the two link ends.
    pub ends: LinkEnds,
    /// The MTU of both.
    pub mtu: Mtu,
    /// The pod's addresses, at most one per family.
    pub addresses: Vec<PodAddress>,
}

/// The two ends of a pod's link. All of it follows from the attachment, so a repeated ADD, a CHECK and a DEL find the
/// same link without any record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkEnds {
    /// On the host: the documented prefix and 12 hexadecimal digits.
    pub host: IfName,
    /// Set explicitly, or udev's MACAddressPolicy would rewrite it under the pod's permanent neighbour.
    pub host_mac: MacAddr,
    /// Whose it is: the host name is a hash and could collide.
    pub alias: String,
    /// In the pod: CNI_IFNAME.
    pub pod: IfName,
    /// The Ethernet address of the pod's end.
    pub pod_mac: MacAddr,
}

/// One address of a pod and the VNIC that carries it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodAddress {
    /// The address that the pod gets.
    pub address: IpAddr,
    /// The host link of its VNIC.
    pub vnic_link: IfName,
    /// Its VNIC's routing table.
    pub table: TableId,
}

impl LinkEnds {
    /// The ends of the link of `pod_link` in the attachment that `identity` names (network, container id, link name).
    pub fn of(identity: &str, pod_link: IfName) -> Self {
        let hash = fnv1a(identity.bytes());
        let digits = format!("{HOST_LINK_PREFIX}{:012x}", hash & 0xffff_ffff_ffff);
        Self {
            // Three letters and twelve digits: always a valid name; the pod's own is as good a fallback as any.
            host: IfName::new(digits).unwrap_or_else(|_| pod_link.clone()),
            host_mac: MacAddr::local(hash),
            alias: alias(identity, hash),
            pod: pod_link,
            pod_mac: MacAddr::local(hash.rotate_left(24) ^ 0x5a5a),
        }
    }
}

/// The objects of a pod's network, in the order they are made.
pub fn desired(network: &PodNetwork) -> Vec<(Place, Object)> {
    let PodNetwork { ends, mtu, addresses } = network;
    let mut objects = vec![
        (
            Place::Host,
            Object::Link(LinkSpec {
                name: ends.host.clone(),
                kind: LinkKind::Veth(VethPeer { name: ends.pod.clone(), mac: ends.pod_mac }),
                mac: Some(ends.host_mac),
                mtu: Some(*mtu),
                up: true,
                alias: Some(ends.alias.clone()),
            }),
        ),
        (
            Place::Pod,
            Object::Link(LinkSpec {
                name: ends.pod.clone(),
                kind: LinkKind::VethPeer,
                mac: Some(ends.pod_mac),
                mtu: Some(*mtu),
                up: true,
                alias: None,
            }),
        ),
    ];
    // Where the kernel knows IPv6 and does not forward, any advertisement on a link makes a router. Without this setting, any pod
    // could get all that the host sends over IPv6, whatever address it came with.
    objects.push((Place::Host, Object::Sysctl(SysctlSpec::ignoring_router_advertisements(&ends.host))));
    if addresses.iter().any(|a| a.address.is_ipv6()) {
        // A fresh namespace may have IPv6 off by default (container engines do that), and so may a hardened host. What a pod
        // sends to itself uses its loopback link.
        for (place, link) in
            [(Place::Host, ends.host.as_str()), (Place::Pod, LOOPBACK), (Place::Pod, ends.pod.as_str())]
        {
            objects.push((place, Object::Sysctl(SysctlSpec { key: disable_ipv6(link), value: "0".into() })));
        }
    }
    for address in addresses {
        objects.extend(inside(ends, address.address).map(|object| (Place::Pod, object)));
    }
    for address in addresses {
        objects.extend(outside(ends, address).map(|object| (Place::Host, object)));
    }
    objects
}

/// The kernel keeps 254 bytes; a longer identity is stored as its hash, and recognized only by who knows it.
fn alias(identity: &str, hash: u64) -> String {
    let alias = format!("{LINK_ALIAS_PREFIX}{identity}");
    if alias.len() <= 254 { alias } else { format!("{LINK_ALIAS_PREFIX}#{hash:016x}") }
}

/// The gateway a pod sees in a family.
pub const fn gateway(family: Family) -> IpAddr {
    match family {
        Family::Ipv4 => IpAddr::V4(POD_GATEWAY_V4),
        Family::Ipv6 => IpAddr::V6(POD_GATEWAY_V6),
    }
}

/// Every namespace has it, by this name.
const LOOPBACK: &str = "lo";

fn disable_ipv6(link: &str) -> String {
    format!("net/ipv6/conf/{link}/disable_ipv6")
}

fn inside(ends: &LinkEnds, address: IpAddr) -> impl Iterator<Item = Object> {
    let family = Family::of(address);
    let gateway = gateway(family);
    let link = &ends.pod;
    let route = |destination, via| RouteSpec { destination, via, link: link.clone(), table: TableId::MAIN };
    // An IPv6 link-local gateway is on the link by definition; the one of IPv4 needs a route that says so.
    let to_gateway = (family == Family::Ipv4).then(|| Object::Route(route(IpNetwork::from(gateway), None)));
    [
        Object::Address(AddressSpec { link: link.clone(), address: IpNetwork::from(address) }),
        Object::Neighbour(NeighbourSpec { link: link.clone(), address: gateway, mac: Some(ends.host_mac) }),
    ]
    .into_iter()
    .chain(to_gateway)
    .chain([Object::Route(route(everything(family), Some(gateway)))])
}

/// Nothing here says what the pod's Ethernet address is: a chained plugin (tuning) may change it after us, so it is resolved.
fn outside(ends: &LinkEnds, pod: &PodAddress) -> impl Iterator<Item = Object> {
    let family = Family::of(pod.address);
    let net = IpNetwork::from(pod.address);
    let answering = answering(ends, family);
    let route = RouteSpec { destination: net, via: None, link: ends.host.clone(), table: PODS_TABLE };
    let proxy = NeighbourSpec { link: pod.vnic_link.clone(), address: pod.address, mac: None };
    let rule = Rule { from: Some(net), ..Rule::new(family, RulePriorities::FROM_POD, pod.table, PROTOCOL) };
    [answering, Object::Route(route), Object::Neighbour(proxy), Object::Rule(rule)].into_iter()
}

/// What answers a pod that resolves its gateway. It need not do so as long as it has the permanent neighbour, but the kernel
/// forgets that when the pod's link goes down or changes its Ethernet address.
fn answering(ends: &LinkEnds, family: Family) -> Object {
    let link = ends.host.clone();
    match family {
        Family::Ipv4 => Object::Neighbour(NeighbourSpec { link, address: gateway(family), mac: None }),
        // Also the host's source when it resolves the pod: the link-local address it gives itself is being checked for duplicates
        // for 1-2 s.
        Family::Ipv6 => Object::Address(AddressSpec { link, address: LINK_LOCAL_GATEWAY }),
    }
}

/// The gateway as an address of the host end. Without a prefix: a router also listens to the anycast address of a prefix, and
/// leaving that costs a DEL a second grace period, 10-20 ms.
pub(crate) const LINK_LOCAL_GATEWAY: IpNetwork = net_v6(POD_GATEWAY_V6, 128);
