//! What the record of an extra interface says of its network.

use datapath::Places;
use datapath::pod::{Device, ExtraNetwork, ExtraRoute};
use ipam::{Allocation, Pools};
use netlink::{Netns, NetnsId};

use crate::node;

/// The network of an attachment that is an extra interface; `None` of a pod's own.
pub fn network_of(allocation: &Allocation, pools: Option<&Pools>) -> Option<ExtraNetwork> {
    let attached = allocation.attached.as_ref()?;
    let device = allocation.exclusive.as_ref().map(|it| Device {
        link: it.link.clone(),
        mac: it.mac,
        vlan: it.vlan,
        routers: it.routers.clone(),
    });
    let routes = attached.routes.iter().map(|it| ExtraRoute { destination: it.destination, via: it.via });
    Some(ExtraNetwork {
        pod: node::network(node::ends(&allocation.key), allocation, pools, None),
        device,
        subnets: attached.subnets.clone(),
        routes: routes.collect(),
        is_default: attached.default_route,
        taken: Vec::new(),
    })
}

/// Enters the namespace of an attachment's pod, if it is still the one that ADD was given. Answers whether it is.
pub fn enter_pod(allocation: &Allocation, places: &mut Places) -> bool {
    let Some(record) = &allocation.netns else { return false };
    let same = |netns: &Netns| netns.id() == NetnsId { dev: record.dev, inode: record.inode };
    let netns = Netns::open(&record.path).ok().filter(same);
    netns.is_some_and(|netns| places.enter(netns).is_ok())
}
