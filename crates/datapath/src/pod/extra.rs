//! An interface that a pod has in addition to its own, on a VNIC that it requested: a routed veth like the pod's own, or the
//! VNIC's link itself.
//!
//! ```text
//!   pod   rule 1536 from 10.0.9.4  ─▶ table of the VNIC: subnet, routes and default by net1    each address answers on
//!         rule 1537 from the pod's ─▶ table 998: what main had before                          its own interface
//!         main: subnet and routes by net1; where it is requested, both halves of everything
//! ```

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink::Rule;
use vcn::{ExclusiveLink, Family, IfName, PROTOCOL, PerFamily, RulePriorities, TableId, VnicRoute};

use super::{LOOPBACK, PodAddress, PodNetwork, desired, disable_ipv6, everything, gateway};
use crate::{AddressSpec, LinkKind, LinkSpec, Object, Place, RouteSpec, SysctlSpec};

mod observed;
mod retrieve;
mod surroundings;

pub use observed::{observe_extra, observe_rules};
pub use retrieve::{identify, retrieve};
pub use surroundings::{own_ways, taken_routes, used_names};

/// What an extra interface must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraNetwork {
    /// The interface as a pod's own would be: names, MTU, addresses.
    pub pod: PodNetwork,
    /// The VNIC's link, where the pod has that; else it has a routed veth.
    pub device: Option<ExclusiveLink>,
    /// The CIDR block of the VNIC's subnet.
    pub subnets: PerFamily<IpNetwork>,
    /// Other networks that are reached by it.
    pub routes: Vec<VnicRoute>,
    /// Whether connections leave by it unless another route is more specific.
    pub is_default: bool,
    /// Destinations that other interfaces of the pod have in the main table.
    pub taken: Vec<IpNetwork>,
}

impl ExtraNetwork {
    /// Its objects, in the order they are made.
    pub fn desired(&self) -> Vec<(Place, Object)> {
        let own_route = |place: Place, object: &Object| place == Place::Pod && matches!(object, Object::Route(_));
        let mut objects = match &self.device {
            // A pod's own routes are those of its only interface.
            None => desired(&self.pod).into_iter().filter(|(place, object)| !own_route(*place, object)).collect(),
            Some(device) => self.of_device(device),
        };
        let ways = self.pod.addresses.iter().flat_map(|address| self.ways(address));
        objects.extend(ways.map(|object| (Place::Pod, object)));
        objects
    }

    /// Its name in the pod.
    pub const fn name(&self) -> &IfName {
        &self.pod.ends.pod
    }

    fn of_device(&self, device: &ExclusiveLink) -> Vec<(Place, Object)> {
        let PodNetwork { ends, mtu, addresses } = &self.pod;
        let kind = match device.vlan {
            Some(tag) => LinkKind::Vlan { parent: device.link.clone(), tag },
            None => LinkKind::Moved(Box::new(device.clone())),
        };
        let (name, mac, mtu, alias) = (ends.pod.clone(), Some(device.mac), Some(*mtu), Some(ends.alias.clone()));
        let mut objects = vec![Object::Link(LinkSpec { name, kind, mac, mtu, up: true, alias })];
        if addresses.iter().any(|pod| pod.address.is_ipv6()) {
            objects.push(Object::Sysctl(SysctlSpec::ignoring_router_advertisements(&ends.pod)));
            objects.extend(
                [LOOPBACK, ends.pod.as_str()]
                    .map(|link| Object::Sysctl(SysctlSpec { key: disable_ipv6(link), value: "0".into() })),
            );
        }
        objects.extend(addresses.iter().map(|pod| {
            let prefix = self.subnets.of(Family::of(pod.address)).map(|subnet| subnet.prefix());
            let address = prefix.and_then(|prefix| IpNetwork::new(pod.address, prefix).ok());
            Object::Address(AddressSpec {
                link: ends.pod.clone(),
                address: address.unwrap_or_else(|| IpNetwork::from(pod.address)),
            })
        }));
        objects.into_iter().map(|object| (Place::Pod, object)).collect()
    }

    /// The routes and the rule of one address.
    fn ways(&self, pod: &PodAddress) -> Vec<Object> {
        let family = Family::of(pod.address);
        let link = self.name();
        let (router, subnet) = (self.router(family), self.subnets.of(family));
        // What is on a VNIC's own link is resolved; behind a veth is the host.
        let on_link = self.device.is_some();
        let behind = |via: Option<IpAddr>| if on_link { via.or(router) } else { router };
        let mut main: Vec<(IpNetwork, Option<IpAddr>)> = Vec::new();
        main.extend(subnet.map(|subnet| (*subnet, if on_link { None } else { router })));
        let routes = self.routes.iter().filter(|route| Family::of(route.destination.ip()) == family);
        for route in routes.filter(|route| Some(&route.destination) != subnet) {
            main.push((route.destination, behind(route.via)));
        }
        let route = |destination, via, table| Object::Route(RouteSpec { destination, via, link: link.clone(), table });
        let of_table = main.iter().map(|(to, via)| route(*to, *via, pod.table)).chain([route(
            everything(family),
            router,
            pod.table,
        )]);
        let halves = halves(family).filter(|_| self.is_default).map(|half| (half, router));
        let of_main = main.iter().copied().chain(halves).filter(|(to, _)| !self.taken.contains(to));
        let rule = Rule::new(family, RulePriorities::FROM_POD, pod.table, PROTOCOL);
        let rule = Rule { from: Some(IpNetwork::from(pod.address)), ..rule };
        let of_main = of_main.map(|(to, via)| route(to, via, TableId::MAIN));
        of_table.chain(of_main).chain([Object::Rule(rule)]).collect()
    }

    fn router(&self, family: Family) -> Option<IpAddr> {
        match &self.device {
            Some(device) => device.routers.of(family).copied(),
            None => Some(gateway(family)),
        }
    }
}

/// Both halves of everything: each is more specific than a default route, which another plugin made and which stays.
fn halves(family: Family) -> impl Iterator<Item = IpNetwork> {
    let firsts: [IpAddr; 2] = match family {
        Family::Ipv4 => [[0, 0, 0, 0], [128, 0, 0, 0]].map(IpAddr::from),
        Family::Ipv6 => [0, 0x8000].map(|first| IpAddr::from([first, 0, 0, 0, 0, 0, 0, 0u16])),
    };
    firsts.into_iter().filter_map(|first| IpNetwork::new(first, 1).ok())
}
