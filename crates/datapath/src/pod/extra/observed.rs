//! What there is of an extra interface, in the pod and on the host; and where its VNIC's link went when the pod ended.

use std::collections::BTreeSet;
use std::net::IpAddr;

use netlink::Link;
use vcn::{ExclusiveLink, TableId};

use super::ExtraNetwork;
use crate::error::during;
use crate::pod::observed::{accept_ra_of, permanent, rules, switched_off, usable};
use crate::pod::{LOOPBACK, observe};
use crate::{Error, LinkKind, LinkSpec, Object, Place, Places, Snapshot, apply};

/// Kinds of links that may have their parent's Ethernet address.
const UPON_ANOTHER: [&str; 7] = ["vlan", "macvlan", "macvtap", "ipvlan", "bridge", "bond", "team"];

/// Observes everything that belongs to an extra interface. Without a pod in `places`, only what is on the host.
///
/// # Errors
/// As [`observe`].
pub fn observe_extra(network: &ExtraNetwork, places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
    let mut found = match &network.device {
        None => observe(&network.pod.ends, held(network), places)?,
        Some(_) => Vec::new(),
    };
    found.extend(observe_inside(network, places)?.into_iter().map(|object| (Place::Pod, object)));
    Ok(found)
}

/// Observes what of it is in the pod; of a veth, what does not go with its host end.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn observe_inside(network: &ExtraNetwork, places: &mut Places) -> Result<Vec<Object>, Error> {
    let pod = Snapshot::of_pod(places)?;
    let device = network.device.as_ref().map(|device| of_device(network, device, &pod, places));
    let mut found = device.unwrap_or_default();
    if let Some(link) = pod.link(network.name()) {
        // Both addresses of a VNIC may have one table.
        let tables: BTreeSet<TableId> = network.pod.addresses.iter().map(|address| address.table).collect();
        found.extend(tables.into_iter().flat_map(|table| pod.routes_on(link, table)));
    }
    found.extend(rules(&held(network), &pod));
    Ok(found)
}

fn held(network: &ExtraNetwork) -> Vec<IpAddr> {
    network.pod.addresses.iter().map(|pod| pod.address).collect()
}

/// The VNIC's link in the pod and our objects on it. It is known by its Ethernet address, and by its name for one that
/// others may have made on it.
fn of_device(network: &ExtraNetwork, device: &ExclusiveLink, pod: &Snapshot, places: &Places) -> Vec<Object> {
    let ours = |link: &Link| {
        link.mac == Some(device.mac)
            && link.vlan == device.vlan
            && (link.name == *network.name() || link.name == device.link)
    };
    let Some(link) = pod.links.iter().find(|link| ours(link)) else { return Vec::new() };
    let kind = match device.vlan {
        Some(tag) => LinkKind::Vlan { parent: device.link.clone(), tag },
        None => LinkKind::Moved { from: device.link.clone() },
    };
    let mut found = vec![Object::Link(LinkSpec::seen(link.clone(), kind)), Object::Sysctl(accept_ra_of(link))];
    found.extend(usable(&held(network), link, pod));
    found.extend(permanent(&[], link, pod));
    found.extend(pod.routes_on(link, TableId::MAIN));
    let switched_off = |link| switched_off(Place::Pod, link, places).map(|(_, setting)| setting);
    found.extend([LOOPBACK, link.name.as_str()].into_iter().filter_map(switched_off));
    found
}

/// Gives the link of a VNIC its name on the host again, where the kernel has brought it back from a pod that ended: it comes
/// back lowered, under the name that it had in the pod, or another. Answers whether the host has it.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer, or refuses the name.
pub fn give_back(network: &ExtraNetwork, places: &mut Places) -> Result<bool, Error> {
    let Some(device) = network.device.as_ref().filter(|device| device.vlan.is_none()) else { return Ok(true) };
    let during = during(format!("where link {} is", device.link));
    let ends = &network.pod.ends;
    // One that has neither our alias nor the name that it had in the pod was in none.
    let is_known =
        |link: &Link| link.alias.as_ref() == Some(&ends.alias) || link.name == ends.pod || link.name == device.link;
    let is_it = |link: &&Link| {
        let upon_another = link.kind.as_deref().is_some_and(|kind| UPON_ANOTHER.contains(&kind));
        link.mac == Some(device.mac) && !upon_another && is_known(link)
    };
    let links = places.host.links().map_err(&during)?;
    let Some(link) = links.iter().find(is_it) else { return Ok(false) };
    if link.name != device.link || link.alias.as_ref() == Some(&ends.alias) {
        apply::give_back(link, &device.link, &mut places.host).map_err(&during)?;
    }
    Ok(true)
}
