//! Where a VNIC meets the operating system: a device of its own on a virtual machine, a VLAN on a physical port on bare
//! metal.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use vcn::{IfName, LINK_ALIAS_PREFIX, LinkKindName, MacAddr, MachineKind, VlanTag, Vnic};

/// How a VNIC becomes a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// It is this device already.
    Device {
        /// The device that is the VNIC.
        link: IfName,
    },
    /// We make this VLAN link.
    Vlan {
        /// Its name: `nic<port index>.<tag>`, short and independent of the port's name.
        link: IfName,
        /// The physical port below the VLAN link.
        parent: IfName,
        /// The VLAN tag of the VNIC.
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
        /// The index of the port that the metadata names.
        nic_index: u8,
        /// Its Ethernet address, where an untagged VNIC tells it.
        mac: Option<MacAddr>,
        /// The links and their addresses.
        seen: String,
    },
    /// Bare metal: another program has a link with the VNIC's tag.
    #[error("VLAN tag {tag} of port {parent} is taken by link {holder} of another program, until you remove that link")]
    TagTaken {
        /// The VLAN tag of the VNIC.
        tag: VlanTag,
        /// The physical port below the VLAN link.
        parent: IfName,
        /// The link that has the tag.
        holder: IfName,
    },
    /// Bare metal: another program has a link of the name that the VNIC's would have.
    #[error(
        "link {link} belongs to another program (its alias does not start with {LINK_ALIAS_PREFIX}); it is left alone until \
         you remove or rename it"
    )]
    NameTaken {
        /// The link that has the name of our VLAN link.
        link: IfName,
    },
}

/// Finds where `vnic` (one of `vnics`) lives among `links`; NICs have the kind `nics`. `port_override` names a port by its index where the
/// metadata service's addresses match no link (bifurcated ports). The primary VNIC, the first one, is the operating system's: if
/// that made its device part of a bridge or bond, this has the addresses.
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
    let is_primary = vnics.first().is_some_and(|first| first.id == vnic.id);
    match (MachineKind::of(vnics), vnic.vlan_tag) {
        (MachineKind::BareMetal, Some(tag)) => {
            let nic_index = vnic.nic_index.unwrap_or(0);
            let port = port(nic_index, vnics, links, nics, &port_override)?;
            let parent = port.name.clone();
            // At most "nic255.4094": always a valid name.
            let link = IfName::new(format!("nic{nic_index}.{tag}")).unwrap_or_else(|_| parent.clone());
            // The kernel takes no alias at birth: our link without one belongs to a run that was killed before it set the alias.
            let unnamed =
                |other: &netlink::Link| other.alias.is_none() && other.vlan == Some(tag) && other.mac == Some(vnic.mac);
            let ours = |other: &netlink::Link| {
                unnamed(other) || other.alias.as_ref().is_some_and(|alias| alias.starts_with(LINK_ALIAS_PREFIX))
            };
            let has_tag = |other: &netlink::Link| other.vlan == Some(tag) && other.parent == Some(port.index);
            let foreign = |other: &&netlink::Link| (other.name == link || has_tag(other)) && !ours(other);
            match links.iter().find(foreign) {
                Some(other) if other.name == link => Err(LinkError::NameTaken { link }),
                Some(other) => Err(LinkError::TagTaken { tag, parent, holder: other.name.clone() }),
                None => Ok(Placement::Vlan { link, parent, tag }),
            }
        }
        (MachineKind::BareMetal, None) => {
            let port = port(vnic.nic_index.unwrap_or(0), vnics, links, nics, &port_override)?;
            device(port, is_primary, links).ok_or_else(|| no_device(vnic, links))
        }
        (MachineKind::Virtual, _) => {
            let mut devices = netlink::Link::nics_of(links, vnic.mac, nics);
            devices.find_map(|link| device(link, is_primary, links)).ok_or_else(|| no_device(vnic, links))
        }
    }
}

fn no_device(vnic: &Vnic, links: &[netlink::Link]) -> LinkError {
    LinkError::NoDevice { mac: vnic.mac, seen: seen(links) }
}

/// The link with the addresses of a VNIC with this device. One that is part of a bridge or bond is that one's, which is used for
/// the primary VNIC only, because it is another program's. A VRF changes no more than the table.
fn device(link: &netlink::Link, is_primary: bool, links: &[netlink::Link]) -> Option<Placement> {
    let (mut link, mut left) = (link, links.len());
    while link.master.is_some() {
        let master = master(link, links)?;
        if master.kind.as_deref() == Some("vrf") {
            break;
        }
        left = left.checked_sub(1).filter(|_| is_primary)?;
        link = master;
    }
    Some(Placement::Device { link: link.name.clone() })
}

fn master<'a>(link: &netlink::Link, links: &'a [netlink::Link]) -> Option<&'a netlink::Link> {
    links.iter().find(|other| Some(other.index) == link.master)
}

/// The port of an index: the untagged VNIC of that index has the port's own Ethernet address.
fn port<'a>(
    nic_index: u8,
    vnics: &[Vnic],
    links: &'a [netlink::Link],
    nics: &LinkKindName,
    port_override: &impl Fn(u8) -> Option<IfName>,
) -> Result<&'a netlink::Link, LinkError> {
    let untagged = vnics.iter().find(|other| other.nic_index == Some(nic_index) && other.vlan_tag.is_none());
    let mac = untagged.map(|other| other.mac);
    let by_mac = mac.and_then(|mac| netlink::Link::nics_of(links, mac, nics).next());
    let named = || port_override(nic_index).and_then(|name| links.iter().find(|link| link.name == name));
    by_mac.or_else(named).ok_or_else(|| LinkError::NoPort { nic_index, mac, seen: seen(links) })
}

/// The links with what excludes them: their kind, and what they are part of.
fn seen(links: &[netlink::Link]) -> String {
    let text = |link: &netlink::Link| {
        let mac = link.mac.map(|mac| format!(" {mac}")).unwrap_or_default();
        let kind = link.kind.as_ref().map(|kind| format!(" {kind}")).unwrap_or_default();
        let part = master(link, links).map(|master| format!(" in {}", master.name)).unwrap_or_default();
        format!("{}{mac}{kind}{part}", link.name)
    };
    let own = |link: &&netlink::Link| !link.loopback && !link.name.is_of_pod();
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
        let expected = Placement::Vlan {
            link: "nic0.5".parse().unwrap(),
            parent: "ens3".parse().unwrap(),
            tag: VlanTag::new(5).unwrap(),
        };
        assert_eq!(placed(link("nic0.5", 11, Some(5))), Ok(expected));
        for foreign in [
            link("nic0.5", 12, Some(5)),
            link("nic0.5", 11, Some(6)),
            link("nic0.5", 11, None),
            netlink::Link { alias: Some("other".into()), ..link("nic0.5", 11, Some(5)) },
        ] {
            assert_eq!(placed(foreign), Err(LinkError::NameTaken { link: "nic0.5".parse().unwrap() }));
        }
    }

    /// As cloud images with a bridge or bond over the primary VNIC have it.
    #[test]
    fn device_in_a_bridge_is_used_for_the_primary_vnic_only() {
        let vnics = [Vnic { nic_index: None, ..vnic(10, None) }, Vnic { nic_index: None, ..vnic(11, None) }];
        let of_kind =
            |name, last, kind: &str| netlink::Link { kind: Some(kind.into()), index: 90, ..link(name, last, None) };
        let within = |name, last| netlink::Link { master: Some(90), ..link(name, last, None) };
        let placed = |vnic: &Vnic, links: &[netlink::Link]| {
            let found = place(vnic, &vnics, links, &LinkKindName::HARDWARE, |_| None);
            found.map(|placement| placement.link().to_string()).map_err(|error| error.to_string())
        };
        for kind in ["bridge", "bond"] {
            assert_eq!(placed(&vnics[0], &[of_kind("top", 10, kind), within("ens3", 10)]), Ok("top".into()), "{kind}");
            let refused = placed(&vnics[1], &[of_kind("top", 11, kind), within("ens5", 11)]).unwrap_err();
            let seen = format!("top 02:00:17:00:00:0b {kind}, ens5 02:00:17:00:00:0b in top");
            assert!(refused.contains(&seen), "{refused}");
        }
        assert_eq!(placed(&vnics[1], &[of_kind("red", 77, "vrf"), within("ens5", 11)]), Ok("ens5".into()));
        let endless = netlink::Link { index: 90, ..within("ens3", 10) };
        assert!(placed(&vnics[0], &[endless]).is_err());
    }

    #[test]
    fn vlan_tag_of_another_link_is_named_with_its_holder() {
        let vnics = [vnic(10, None), vnic(11, Some(5))];
        let placed = |other: netlink::Link| {
            let links = [netlink::Link { master: Some(90), ..link("ens3", 10, None) }, other];
            place(&vnics[1], &vnics, &links, &LinkKindName::HARDWARE, |_| None)
        };
        let taken = LinkError::TagTaken {
            tag: VlanTag::new(5).unwrap(),
            parent: "ens3".parse().unwrap(),
            holder: "ens3.5".parse().unwrap(),
        };
        assert_eq!(placed(link("ens3.5", 66, Some(5))), Err(taken));
        for other in [link("ens3.6", 66, Some(6)), netlink::Link { parent: Some(11), ..link("ens4.5", 66, Some(5)) }] {
            assert!(placed(other).is_ok(), "another tag or port");
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
        let made_by_pod = netlink::Link { permanent_mac: None, ..link("l2tpeth0", 11, None) };
        let primary = netlink::Link { permanent_mac: permanent(10), ..link("ens3", 10, None) };
        assert_eq!(placed(&[made_by_pod.clone(), primary.clone()], &hardware), None, "without a kind, of no driver");
        assert_eq!(placed(&[made_by_pod, primary, nic.clone()], &hardware).as_deref(), Some("ens6"));
        let bonded = netlink::Link { master: Some(3), ..nic };
        assert_eq!(placed(&[bonded], &hardware), None, "part of a bond");
        let of_tests = LinkKindName::new(Some("veth".to_owned()));
        assert_eq!(placed(&[of_kind("veth")], &of_tests).as_deref(), Some("fake"));
    }
}
