//! Hints that something of a running pod was removed or changed, from kernel events. Most of them come from a DEL; whether the
//! pod is still there is found out when they are looked at.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use datapath::pods::host_mac;
use netlink::{Change, Event, Link};
use vcn::{HOST_LINK_PREFIX, IfName, Mtu, POD_GATEWAY_V6, PODS_TABLE, PROTOCOL, RulePriorities};

/// The most hints of a kind; with more than a full node causes, a look at everything is due anyway.
const LIMIT: usize = 4096;

/// Pods that may have drifted, by what events name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriftHints {
    /// Pods' addresses whose route or rule is gone.
    pub addresses: HashSet<IpAddr>,
    /// Host ends of pods' links that are down or have another MAC or MTU.
    pub links: HashSet<IfName>,
    /// Indices of links that lost the pods' IPv6 gateway.
    pub indices: HashSet<u32>,
}

impl DriftHints {
    /// Takes in an event; returns whether it is a new hint.
    pub fn note(&mut self, event: &Event) -> bool {
        match event {
            Event::Rule(Change::Gone, rule)
                if rule.protocol == PROTOCOL && rule.priority == RulePriorities::FROM_POD =>
            {
                rule.from.is_some_and(|from| keep(&mut self.addresses, from.ip()))
            }
            // The event of a replaced route has only the new one.
            Event::Route(Change::Gone, route) if route.table == PODS_TABLE => {
                keep(&mut self.addresses, route.destination.ip())
            }
            Event::Route(Change::Present, route) if route.table == PODS_TABLE && route.protocol != PROTOCOL => {
                keep(&mut self.addresses, route.destination.ip())
            }
            Event::Address(Change::Gone, address) if address.address.ip() == IpAddr::V6(POD_GATEWAY_V6) => {
                keep(&mut self.indices, address.index)
            }
            Event::Link(change, link) if link.name.as_str().starts_with(HOST_LINK_PREFIX) => match change {
                Change::Present if !link.up || host_mac(&link.name) != link.mac => {
                    keep(&mut self.links, link.name.clone())
                }
                Change::Present => false,
                // A pod without link cannot be repaired.
                Change::Gone => {
                    self.links.remove(&link.name);
                    self.indices.remove(&link.index);
                    false
                }
            },
            _ => false,
        }
    }

    /// Notes that a pod's link drifted; returns whether that is news.
    pub fn note_link(&mut self, link: IfName) -> bool {
        keep(&mut self.links, link)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.links.is_empty() && self.indices.is_empty()
    }
}

/// The last known MTUs of the host ends of pods' links, by their indices: an event has the new one only, and the right one
/// depends on how ADD was configured.
#[derive(Clone, Debug, Default)]
pub struct Sizes(HashMap<u32, Mtu>);

impl Sizes {
    /// The MTUs of these links.
    #[must_use]
    pub fn of(links: &[Link]) -> Self {
        let of_pods = links.iter().filter(|link| link.name.as_str().starts_with(HOST_LINK_PREFIX));
        Self(of_pods.map(|link| (link.index, link.mtu)).collect())
    }

    /// The link whose MTU an event changes.
    pub fn changed(&mut self, event: &Event) -> Option<IfName> {
        match event {
            Event::Link(Change::Gone, link) => {
                self.0.remove(&link.index);
                None
            }
            Event::Link(Change::Present, link) if link.name.as_str().starts_with(HOST_LINK_PREFIX) => {
                let known = self.0.contains_key(&link.index) || self.0.len() < LIMIT;
                let before = known.then(|| self.0.insert(link.index, link.mtu)).flatten()?;
                (before != link.mtu).then(|| link.name.clone())
            }
            _ => None,
        }
    }
}

fn keep<T: Eq + std::hash::Hash>(set: &mut HashSet<T>, hint: T) -> bool {
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

    fn pod_link(change: Change, up: bool, mac: MacAddr) -> Event {
        Event::Link(change, netlink::Link { up, mac: Some(mac), ..link(NAME, 7) })
    }

    fn noted(events: &[Event]) -> DriftHints {
        let mut hints = DriftHints::default();
        for event in events {
            hints.note(event);
        }
        hints
    }

    #[test]
    fn loss_of_a_pod_is_a_hint() {
        let address: IpAddr = "10.0.33.33".parse().unwrap();
        for event in
            [rule(Change::Gone), route(Change::Gone, PODS_TABLE, PROTOCOL), route(Change::Present, PODS_TABLE, 4)]
        {
            assert_eq!(noted(&[event]).addresses, HashSet::from([address]));
        }
        let mine = host_mac(&NAME.parse().unwrap()).unwrap();
        for event in [pod_link(Change::Present, false, mine), pod_link(Change::Present, true, MacAddr([2; 6]))] {
            assert_eq!(noted(&[event]).links.len(), 1);
        }
        let gateway = Address::new(7, "fe80::1/64".parse().unwrap());
        assert_eq!(noted(&[Event::Address(Change::Gone, gateway)]).indices, HashSet::from([7]));
    }

    #[test]
    fn events_of_an_add_are_no_hints() {
        let mine = host_mac(&NAME.parse().unwrap()).unwrap();
        let gateway = Address::new(7, "fe80::1/64".parse().unwrap());
        let events = [
            pod_link(Change::Present, true, mine),
            Event::Address(Change::Present, gateway),
            route(Change::Present, PODS_TABLE, PROTOCOL),
            rule(Change::Present),
            route(Change::Gone, TableId::MAIN, PROTOCOL),
        ];
        assert!(noted(&events).is_empty());
    }

    #[test]
    fn changed_mtu_of_known_pod_link_is_found() {
        let of = |name: &str, change, mtu| Event::Link(change, netlink::Link { mtu: Mtu(mtu), ..link(name, 7) });
        let mut sizes = Sizes::of(&[netlink::Link { mtu: Mtu(9000), ..link(NAME, 7) }]);
        assert_eq!(sizes.changed(&of(NAME, Change::Present, 9000)), None);
        assert_eq!(sizes.changed(&of(NAME, Change::Present, 1400)), Some(NAME.parse().unwrap()));
        assert_eq!(sizes.changed(&of(NAME, Change::Gone, 1400)), None);
        assert_eq!(sizes.changed(&of(NAME, Change::Present, 9000)), None, "another link of the same index");
        assert_eq!(sizes.changed(&of("ens5", Change::Present, 1500)), None);
    }

    #[test]
    fn hints_about_a_removed_link_are_dropped() {
        let mac = MacAddr([2; 6]);
        let gateway = Address::new(7, "fe80::1/64".parse().unwrap());
        let events = [
            pod_link(Change::Present, false, mac),
            Event::Address(Change::Gone, gateway),
            pod_link(Change::Gone, false, mac),
        ];
        assert!(noted(&events).is_empty());
    }
}
