//! Where a VNIC meets the operating system: a device of its own on a virtual machine, a VLAN on a physical port on bare
//! metal.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use vcn::{IfName, LINK_ALIAS_PREFIX, LinkKindName, MacAddr, MachineKind, VlanTag, Vnic};

use super::device_of;

/// How a VNIC becomes a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// It is this device already.
    Device {
        /// The device.
        link: IfName,
    },
    /// We make this VLAN link.
    Vlan {
        /// Its name: `nic<port index>.<tag>`, short and independent of the port's name.
        link: IfName,
        /// The physical port.
        parent: IfName,
        /// The tag.
        tag: VlanTag,
    },
}

impl Placement {
    /// The link that carries the VNIC.
    pub const fn link(&self) -> &IfName {
        match self {
            Self::Device { link } | Self::Vlan { link, .. } => link,
        }
    }
}

/// Why a VNIC has no link.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LinkError {
    /// Virtual machine: hot-plug takes some seconds after the attachment is reported.
    #[error(
        "no network card has the VNIC's MAC address {mac} (links seen: {seen}); a hot-plugged VNIC appears within seconds"
    )]
    NoDevice {
        /// The VNIC's Ethernet address.
        mac: MacAddr,
        /// The links and their addresses.
        seen: String,
    },
    /// Bare metal: the port of this index has no known address, or none of the links has it.
    #[error(
        "physical port {nic_index} was not found: no link has its MAC address {} (links seen: {seen}); name it with \
         BM_PORT_{nic_index}",
        mac.map_or_else(|| "(unknown, because the metadata service lists no VNIC without VLAN tag there)".to_owned(), |mac| mac.to_string())
    )]
    NoPort {
        /// The port's index.
        nic_index: u8,
        /// Its Ethernet address, where an untagged VNIC tells it.
        mac: Option<MacAddr>,
        /// The links and their addresses.
        seen: String,
    },
    /// Bare metal: another program has a link of the name that the VNIC's would have.
    #[error(
        "link {link} belongs to another program (its alias does not start with {LINK_ALIAS_PREFIX}); it is left alone until \
         you remove or rename it"
    )]
    NameTaken {
        /// The link.
        link: IfName,
    },
}

/// Finds where `vnic` (one of `vnics`) lives among `links`; NICs have the kind `nics`. `port_override` names a port by its index where the
/// metadata service's addresses match no link (bifurcated ports).
///
/// # Errors
/// When the link or port is not there; guessing would configure another program's.
pub fn place(
    vnic: &Vnic,
    vnics: &[Vnic],
    links: &[netlink::Link],
    nics: &LinkKindName,
    port_override: impl Fn(u8) -> Option<IfName>,
) -> Result<Placement, LinkError> {
    match (MachineKind::of(vnics), vnic.vlan_tag) {
        (MachineKind::BareMetal, Some(tag)) => {
            let nic_index = vnic.nic_index.unwrap_or(0);
            let parent = port(nic_index, vnics, links, nics, &port_override)?;
            // At most "nic255.4094": always a valid name.
            let link = IfName::new(format!("nic{nic_index}.{tag}")).unwrap_or_else(|_| parent.clone());
            // The kernel takes no alias at birth: our link without one belongs to a run that was killed before it set the alias.
            let unnamed =
                |other: &netlink::Link| other.alias.is_none() && other.vlan == Some(tag) && other.mac == Some(vnic.mac);
            let ours = |other: &netlink::Link| {
                unnamed(other) || other.alias.as_ref().is_some_and(|alias| alias.starts_with(LINK_ALIAS_PREFIX))
            };
            let foreign = |other: &&netlink::Link| other.name == link && !ours(other);
            match links.iter().find(foreign) {
                Some(_) => Err(LinkError::NameTaken { link }),
                None => Ok(Placement::Vlan { link, parent, tag }),
            }
        }
        (MachineKind::BareMetal, None) => {
            let link = port(vnic.nic_index.unwrap_or(0), vnics, links, nics, &port_override)?;
            Ok(Placement::Device { link })
        }
        (MachineKind::Virtual, _) => match device_of(links, vnic.mac, nics) {
            Some(link) => Ok(Placement::Device { link: link.name.clone() }),
            None => Err(LinkError::NoDevice { mac: vnic.mac, seen: seen(links) }),
        },
    }
}

/// The port of an index: the untagged VNIC of that index has the port's own Ethernet address.
fn port(
    nic_index: u8,
    vnics: &[Vnic],
    links: &[netlink::Link],
    nics: &LinkKindName,
    port_override: &impl Fn(u8) -> Option<IfName>,
) -> Result<IfName, LinkError> {
    let untagged = vnics.iter().find(|other| other.nic_index == Some(nic_index) && other.vlan_tag.is_none());
    let mac = untagged.map(|other| other.mac);
    let by_mac = mac.and_then(|mac| device_of(links, mac, nics)).map(|link| link.name.clone());
    let named = || port_override(nic_index).filter(|name| links.iter().any(|link| link.name == *name));
    by_mac.or_else(named).ok_or_else(|| LinkError::NoPort { nic_index, mac, seen: seen(links) })
}

fn seen(links: &[netlink::Link]) -> String {
    let text = |link: &netlink::Link| match link.mac {
        Some(mac) => format!("{} {mac}", link.name),
        None => link.name.to_string(),
    };
    let own = |link: &&netlink::Link| !link.loopback && !link.name.as_str().starts_with(vcn::HOST_LINK_PREFIX);
    links.iter().filter(own).map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use vcn::{Mtu, PerFamily};

    use super::*;

    fn vnic(last: u8, tag: Option<u16>) -> Vnic {
        Vnic {
            id: format!("ocid1.vnic.oc1.iad.v{last}").parse().unwrap(),
            mac: MacAddr([2, 0, 0x17, 0, 0, last]),
            nic_index: Some(0),
            vlan_tag: tag.map(|tag| VlanTag::new(tag).unwrap()),
            addressing: PerFamily::default(),
        }
    }

    fn link(name: &str, last: u8, vlan: Option<u16>) -> netlink::Link {
        netlink::Link {
            index: u32::from(last),
            name: name.parse().unwrap(),
            mac: Some(MacAddr([2, 0, 0x17, 0, 0, last])),
            permanent_mac: None,
            mtu: Mtu::VCN,
            queue_length: 1000,
            up: true,
            running: true,
            alias: None,
            group: 0,
            kind: vlan.map(|_| "vlan".into()),
            parent: vlan.map(|_| 10),
            peer_netns_id: None,
            master: None,
            vlan: vlan.map(|tag| VlanTag::new(tag).unwrap()),
            arp: true,
            loopback: false,
            accept_ra: None,
        }
    }

    #[test]
    fn unlabelled_vlan_is_adopted_only_with_matching_mac_and_tag() {
        let vnics = [vnic(10, None), vnic(11, Some(5))];
        let placed = |vlan: netlink::Link| {
            place(&vnics[1], &vnics, &[link("ens3", 10, None), vlan], &LinkKindName::HARDWARE, |_| None)
        };
        let wanted = Placement::Vlan {
            link: "nic0.5".parse().unwrap(),
            parent: "ens3".parse().unwrap(),
            tag: VlanTag::new(5).unwrap(),
        };
        assert_eq!(placed(link("nic0.5", 11, Some(5))), Ok(wanted));
        for foreign in [
            link("nic0.5", 12, Some(5)),
            link("nic0.5", 11, Some(6)),
            link("nic0.5", 11, None),
            netlink::Link { alias: Some("other".into()), ..link("nic0.5", 11, Some(5)) },
        ] {
            assert_eq!(placed(foreign), Err(LinkError::NameTaken { link: "nic0.5".parse().unwrap() }));
        }
    }

    /// A pod or another program gives its own link the VNIC's Ethernet address, or the VNIC's link another one.
    #[test]
    fn only_kind_and_permanent_address_identify_a_device() {
        let vnics = [Vnic { nic_index: None, ..vnic(10, None) }, Vnic { nic_index: None, ..vnic(11, None) }];
        let permanent = |last| Some(MacAddr([2, 0, 0x17, 0, 0, last]));
        let of_kind = |kind: &str| netlink::Link { kind: Some(kind.into()), ..link("fake", 11, None) };
        let nic = netlink::Link { permanent_mac: permanent(11), ..link("ens6", 66, None) };
        let others_nic = netlink::Link { permanent_mac: permanent(12), ..link("ens7", 11, None) };
        let placed = |links: &[netlink::Link], nics: &LinkKindName| {
            let found = place(&vnics[1], &vnics, links, nics, |_| None);
            found.ok().map(|placement| placement.link().to_string())
        };
        let hardware = LinkKindName::HARDWARE;
        for kind in ["veth", "dummy", "bridge", "macvlan", "tun", "netkit", "ifb", "bond", "vxlan", "vlan"] {
            assert_eq!(placed(&[of_kind(kind)], &hardware), None, "{kind}");
        }
        let all = [of_kind("veth"), others_nic.clone(), nic.clone()];
        assert_eq!(placed(&all, &hardware).as_deref(), Some("ens6"));
        assert_eq!(placed(&[others_nic], &hardware), None, "another VNIC's link");
        let bonded = netlink::Link { master: Some(3), ..nic };
        assert_eq!(placed(&[bonded], &hardware), None, "part of a bond");
        let of_tests = LinkKindName::new(Some("veth".to_owned()));
        assert_eq!(placed(&[of_kind("veth")], &of_tests).as_deref(), Some("fake"));
    }
}
