//! What a pod's network depends on: its VNIC's link and table, the rule for the table of pods, and settings of the host. The agent
//! creates and repairs it. CHECK verifies it, because a pod without it is as broken as one without its own route.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netlink::RouteFilter;
use vcn::{Family, IfName, MacAddr, PRIMARY_MARK, TableId};

use super::everything;
use crate::error::during;
use crate::host::{by_mark, to_metadata, to_pods};
use crate::object::rule_seen;
use crate::{Error, LinkKind, LinkSpec, Object, Place, Places, RouteSpec, SysctlSpec};

/// The VNIC that carries one of a pod's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// The link of the VNIC.
    pub link: IfName,
    /// The Ethernet address of the link, if known.
    pub mac: Option<MacAddr>,
    /// The routing table of the VNIC.
    pub table: TableId,
    /// Its virtual router; its family is the uplink's.
    pub router: IpAddr,
}

impl Uplink {
    pub(crate) const fn family(&self) -> Family {
        Family::of(self.router)
    }

    fn route(&self, destination: IpNetwork, via: Option<IpAddr>) -> Object {
        Object::Route(RouteSpec { destination, via, link: self.link.clone(), table: self.table })
    }

    /// The settings without which the kernel does not forward between this VNIC and a pod's link.
    fn settings(&self, pod_link: &IfName) -> Vec<SysctlSpec> {
        let setting = |key: String, value: &str| SysctlSpec { key, value: value.to_owned() };
        let link = &self.link;
        match self.family() {
            Family::Ipv4 => vec![
                setting(format!("net/ipv4/conf/{link}/forwarding"), "1"),
                setting(format!("net/ipv4/conf/{pod_link}/forwarding"), "1"),
                setting(format!("net/ipv4/conf/{link}{RP_FILTER}"), "2"),
            ],
            // Whether IPv6 forwards is decided for the host as a whole, but for its pods the kernel answers only on links whose own
            // setting says so, too.
            Family::Ipv6 => vec![
                setting("net/ipv6/conf/all/forwarding".to_owned(), "1"),
                setting(format!("net/ipv6/conf/{link}/forwarding"), "1"),
                setting(format!("net/ipv6/conf/{link}/proxy_ndp"), "1"),
            ],
        }
    }
}

const RP_FILTER: &str = "/rp_filter";

/// What a pod whose host end is `pod_link` needs of the host.
pub fn needed(uplinks: &[Uplink], pod_link: &IfName) -> Vec<(Place, Object)> {
    let mut objects = Vec::new();
    for uplink in uplinks {
        let Uplink { link, mac, table: _, router } = uplink;
        let (family, name) = (uplink.family(), link.clone());
        let link = LinkSpec { name, kind: LinkKind::Device, mac: *mac, mtu: None, up: true, alias: None };
        // Both families' may be one.
        let known = objects.contains(&Object::Link(link.clone()));
        objects.extend((!known).then_some(Object::Link(link)));
        objects.extend([
            uplink.route(IpNetwork::from(*router), None),
            uplink.route(everything(family), Some(*router)),
            to_pods(family),
        ]);
        objects.extend(of_the_agent(family));
        objects.extend(uplink.settings(pod_link).into_iter().map(Object::Sysctl));
    }
    objects.into_iter().map(|object| (Place::Host, object)).collect()
}

/// What there is of that.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn observe_needed(
    uplinks: &[Uplink],
    pod_link: &IfName,
    places: &mut Places,
) -> Result<Vec<(Place, Object)>, Error> {
    let mut found = Vec::new();
    for uplink in uplinks {
        let Uplink { link: name, table, .. } = uplink;
        let family = uplink.family();
        let link = match places.host.link(name) {
            Ok(link) => link,
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(during(format_args!("link {name}"))(error)),
        };
        let index = link.index;
        found.push(Object::Link(LinkSpec::seen(link, LinkKind::Device)));
        let filter = RouteFilter { family, table: Some(*table), protocol: None, oif: Some(index) };
        let routes = places.host.routes(&filter).map_err(during(format_args!("{family} routes in table {table}")))?;
        let is_needed =
            |route: &netlink::Route| route.destination == everything(family) || route.destination.ip() == uplink.router;
        found.extend(routes.into_iter().filter(is_needed).map(|route| uplink.route(route.destination, route.gateway)));
        let rules = places.host.rules(family).map_err(during(format_args!("{family} policy rules")))?;
        found.extend(Some(to_pods(family)).filter(|rule| there_is(rule, &rules)));
        found.extend(of_the_agent_there(family, &rules));
        found.extend(uplink.settings(pod_link).into_iter().filter_map(|desired| setting(desired, places)));
    }
    Ok(found.into_iter().map(|object| (Place::Host, object)).collect())
}

/// The agent's rules: the route to the resolver, and the return path of connections by the primary VNIC.
fn of_the_agent(family: Family) -> [Object; 2] {
    [to_metadata(family), by_mark(family, PRIMARY_MARK, TableId::MAIN)]
}

/// Which of the agent's rules exist. The agent always makes both. Without either there is no agent, and both count as present,
/// because an ADD does not need them.
fn of_the_agent_there(family: Family, rules: &[netlink::Rule]) -> Vec<Object> {
    let agent_rules = of_the_agent(family);
    let none = !agent_rules.iter().any(|object| there_is(object, rules));
    agent_rules.into_iter().filter(|object| none || there_is(object, rules)).collect()
}

fn there_is(object: &Object, rules: &[netlink::Rule]) -> bool {
    matches!(object, Object::Rule(desired) if rules.iter().any(|rule| rule_seen(rule) == *desired))
}

fn setting(desired: SysctlSpec, places: &Places) -> Option<Object> {
    let mut found = places.setting(Place::Host, &desired.key)?;
    if desired.key.ends_with(RP_FILTER) {
        // The kernel uses the higher of this value and that of "all"; only 1 drops packets whose two directions use different tables.
        let of_all = places.setting(Place::Host, &format!("net/ipv4/conf/all{RP_FILTER}"))?;
        let strict = found.value.max(of_all.value) == "1";
        found.value = if strict { "1".into() } else { desired.value };
    }
    Some(Object::Sysctl(found))
}
