//! CHECK: the plan from what is observed to what is desired must be empty; a plan that is not is the answer.
//!
//! Desired is what ADD made, as far as the chain's last result still says so: a later plugin may have changed the pod's Ethernet
//! address or its routes. Also desired is what that depends on: the VNIC's link and table, the rule that leads to pods, and the
//! host's settings. If all of it is there, the kernel is queried last whether packets take that way.

use std::net::IpAddr;
use std::path::Path;

use attachment::{Node, Report, code, failure};
use cni::{CheckRequest, Error, Interface, Success};
use datapath::pod::{PodNetwork, Uplink};
use datapath::{NeighbourSpec, Object, Place, Places, pod, route_check};
use ipam::{Allocation, NetnsRecord, Pools};
use ipnetwork::IpNetwork;
use netlink::{Netns, NetnsId};
use vcn::{Family, IfName, Mtu};

use crate::conf::Conf;

pub(crate) fn check(request: &CheckRequest<Conf>, report: &mut Report) -> Result<(), Error> {
    let mut places = attachment::enter(&request.netns)?;
    let node = Node::open().map_err(|error| failure::of_ipam(&error))?;
    let allocation = node.store.find(&request.key).map_err(|error| failure::of_ipam(&error))?.ok_or_else(|| {
        Error::new(code::NOT_ALLOCATED, format!("{} holds no address; delete and add the pod", request.key))
    })?;
    let allocation = &allocation;
    report.addresses(&allocation.addresses);
    let pools = node.pools().map_err(|error| failure::of_ipam(&error))?;
    report.mark("record");
    let answered = request.prev_result.read();
    let mut differences = contradictions(request, places.pod_id(), allocation, &answered);
    differences.extend(attachment::vanished(allocation, &pools));
    let network = attachment::network(allocation, Some(&pools), request.conf.mtu);
    let uplinks = uplinks(allocation, &pools);
    let mut observed = attachment::observe(&request.key, Some(allocation), &mut places)?;
    observed.extend(
        pod::observe_needed(&uplinks, &network.ends.host, &mut places).map_err(|error| failure::of_datapath(&error))?,
    );
    let silent = !request.config.version.has_extended_results();
    let found = silent.then(|| mtu_inside(&observed)).flatten();
    let mut desired = as_answered(pod::desired(&network), &answered, &request.key.ifname, found);
    desired.extend(pod::needed(&uplinks, &network.ends.host));
    differences.extend(misleading(&network, &desired, &mut places)?);
    let blockers = pod::blockers(&network, &mut places).map_err(|error| failure::of_datapath(&error))?;
    differences.extend(blockers.iter().map(ToString::to_string));
    report.mark("observe");
    differences.extend(attachment::drifted(&desired, &observed));
    // Where something is missing, wrong routes follow from that.
    if differences.is_empty() {
        let wrong =
            route_check::of_pod(&network, &uplinks, &mut places).map_err(|error| failure::of_datapath(&error))?;
        differences.extend(wrong.iter().map(ToString::to_string));
    }
    attachment::in_sync(&request.key, &differences)
}

/// Where the request, the record and the namespace at hand do not speak of the same attachment.
fn contradictions(
    request: &CheckRequest<Conf>,
    netns: Option<NetnsId>,
    allocation: &Allocation,
    answered: &Success,
) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(NetnsRecord { path, dev, inode }) = &allocation.netns
        && netns != Some(NetnsId { dev: *dev, inode: *inode })
    {
        let (given, added) = (request.netns.path().display(), path.display());
        found.push(format!("{given} is another network namespace than the one ADD was given as {added}"));
    }
    let inside = |name: &str| name == request.key.ifname.as_str();
    let ours: Vec<usize> =
        answered.interfaces.iter().enumerate().filter(|(_, it)| inside(&it.name)).map(|(at, _)| at).collect();
    let elsewhere = answered.interfaces.iter().filter(|it| inside(&it.name)).map(|it| &it.sandbox);
    for sandbox in elsewhere.filter(|sandbox| !sandbox.is_empty() && Path::new(sandbox) != request.netns.path()) {
        if Netns::open(Path::new(sandbox)).is_ok_and(|other| Some(other.id()) != netns) {
            found.push(format!("prevResult says that {} is in {sandbox}", request.key.ifname));
        }
    }
    for ip in answered.ips.iter().filter(|ip| ip.interface.is_some_and(|index| ours.contains(&index))) {
        if !allocation.addresses.iter().any(|held| IpNetwork::from(held.address) == ip.address) {
            found.push(format!("prevResult says that the pod has {}, which is not on record as its own", ip.address));
        }
    }
    found
}

/// What others wrote on the host end that keeps the pod's traffic from it. It belongs to other programs, so a repeated ADD leaves it.
fn misleading(
    network: &PodNetwork,
    desired: &[(Place, Object)],
    places: &mut Places,
) -> Result<impl Iterator<Item = String>, Error> {
    let mac = desired.iter().find_map(|(place, object)| match (place, object) {
        (Place::Pod, Object::Link(link)) => link.mac,
        _ => None,
    });
    let held: Vec<IpAddr> = network.addresses.iter().map(|pod| pod.address).collect();
    let found = pod::misleading(&network.ends.host, &held, mac.unwrap_or(network.ends.pod_mac), places)
        .map_err(|error| failure::of_datapath(&error))?;
    Ok(found.into_iter().map(|NeighbourSpec { link, address, .. }| {
        format!("{link} has another program's permanent neighbour {address} with an Ethernet address that is not the pod's: neigh del {address} dev {link}")
    }))
}

/// Later plugins of the chain may have changed what is in the pod: its link's Ethernet address, its MTU, its default route. The
/// chain's result then says so, except for an MTU in versions that know none. In these versions, `found`, which the pod's end
/// has, is of those plugins if it is lower, as `tuning` makes it. A higher one would lose packets.
fn as_answered(
    mut desired: Vec<(Place, Object)>,
    answered: &Success,
    ifname: &IfName,
    found: Option<Mtu>,
) -> Vec<(Place, Object)> {
    let inside = |it: &&Interface| !it.sandbox.is_empty() && it.name == ifname.as_str();
    let of_pod = answered.interfaces.iter().find(inside);
    let mut forgotten = false;
    desired.retain_mut(|(place, object)| match (place, object) {
        (Place::Pod, Object::Link(link)) => {
            // With its old Ethernet address a link loses its permanent neighbours; the host end answers for the gateway.
            forgotten = of_pod.is_some_and(|it| it.mac.is_some() && it.mac != link.mac);
            link.mac = of_pod.and_then(|it| it.mac).or(link.mac);
            link.mtu = of_pod.and_then(|it| it.mtu).or(link.mtu);
            link.mtu = link.mtu.map(|mtu| found.map_or(mtu, |found| mtu.min(found)));
            true
        }
        (Place::Pod, Object::Neighbour(_)) => !forgotten,
        // A result that lists no routes at all says nothing about them.
        (Place::Pod, Object::Route(route)) if route.is_default() && !answered.routes.is_empty() => {
            answered.routes.iter().any(|it| it.dst == route.destination)
        }
        _ => true,
    });
    desired
}

fn mtu_inside(observed: &[(Place, Object)]) -> Option<Mtu> {
    observed.iter().find_map(|(place, object)| match (place, object) {
        (Place::Pod, Object::Link(link)) => link.mtu,
        _ => None,
    })
}

fn uplinks(allocation: &Allocation, pools: &Pools) -> Vec<Uplink> {
    let carrier = |held: &ipam::AssignedAddress| {
        let vnic = pools.vnics.iter().find(|vnic| vnic.vnic_id == held.vnic_id)?;
        let router = vnic.families.of(Family::of(held.address))?.router;
        let mac = vnic.link_has_mac.then_some(vnic.mac);
        Some(Uplink { link: vnic.link.clone(), mac, table: held.table, router })
    };
    allocation.addresses.iter().filter_map(carrier).collect()
}
