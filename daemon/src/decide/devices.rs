//! Which device each VNIC was found at. A device that got another Ethernet address is still the VNIC's: without this memory
//! it would be taken for unplugged, and its pods' network for stale. By the kernel's index, which is used once in a boot: a
//! device plugged in later may get the name, never the index.

use std::collections::HashMap;

use netlink::Link;
use vcn::{IfName, MacAddr, Ocid, Vnic};

/// What is remembered.
#[derive(Clone, Debug, Default)]
pub struct Devices {
    known: HashMap<Ocid, u32>,
}

impl Devices {
    /// The links as the VNICs are to be found among them: a device whose address somebody changed has its VNIC's. On bare
    /// metal ports may have addresses of their own, so there nothing is assumed.
    #[must_use]
    pub fn recognised(&self, vnics: &[Vnic], mut links: Vec<Link>) -> Vec<Link> {
        for vnic in vnics.iter().filter(|vnic| vnic.nic_index.is_none()) {
            if links.iter().any(|link| link.mac == Some(vnic.mac)) {
                continue;
            }
            let theirs = |mac: Option<MacAddr>| vnics.iter().any(|other| Some(other.mac) == mac);
            let device = |link: &&mut Link| {
                Some(&link.index) == self.known.get(&vnic.id) && link.master.is_none() && !theirs(link.mac)
            };
            if let Some(link) = links.iter_mut().find(device) {
                link.mac = Some(vnic.mac);
            }
        }
        links
    }

    /// Notes at which link each VNIC is.
    pub fn note<'a>(&mut self, placed: impl Iterator<Item = (&'a Ocid, &'a IfName)>, links: &[Link]) {
        let index = |name: &IfName| links.iter().find(|link| link.name == *name).map(|link| link.index);
        self.known = placed.filter_map(|(id, name)| Some((id.clone(), index(name)?))).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{link, mac, vm_vnics};

    fn known(index: u32) -> Devices {
        Devices { known: HashMap::from([(vm_vnics()[1].id.clone(), index)]) }
    }

    fn changed(name: &str, index: u32, last: u8) -> Link {
        Link { index, ..link(name, last) }
    }

    #[test]
    fn a_device_under_another_address_or_name_is_still_the_vnics() {
        let links = known(5).recognised(&vm_vnics(), vec![changed("renamed", 5, 0x66)]);
        assert_eq!(links[0].mac, Some(mac(0x0b)));
    }

    #[test]
    fn another_device_or_one_that_is_part_of_something_is_not() {
        let bonded = Link { master: Some(9), ..changed("ens5", 5, 0x66) };
        // The primary VNIC's own.
        let other = changed("ens5", 5, 0x0a);
        for link in [changed("ens5", 6, 0x66), bonded, other] {
            assert_eq!(known(5).recognised(&vm_vnics(), vec![link.clone()]), [link]);
        }
    }

    #[test]
    fn where_the_vnics_own_address_is_at_another_device_that_is_it() {
        let links = vec![changed("ens5", 5, 0x66), changed("ens6", 6, 0x0b)];
        assert_eq!(known(5).recognised(&vm_vnics(), links.clone()), links);
    }

    #[test]
    fn on_bare_metal_nothing_is_assumed() {
        let vnics: Vec<Vnic> = vm_vnics().into_iter().map(|vnic| Vnic { nic_index: Some(0), ..vnic }).collect();
        let links = vec![changed("ens5", 5, 0x66)];
        assert_eq!(known(5).recognised(&vnics, links.clone()), links);
    }
}
