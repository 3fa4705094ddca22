//! What blocks a pod's traffic although all its objects are present. Other programs or the cloud caused it, so it is only reported.

use std::fmt;

use ipnetwork::IpNetwork;
use netlink::Address;
use vcn::IfName;

use super::PodNetwork;
use crate::error::during;
use crate::host::link_local;
use crate::object::is_link_local;
use crate::{Error, Place, Places};

/// One cause for which packets of pods do not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocker {
    /// The VNIC's link has no carrier.
    NoCarrier(IfName),
    /// ARP is off on a link: it neither resolves nor answers, in both families.
    Silent(Place, IfName),
    /// The VNIC's link has no link-local address to resolve its router from; and the address that it should have.
    NoLinkLocal(IfName, Option<IpNetwork>),
    /// The host has the pod's address itself, so packets to the pod end there.
    Taken(IpNetwork, IfName),
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCarrier(link) => write!(f, "{link}, the link of the pod's VNIC, has no carrier"),
            Self::Silent(place, link) => {
                let inside = if *place == Place::Pod { "pod: " } else { "" };
                write!(f, "{inside}{link} has ARP switched off: link set {link} arp on")
            }
            Self::NoLinkLocal(link, address) => {
                write!(
                    f,
                    "{link}, the link of the pod's VNIC, has no IPv6 link-local address to resolve its router from"
                )?;
                match address {
                    Some(address) => write!(f, ": addr add {address} dev {link} nodad"),
                    None => Ok(()),
                }
            }
            Self::Taken(address, link) => {
                write!(f, "the host has the pod's address itself, on {link}: addr del {address} dev {link}")
            }
        }
    }
}

/// Finds all blockers of a pod's network.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn blockers(network: &PodNetwork, places: &mut Places) -> Result<Vec<Blocker>, Error> {
    let mut vnics: Vec<&IfName> = network.addresses.iter().map(|pod| &pod.vnic_link).collect();
    vnics.dedup();
    let needs_router =
        |link: &IfName| network.addresses.iter().any(|pod| pod.address.is_ipv6() && pod.vnic_link == *link);
    let addresses = places.host.addresses(None).map_err(during("addresses"))?;
    let ends = [(Place::Host, &network.ends.host), (Place::Pod, &network.ends.pod)];
    let mut found = Vec::new();
    for (place, name) in ends.into_iter().chain(vnics.iter().map(|vnic| (Place::Host, *vnic))) {
        let Some(socket) = places.socket(place) else { continue };
        match socket.link(name) {
            // A link that is down is reported elsewhere.
            Ok(link) if link.up && !link.running && vnics.contains(&name) => {
                found.push(Blocker::NoCarrier(name.clone()));
            }
            Ok(link) if !link.arp => found.push(Blocker::Silent(place, name.clone())),
            Ok(link)
                if link.up && place == Place::Host && needs_router(name) && !can_resolve(link.index, &addresses) =>
            {
                let address = link.mac.map(link_local);
                found.push(Blocker::NoLinkLocal(name.clone(), address));
            }
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(during(format_args!("link {name}"))(error)),
        }
    }
    for held in addresses {
        if network.addresses.iter().any(|pod| pod.address == held.address.ip()) {
            match places.host.link_at(held.index) {
                Ok(link) => found.push(Blocker::Taken(held.address, link.name)),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(during("addresses")(error)),
            }
        }
    }
    Ok(found)
}

/// Whether a link has an address from which the kernel can resolve neighbours for forwarded packets.
fn can_resolve(index: u32, addresses: &[Address]) -> bool {
    let usable = |it: &Address| it.index == index && is_link_local(it.address) && !it.tentative && !it.dad_failed;
    addresses.iter().any(usable)
}
