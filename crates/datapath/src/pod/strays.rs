//! What is ours about single addresses, and of no pod that can be seen.

use std::collections::HashMap;
use std::net::IpAddr;

use netlink::{NeighbourFilter, RouteFilter};
use vcn::{Family, HOST_LINK_PREFIX, IfName, PODS_TABLE, PROTOCOL};

use super::rule_of_a_pod;
use crate::{Change, Error, Failure, NeighbourSpec, Object, Place, Places, Step, dismantle};

/// A rule or a proxy neighbour of ours to whose address no route to a pod leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stray {
    /// The address.
    pub address: IpAddr,
    /// What removes it.
    pub step: Step,
}

/// All there are: verbs that were killed left them, or a VNIC's link was renamed between ADD and DEL. What is of pods whose
/// record was lost is theirs: these have a route. Whose the others are, the record says: to be asked afterwards, for an ADD that
/// is under way has none of them before it is on record.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn strays(places: &mut Places) -> Result<Vec<Stray>, Error> {
    let during = |source| Error::Observe { what: "what is about no pod".into(), source };
    let stray = |address, object| Stray { address, step: Step { place: Place::Host, change: Change::Delete(object) } };
    let socket = &mut places.host;
    let links = socket.links().map_err(during)?.into_iter();
    let links: HashMap<u32, IfName> = links.map(|link| (link.index, link.name)).collect();
    let mut found = Vec::new();
    let proxies = NeighbourFilter { proxy: true, ..NeighbourFilter::default() };
    for proxy in socket.neighbours(&proxies).map_err(during)? {
        let link = links.get(&proxy.index).filter(|link| !link.as_str().starts_with(HOST_LINK_PREFIX));
        if let (Some(link), Some(PROTOCOL)) = (link, proxy.protocol) {
            let spec = NeighbourSpec { link: link.clone(), address: proxy.address, mac: None };
            found.push(stray(proxy.address, Object::Neighbour(spec)));
        }
    }
    for family in Family::ALL {
        let rules = socket.rules(family).map_err(during)?;
        let of_pods = rules.iter().filter_map(rule_of_a_pod);
        found.extend(of_pods.map(|(net, rule)| stray(net.ip(), Object::Rule(rule))));
        let filter = RouteFilter { family, table: Some(PODS_TABLE), protocol: None, oif: None };
        let routes = socket.routes(&filter).map_err(during)?.into_iter();
        let routed: Vec<IpAddr> = routes.map(|route| route.destination.ip()).collect();
        found.retain(|it| !routed.contains(&it.address));
    }
    Ok(found)
}

impl Stray {
    /// Removes it. Whether it is gone: where the address `is_held` by then, somebody just got it, and would have made the same.
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
