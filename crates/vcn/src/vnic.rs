//! A virtual network interface card (VNIC), as the metadata service describes it.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::{Deserialize, Serialize};

use crate::{IfName, MacAddr, Mtu, Ocid, PerFamily, VlanTag};

/// One VNIC of this instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Vnic {
    /// The OCID of the VNIC.
    pub id: Ocid,
    /// Its Ethernet address. On bare metal a tagged VNIC's is on no physical link.
    pub mac: MacAddr,
    /// The physical port on bare metal; absent on virtual machines, which distinguishes the two.
    pub nic_index: Option<u8>,
    /// The 802.1Q tag on bare metal, `None` where untagged. Virtual machines report a tag that means nothing.
    pub vlan_tag: Option<VlanTag>,
    /// Subnet, router and own address, per family.
    pub addressing: PerFamily<SubnetAddressing>,
}

/// A VNIC's place in a subnet, one family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubnetAddressing {
    /// The subnet's CIDR block.
    pub subnet: IpNetwork,
    /// The virtual router: inside the subnet for IPv4, link-local for IPv6.
    pub router: IpAddr,
    /// The VNIC's own address: the host's, never a pod's. Where there are [others](Self::others), the first that is listed.
    pub address: IpAddr,
    /// The VNIC's other addresses in the metadata service: for IPv6 all of them, pods' included, in no guaranteed order; for IPv4
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<IpAddr>,
}

impl SubnetAddressing {
    /// All addresses that the metadata service lists, in its order.
    pub fn listed(&self) -> impl Iterator<Item = IpAddr> + '_ {
        std::iter::once(self.address).chain(self.others.iter().copied())
    }
}

/// A network that is reached through a VNIC; never the default route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicRoute {
    /// The network's CIDR block.
    pub destination: IpNetwork,
    /// The next hop in the subnet; the virtual router if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
}

/// The link of a VNIC that a pod has for itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExclusiveLink {
    /// The name that it had on the host, and gets back. On bare metal the physical port, which stays there.
    pub link: IfName,
    /// The VNIC's Ethernet address. The pod may have changed the link's.
    pub mac: MacAddr,
    /// The kind that `link` has; absent for hardware.
    #[serde(default, skip_serializing_if = "LinkKindName::is_hardware")]
    pub kind: LinkKindName,
    /// On bare metal, the tag of the VLAN link that was made in the pod; `None` where the link itself moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanTag>,
    /// The virtual router of each family.
    #[serde(default)]
    pub routers: PerFamily<IpAddr>,
    /// What identifies it in the pod; absent until it is there, and in records of version 0.2.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<LinkIdentity>,
    /// What it had on the host, and gets back; absent in records of version 0.2.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<LinkSettings>,
}

/// What identifies a link of a kind in its namespace. A pod with `NET_ADMIN` chooses names and Ethernet addresses, and the indexes
/// of links that it makes, but neither kind nor permanent address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkIdentity {
    /// The index of the link on the host.
    pub index: u32,
    /// The Ethernet address that its driver calls permanent; `None` where the driver has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permanent_mac: Option<MacAddr>,
}

/// What a pod may change of a link and an operator may have set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkSettings {
    /// The MTU of the link, in bytes.
    pub mtu: Mtu,
    /// The number of the link's group.
    pub group: u32,
    /// The length of its transmit queue, in packets.
    pub queue_length: u32,
}

impl Default for LinkSettings {
    /// The kernel's for Ethernet, with the MTU of a VCN.
    fn default() -> Self {
        Self { mtu: Mtu::VCN, group: 0, queue_length: 1000 }
    }
}

/// A link's kind in the kernel's words: `veth`, `vlan`, …; none for what a driver of hardware or of a hypervisor made, which no
/// pod can make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LinkKindName(Option<String>);

impl LinkKindName {
    /// The kind of network cards.
    pub const HARDWARE: Self = Self(None);

    /// The kind of a VLAN link.
    pub fn vlan() -> Self {
        Self(Some("vlan".to_owned()))
    }

    /// The kind of this name; none for hardware.
    pub const fn new(name: Option<String>) -> Self {
        Self(name)
    }

    /// The name; none for hardware.
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Whether it is hardware, to the kernel.
    pub const fn is_hardware(&self) -> bool {
        self.0.is_none()
    }
}

/// Whom a VNIC serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Its addresses go to pods.
    #[default]
    Pods,
    /// The host's own use.
    Host,
    /// Kept for pods that request it by name.
    Attach,
}

/// How pods use a VNIC of [`Purpose::Attach`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AttachMode {
    /// Several pods, each with one address of the VNIC.
    #[default]
    Shared,
    /// One pod at a time has the VNIC's own link, or on bare metal its VLAN link.
    Exclusive,
}
