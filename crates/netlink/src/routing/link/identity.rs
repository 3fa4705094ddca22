//! Which link is a VNIC's. A pod with `NET_ADMIN` chooses the name and the Ethernet address of its links, so neither says it:
//! the kind and the permanent address do, which come from the driver.

use vcn::{LinkIdentity, LinkKindName, LinkSettings, MacAddr};

use super::Link;

impl Link {
    /// Whether this is the link of the VNIC with this Ethernet address. Such links have the kind `nics`. A driver without a
    /// permanent address leaves the present one.
    pub fn is_nic_of(&self, vnic: MacAddr, nics: &LinkKindName) -> bool {
        let is_nic = !self.loopback && self.vlan.is_none() && self.kind.as_deref() == nics.name();
        is_nic && self.permanent_mac.or(self.mac) == Some(vnic)
    }

    /// What identifies it in its namespace.
    pub fn identity(&self) -> LinkIdentity {
        let kind = LinkKindName::new(self.kind.clone());
        LinkIdentity { index: self.index, kind, permanent_mac: self.permanent_mac }
    }

    /// What a pod may change of it.
    pub const fn settings(&self) -> LinkSettings {
        LinkSettings { mtu: self.mtu, group: self.group, queue_length: self.queue_length }
    }
}
