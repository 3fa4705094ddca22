//! Which link each VNIC was found at. A device whose MAC was changed is still the VNIC's: without this memory it would be taken
//! for unplugged, and its pods' network for stale. By the kernel's index, which is used once in a boot: a device that is plugged
//! in later may get the name, never the index.

use std::collections::HashMap;

use netlink::Link;
use vcn::{IfName, LinkKindName, MacAddr, Ocid, Vnic};

use crate::facts::condition::{Condition, Reason};

/// The interface index of each VNIC.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices(HashMap<Ocid, u32>);

impl Devices {
    /// The link of a VNIC whose MAC no link has any more. On bare metal, ports may have MACs of their own, so nothing is
    /// assumed there.
    pub(crate) fn renumbered<'a>(
        &self,
        vnic: &Vnic,
        vnics: &[Vnic],
        links: &'a [Link],
        nics: &LinkKindName,
    ) -> Option<&'a Link> {
        let index = self.0.get(&vnic.id)?;
        let is_found = Link::nics_of(links, vnic.mac, nics).next().is_some() || Link::have_permanent(links, nics);
        let is_of_a_vnic = |mac: Option<MacAddr>| vnics.iter().any(|other| Some(other.mac) == mac);
        let is_candidate = |link: &&Link| link.index == *index && link.kind.as_deref() == nics.name();
        let is_device = |link: &&Link| is_candidate(link) && link.master.is_none() && !is_of_a_vnic(link.mac);
        links.iter().find(is_device).filter(|_| vnic.nic_index.is_none() && !is_found)
    }

    /// Notes at which link each VNIC is.
    pub(crate) fn note<'a>(&mut self, placed: impl Iterator<Item = (&'a Ocid, &'a IfName)>, links: &[Link]) {
        let index = |name: &IfName| links.iter().find(|link| link.name == *name).map(|link| link.index);
        self.0 = placed.filter_map(|(id, name)| Some((id.clone(), index(name)?))).collect();
    }
}

/// Network cards with the Ethernet address of one VNIC. `links` begin with those in use, and the first card is taken.
pub(crate) fn shared_addresses(vnics: &[Vnic], links: &[Link], nics: &LinkKindName) -> Vec<Condition> {
    let shared = |vnic: &Vnic| {
        let mut cards = Link::nics_of(links, vnic.mac, nics).map(|link| link.name.as_str());
        let (taken, others) = (cards.next()?, cards.collect::<Vec<_>>().join(", "));
        let message = format!(
            "network cards {taken} and {others} have its Ethernet address {}: {taken} is taken, because a card with an address or a \
             default route comes first, then the lowest index",
            vnic.mac
        );
        (!others.is_empty()).then(|| Condition::degraded(Reason::ConflictingConfiguration, message).about(&vnic.id))
    };
    vnics.iter().filter_map(shared).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{link, vm_vnics};

    fn device(name: &str, index: u32, last: u8) -> Link {
        Link { index, ..link(name, last) }
    }

    #[test]
    fn device_with_changed_mac_is_matched_when_nothing_contradicts() {
        let changed = device("renamed", 5, 0x66);
        let bonded = Link { master: Some(9), ..changed.clone() };
        let with_primary_mac = device("ens5", 5, 0x0a);
        let bare_metal = vm_vnics().into_iter().map(|vnic| Vnic { nic_index: Some(0), ..vnic }).collect();
        for (case, vnics, links, expected) in [
            ("changed", vm_vnics(), vec![changed.clone()], Some(0)),
            ("another device", vm_vnics(), vec![device("ens5", 6, 0x66)], None),
            ("part of a bond", vm_vnics(), vec![bonded], None),
            ("the primary VNIC's", vm_vnics(), vec![with_primary_mac], None),
            ("its MAC is on another", vm_vnics(), vec![changed.clone(), device("ens6", 6, 0x0b)], None),
            ("bare metal", bare_metal, vec![changed], None),
        ] {
            let devices = Devices(HashMap::from([(vnics[1].id.clone(), 5)]));
            let found = devices.renumbered(&vnics[1], &vnics, &links, &LinkKindName::HARDWARE);
            assert_eq!(found, expected.map(|at: usize| &links[at]), "{case}");
        }
    }
}
