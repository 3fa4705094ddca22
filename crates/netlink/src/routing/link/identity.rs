//! Which link is a VNIC's. A pod with `NET_ADMIN` chooses the name and the Ethernet address of its links, so neither says it:
//! the kind and the permanent address do, which come from the driver.

use vcn::{ExclusiveLink, LinkIdentity, LinkKindName, LinkSettings, MacAddr};

use super::Link;

impl Link {
    /// The links of the VNIC with this Ethernet address, of all `links` of the host. They have the kind `nics`. Where no driver
    /// has permanent addresses, the present ones count.
    pub fn nics_of<'a>(links: &'a [Self], vnic: MacAddr, nics: &LinkKindName) -> impl Iterator<Item = &'a Self> {
        let drivers_know = Self::have_permanent(links, nics);
        links.iter().filter(move |link| {
            let mac = if drivers_know { link.permanent_mac } else { link.mac };
            link.has_kind(nics) && mac == Some(vnic)
        })
    }

    /// Whether drivers of the host's network cards have permanent addresses. A card without one is then none: a pod can make links
    /// without a kind, such as those of L2TP sessions.
    pub fn have_permanent(links: &[Self], nics: &LinkKindName) -> bool {
        links.iter().any(|link| link.has_kind(nics) && link.permanent_mac.is_some())
    }

    /// The link on the host, of all `links` there, that a pod had as `device`.
    pub fn returned<'a>(links: &'a [Self], device: &ExclusiveLink, nics: &LinkKindName) -> Option<&'a Self> {
        let recorded = device.identity.and_then(|identity| identity.permanent_mac);
        Self::nics_of(links, device.mac, nics).find(|link| recorded.is_none() || link.permanent_mac == recorded)
    }

    /// The recorded link, of all `links` of the pod. One with a permanent address comes first.
    pub fn recorded(links: Vec<Self>, device: &ExclusiveLink) -> Option<Self> {
        links.into_iter().filter(|link| link.is_recorded(device)).max_by_key(|link| link.permanent_mac.is_some())
    }

    fn has_kind(&self, nics: &LinkKindName) -> bool {
        !self.loopback && self.vlan.is_none() && self.kind.as_deref() == nics.name()
    }

    /// Whether this is the recorded link of a VNIC, in the pod that has it for itself. A record of version 0.2.0 says nothing of
    /// its index.
    pub fn is_recorded(&self, device: &ExclusiveLink) -> bool {
        let has_kind = match device.vlan {
            Some(tag) => self.vlan == Some(tag),
            None => self.has_kind(&device.kind),
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
