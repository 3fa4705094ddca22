//! What there is of an extra interface, in the pod and on the host.

use std::collections::BTreeSet;
use std::net::IpAddr;

use vcn::{ExclusiveLink, TableId};

use super::ExtraNetwork;
use crate::pod::observed::{accept_ra_of, permanent, rules, switched_off, usable};
use crate::pod::{LOOPBACK, observe};
use crate::{Error, LinkKind, LinkSpec, Object, Place, Places, Snapshot};

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

/// Observes the rules in the pod, which do not go with the link.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn observe_rules(network: &ExtraNetwork, places: &mut Places) -> Result<Vec<(Place, Object)>, Error> {
    let pod = Snapshot::of_pod(places)?;
    Ok(rules(&held(network), &pod).map(|object| (Place::Pod, object)).collect())
}

/// Observes what of it is in the pod; of a veth, what does not go with its host end.
fn observe_inside(network: &ExtraNetwork, places: &mut Places) -> Result<Vec<Object>, Error> {
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

/// The VNIC's link in the pod and our objects on it.
fn of_device(network: &ExtraNetwork, device: &ExclusiveLink, pod: &Snapshot, places: &Places) -> Vec<Object> {
    let Some(link) = pod.links.iter().find(|link| link.is_recorded(device)) else { return Vec::new() };
    let kind = match device.vlan {
        Some(tag) => LinkKind::Vlan { parent: device.link.clone(), tag },
        None => LinkKind::Moved(Box::new(device.clone())),
    };
    let mut found = vec![Object::Link(LinkSpec::seen(link.clone(), kind)), Object::Sysctl(accept_ra_of(link))];
    found.extend(usable(&held(network), link, pod));
    found.extend(permanent(&[], link, pod));
    found.extend(pod.routes_on(link, TableId::MAIN));
    let switched_off = |link| switched_off(Place::Pod, link, places).map(|(_, setting)| setting);
    found.extend([LOOPBACK, link.name.as_str()].into_iter().filter_map(switched_off));
    found
}
