//! Our rules and proxies for addresses of no pod.

use std::net::IpAddr;

use super::source_of_a_pod;
use crate::{Change, Failure, NeighbourSpec, Object, Place, Places, Snapshot, Step, dismantle};

/// One of our rules or proxy neighbours, for an address without a route to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The address that no recorded pod has.
    pub address: IpAddr,
    /// The step that removes it.
    pub step: Step,
}

/// All orphans: killed verbs left them, or a VNIC's link was renamed between ADD and DEL. Pods whose record was lost have a route,
/// so their objects are none. The caller reads the records afterwards: an ADD in progress writes its record before these objects.
pub fn orphans(host: &Snapshot) -> Vec<Orphan> {
    let proxies = host.neighbours.iter().filter_map(|proxy| {
        let link = host.name(proxy.index).filter(|link| !link.is_of_pod())?.clone();
        Some((proxy.address, Object::Neighbour(NeighbourSpec { link, address: proxy.address, mac: None })))
    });
    let rules = host.rules.iter().filter_map(|rule| Some((source_of_a_pod(rule)?.ip(), Object::Rule(rule.clone()))));
    let orphaned = |(address, _): &(IpAddr, Object)| host.routes.iter().all(|to| to.destination.ip() != *address);
    let step = |object| Step { place: Place::Host, change: Change::Delete(object) };
    let orphans = proxies.chain(rules).filter(orphaned);
    orphans.map(|(address, object)| Orphan { address, step: step(object) }).collect()
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
