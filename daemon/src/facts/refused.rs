//! Addresses that the sources offer and that neither the host nor a pod may get: all but usable host addresses of their VNICs'
//! subnets. Pure. The answers of the metadata service and the NativePodNetwork pass through [`vnics`] and [`pod_network`], so
//! that no later stage sees such an address.

mod blocks;
mod subnet;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use api::NativePodNetwork;
use api::npn::NpnVnic;
use ipnetwork::IpNetwork;
use vcn::{Family, Ocid, Vnic};

use crate::facts::condition::{Condition, Reason};
use blocks::is_single;
use subnet::SubnetFacts;

/// How many of a VNIC's refused addresses its condition names.
const MAX_NAMED: usize = 3;

/// An address or block that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAddress {
    /// The VNIC that is said to have it.
    pub vnic: Ocid,
    pub source: AddressSource,
    /// The address or block.
    pub block: IpNetwork,
    pub why: Refusal,
}

/// A document that offers addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// The metadata service's list of VNICs.
    Metadata,
    PodNetwork,
}

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

/// Removes refused addresses from the metadata service's list; a secondary VNIC without another address loses the family. Of
/// two VNICs with the same address, the primary one keeps it, else the first one. The primary VNIC is not changed: the agent
/// never configures its addresses.
pub(crate) fn vnics(listed: &mut [Vnic], primary: Option<&Ocid>) -> Vec<RefusedAddress> {
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
pub(crate) fn pod_network(npn: &NativePodNetwork, vnics: &[Vnic]) -> (NativePodNetwork, Vec<RefusedAddress>) {
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
pub(crate) fn still_usable(vnic: &Ocid, family: Family, vnics: &[Vnic], blocks: &[IpNetwork]) -> Vec<IpNetwork> {
    let subnet = SubnetFacts::of(vnic, family, vnics, None).without_own(family, vnics);
    blocks.iter().flat_map(|block| subnet.usable(*block, &mut |_, _| {})).collect()
}

/// One condition for each VNIC.
pub(crate) fn conditions(refused: &[RefusedAddress]) -> Vec<Condition> {
    let mut by_vnic: BTreeMap<&Ocid, Vec<&RefusedAddress>> = BTreeMap::new();
    for one in refused {
        by_vnic.entry(&one.vnic).or_default().push(one);
    }
    let condition = |(vnic, all): (&Ocid, Vec<&RefusedAddress>)| {
        let named: Vec<String> = all.iter().take(MAX_NAMED).map(ToString::to_string).collect();
        let more = match all.len().saturating_sub(MAX_NAMED) {
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
