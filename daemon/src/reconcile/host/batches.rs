//! The order in which changes of the host's network are applied, and which of them fail together.

#[cfg(test)]
mod tests;

use datapath::host::{self, HostNetwork, HostVnic};
use datapath::{AddressSpec, Change, Object, Step};
use ipnetwork::IpNetwork;
use vcn::{Family, Ocid};

use super::{Batch, Part};

/// The order in which steps are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Order {
    Stale,
    Setting,
    /// Together and in order: forwarding without accept_ra=2 would cost the host its default route.
    Ipv6Setting,
    /// What several VNICs need: a physical port.
    Shared,
    /// All of one VNIC, together.
    Vnic(usize),
    Nft,
    /// An address that a VNIC replaced by another, or that is a pod's. It may be assigned to a pod a moment later, so it cannot stay
    /// for a while as a leftover can.
    Replaced,
    /// With a link's only address the kernel drops the link's routes.
    StaleAddress,
    /// The rule that marks such an address.
    StaleRule,
}

/// Sorts steps into batches that fail on their own.
pub(super) fn batches(steps: Vec<Step>, network: &HostNetwork) -> Vec<Batch> {
    let only = |vnics: Vec<HostVnic>| host::desired(&HostNetwork { vnics, ..network.clone() });
    let base = only(Vec::new());
    let owned = |vnic: &HostVnic| only(vec![vnic.clone()]).into_iter().filter(|it| !base.contains(it)).collect();
    let owned: Vec<Vec<Object>> = network.vnics.iter().map(owned).collect();
    let leaving = |step: &Step| match &step.change {
        Change::Delete(Object::Address(address)) => Some(address.address),
        _ => None,
    };
    let leaving: Vec<IpNetwork> = steps.iter().filter_map(leaving).collect();
    let place = |step: Step| (place(&step, network, &owned, &leaving), step);
    let mut placed: Vec<((Order, Part), Step)> = steps.into_iter().map(place).collect();
    placed.sort_by_key(|((order, _), _)| *order);
    let mut batches: Vec<Batch> = Vec::new();
    let mut before = None;
    for ((order, part), step) in placed {
        match batches.last_mut().filter(|_| before == Some(order)) {
            // The same port, once for every VLAN on it.
            Some(last) if order == Order::Shared && last.steps.contains(&step) => {}
            Some(last) if matches!(order, Order::Ipv6Setting | Order::Vnic(_) | Order::Nft) => last.steps.push(step),
            _ => batches.push(Batch { part, steps: vec![step] }),
        }
        before = Some(order);
    }
    batches
}

/// When a step is applied, and what it is a part of.
fn place(step: &Step, network: &HostNetwork, owned: &[Vec<Object>], leaving: &[IpNetwork]) -> (Order, Part) {
    let object = match &step.change {
        Change::Delete(Object::Address(address)) => {
            return match served(address, network) {
                Some(vnic) => (Order::Replaced, Part::Vnic(vnic.clone())),
                None => (Order::StaleAddress, Part::Stale),
            };
        }
        Change::Delete(Object::Rule(rule)) if rule.from.is_some_and(|from| leaving.contains(&from)) => {
            return (Order::StaleRule, Part::Stale);
        }
        Change::Delete(_) => return (Order::Stale, Part::Stale),
        Change::Add(object) | Change::Replace { to: object, .. } => object,
    };
    let mut owners = network.vnics.iter().zip(owned).enumerate().filter(|(_, (_, objects))| objects.contains(object));
    match (owners.next(), owners.next(), object) {
        (_, _, Object::NftTable(_)) => (Order::Nft, Part::Nft),
        (None, _, Object::Sysctl(it)) if it.key.starts_with("net/ipv6/") => (Order::Ipv6Setting, Part::Base),
        (None, _, _) => (Order::Setting, Part::Base),
        (Some(_), Some(_), _) => (Order::Shared, Part::Base),
        (Some((at, (owner, _))), None, _) => (Order::Vnic(at), Part::Vnic(owner.vnic.id.clone())),
    }
}

/// The VNIC on the link of an address that goes, if it has another of that family, or should.
fn served<'a>(address: &AddressSpec, network: &'a HostNetwork) -> Option<&'a Ocid> {
    let family = Family::of(address.address.ip());
    let serves = |host: &&HostVnic| *host.placement.link() == address.link && host.vnic.addressing.of(family).is_some();
    network.vnics.iter().find(serves).map(|host| &host.vnic.id)
}
