//! What the record of an attachment says about its pod: its network on the host's side, and, with the host's links, whether it has
//! ended.

use datapath::pod::{LinkEnds, PodNetwork};
use ipam::Allocation;
use netlink::Link;
use vcn::{IfName, LinkKindName, Ocid};

/// The desired network of an allocation on the host's side. A VNIC's link may have been renamed since ADD: `link_of` has its
/// present name.
pub(crate) fn network(allocation: &Allocation, link_of: impl Fn(&Ocid) -> Option<IfName>) -> PodNetwork {
    attachment::network_on(allocation, attachment::mtu(allocation, None, None), link_of)
}

/// Whether the pod of an attachment has ended. Any of three identifies the host end of its link: another program may rename a
/// link or remove its alias.
pub(crate) fn is_dead(allocation: &Allocation, links: &[Link], nics: &LinkKindName) -> bool {
    let ends = LinkEnds::of(&allocation.key.to_string(), allocation.key.ifname.clone());
    let has_alias = |link: &Link, alias: &str| link.alias.as_deref() == Some(alias);
    let Some(own) = &allocation.exclusive else {
        return !links.iter().any(|link| {
            has_alias(link, &ends.alias) || link.name == allocation.host_link || link.mac == Some(ends.host_mac)
        });
    };
    own.vlan.is_none() && Link::returned(links, own, nics).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixture::link;

    #[test]
    fn exclusive_attachment_is_dead_when_its_link_is_back() {
        let nic = link("net1", 0x0c);
        let allocation = |vlan: Option<u16>| -> Allocation {
            serde_json::from_value(json!({
                "key": {"network": "vnic-attach", "containerId": "a", "ifname": "net1"},
                "addresses": [], "since": 1, "hostLink": "vcn000000000000",
                "exclusive": {"link": "ens6", "mac": nic.mac.unwrap(), "vlan": vlan},
            }))
            .unwrap()
        };
        let is_dead = |links: &[Link], vlan| is_dead(&allocation(vlan), links, &LinkKindName::HARDWARE);
        assert!(!is_dead(&[link("ens3", 0x0a)], None), "a pod has it");
        assert!(is_dead(std::slice::from_ref(&nic), None) && is_dead(&[link("ens6", 0x0c)], None));
        let fake = Link { kind: Some("veth".into()), ..nic.clone() };
        assert!(!is_dead(&[fake], None), "another link with its name and MAC");
        let renamed = Link { permanent_mac: nic.mac, ..link("dev7", 0x66) };
        assert!(is_dead(&[renamed], None), "with another name and MAC");
        assert!(!is_dead(std::slice::from_ref(&nic), Some(7)), "a VLAN link ends with its pod");
        let mut known = allocation(None);
        known.exclusive.as_mut().unwrap().identity = Some(vcn::LinkIdentity { index: 4, permanent_mac: nic.mac });
        let is_known_dead = |links: &[Link]| super::is_dead(&known, links, &LinkKindName::HARDWARE);
        assert!(!is_known_dead(std::slice::from_ref(&nic)), "a link without a permanent address that a pod put there");
        assert!(is_known_dead(&[Link { permanent_mac: nic.mac, ..nic.clone() }]));
    }
}
