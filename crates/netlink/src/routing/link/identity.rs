//! Which link is a VNIC's. A pod with `NET_ADMIN` chooses the name and the Ethernet address of its links, so neither says it:
//! the kind and the permanent address do, which come from the driver.

use vcn::{ExclusiveLink, LinkIdentity, LinkKindName, LinkSettings, MacAddr};

use super::Link;

impl Link {
    /// Whether this is the link of the VNIC with this Ethernet address. Such links have the kind `nics`. A driver without a
    /// permanent address leaves the present one.
    pub fn is_nic_of(&self, vnic: MacAddr, nics: &LinkKindName) -> bool {
        let is_nic = !self.loopback && self.vlan.is_none() && self.kind.as_deref() == nics.name();
        is_nic && self.permanent_mac.or(self.mac) == Some(vnic)
    }

    /// Whether this is the recorded link of a VNIC, in the pod that has it for itself. A record of version 0.2.0 says nothing of
    /// its index.
    pub fn is_recorded(&self, device: &ExclusiveLink) -> bool {
        let has_kind = match device.vlan {
            Some(tag) => self.vlan == Some(tag),
            None => !self.loopback && self.vlan.is_none() && self.kind.as_deref() == device.kind.name(),
        };
        has_kind
            && match device.identity {
                Some(identity) => self.identity() == identity,
                None => self.permanent_mac.or(self.mac) == Some(device.mac),
            }
    }

    /// What identifies it in its namespace, among links of its kind.
    pub const fn identity(&self) -> LinkIdentity {
        LinkIdentity { index: self.index, permanent_mac: self.permanent_mac }
    }

    /// What a pod may change of it.
    pub const fn settings(&self) -> LinkSettings {
        LinkSettings { mtu: self.mtu, group: self.group, queue_length: self.queue_length }
    }
}
