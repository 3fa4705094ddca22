//! What of this node's network others may live by when ours goes: another pod network, and whoever uses a link that we have
//! raised. Such a link is not lowered, for everything on it would go down with it. Pods' own interfaces on it (OKE's are ipvlan
//! links) are in namespaces of theirs and cannot be seen from here; so another pod network's presence is enough.

use std::net::IpAddr;

use datapath::AddressSpec;
use netlink::{Address, Link, Route, RouteFilter, RouteKind, Socket};
use vcn::{Family, IfName, LINK_ALIAS_PREFIX, PROTOCOL};

use super::files;
use crate::{Error, Removal, Settings, occupants};

/// What the kernel itself makes, or a router's word: not a use of the link by anybody (RTPROT_REDIRECT, _KERNEL, _RA).
const BY_ITSELF: [u8; 3] = [1, 2, 9];

/// Who else is here.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// The configuration of another pod network, which a runtime can use.
    configuration: Option<String>,
    /// A pod of one, or why none can be seen.
    pod: Option<String>,
    /// What links were used for before anything of ours was removed.
    before: Shown,
}

/// What the kernel shows of the use of links.
#[derive(Debug, Default)]
struct Shown {
    links: Vec<Link>,
    /// Before ours are removed, they are told by the rules from them.
    ours: Vec<IpAddr>,
    addresses: Vec<Address>,
    routes: Vec<Route>,
}

impl Others {
    /// Looks. Configurations that were there before us are back by then, and nothing of the kernel's is removed.
    pub(super) fn look(settings: &Settings, removal: &mut Removal) -> Self {
        let mut others =
            Self { configuration: files::successor(settings), pod: occupants::kernel_shows(), ..Self::default() };
        match Socket::open().and_then(|mut socket| Shown::look(&mut socket)) {
            Ok(shown) => others.before = shown,
            Err(source) => {
                others.pod = Some("what links are used for cannot be told".to_owned());
                removal.failures.push(Error::Kernel { what: "the use of links", source });
            }
        }
        others
    }

    /// One whose configuration is there.
    #[cfg(test)]
    pub(crate) fn configured(name: &str) -> Self {
        Self { configuration: Some(name.to_owned()), ..Self::default() }
    }

    /// Why what another pod network may live by is left as it is.
    pub(crate) fn network(&self) -> Option<String> {
        let configuration = self.configuration.as_ref();
        let theirs = configuration.map(|name| format!("{name} is another pod network's, which may live by it"));
        let pods = || self.pod.as_ref().map(|what| format!("pods of another network may live by it: {what}"));
        theirs.or_else(pods)
    }

    /// Why a VNIC's link is left as it is.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub(crate) fn of_link(&self, socket: &mut Socket, link: &Link) -> Result<Option<String>, netlink::Error> {
        match self.network().or_else(|| self.before.user(link)) {
            Some(why) => Ok(Some(why)),
            // Who came meanwhile.
            None => Ok(Shown::look(socket)?.user(link)),
        }
    }

    /// Why a link that we made (a VLAN's) is not removed: what stood on it would go, too.
    pub(super) fn of_ours(&self, name: &IfName) -> Option<String> {
        let link = self.before.links.iter().find(|link| link.name == *name);
        link.and_then(|link| self.before.user(link)).or_else(|| self.network())
    }

    /// Why an address of ours is not removed: with a link's last one the kernel drops every route by the link (IPv4), and from a
    /// link-local one it may ask for others' routers.
    pub(super) fn of_address(&self, ours: &AddressSpec) -> Option<String> {
        let Shown { links, addresses, .. } = &self.before;
        let link = links.iter().find(|link| link.name == ours.link)?;
        if link.mac.is_some_and(|mac| ours.address.ip() == IpAddr::from(mac.link_local())) {
            return self.network().or_else(|| self.before.user(link));
        }
        let ipv4 = |held: &&Address| held.index == link.index && held.address.is_ipv4();
        let last = ours.address.is_ipv4() && addresses.iter().filter(ipv4).count() == 1;
        let route = self.before.route(link, ours.address.is_ipv4())?;
        last.then(|| format!("a route to {} by the link, which is not ours, would go with it", route.destination))
    }
}

impl Shown {
    fn look(socket: &mut Socket) -> Result<Self, netlink::Error> {
        let (links, addresses) = (socket.links()?, socket.addresses(None)?);
        let (mut ours, mut routes) = (Vec::new(), Vec::new());
        for family in Family::ALL {
            let rules = socket.rules(family)?.into_iter().filter(|rule| rule.protocol == PROTOCOL);
            ours.extend(rules.filter_map(|rule| rule.from).map(|from| from.ip()));
            routes.extend(socket.routes(&RouteFilter::all(family))?.into_iter().filter(is_somebodys));
        }
        Ok(Self { links, ours, addresses, routes })
    }

    /// Who but us uses a link: what it belongs to, what stands on it, an address, a route.
    fn user(&self, link: &Link) -> Option<String> {
        let somebodys = |held: &&Address| {
            let single = held.address.prefix() == Family::of(held.address.ip()).host_prefix();
            let ours = single && self.ours.contains(&held.address.ip());
            // The kernel gives a link this one when it is raised. One that it makes of a secret or by chance (addr_gen_mode 2
            // and 3) counts as somebody's: then the link stays.
            let own = link.mac.map(|mac| IpAddr::from(mac.link_local()));
            held.index == link.index && !ours && Some(held.address.ip()) != own
        };
        let address = || self.addresses.iter().find(somebodys);
        let route = || self.route(link, true).or_else(|| self.route(link, false));
        self.stacked(link)
            .or_else(|| address().map(|held| format!("{} on the link is not ours", held.address)))
            .or_else(|| route().map(|route| format!("a route to {} by the link is not ours", route.destination)))
    }

    /// Somebody's route by a link.
    fn route(&self, link: &Link, ipv4: bool) -> Option<&Route> {
        self.routes.iter().find(|route| route.oif == link.index && route.destination.is_ipv4() == ipv4)
    }

    /// What a link belongs to or what stands on it; one of ours on it only where somebody uses that.
    fn stacked(&self, link: &Link) -> Option<String> {
        if let Some(master) = link.master {
            let name = self.links.iter().find(|other| other.index == master).map(|other| other.name.as_str());
            return Some(format!("the link belongs to {}", name.unwrap_or("another")));
        }
        let upper = |other: &&Link| {
            // A veth's other end is not on it.
            let pair = matches!(other.kind.as_deref(), Some("veth" | "netkit"));
            let ours = other.alias.as_ref().is_some_and(|alias| alias.starts_with(LINK_ALIAS_PREFIX));
            let on = other.parent == Some(link.index) && other.peer_netns_id.is_none() && other.index != link.index;
            on && !pair && !(ours && self.user(other).is_none())
        };
        self.links.iter().find(upper).map(|other| format!("{} stands on the link", other.name))
    }
}

fn is_somebodys(route: &Route) -> bool {
    route.kind == RouteKind::Unicast
        && route.protocol != PROTOCOL
        && !BY_ITSELF.contains(&route.protocol)
        && !route.destination.ip().is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_we_made_stays_where_another_pod_network_is_configured_or_has_pods() {
        let link = "nic1.11".parse().unwrap();
        assert_eq!(Others::default().of_ours(&link), None);
        let why = Others::configured("10-oci.conflist").of_ours(&link);
        assert_eq!(why.as_deref(), Some("10-oci.conflist is another pod network's, which may live by it"));
        let pod = Others { pod: Some("a link".to_owned()), ..Others::default() };
        assert_eq!(pod.of_ours(&link).as_deref(), Some("pods of another network may live by it: a link"));
    }
}
