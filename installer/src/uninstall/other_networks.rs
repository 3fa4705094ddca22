//! Which links, addresses and settings other programs may use when our objects are removed. A link that another program uses is
//! not lowered: everything on it would go down. Interfaces of pods on it (OKE's are ipvlan links) are in other namespaces and
//! cannot be seen from here, so the presence of another pod network is enough.

use std::net::IpAddr;

use datapath::AddressSpec;
use netlink::{Address, Link, Route, RouteFilter, RouteKind, Socket};
use vcn::{Family, IfName, PROTOCOL};

use crate::decide::{has_our_alias, kernel_shows};
use crate::error::Error;
use crate::observed::ConfFile;
use crate::uninstall::Removal;

/// Routes of the kernel itself or of router advertisements (RTPROT_REDIRECT, _KERNEL, _RA) do not show that a link is used.
const KERNEL_PROTOCOLS: [u8; 3] = [1, 2, 9];

/// Other networks on this node, and the use of links.
#[derive(Debug, Default)]
pub(crate) struct OtherNetworks {
    /// Why anything that another pod network may use stays: its configuration, a pod of it, or that it cannot be known.
    pub(super) network: Option<String>,
    links: Vec<Link>,
    /// Our addresses: our rules are from them.
    ours: Vec<IpAddr>,
    addresses: Vec<Address>,
    routes: Vec<Route>,
}

impl OtherNetworks {
    /// Finds them, after configurations from before us are back.
    pub(super) fn find(files: &[ConfFile], removal: &mut Removal) -> Self {
        let configuration = files.iter().find(|file| file.name != vcn::CONFLIST_FILE && file.may_give_a_network());
        let network = configuration.map(|file| {
            let is = if file.fault.is_none() { "is" } else { "may be" };
            format!("{} {is} of another pod network, which may use it", file.name)
        });
        let may_use = |what: String| format!("pods of another network may use it: {what}");
        let network = network.or_else(|| kernel_shows().map(may_use));
        let others = Self { network, ..Self::default() };
        others.read().unwrap_or_else(|error| {
            removal.failures.push(Error::kernel("listing the use of links")(error));
            Self { network: Some(may_use("the use of links is unknown".to_owned())), ..Self::default() }
        })
    }

    fn read(mut self) -> Result<Self, netlink::Error> {
        let mut socket = Socket::open()?;
        (self.links, self.addresses) = (socket.links()?, socket.addresses(None)?);
        for family in Family::ALL {
            let rules = socket.rules(family)?.into_iter().filter(|rule| rule.protocol == PROTOCOL);
            self.ours.extend(rules.filter_map(|rule| rule.from).map(|from| from.ip()));
            self.routes.extend(socket.routes(&RouteFilter::all(family))?.into_iter().filter(is_foreign));
        }
        Ok(self)
    }

    #[cfg(test)]
    pub(crate) fn named(network: &str) -> Self {
        Self { network: Some(network.to_owned()), ..Self::default() }
    }

    /// Why a VNIC's link stays as it is, or one that we created (a VLAN's) is not removed: what stands on it would go, too.
    pub(crate) fn user_of_link(&self, name: &IfName) -> Option<String> {
        self.network.clone().or_else(|| self.user(self.link(name)?))
    }

    /// Why one of our addresses is not removed. With a link's last IPv4 address, the kernel drops every route through the link. A
    /// link-local address may be the source of another network's router solicitations.
    pub(super) fn user_of_address(&self, ours: &AddressSpec) -> Option<String> {
        let link = self.link(&ours.link)?;
        if link.mac.is_some_and(|mac| ours.address.ip() == IpAddr::from(mac.link_local())) {
            return self.user_of_link(&ours.link);
        }
        let ipv4 = |held: &&Address| held.index == link.index && held.address.is_ipv4();
        let last = ours.address.is_ipv4() && self.addresses.iter().filter(ipv4).count() == 1;
        let route = self.route(link, ours.address.is_ipv4())?;
        last.then(|| format!("a foreign route to {} by the link would be removed with it", route.destination))
    }

    fn link(&self, name: &IfName) -> Option<&Link> {
        self.links.iter().find(|link| link.name == *name)
    }

    /// Which other program uses a link: by its master, a link on it, an address or a route.
    fn user(&self, link: &Link) -> Option<String> {
        let is_foreign = |held: &&Address| {
            let is_single = held.address.prefix() == Family::of(held.address.ip()).host_prefix();
            let is_ours = is_single && self.ours.contains(&held.address.ip());
            // The kernel gives a link this address when it is raised. Of a random one (addr_gen_mode 2 and 3) the link stays.
            let own = link.mac.map(|mac| IpAddr::from(mac.link_local()));
            held.index == link.index && !is_ours && Some(held.address.ip()) != own
        };
        let address = || self.addresses.iter().find(is_foreign);
        let route = || self.route(link, true).or_else(|| self.route(link, false));
        self.stacked(link)
            .or_else(|| address().map(|held| format!("{} on the link is foreign", held.address)))
            .or_else(|| route().map(|route| format!("there is a foreign route to {} by the link", route.destination)))
    }

    fn route(&self, link: &Link, ipv4: bool) -> Option<&Route> {
        self.routes.iter().find(|route| route.oif == link.index && route.destination.is_ipv4() == ipv4)
    }

    /// A link's master or a link on it; our own one counts only if another program uses it.
    fn stacked(&self, link: &Link) -> Option<String> {
        if let Some(master) = link.master {
            let name = self.links.iter().find(|other| other.index == master).map(|other| other.name.as_str());
            return Some(format!("the link belongs to {}", name.unwrap_or("another")));
        }
        let is_upper = |other: &&Link| {
            // A veth's peer is not on it.
            let is_pair = matches!(other.kind.as_deref(), Some("veth" | "netkit"));
            let is_on = other.parent == Some(link.index) && other.peer_netns_id.is_none() && other.index != link.index;
            is_on && !is_pair && (!has_our_alias(other) || self.user(other).is_some())
        };
        self.links.iter().find(is_upper).map(|other| format!("{} stands on the link", other.name))
    }
}

fn is_foreign(route: &Route) -> bool {
    route.kind == RouteKind::Unicast
        && route.protocol != PROTOCOL
        && !KERNEL_PROTOCOLS.contains(&route.protocol)
        && !route.destination.ip().is_multicast()
}
