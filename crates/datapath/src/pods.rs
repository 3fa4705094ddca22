//! The host's side of all running pods, for the agent's repairs: the kernel is asked once for everything and each pod's share is
//! compared alone, so hundreds of pods cost milliseconds.
//!
//! ```text
//!   links, routes to pods, rules from pods, proxies ─▶ Observed ─┬─ repairs(pod) ─▶ plan(desired, its share) ─▶ [Step]
//!                                                   (one list)   └─ repairs(pod) ─▶ …
//! ```
//!
//! Objects of other pods are not touched.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink::{NeighbourFilter, RouteFilter, Rule};
use vcn::{Family, HOST_LINK_PREFIX, IfName, MacAddr, Mtu, PODS_TABLE, PROTOCOL};

use crate::error::during;
use crate::pod::{self, LINK_LOCAL_GATEWAY, PodNetwork};
use crate::{
    AddressSpec, Error, LinkKind, LinkSpec, NeighbourSpec, Object, Place, Places, RouteSpec, Step, SysctlSpec, plan,
};

/// All pods' objects on the host.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    links: HashMap<IfName, LinkSpec>,
    /// Links that accept router advertisements, with the value of `accept_ra`.
    accept_ra: HashMap<IfName, i32>,
    /// Host ends that hold the pods' IPv6 gateway.
    gateways: HashSet<IfName>,
    routes: HashMap<IpNetwork, RouteSpec>,
    rules: HashMap<IpNetwork, Vec<Rule>>,
    proxies: HashSet<(IfName, IpAddr)>,
}

/// The desired host side of a pod, from its record. A record of an older ADD has no `mtu`; the link then keeps its own.
pub fn desired(network: &PodNetwork, mtu: Option<Mtu>) -> Vec<Object> {
    let host = pod::desired(network).into_iter().filter(|(place, _)| *place == Place::Host);
    host.map(|(_, object)| match object {
        Object::Link(link) => Object::Link(LinkSpec { kind: LinkKind::Device, mtu, ..link }),
        other => other,
    })
    .collect()
}

/// The Ethernet address that ADD gave to the host end of this name; `None` for other names.
pub fn host_mac(name: &IfName) -> Option<MacAddr> {
    let digits = name.as_str().strip_prefix(HOST_LINK_PREFIX).filter(|digits| digits.len() == 12)?;
    u64::from_str_radix(digits, 16).ok().map(MacAddr::local)
}

impl Observed {
    /// Observes everything with eight requests, whatever the number of pods.
    ///
    /// # Errors
    /// [`Error::Observe`] when the kernel does not answer.
    pub fn look(places: &mut Places) -> Result<Self, Error> {
        let socket = &mut places.host;
        let all = socket.links().map_err(during("links"))?;
        let names: HashMap<u32, IfName> = all.iter().map(|link| (link.index, link.name.clone())).collect();
        let accept_ra = all.iter().filter_map(|link| Some((link.name.clone(), link.accept_ra?)));
        let accept_ra = accept_ra.filter(|(_, accept_ra)| *accept_ra != 0).collect();
        let links = all.into_iter().map(|link| (link.name.clone(), LinkSpec::seen(link, LinkKind::Device)));
        let mut found = Self { links: links.collect(), accept_ra, ..Self::default() };
        let addresses = socket.addresses(None).map_err(during("addresses"))?;
        let gateways = addresses.into_iter().filter(|address| address.address == LINK_LOCAL_GATEWAY);
        found.gateways = gateways.filter_map(|address| names.get(&address.index).cloned()).collect();
        let proxies = socket.neighbours(&NeighbourFilter { proxy: true, ..NeighbourFilter::default() });
        // One that another program made may go with it.
        let ours = |it: &netlink::Neighbour| it.protocol == Some(PROTOCOL);
        let proxies = proxies.map_err(during("proxy neighbours"))?.into_iter().filter(ours);
        found.proxies = proxies.filter_map(|it| Some((names.get(&it.index)?.clone(), it.address))).collect();
        for family in Family::ALL {
            let filter = RouteFilter { family, table: Some(PODS_TABLE), protocol: None, oif: None };
            let routes = socket.routes(&filter).map_err(during("routes to pods"))?;
            found.routes.extend(routes.into_iter().filter_map(|route| {
                Some((route.destination, RouteSpec::seen(&route, names.get(&route.oif)?.clone())))
            }));
            for rule in socket.rules(family).map_err(during("policy rules"))? {
                if let Some((net, spec)) = pod::rule_of_a_pod(&rule) {
                    found.rules.entry(net).or_default().push(spec);
                }
            }
        }
        Ok(found)
    }

    /// What would make the host's side of a pod whole; `None` when the pod's link is not there, and so nothing of it can
    /// be mended. On success of the steps the host has all that [`desired`] says, but for proxies on VNIC links that are
    /// gone, and no other rule from the pod's addresses.
    pub fn repairs(&self, network: &PodNetwork, mtu: Option<Mtu>, places: &Places) -> Option<Vec<Step>> {
        let ends = &network.ends;
        let link = self.links.get(&ends.host)?;
        // Without alias: ADD set it, so another program removed it; the address still identifies the pod.
        let unnamed = link.alias.is_none() && link.mac == Some(ends.host_mac);
        if link.alias.as_ref() != Some(&ends.alias) && !unnamed {
            return None;
        }
        let deaf = Object::Sysctl(SysctlSpec::heeds_no_router(&ends.host));
        let asks = |object: &Object| match object {
            _ if *object == deaf => true,
            // Only where it shows: a file per pod is read for it.
            Object::Sysctl(_) => !self.gateways.contains(&ends.host),
            Object::Neighbour(proxy) => self.links.contains_key(&proxy.link),
            _ => true,
        };
        let wanted: Vec<Object> = desired(network, mtu).into_iter().filter(asks).collect();
        let heeds = pod::accept_ra_of(&ends.host, self.accept_ra.get(&ends.host).copied());
        let others = wanted.iter().filter(|object| **object != deaf).flat_map(|object| self.there_is(object, places));
        let observed: Vec<Object> = others.chain([Object::Sysctl(heeds)]).collect();
        let placed = |objects: Vec<Object>| objects.into_iter().map(|object| (Place::Host, object)).collect::<Vec<_>>();
        Some(plan(&placed(wanted), &placed(observed)))
    }

    /// What there is in the place of a wanted object.
    fn there_is(&self, wanted: &Object, places: &Places) -> Vec<Object> {
        match wanted {
            Object::Link(link) => self.links.get(&link.name).cloned().map(Object::Link).into_iter().collect(),
            Object::Address(AddressSpec { link, .. }) if self.gateways.contains(link) => vec![wanted.clone()],
            Object::Route(route) => {
                self.routes.get(&route.destination).cloned().map(Object::Route).into_iter().collect()
            }
            Object::Rule(rule) => {
                let found = rule.from.and_then(|from| self.rules.get(&from)).into_iter().flatten();
                found.cloned().map(Object::Rule).collect()
            }
            Object::Neighbour(NeighbourSpec { link, address, .. })
                if self.proxies.contains(&(link.clone(), *address)) =>
            {
                vec![wanted.clone()]
            }
            Object::Sysctl(SysctlSpec { key, .. }) => {
                places.setting(Place::Host, key).map(Object::Sysctl).into_iter().collect()
            }
            Object::Address(_) | Object::Neighbour(_) | Object::NftTable(_) => Vec::new(),
        }
    }
}
