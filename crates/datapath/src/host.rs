//! The host's network for its VNICs. Each secondary VNIC has its link, its address and its own table. The metadata address stays
//! reachable for pods through the primary VNIC. What pods answer in the host's place (a NodePort, a hostPort) leaves through the
//! VNIC that the request came in by. The primary VNIC itself is the operating system's.

use std::net::IpAddr;

use ipnetwork::{IpNetwork, Ipv6Network};
use netlink::Rule;
use serde::{Deserialize, Serialize};
use vcn::{
    Family, IfName, LINK_ALIAS_PREFIX, METADATA_ADDRESS, METADATA_ADDRESS_V6, MacAddr, Mark, Mtu, PODS_TABLE,
    PRIMARY_MARK, PROTOCOL, RulePriorities, TableId, Vnic, VnicRoute, vnic_mark,
};

use crate::object::everything;
use crate::{AddressSpec, LinkKind, LinkSpec, NftTables, Object, Place, RouteSpec, SysctlSpec};

mod links;
mod nft;
mod observed;

pub use links::{LinkError, Placement, place};
pub use observed::observe;

/// What the host's network must be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNetwork {
    /// The primary VNIC's link.
    pub primary: IfName,
    /// The secondary VNICs that the host uses.
    pub vnics: Vec<HostVnic>,
    /// What the host does for pods; nothing if the pod network is another's.
    pub pods: Option<PodServices>,
}

/// What the host as a whole does for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodServices {
    /// Whether they may query the metadata service on port 80 (it hands out the instance's credentials).
    pub may_use_metadata: bool,
    /// Whether they may send from addresses of other pods.
    #[serde(default)]
    pub may_spoof: bool,
    /// Whether the kernel forwards IPv6 for them.
    pub ipv6: bool,
}

impl PodServices {
    /// The families that pods may have.
    fn families(self) -> impl Iterator<Item = Family> {
        Family::ALL.into_iter().filter(move |family| self.has(*family))
    }

    const fn has(self, family: Family) -> bool {
        matches!(family, Family::Ipv4) || self.ipv6
    }
}

/// A secondary VNIC on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostVnic {
    /// As the metadata service describes it.
    pub vnic: Vnic,
    /// How it becomes a link here.
    pub placement: Placement,
    /// The routing table of this VNIC alone.
    pub table: TableId,
    /// The MTU of the VNIC's link, in bytes.
    pub mtu: Mtu,
    /// The known CIDR blocks of its subnet, if addresses of it are for pods.
    #[serde(default)]
    pub pod_blocks: Vec<IpNetwork>,
    /// CIDR blocks of its subnet that the host reaches through it, without a next hop.
    #[serde(default)]
    pub on_link: Vec<IpNetwork>,
    /// Networks that the host reaches through it. Never a default route: that is the operating system's.
    #[serde(default)]
    pub routes: Vec<VnicRoute>,
}

impl HostVnic {
    /// Whether its link must have the VNIC's Ethernet address. A virtual machine's VNIC is its link, and under another address
    /// nothing of it would pass the fabric. We make a VLAN link, with that address. A bare metal port may have its own.
    pub const fn link_has_mac(&self) -> bool {
        matches!(self.placement, Placement::Vlan { .. }) || self.vnic.nic_index.is_none()
    }
}

/// The objects of the host's network, in the order they are made.
pub fn desired(network: &HostNetwork) -> Vec<Object> {
    let mut objects = network.pods.map(|pods| forwarding(&network.primary, pods)).unwrap_or_default();
    for vnic in &network.vnics {
        objects.extend(link(vnic));
        for object in routing(vnic) {
            // Two VNICs may lead to one network: they share the rule about longer routes of the main table.
            let is_to_network = matches!(&object, Object::Rule(rule) if rule.to.is_some());
            if !(is_to_network && objects.contains(&object)) {
                objects.push(object);
            }
        }
        if network.pods.is_some() {
            objects.extend(solicitation_source(vnic));
            objects.extend(forwards(vnic));
            objects.extend(way_back(vnic));
        }
    }
    if let Some(pods) = network.pods {
        objects.extend(pods.families().map(to_pods));
        objects.extend(pods.families().map(to_metadata));
        objects.extend(pods.families().map(|family| by_mark(family, PRIMARY_MARK, TableId::MAIN)));
        objects.push(Object::NftTable(NftTables::new(nft::tables(network, pods))));
    }
    objects
}

/// The same for the planner.
pub fn placed(objects: Vec<Object>) -> Vec<(Place, Object)> {
    objects.into_iter().map(|object| (Place::Host, object)).collect()
}

fn forwarding(primary: &IfName, pods: PodServices) -> Vec<Object> {
    let mut settings = vec![
        sysctl("net/ipv4/ip_forward", "1"),
        // Loose: a packet that comes in through the primary VNIC for a NodePort is already addressed to a secondary VNIC's pod
        // when its source is checked. The pod's own way to that source is through its VNIC.
        sysctl(&format!("net/ipv4/conf/{primary}/rp_filter"), "2"),
    ];
    if pods.ipv6 {
        // First: with forwarding on, the kernel drops router advertisements and purges the default route they made,
        // unless the link says 2 ("also when forwarding").
        settings.push(sysctl(&format!("net/ipv6/conf/{primary}/accept_ra"), "2"));
        settings.push(sysctl("net/ipv6/conf/all/forwarding", "1"));
    }
    settings
}

/// What is for a pod of this node goes to it, wherever it comes from. Only routes to single addresses count, as all our
/// routes are: a default route of another program in that table is not to become the whole host's.
pub fn to_pods(family: Family) -> Object {
    let suppress = Some(u32::from(family.host_prefix() - 1));
    Object::Rule(Rule { suppress, ..Rule::new(family, RulePriorities::TO_PODS, PODS_TABLE, PROTOCOL) })
}

pub(crate) fn to_metadata(family: Family) -> Object {
    let to = Some(IpNetwork::from(metadata_address(family)));
    Object::Rule(Rule { to, ..Rule::new(family, RulePriorities::METADATA, TableId::MAIN, PROTOCOL) })
}

/// The address from which the kernel resolves the VNIC's router, for what a pod sends: a link-local one of that link. The VNIC's
/// own address works only for this host. A link has a link-local address by nature, but the manager of links may have switched that
/// off (`addr_gen_mode`). NetworkManager does so on each link that it raises without a profile. Any link-local address works,
/// from whatever origin.
fn solicitation_source(vnic: &HostVnic) -> Option<Object> {
    let link = vnic.placement.link().clone();
    let address = link_local(vnic.vnic.mac);
    vnic.vnic.addressing.ipv6.is_some().then_some(Object::Address(AddressSpec { link, address }))
}

/// The link-local address that the kernel would give the link of a VNIC.
pub(crate) fn link_local(mac: MacAddr) -> IpNetwork {
    IpNetwork::V6(Ipv6Network::new_checked(mac.link_local(), 64).unwrap_or_else(|| mac.link_local().into()))
}

/// What comes in by a VNIC may be a pod's. A hardened host says otherwise of links that come later, whatever `ip_forward` and
/// `all/forwarding` say. Of IPv6 the kernel forwards all the same what comes in there, but it answers for no pod.
fn forwards(vnic: &HostVnic) -> impl Iterator<Item = Object> {
    vnic.vnic.addressing.iter().map(|(family, _)| {
        let family = match family {
            Family::Ipv4 => "ipv4",
            Family::Ipv6 => "ipv6",
        };
        sysctl(&format!("net/{family}/conf/{}/forwarding", vnic.placement.link()), "1")
    })
}

/// Answers to what came in by a VNIC leave by it.
fn way_back(vnic: &HostVnic) -> impl Iterator<Item = Object> {
    let families = vnic.vnic.addressing.iter().map(|(family, _)| family);
    let rule = |mark| families.map(move |family| by_mark(family, mark, vnic.table));
    vnic_mark(vnic.table).map(rule).into_iter().flatten()
}

pub(crate) fn by_mark(family: Family, mark: Mark, table: TableId) -> Object {
    Object::Rule(Rule { fwmark: Some(mark), ..Rule::new(family, RulePriorities::MARK, table, PROTOCOL) })
}

fn link(vnic: &HostVnic) -> Vec<Object> {
    let name = vnic.placement.link();
    let ipv6 = vnic.vnic.addressing.ipv6.is_some();
    let mut objects = Vec::new();
    if let Placement::Vlan { parent, tag, .. } = &vnic.placement {
        // Making a VLAN on a port that is down fails (ENETDOWN), and its MTU bounds the VLAN's.
        // Not the VNIC's own: others may be on the same port.
        objects.push(raised(parent, None, Mtu::VCN.max(vnic.mtu)));
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
        let mut set = |key: &str, value| objects.push(sysctl(&format!("net/ipv6/conf/{name}/{key}"), value));
        // Before it is raised. A hardened host switches IPv6 off on new links.
        set("disable_ipv6", "0");
        // What its router advertises would become a default route of the host's, by this VNIC.
        set("accept_ra", "0");
        // As long as the link's own link-local address is being checked for duplicates, for 1-2 s, the kernel cannot resolve
        // the router, and nothing of a pod's leaves.
        set("accept_dad", "0");
    }
    let device = matches!(vnic.placement, Placement::Device { .. }) && vnic.link_has_mac();
    objects.push(raised(name, device.then_some(vnic.vnic.mac), vnic.mtu));
    // Loose: what arrives for a pod was requested from wherever the pod's own table leads.
    objects.push(sysctl(&format!("net/ipv4/conf/{name}/rp_filter"), "2"));
    // The kernel answers for a proxied address only after a random time of up to 0.8 s, in case another host does.
    // No other host can; without this, that is how late the first packet to a new pod arrives.
    objects.push(sysctl(&format!("net/ipv4/neigh/{name}/proxy_delay"), "0"));
    if ipv6 {
        objects.push(sysctl(&format!("net/ipv6/neigh/{name}/proxy_delay"), "0"));
        // Needed for the proxy neighbours of pods.
        objects.push(sysctl(&format!("net/ipv6/conf/{name}/proxy_ndp"), "1"));
    }
    objects
}

/// A link that exists by then, with its MTU, up.
fn raised(name: &IfName, mac: Option<MacAddr>, mtu: Mtu) -> Object {
    let (name, mtu) = (name.clone(), Some(mtu));
    Object::Link(LinkSpec { name, kind: LinkKind::Device, mac, mtu, up: true, alias: None })
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
        let rule = Rule::new(family, RulePriorities::FROM_VNIC, vnic.table, PROTOCOL);
        objects.push(Object::Rule(Rule { from: Some(own), ..rule }));
    }
    let on_link = vnic.on_link.iter().flat_map(|subnet| to_network(vnic, *subnet, None));
    for object in vnic.routes.iter().flat_map(|route| routed(vnic, route)).chain(on_link) {
        // Several networks may be behind one next hop, and the first of two next hops of one network counts.
        if !objects.iter().any(|known| known.same_slot(&object)) {
            objects.push(object);
        }
    }
    objects
}

/// A network behind a VNIC. Rules lead there, not a route in the main table, which is the operating system's; the kernel then
/// takes the VNIC's own address for what the host sends there. Longer routes of the main table count first: without them a wide
/// network would cut the host off from its own subnet. Nothing in a family that the VNIC lacks.
fn routed(vnic: &HostVnic, route: &VnicRoute) -> Vec<Object> {
    let family = Family::of(route.destination.ip());
    let Some(at) = vnic.vnic.addressing.of(family) else { return Vec::new() };
    let via = route.via.filter(|via| Family::of(*via) == family).unwrap_or(at.router);
    let on_link = (via != at.router).then(|| leads(vnic, IpNetwork::from(via), None));
    on_link.into_iter().chain(to_network(vnic, route.destination, Some(via))).collect()
}

/// The route to a network in the VNIC's table, and the rules that lead there.
fn to_network(vnic: &HostVnic, destination: IpNetwork, via: Option<IpAddr>) -> [Object; 3] {
    let family = Family::of(destination.ip());
    let rule = |priority, table| Rule { to: Some(destination), ..Rule::new(family, priority, table, PROTOCOL) };
    let [before, priority] = RulePriorities::to_network(&destination);
    let longer = Rule { suppress: Some(destination.prefix().into()), ..rule(before, TableId::MAIN) };
    [leads(vnic, destination, via), Object::Rule(longer), Object::Rule(rule(priority, vnic.table))]
}

fn leads(vnic: &HostVnic, destination: IpNetwork, via: Option<IpAddr>) -> Object {
    Object::Route(RouteSpec { destination, via, link: vnic.placement.link().clone(), table: vnic.table })
}

/// Where the metadata service, the resolver and the time server are.
pub(crate) const fn metadata_address(family: Family) -> IpAddr {
    match family {
        Family::Ipv4 => IpAddr::V4(METADATA_ADDRESS),
        Family::Ipv6 => IpAddr::V6(METADATA_ADDRESS_V6),
    }
}

fn sysctl(key: &str, value: &str) -> Object {
    Object::Sysctl(SysctlSpec { key: key.to_owned(), value: value.to_owned() })
}
