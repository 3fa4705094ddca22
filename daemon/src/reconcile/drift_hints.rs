//! Hints that something of a running pod was removed or changed, from kernel events. Most of them come from a DEL; whether the
//! pod is still there is found out when they are looked at.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::IpAddr;

use datapath::pods::host_mac;
use netlink::{Change, Event, Link};
use vcn::{IfName, Mtu, POD_GATEWAY_V6, PODS_TABLE, PROTOCOL, RulePriorities};

/// The most hints of a kind, and the most links that are known; with more than a full node has, the timer finds the rest.
const LIMIT: usize = 4096;

/// Pods that may have drifted, by what events name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriftHints {
    /// Pods' addresses whose route or rule is gone.
    pub addresses: HashSet<IpAddr>,
    /// Host ends of pods' links that are down, lost the pods' IPv6 gateway, or have another MAC or MTU.
    pub links: HashSet<IfName>,
}

/// The host ends of pods' links, by their indices. The event of an address does not name its link. That of a link has only the
/// new MTU, while the right one depends on how ADD was configured.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodLinks(HashMap<u32, (IfName, Mtu)>);

impl DriftHints {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.links.is_empty()
    }

    /// Takes in an event; returns whether it is a new hint.
    pub(crate) fn note(&mut self, event: &Event, known: &mut PodLinks) -> bool {
        match event {
            Event::Rule(Change::Gone, rule)
                if rule.protocol == PROTOCOL && rule.priority == RulePriorities::FROM_POD =>
            {
                rule.from.is_some_and(|from| keep(&mut self.addresses, from.ip()))
            }
            // The event of a replaced route has only the new one.
            Event::Route(change, route) if route.table == PODS_TABLE => {
                let is_lost = *change == Change::Gone || route.protocol != PROTOCOL;
                is_lost && keep(&mut self.addresses, route.destination.ip())
            }
            Event::Address(Change::Gone, address) if address.address.ip() == IpAddr::V6(POD_GATEWAY_V6) => {
                let link = known.0.get(&address.index);
                link.is_some_and(|(name, _)| keep(&mut self.links, name.clone()))
            }
            Event::Link(Change::Gone, link) => {
                known.0.remove(&link.index);
                // A pod without link cannot be repaired.
                self.links.remove(&link.name);
                false
            }
            Event::Link(Change::Present, link) if is_pods(link) => {
                let is_resized = known.note(link);
                let is_changed = is_resized || !link.up || host_mac(&link.name) != link.mac;
                is_changed && keep(&mut self.links, link.name.clone())
            }
            _ => false,
        }
    }
}

impl PodLinks {
    pub(crate) fn among(links: &[Link]) -> Self {
        let mut known = Self::default();
        for link in links.iter().filter(|link| is_pods(link)) {
            known.note(link);
        }
        known
    }

    pub(crate) fn has(&self, index: u32) -> bool {
        self.0.contains_key(&index)
    }

    /// Notes a link; returns whether its MTU changed.
    fn note(&mut self, link: &Link) -> bool {
        if self.0.len() >= LIMIT && !self.0.contains_key(&link.index) {
            return false;
        }
        let before = self.0.insert(link.index, (link.name.clone(), link.mtu));
        before.is_some_and(|(_, mtu)| mtu != link.mtu)
    }
}

fn is_pods(link: &Link) -> bool {
    link.name.is_of_pod()
}

fn keep<T: Eq + Hash>(set: &mut HashSet<T>, hint: T) -> bool {
    set.len() < LIMIT && set.insert(hint)
}

#[cfg(test)]
mod tests {
    use netlink::{Address, Route, Rule};
    use vcn::{Family, MacAddr, TableId};

    use super::*;
    use crate::fixture::link;

    const NAME: &str = "vcn0123456789ab";

    fn rule(change: Change) -> Event {
        let from = Some("10.0.33.33/32".parse().unwrap());
        Event::Rule(change, Rule { from, ..Rule::new(Family::Ipv4, RulePriorities::FROM_POD, TableId(1000), PROTOCOL) })
    }

    fn route(change: Change, table: TableId, protocol: u8) -> Event {
        Event::Route(change, Route::new("10.0.33.33/32".parse().unwrap(), 7, table, protocol))
    }

    fn gateway(change: Change) -> Event {
        Event::Address(change, Address::new(7, "fe80::1/64".parse().unwrap()))
    }

    fn pod_link() -> Link {
        Link { mac: host_mac(&NAME.parse().unwrap()), mtu: Mtu(9000), ..link(NAME, 7) }
    }

    /// The hints of events, where the link has been there before.
    fn hints(events: &[Event]) -> DriftHints {
        let (mut hints, mut known) = (DriftHints::default(), PodLinks::among(&[pod_link()]));
        for event in events {
            hints.note(event, &mut known);
        }
        hints
    }

    #[test]
    fn lost_or_changed_pod_object_is_a_hint() {
        let address: IpAddr = "10.0.33.33".parse().unwrap();
        for event in
            [rule(Change::Gone), route(Change::Gone, PODS_TABLE, PROTOCOL), route(Change::Present, PODS_TABLE, 4)]
        {
            assert_eq!(hints(&[event]).addresses, HashSet::from([address]));
        }
        let gone = Event::Link(Change::Gone, pod_link());
        for event in [
            Event::Link(Change::Present, Link { up: false, ..pod_link() }),
            Event::Link(Change::Present, Link { mac: Some(MacAddr([2; 6])), ..pod_link() }),
            Event::Link(Change::Present, Link { mtu: Mtu(1400), ..pod_link() }),
            gateway(Change::Gone),
        ] {
            assert_eq!(hints(std::slice::from_ref(&event)).links, HashSet::from([NAME.parse().unwrap()]));
            assert!(hints(&[event, gone.clone()]).is_empty(), "a pod without link cannot be repaired");
        }
    }

    #[test]
    fn events_of_an_add_are_no_hints() {
        let another = Link { mtu: Mtu(1400), ..pod_link() };
        let events = [
            Event::Link(Change::Gone, pod_link()),
            Event::Link(Change::Present, another),
            gateway(Change::Present),
            route(Change::Present, PODS_TABLE, PROTOCOL),
            rule(Change::Present),
            route(Change::Gone, TableId::MAIN, PROTOCOL),
            Event::Link(Change::Present, link("ens5", 5)),
        ];
        assert!(hints(&events).is_empty());
    }
}
