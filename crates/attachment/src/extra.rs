//! What the record of an extra interface says of its network.

use datapath::Places;
use datapath::pod::ExtraNetwork;
use ipam::{Allocation, NetnsRecord, Pools};
use netlink::{Netns, NetnsId};
use vcn::ExclusiveLink;

use crate::node;

/// The network of an attachment that is an extra interface; `None` of a pod's own.
pub fn network_of(allocation: &Allocation, pools: Option<&Pools>) -> Option<ExtraNetwork> {
    let attached = allocation.attached.as_ref()?;
    Some(ExtraNetwork {
        pod: node::network(allocation, pools, None),
        device: allocation.exclusive.clone().map(|device| with_kind(device, allocation, pools)),
        subnets: attached.subnets.clone(),
        routes: attached.routes.clone(),
        is_default: attached.default_route,
        taken: Vec::new(),
    })
}

/// A record of version 0.2.0 does not say which kind of link the VNIC has; the pools may.
fn with_kind(device: ExclusiveLink, allocation: &Allocation, pools: Option<&Pools>) -> ExclusiveLink {
    let vnic = allocation.addresses.first().and_then(|held| pools?.find(&held.vnic_id));
    match vnic.and_then(|vnic| vnic.attach.as_ref()).filter(|_| device.identity.is_none()) {
        Some(offer) => ExclusiveLink { kind: offer.link_kind.clone(), ..device },
        None => device,
    }
}

/// Enters the namespace of an attachment's pod, if it is still the one that ADD was given. Answers whether it is.
pub(crate) fn enter_pod(allocation: &Allocation, places: &mut Places) -> bool {
    allocation.netns.as_ref().and_then(open_netns).is_some_and(|netns| places.enter(netns).is_ok())
}

/// The namespace of a record, unless it is gone or another one is at its path by now.
pub fn open_netns(record: &NetnsRecord) -> Option<Netns> {
    let same = |netns: &Netns| netns.id() == NetnsId { dev: record.dev, inode: record.inode };
    Netns::open(&record.path).ok().filter(same)
}
