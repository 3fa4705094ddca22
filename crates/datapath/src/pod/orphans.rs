//! Our rules and proxies for addresses of no pod.

use std::collections::HashMap;
use std::net::IpAddr;

use netlink::{NeighbourFilter, RouteFilter};
use vcn::{Family, HOST_LINK_PREFIX, IfName, PODS_TABLE, PROTOCOL};

use super::rule_of_a_pod;
use crate::error::during;
use crate::{Change, Error, Failure, NeighbourSpec, Object, Place, Places, Step, dismantle};

/// One of our rules or proxy neighbours, for an address without a route to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The address.
    pub address: IpAddr,
    /// The step that removes it.
    pub step: Step,
}

/// All orphans: killed verbs left them, or a VNIC's link was renamed between ADD and DEL. Pods whose record was lost have a route,
/// so their objects are none. The caller reads the records afterwards: an ADD in progress writes its record before these objects.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn orphans(places: &mut Places) -> Result<Vec<Orphan>, Error> {
    let during = during("rules and proxies of no pod");
    let orphan =
        |address, object| Orphan { address, step: Step { place: Place::Host, change: Change::Delete(object) } };
    let socket = &mut places.host;
    let links = socket.links().map_err(&during)?.into_iter();
    let links: HashMap<u32, IfName> = links.map(|link| (link.index, link.name)).collect();
    let mut found = Vec::new();
    let proxies = NeighbourFilter { proxy: true, ..NeighbourFilter::default() };
    for proxy in socket.neighbours(&proxies).map_err(&during)? {
        let link = links.get(&proxy.index).filter(|link| !link.as_str().starts_with(HOST_LINK_PREFIX));
        if let (Some(link), Some(PROTOCOL)) = (link, proxy.protocol) {
            let spec = NeighbourSpec { link: link.clone(), address: proxy.address, mac: None };
            found.push(orphan(proxy.address, Object::Neighbour(spec)));
        }
    }
    for family in Family::ALL {
        let rules = socket.rules(family).map_err(&during)?;
        let of_pods = rules.iter().filter_map(rule_of_a_pod);
        found.extend(of_pods.map(|(net, rule)| orphan(net.ip(), Object::Rule(rule))));
        let filter = RouteFilter { family, table: Some(PODS_TABLE), protocol: None, oif: None };
        let routes = socket.routes(&filter).map_err(&during)?.into_iter();
        let routed: Vec<IpAddr> = routes.map(|route| route.destination.ip()).collect();
        found.retain(|it| !routed.contains(&it.address));
    }
    Ok(found)
}

impl Orphan {
    /// Removes it. Returns `false` if the address `is_held` by then: a pod just got it and needs the same object, which is restored.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn end(&self, places: &mut Places, is_held: impl FnOnce(IpAddr) -> bool) -> Result<bool, Box<Failure>> {
        if let Some(failure) = dismantle(std::slice::from_ref(&self.step), places).into_iter().next() {
            return Err(Box::new(failure));
        }
        let is_held = is_held(self.address);
        if is_held {
            dismantle(&[self.step.undo()], places);
        }
        Ok(!is_held)
    }
}
