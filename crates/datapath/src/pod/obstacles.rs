//! What keeps a pod's traffic away although all that it needs is there. None of it is ours to change, so it is told.

use std::fmt;

use ipnetwork::IpNetwork;
use netlink::Address;
use vcn::IfName;

use super::PodNetwork;
use crate::host::link_local;
use crate::object::is_link_local;
use crate::{Error, Place, Places};

/// One such thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Nothing is plugged into the VNIC's link.
    NoCarrier(IfName),
    /// A link asks for nobody's Ethernet address and answers nobody, in neither family.
    Silent(Place, IfName),
    /// The VNIC's link has no address from which the kernel could ask for its router; and the one that would be its own.
    NoLinkLocal(IfName, Option<IpNetwork>),
    /// The host has the pod's address itself: what is for the pod goes no further.
    Taken(IpNetwork, IfName),
}

impl fmt::Display for Obstacle {
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
                    "{link}, the link of the pod's VNIC, has no IPv6 link-local address to ask for its router from"
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

/// Looks for them.
///
/// # Errors
/// [`Error::Observe`] when the kernel does not answer.
pub fn obstacles(network: &PodNetwork, places: &mut Places) -> Result<Vec<Obstacle>, Error> {
    let mut vnics: Vec<&IfName> = network.addresses.iter().map(|pod| &pod.vnic_link).collect();
    vnics.dedup();
    let asking = |link: &IfName| network.addresses.iter().any(|pod| pod.address.is_ipv6() && pod.vnic_link == *link);
    let during = |source| Error::Observe { what: "addresses".into(), source };
    let addresses = places.host.addresses(None).map_err(during)?;
    let ends = [(Place::Host, &network.ends.host), (Place::Pod, &network.ends.pod)];
    let mut found = Vec::new();
    for (place, name) in ends.into_iter().chain(vnics.iter().map(|vnic| (Place::Host, *vnic))) {
        let Some(socket) = places.socket(place) else { continue };
        match socket.link(name) {
            // One that is down is named as that.
            Ok(link) if link.up && !link.running && vnics.contains(&name) => {
                found.push(Obstacle::NoCarrier(name.clone()));
            }
            Ok(link) if !link.arp => found.push(Obstacle::Silent(place, name.clone())),
            Ok(link) if link.up && place == Place::Host && asking(name) && !asks(link.index, &addresses) => {
                let address = link.mac.map(link_local);
                found.push(Obstacle::NoLinkLocal(name.clone(), address));
            }
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(source) => return Err(Error::Observe { what: format!("link {name}"), source }),
        }
    }
    for held in addresses {
        if network.addresses.iter().any(|pod| pod.address == held.address.ip()) {
            match places.host.link_at(held.index) {
                Ok(link) => found.push(Obstacle::Taken(held.address, link.name)),
                Err(error) if error.is_not_found() => {}
                Err(source) => return Err(during(source)),
            }
        }
    }
    Ok(found)
}

/// Whether a link has an address that the kernel asks for others from, for what it forwards.
fn asks(index: u32, addresses: &[Address]) -> bool {
    let asks = |it: &Address| it.index == index && is_link_local(it.address) && !it.tentative && !it.dad_failed;
    addresses.iter().any(asks)
}
