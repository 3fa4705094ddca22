//! The things a network consists of, in the words an operator would type. Links are named, never numbered: a plan made
//! before a link exists stays true after.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};
use netlink::{Rule, RuleAction};
use serde::{Deserialize, Serialize};
use vcn::{ExclusiveLink, Family, IfName, MacAddr, Mtu, PROTOCOL, TableId, VlanTag};

mod nft;

pub use nft::NftTables;

/// One object of a namespace's network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Object {
    /// A link with its settings.
    Link(LinkSpec),
    /// An address on a link.
    Address(AddressSpec),
    /// A route of a table.
    Route(RouteSpec),
    /// A policy rule with our protocol number; its action is always a lookup.
    #[serde(skip)]
    Rule(Rule),
    /// A neighbour entry, ordinary or proxy.
    Neighbour(NeighbourSpec),
    /// A setting below /proc/sys.
    Sysctl(SysctlSpec),
    /// The whole of our nft tables: they are replaced in one transaction, so they are one object.
    #[serde(skip)]
    NftTable(NftTables),
}

/// A link and the attributes that matter; `None` means "as it is".
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSpec {
    /// The name by which it is found.
    pub name: IfName,
    /// Whether it is a device, an end of a pair or a VLAN link.
    pub kind: LinkKind,
    /// Its Ethernet address; any if `None`.
    #[serde(default)]
    pub mac: Option<MacAddr>,
    /// Its MTU in bytes; any if `None`.
    #[serde(default)]
    pub mtu: Option<Mtu>,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whose it is, in words.
    #[serde(default)]
    pub alias: Option<String>,
}

/// What a link is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// The host end of a pod's link; the pod end is born with it, in the pod.
    Veth(VethPeer),
    /// The pod end: comes and goes with the host end.
    VethPeer,
    /// An 802.1Q link on a physical port.
    Vlan {
        /// The physical port below it.
        parent: IfName,
        /// The VLAN tag of its frames.
        tag: VlanTag,
    },
    /// The link of a VNIC that a pod has for itself: it comes from the host's namespace, and its deletion takes it back there.
    Moved(Box<ExclusiveLink>),
    /// A device that hardware or the hypervisor made: never created and never deleted by us.
    Device,
}

/// The pod end of a veth pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VethPeer {
    /// Its name in the pod.
    pub name: IfName,
    /// The Ethernet address of the pod's end.
    pub mac: MacAddr,
}

/// An address on a link. Always without duplicate address detection: the fabric guarantees that VNIC addresses are
/// unique, and detection costs IPv6 pods 1–2 s.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressSpec {
    /// The link that has the address.
    pub link: IfName,
    /// Address and prefix length.
    pub address: IpNetwork,
}

/// A route with our protocol number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteSpec {
    /// Where to; a prefix of length 0 is the default route.
    pub destination: IpNetwork,
    /// Through whom; none for what is on the link itself.
    #[serde(default)]
    pub via: Option<IpAddr>,
    /// Out of which link.
    pub link: IfName,
    /// The table that has the route.
    pub table: TableId,
}

/// An entry of the neighbour table, or a proxy entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourSpec {
    /// The link on which the neighbour is.
    pub link: IfName,
    /// The neighbour's IP address on that link.
    pub address: IpAddr,
    /// Its Ethernet address, permanently; `None` is a proxy entry: we answer for the address on this link.
    pub mac: Option<MacAddr>,
}

/// A kernel setting below /proc/sys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SysctlSpec {
    /// Its path; a link name may contain dots.
    pub key: String,
    /// The desired or found value.
    pub value: String,
}

impl SysctlSpec {
    /// The setting with which a link ignores router advertisements.
    pub(crate) fn ignoring_router_advertisements(link: &IfName) -> Self {
        Self { key: format!("net/ipv6/conf/{link}/accept_ra"), value: "0".to_owned() }
    }
}

impl Object {
    /// Whether the two are values of one thing (the same link, the same setting), so that one replaces the other.
    pub fn same_slot(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Link(a), Self::Link(b)) => a.name == b.name,
            (Self::Route(a), Self::Route(b)) => a.destination == b.destination && a.table == b.table,
            (Self::Neighbour(a), Self::Neighbour(b)) => {
                a.link == b.link && a.address == b.address && a.mac.is_none() == b.mac.is_none()
            }
            (Self::Sysctl(a), Self::Sysctl(b)) => a.key == b.key,
            (Self::NftTable(_), Self::NftTable(_)) => true,
            _ => self == other,
        }
    }

    /// Whether `found` is what this object requests.
    pub fn satisfied_by(&self, found: &Self) -> bool {
        match (self, found) {
            (Self::Link(want), Self::Link(have)) => want.satisfied_by(have),
            (Self::Sysctl(want), Self::Sysctl(have)) => want.satisfied_by(have),
            _ => self == found,
        }
    }

    /// Whether it is an 802.1Q link: it takes with it what others have made on it.
    pub const fn is_vlan(&self) -> bool {
        matches!(self, Self::Link(LinkSpec { kind: LinkKind::Vlan { .. }, .. }))
    }

    /// The link that takes this object with it when it goes.
    pub const fn carrier(&self) -> Option<&IfName> {
        match self {
            Self::Address(address) => Some(&address.link),
            Self::Route(route) => Some(&route.link),
            Self::Neighbour(neighbour) => Some(&neighbour.link),
            Self::Link(_) | Self::Rule(_) | Self::Sysctl(_) | Self::NftTable(_) => None,
        }
    }

    /// The noun of the `ip` (or other) command.
    pub(crate) const fn noun(&self) -> &'static str {
        match self {
            Self::Link(_) => "link",
            Self::Address(_) => "addr",
            Self::Route(_) => "route",
            Self::Rule(_) => "rule",
            Self::Neighbour(_) => "neigh",
            Self::Sysctl(_) => "sysctl",
            Self::NftTable(_) => "nft",
        }
    }
}

impl LinkSpec {
    fn satisfied_by(&self, have: &Self) -> bool {
        let kind = match (&self.kind, &have.kind) {
            (LinkKind::Vlan { parent, tag }, LinkKind::Vlan { parent: p, tag: t }) => parent == p && tag == t,
            (LinkKind::Vlan { .. }, _) => false,
            // A veth's peer lives in the pod and is observed there.
            _ => true,
        };
        kind && (self.up == have.up || !self.up)
            && (self.mac.is_none() || self.mac == have.mac)
            && (self.mtu.is_none() || self.mtu == have.mtu)
            && (self.alias.is_none() || self.alias == have.alias)
    }
}

impl SysctlSpec {
    /// Router advertisements that are off stay off: another program (NetworkManager) or a person does that. What we
    /// want of `accept_ra` is only that forwarding does not end what is on.
    fn satisfied_by(&self, have: &Self) -> bool {
        let off = self.key.ends_with("/accept_ra") && have.value == "0";
        self.value == have.value || off
    }
}

/// The default route's destination.
pub const fn everything(family: Family) -> IpNetwork {
    match family {
        Family::Ipv4 => const { net_v4(Ipv4Addr::UNSPECIFIED, 0) },
        Family::Ipv6 => const { net_v6(Ipv6Addr::UNSPECIFIED, 0) },
    }
}

#[expect(clippy::panic, reason = "evaluated at compile time")]
pub(crate) const fn net_v4(address: Ipv4Addr, prefix: u8) -> IpNetwork {
    match Ipv4Network::new_checked(address, prefix) {
        Some(net) => IpNetwork::V4(net),
        None => panic!(),
    }
}

#[expect(clippy::panic, reason = "evaluated at compile time")]
pub(crate) const fn net_v6(address: Ipv6Addr, prefix: u8) -> IpNetwork {
    match Ipv6Network::new_checked(address, prefix) {
        Some(net) => IpNetwork::V6(net),
        None => panic!(),
    }
}

/// Whether it is an IPv6 address that is valid on its link only.
pub(crate) fn is_link_local(address: IpNetwork) -> bool {
    matches!(address, IpNetwork::V6(net) if net.ip().is_unicast_link_local())
}

impl LinkSpec {
    /// A link as found.
    pub(crate) fn seen(link: netlink::Link, kind: LinkKind) -> Self {
        let netlink::Link { name, mac, mtu, up, alias, .. } = link;
        Self { name, kind, mac, mtu: Some(mtu), up, alias }
    }
}

/// A rule as found. What this type does not hold is not compared: a kernel may list more of each rule than we know.
pub(crate) fn rule_seen(rule: &Rule) -> Rule {
    Rule { unmodeled: false, inverted: false, action: RuleAction::Lookup, iif: None, ..rule.clone() }
}

impl RouteSpec {
    /// A route as found, by a link of this name.
    pub(crate) const fn seen(route: &netlink::Route, link: IfName) -> Self {
        Self { destination: route.destination, via: route.gateway, link, table: route.table }
    }
}

impl RouteSpec {
    /// Whether this is a default route.
    pub fn is_default(&self) -> bool {
        self.destination.prefix() == 0
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(link) => link.fmt(f),
            Self::Address(address) => write!(f, "{} dev {}", address.address, address.link),
            Self::Route(route) => route.fmt(f),
            Self::Rule(rule) => rule.fmt(f),
            Self::Neighbour(NeighbourSpec { link, address, mac: Some(mac) }) => {
                write!(f, "{address} lladdr {mac} dev {link} nud permanent")
            }
            Self::Neighbour(NeighbourSpec { link, address, mac: None }) => write!(f, "proxy {address} dev {link}"),
            Self::Sysctl(sysctl) => write!(f, "{}={}", sysctl.key, sysctl.value),
            Self::NftTable(all) => write!(f, "tables {} ({} rules)", vcn::NFT_TABLE, all.texts.len()),
        }
    }
}

impl fmt::Display for LinkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name.as_str())?;
        if let LinkKind::Vlan { parent, .. } = &self.kind {
            write!(f, " link {parent}")?;
        }
        if let Some(mac) = self.mac {
            write!(f, " address {mac}")?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, " mtu {mtu}")?;
        }
        if self.up {
            f.write_str(" up")?;
        }
        match &self.kind {
            LinkKind::Veth(peer) => write!(f, " type veth peer {} address {} in the pod", peer.name, peer.mac),
            LinkKind::Vlan { tag, .. } => write!(f, " type vlan id {tag}"),
            LinkKind::Moved(device) => write!(f, " that is {} on the host", device.link),
            LinkKind::VethPeer | LinkKind::Device => Ok(()),
        }
    }
}

impl fmt::Display for RouteSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_default(), self.destination.prefix() == Family::of(self.destination.ip()).host_prefix()) {
            (true, _) => f.write_str("default")?,
            (_, true) => write!(f, "{}", self.destination.ip())?,
            _ => write!(f, "{}", self.destination)?,
        }
        if let Some(via) = self.via {
            write!(f, " via {via}")?;
        }
        write!(f, " dev {}", self.link)?;
        if self.table != TableId::MAIN {
            write!(f, " table {}", self.table)?;
        }
        write!(f, " proto {PROTOCOL}")
    }
}
