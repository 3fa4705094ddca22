//! Addresses that the sources offer and that neither the host nor a pod may get: all but usable host addresses of their VNICs'
//! subnets. Pure. The answers of the metadata service and the NativePodNetwork pass through [`vnics`] and [`pod_network`], so
//! that no later stage sees such an address.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use api::NativePodNetwork;
use api::npn::{NpnAddressing, NpnVnic};
use ipnetwork::IpNetwork;
use vcn::{Family, METADATA_ADDRESS_V6, Ocid, SubnetAddressing, Vnic};

use crate::report::condition::{Condition, Reason};

/// How many of a VNIC's refused addresses its condition names.
const NAMED: usize = 3;

/// An address or block that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAddress {
    /// The VNIC that is said to have it.
    pub vnic: Ocid,
    /// The document that offers it.
    pub source: AddressSource,
    /// The address or block.
    pub block: IpNetwork,
    /// Refusal.
    pub why: Refusal,
}

/// A document that offers addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// The metadata service's list of VNICs.
    Metadata,
    /// The NativePodNetwork.
    PodNetwork,
}

/// Refusal an address is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No subnet has addresses of its kind.
    Kind(&'static str),
    /// OCI reserves it in each CIDR block of a subnet.
    Reserved(IpNetwork),
    /// It is the router of the VNIC's subnet.
    Router,
    /// It is a VNIC's own.
    OwnOf(Ocid),
    /// It is in the subnet of another VNIC, and in no known CIDR block of this one's.
    InSubnetOf(Ocid),
    /// It is in none of the CIDR blocks of its VNIC's subnet.
    Outside,
}

/// What is known of the subnet of one VNIC, in one family.
struct SubnetFacts<'a> {
    /// The VNIC.
    id: &'a Ocid,
    /// The CIDR blocks that a source names.
    blocks: Vec<IpNetwork>,
    /// Whether the subnet has no others.
    is_complete: bool,
    /// The CIDR blocks of other VNICs' subnets.
    others: Vec<(IpNetwork, &'a Ocid)>,
    /// Addresses that no pod may get.
    closed: BTreeMap<IpAddr, Refusal>,
}

/// Kinds of IPv4 addresses that OCI gives to no VNIC.
const KINDS_V4: [(Ipv4Addr, u8, &str); 6] = [
    (Ipv4Addr::UNSPECIFIED, 8, "unspecified"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::BROADCAST, 32, "broadcast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "class E"),
];

/// The IPv6 addresses that OCI gives to VNICs: global unicast and unique local ones.
const UNICAST_V6: [(Ipv6Addr, u8); 2] =
    [(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3), (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7)];

/// Names for the most common of the others.
const KINDS_V6: [(Ipv6Addr, u8, &str); 6] = [
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, "IPv4-mapped"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
    (METADATA_ADDRESS_V6, 128, "the metadata service"),
];

/// Removes refused addresses from the metadata service's list; a secondary VNIC without another address loses the family. Of
/// two VNICs with the same address, the primary one keeps it, else the first one. The primary VNIC is not changed: the agent
/// never configures its addresses.
pub fn vnics(listed: &mut [Vnic], primary: Option<&Ocid>) -> Vec<RefusedAddress> {
    let mut owners: BTreeMap<IpAddr, Ocid> = BTreeMap::new();
    for vnic in listed.iter().filter(|vnic| Some(&vnic.id) == primary) {
        let own = vnic.addressing.iter().flat_map(|(_, at)| at.listed());
        owners.extend(own.map(|address| (address, vnic.id.clone())));
    }
    let (known, mut refused) = (listed.to_vec(), Vec::new());
    for vnic in listed.iter_mut().filter(|vnic| Some(&vnic.id) != primary) {
        for family in Family::ALL {
            let Some(at) = vnic.addressing.slot(family) else { continue };
            let subnet = SubnetFacts::of(&vnic.id, family, &known, None);
            let mut is_usable = |address: &IpAddr| {
                let block = IpNetwork::from(*address);
                let taken = owners.get(address).map(|owner| Refusal::OwnOf(owner.clone()));
                let why = taken.or_else(|| subnet.refusal(block));
                refused.extend(why.clone().map(|why| RefusedAddress {
                    vnic: vnic.id.clone(),
                    source: AddressSource::Metadata,
                    block,
                    why,
                }));
                why.is_none()
            };
            let usable: Vec<IpAddr> = at.listed().filter(&mut is_usable).collect();
            owners.extend(usable.iter().map(|address| (*address, vnic.id.clone())));
            let mut usable = usable.into_iter();
            match usable.next() {
                Some(address) => (at.address, at.others) = (address, usable.collect()),
                None => *vnic.addressing.slot(family) = None,
            }
        }
    }
    refused
}

/// The NativePodNetwork without refused addresses, the host's own and those for pods, and what was refused. Of a block that
/// holds some, the rest stays, as smaller blocks.
#[must_use]
pub fn pod_network(npn: &NativePodNetwork, vnics: &[Vnic]) -> (NativePodNetwork, Vec<RefusedAddress>) {
    let (mut npn, mut refused) = (npn.clone(), Vec::new());
    for NpnVnic { vnic_id, addressing, .. } in &mut npn.vnics {
        for family in Family::ALL {
            let Some(offered) = addressing.slot(family) else { continue };
            let subnet = SubnetFacts::of(vnic_id, family, vnics, Some(offered)).without_own(family, vnics);
            let mut refuse = |block, why| {
                refused.push(RefusedAddress { vnic: vnic_id.clone(), source: AddressSource::PodNetwork, block, why });
            };
            let pods = offered.pods.iter().flat_map(|block| subnet.usable(*block, &mut refuse)).collect();
            // The VNIC's own address is the host's.
            let own = |why: &Refusal| matches!(why, Refusal::OwnOf(owner) if owner == vnic_id);
            let why = offered.host.and_then(|host| subnet.refusal(host.into())).filter(|why| !own(why));
            if let Some((host, why)) = offered.host.zip(why) {
                refuse(host.into(), why);
                offered.host = None;
            }
            offered.pods = pods;
        }
    }
    (npn, refused)
}

/// What is left of blocks that were published for pods of a VNIC.
#[must_use]
pub fn still_usable(vnic: &Ocid, family: Family, vnics: &[Vnic], blocks: &[IpNetwork]) -> Vec<IpNetwork> {
    let subnet = SubnetFacts::of(vnic, family, vnics, None).without_own(family, vnics);
    blocks.iter().flat_map(|block| subnet.usable(*block, &mut |_, _| {})).collect()
}

/// One condition for each VNIC.
#[must_use]
pub fn conditions(refused: &[RefusedAddress]) -> Vec<Condition> {
    let mut by_vnic: BTreeMap<&Ocid, Vec<&RefusedAddress>> = BTreeMap::new();
    for one in refused {
        by_vnic.entry(&one.vnic).or_default().push(one);
    }
    let condition = |(vnic, all): (&Ocid, Vec<&RefusedAddress>)| {
        let named: Vec<String> = all.iter().take(NAMED).map(ToString::to_string).collect();
        let more = match all.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let message = format!(
            "no usable host addresses of its subnet: {}{more}; neither the host nor a new pod gets them, all others are served",
            named.join(", ")
        );
        Condition::degraded(Reason::AddressRefused, message).about(vnic)
    };
    by_vnic.into_iter().map(condition).collect()
}

impl<'a> SubnetFacts<'a> {
    /// What is known without the VNICs' own addresses.
    fn of(id: &'a Ocid, family: Family, vnics: &'a [Vnic], offered: Option<&NpnAddressing>) -> Self {
        let mut facts =
            Self { id, blocks: Vec::new(), is_complete: false, others: Vec::new(), closed: BTreeMap::new() };
        let known = || vnics.iter().filter_map(|vnic| Some((&vnic.id, vnic.addressing.of(family)?)));
        let own = known().find(|(vnic, _)| *vnic == id).map(|(_, at)| at);
        let routers = own.map(|at| at.router).into_iter().chain(offered.and_then(|offered| offered.router));
        routers.for_each(|router| facts.close(router, Refusal::Router));
        own.into_iter().for_each(|at| facts.open(at.subnet));
        if let Some(NpnAddressing { subnet, subnets, .. }) = offered {
            subnet.iter().chain(subnets).for_each(|block| facts.open(*block));
            // A subnet may have several CIDR blocks; only `subnetCidrs` is a list and can name all of them. The legacy
            // `subnetCidr` and the metadata service's `subnetCidrBlock` name one.
            facts.is_complete = !subnets.is_empty();
        }
        for (vnic, at) in known().filter(|(vnic, _)| *vnic != id) {
            match own.is_some_and(|own| own.router == at.router) {
                // One router is one subnet: this is a CIDR block of the same.
                true => facts.open(at.subnet),
                false => facts.others.push((at.subnet, vnic)),
            }
        }
        facts
    }

    /// Closes the VNICs' own addresses. Of an IPv6 VNIC itself the metadata service lists its pods' addresses, too.
    fn without_own(mut self, family: Family, vnics: &[Vnic]) -> Self {
        for vnic in vnics.iter().filter(|vnic| family == Family::Ipv4 || vnic.id != *self.id) {
            let listed = vnic.addressing.of(family).into_iter().flat_map(SubnetAddressing::listed);
            listed.for_each(|address| self.close(address, Refusal::OwnOf(vnic.id.clone())));
        }
        self
    }

    /// Takes in a CIDR block of the subnet. OCI reserves the first two IPv4 addresses (network, router) and the last one
    /// (broadcast) of each; the first IPv6 address is that of all routers (RFC 4291, 2.6.1).
    fn open(&mut self, block: IpNetwork) {
        let reserved = match block {
            IpNetwork::V4(block) if block.prefix() <= 30 => {
                let network = block.network();
                vec![network.into(), Ipv4Addr::from(u32::from(network) | 1).into(), block.broadcast().into()]
            }
            IpNetwork::V6(block) if block.prefix() <= 126 => vec![IpAddr::from(block.network())],
            IpNetwork::V4(_) | IpNetwork::V6(_) => Vec::new(),
        };
        reserved.into_iter().for_each(|address| self.close(address, Refusal::Reserved(block)));
        self.blocks.push(block);
    }

    /// The first reason stays.
    fn close(&mut self, address: IpAddr, why: Refusal) {
        self.closed.entry(address).or_insert(why);
    }

    /// Refusal all of a block is refused.
    fn refusal(&self, block: IpNetwork) -> Option<Refusal> {
        if let Some(kind) = kind(block) {
            return Some(Refusal::Kind(kind));
        }
        if let Some(why) = self.closed.get(&block.ip()).filter(|_| is_single(block)) {
            return Some(why.clone());
        }
        if self.blocks.iter().any(|own| holds(*own, block)) {
            return None;
        }
        match self.others.iter().find(|(other, _)| overlap(*other, block)) {
            Some((_, vnic)) => Some(Refusal::InSubnetOf((*vnic).clone())),
            None => self.is_complete.then_some(Refusal::Outside),
        }
    }

    /// What of a block pods may have. Its VNIC's own address may be in it: pools.json reserves that.
    fn usable(&self, block: IpNetwork, refuse: &mut impl FnMut(IpNetwork, Refusal)) -> Vec<IpNetwork> {
        if let Some(why) = self.refusal(block) {
            refuse(block, why);
            return Vec::new();
        }
        let mut left = vec![block];
        if !is_single(block) {
            let own = |why: &Refusal| matches!(why, Refusal::OwnOf(owner) if owner == self.id);
            let inside = self.closed.range(block.network()..=block.broadcast()).filter(|(_, why)| !own(why));
            for (address, why) in inside {
                left = left.into_iter().flat_map(|piece| without(piece, *address)).collect();
                refuse((*address).into(), why.clone());
            }
            left.sort_unstable();
        }
        left
    }
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match is_single(self.block) {
            true => write!(f, "{}", self.block.ip())?,
            false => write!(f, "{}", self.block)?,
        }
        match self.source {
            AddressSource::Metadata => write!(f, " (metadata service: {})", self.why),
            AddressSource::PodNetwork => write!(f, " (NativePodNetwork: {})", self.why),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(kind) => f.write_str(kind),
            Self::Reserved(block) => write!(f, "reserved by OCI in {block}"),
            Self::Router => f.write_str("the router of the subnet"),
            Self::OwnOf(vnic) => write!(f, "the own address of VNIC {vnic}"),
            Self::InSubnetOf(vnic) => write!(f, "in the subnet of VNIC {vnic}"),
            Self::Outside => f.write_str("outside the subnet"),
        }
    }
}

/// What kind of addresses a block has that no VNIC gets.
fn kind(block: IpNetwork) -> Option<&'static str> {
    let is = |base: IpAddr, prefix: u8| share(block.ip(), base, prefix.min(block.prefix()));
    match block {
        IpNetwork::V4(_) => {
            KINDS_V4.iter().find(|(base, prefix, _)| is((*base).into(), *prefix)).map(|(.., kind)| *kind)
        }
        IpNetwork::V6(_) => {
            let named = KINDS_V6.iter().find(|(base, prefix, _)| is((*base).into(), *prefix)).map(|(.., kind)| *kind);
            let unicast = |(base, prefix): &(Ipv6Addr, u8)| *prefix <= block.prefix() && is((*base).into(), *prefix);
            named.or_else(|| (!UNICAST_V6.iter().any(unicast)).then_some("no unicast address of a VCN"))
        }
    }
}

fn is_single(block: IpNetwork) -> bool {
    block.prefix() == Family::of(block.ip()).host_prefix()
}

fn holds(outer: IpNetwork, inner: IpNetwork) -> bool {
    outer.prefix() <= inner.prefix() && overlap(outer, inner)
}

fn overlap(one: IpNetwork, other: IpNetwork) -> bool {
    share(one.ip(), other.ip(), one.prefix().min(other.prefix()))
}

/// Whether two addresses begin with the same bits.
fn share(one: IpAddr, other: IpAddr, prefix: u8) -> bool {
    let family = Family::of(one);
    let behind = u32::from(family.host_prefix().saturating_sub(prefix));
    family == Family::of(other) && (bits(one) ^ bits(other)).checked_shr(behind).unwrap_or(0) == 0
}

/// A block without one of its addresses: of each size from half of it down to one address, the part that lacks it.
fn without(block: IpNetwork, address: IpAddr) -> Vec<IpNetwork> {
    if !block.contains(address) {
        return vec![block];
    }
    let most = Family::of(address).host_prefix();
    let part = |prefix: u8| {
        let bit = 1u128.checked_shl(u32::from(most.saturating_sub(prefix))).unwrap_or(0);
        let other = bits(address) ^ bit;
        let other = match address {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::from(u32::try_from(other).ok()?)),
            IpAddr::V6(_) => IpAddr::from(Ipv6Addr::from(other)),
        };
        let part = IpNetwork::new(other, prefix).ok()?;
        IpNetwork::new(part.network(), prefix).ok()
    };
    (block.prefix().saturating_add(1)..=most).filter_map(part).collect()
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}
