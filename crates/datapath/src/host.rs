//! The host's network for its VNICs: each secondary VNIC has its link, its address and its own table, and the metadata
//! address stays reachable for pods by the primary VNIC. The primary VNIC itself is the operating system's.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};
use vcn::{
    Family, IfName, LINK_ALIAS_PREFIX, METADATA_ADDRESS, MacAddr, Mtu, PODS_TABLE, RulePriorities, TableId, Vnic,
};

use crate::pod::everything;
use crate::{
    AddressSpec, LinkKind, LinkSpec, NftRule, NftRuleKind, Object, Place, RouteSpec, RuleSpec, SysctlSpec, Transport,
};

mod links;
mod observed;

pub use links::{LinkError, Placement, place};
pub use observed::observe;

/// What the host's network must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNetwork {
    /// The primary VNIC's link.
    pub primary: IfName,
    /// The secondary VNICs.
    pub vnics: Vec<HostVnic>,
    /// What the host does for pods; nothing where the pod network is somebody else's.
    pub pods: Option<PodServices>,
}

/// What the host as a whole does for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodServices {
    /// Whether they may ask the metadata service on port 80 (it hands out the instance's credentials).
    pub may_use_metadata: bool,
    /// Whether the kernel forwards IPv6 for them.
    pub ipv6: bool,
}

/// A secondary VNIC on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostVnic {
    /// As the metadata service describes it.
    pub vnic: Vnic,
    /// How it becomes a link here.
    pub placement: Placement,
    /// Its table.
    pub table: TableId,
    /// Its MTU.
    pub mtu: Mtu,
}

/// The objects of the host's network, in the order they are made.
#[must_use]
pub fn desired(network: &HostNetwork) -> Vec<Object> {
    let mut objects = network.pods.map(|pods| forwarding(&network.primary, pods)).unwrap_or_default();
    for vnic in &network.vnics {
        objects.extend(link(vnic));
        objects.extend(routing(vnic));
    }
    if let Some(pods) = network.pods {
        objects.extend(to_pods(pods));
        objects.push(Object::Rule(RuleSpec {
            priority: RulePriorities::METADATA,
            family: Family::Ipv4,
            from: None,
            to: Some(IpNetwork::from(IpAddr::V4(METADATA_ADDRESS))),
            table: TableId::MAIN,
        }));
        objects.push(Object::NftTable(nft_rules(&network.primary, pods)));
    }
    objects
}

/// The same for the planner.
#[must_use]
pub fn placed(objects: Vec<Object>) -> Vec<(Place, Object)> {
    objects.into_iter().map(|object| (Place::Host, object)).collect()
}

fn forwarding(primary: &IfName, pods: PodServices) -> Vec<Object> {
    let mut settings = vec![sysctl(&["net", "ipv4", "ip_forward"], "1")];
    if pods.ipv6 {
        // First: with forwarding on, the kernel drops router advertisements and purges the default route they made,
        // unless the link says 2 ("also when forwarding").
        settings.push(sysctl(&["net", "ipv6", "conf", primary.as_str(), "accept_ra"], "2"));
        settings.push(sysctl(&["net", "ipv6", "conf", "all", "forwarding"], "1"));
    }
    settings
}

/// What is for a pod of this node goes to it, wherever it comes from.
fn to_pods(pods: PodServices) -> impl Iterator<Item = Object> {
    let (priority, table) = (RulePriorities::TO_PODS, PODS_TABLE);
    let families = Family::ALL.into_iter().filter(move |family| *family == Family::Ipv4 || pods.ipv6);
    families.map(move |family| Object::Rule(RuleSpec { priority, family, from: None, to: None, table }))
}

fn link(vnic: &HostVnic) -> Vec<Object> {
    let name = vnic.placement.link();
    let ipv6 = vnic.vnic.addressing.ipv6.is_some();
    let mut objects = Vec::new();
    if let Placement::Vlan { parent, tag, .. } = &vnic.placement {
        // Making a VLAN on a port that is down fails (ENETDOWN), and its MTU bounds the VLAN's.
        objects.push(raised(parent, vnic.mtu));
        objects.push(Object::Link(LinkSpec {
            name: name.clone(),
            kind: LinkKind::Vlan { parent: parent.clone(), tag: *tag },
            mac: Some(vnic.vnic.mac),
            mtu: Some(vnic.mtu),
            up: false,
            alias: Some(format!("{LINK_ALIAS_PREFIX}{}", vnic.vnic.id)),
        }));
    }
    if ipv6 {
        // Before it is raised: as long as the link's own link-local address is being checked for duplicates, for 1-2 s,
        // the kernel cannot ask for the router, and nothing of a pod's leaves.
        objects.push(sysctl(&["net", "ipv6", "conf", name.as_str(), "accept_dad"], "0"));
    }
    objects.push(raised(name, vnic.mtu));
    // Loose: what arrives for a pod was asked from wherever the pod's own table leads.
    objects.push(sysctl(&["net", "ipv4", "conf", name.as_str(), "rp_filter"], "2"));
    // The kernel answers for a proxied address only after a random time of up to 0.8 s, in case somebody else does.
    // Nobody else can; without this, that is how late the first packet to a new pod arrives.
    objects.push(sysctl(&["net", "ipv4", "neigh", name.as_str(), "proxy_delay"], "0"));
    if ipv6 {
        objects.push(sysctl(&["net", "ipv6", "neigh", name.as_str(), "proxy_delay"], "0"));
        // Needed for the proxy neighbours of pods.
        objects.push(sysctl(&["net", "ipv6", "conf", name.as_str(), "proxy_ndp"], "1"));
    }
    objects
}

/// A link that exists by then, with its MTU, up.
fn raised(name: &IfName, mtu: Mtu) -> Object {
    let (name, mtu) = (name.clone(), Some(mtu));
    Object::Link(LinkSpec { name, kind: LinkKind::Device, mac: None, mtu, up: true, alias: None })
}

fn routing(vnic: &HostVnic) -> Vec<Object> {
    let link = vnic.placement.link();
    let mut objects = Vec::new();
    for (family, addressing) in vnic.vnic.addressing.iter() {
        // A single address, not the subnet's prefix: a connected route in the main table would steal the host's own
        // traffic to that subnet.
        let own = IpNetwork::from(addressing.address);
        let route = |destination, via| RouteSpec { destination, via, link: link.clone(), table: vnic.table };
        objects.push(Object::Address(AddressSpec { link: link.clone(), address: own }));
        objects.push(Object::Route(route(IpNetwork::from(addressing.router), None)));
        objects.push(Object::Route(route(everything(family), Some(addressing.router))));
        objects.push(Object::Rule(RuleSpec {
            priority: RulePriorities::FROM_VNIC,
            family,
            from: Some(own),
            to: None,
            table: vnic.table,
        }));
    }
    objects
}

fn nft_rules(primary: &IfName, pods: PodServices) -> Vec<NftRule> {
    let accept = |transport, port| NftRule::new(NftRuleKind::AcceptMetadataPort { transport, port });
    // In the order of the table's chains (forward, postrouting), which is the order they are observed in.
    let mut rules = vec![
        accept(Transport::Udp, 53),
        accept(Transport::Tcp, 53),
        accept(Transport::Udp, 123),
        NftRule::new(NftRuleKind::DropLinkLocal),
        NftRule::new(NftRuleKind::MasqueradeMetadata { link: primary.clone() }),
    ];
    if pods.may_use_metadata {
        rules.insert(3, accept(Transport::Tcp, 80));
    }
    rules
}

fn sysctl(key: &[&str], value: &str) -> Object {
    Object::Sysctl(SysctlSpec { key: key.iter().map(|part| (*part).to_owned()).collect(), value: value.to_owned() })
}

/// Finds a link by its Ethernet address among those that are devices (a VLAN or macvlan of the same address is not).
pub(crate) fn device_by_mac(links: &[netlink::Link], mac: MacAddr) -> Option<&netlink::Link> {
    let is_device = |link: &&netlink::Link| {
        !link.loopback
            && link.master.is_none()
            && link.vlan.is_none()
            && !matches!(link.kind.as_deref(), Some("macvlan" | "macvtap" | "ipvlan" | "bridge" | "dummy"))
    };
    links.iter().filter(is_device).find(|link| link.mac == Some(mac))
}
