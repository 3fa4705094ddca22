//! The description of a VCN to build: subnets, nodes, VNICs.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use vcn::{Family, MachineKind, PerFamily};

use crate::error::{Error, Result};

/// A subnet to make.
#[must_use]
#[derive(Clone, Debug)]
pub struct SubnetSpec {
    pub(crate) name: String,
    blocks: Vec<String>,
}

impl SubnetSpec {
    /// A subnet of these blocks: one of each family that it has, or two of IPv6, of which a request for an IPv6 address must name
    /// one then.
    pub fn new(name: &str, blocks: &[&str]) -> Self {
        Self { name: name.to_owned(), blocks: blocks.iter().map(ToString::to_string).collect() }
    }

    /// The blocks, and the second one of IPv6.
    pub(super) fn parsed(&self) -> Result<(PerFamily<IpNetwork>, Option<IpNetwork>)> {
        let (mut blocks, mut second_ipv6) = (PerFamily::default(), None);
        for text in &self.blocks {
            let block: IpNetwork = text.parse().map_err(|error| Error::Invalid(format!("{text}: {error}")))?;
            if blocks.slot(Family::of(block.ip())).get_or_insert(block) != &block {
                second_ipv6 = Some(block);
            }
        }
        Ok((blocks, second_ipv6))
    }
}

/// A VNIC to attach.
#[must_use]
#[derive(Clone, Debug)]
pub struct VnicSpec {
    pub(crate) subnet: String,
    pub(crate) display_name: Option<String>,
    /// Secondary addresses of each family that the subnet has.
    pub(crate) secondary: u32,
    pub(crate) nic_index: u8,
    /// Its own addresses, where they are not the lowest free ones.
    pub(crate) address: PerFamily<IpAddr>,
    /// The block of its own IPv6 address, where the subnet has several and it is not the first.
    pub(crate) ipv6_block: Option<IpNetwork>,
    /// Whether it has an IPv6 address where the subnet has both families.
    pub(crate) ipv6: bool,
}

impl VnicSpec {
    /// A VNIC without secondary addresses, on the first port.
    pub fn new(subnet: &str) -> Self {
        Self {
            subnet: subnet.to_owned(),
            display_name: None,
            secondary: 0,
            nic_index: 0,
            address: PerFamily::default(),
            ipv6_block: None,
            ipv6: true,
        }
    }

    /// A VNIC as VCN-native pod networking has it: `pods` addresses for pods, and one more for the host.
    pub fn for_pods(subnet: &str, pods: u32) -> Self {
        Self::new(subnet).secondary(pods.saturating_add(1))
    }

    /// Gives it so many secondary addresses.
    pub const fn secondary(mut self, count: u32) -> Self {
        self.secondary = count;
        self
    }

    /// Puts it on another physical port (bare metal).
    pub const fn nic_index(mut self, nic_index: u8) -> Self {
        self.nic_index = nic_index;
        self
    }

    /// Gives it this address of its own, instead of the lowest free one.
    pub fn address(mut self, address: IpAddr) -> Self {
        *self.address.slot(Family::of(address)) = Some(address);
        self
    }

    /// Takes its own IPv6 address out of this block of the subnet, instead of the first.
    pub const fn ipv6_block(mut self, block: IpNetwork) -> Self {
        self.ipv6_block = Some(block);
        self
    }

    /// Gives it no IPv6 address in a subnet of both families: what OCI does by default.
    pub const fn without_ipv6(mut self) -> Self {
        self.ipv6 = false;
        self
    }

    /// Sets the display name of the VNIC.
    pub fn display_name(mut self, name: &str) -> Self {
        self.display_name = Some(name.to_owned());
        self
    }
}

/// A node to start.
#[must_use]
#[derive(Clone, Debug)]
pub struct NodeSpec {
    pub(crate) name: String,
    pub(crate) kind: MachineKind,
    pub(crate) shape: String,
    pub(crate) max_vnics: u32,
    pub(crate) ports: u8,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) vnics: Vec<VnicSpec>,
    pub(crate) on_paper: bool,
}

impl NodeSpec {
    /// A machine of this kind.
    pub fn of(kind: MachineKind, name: &str, subnet: &str) -> Self {
        match kind {
            MachineKind::Virtual => Self::virtual_machine(name, subnet),
            MachineKind::BareMetal => Self::bare_metal(name, subnet),
        }
    }

    /// A virtual machine whose primary VNIC is in `subnet`: 24 VNICs at most, as the largest flexible shapes.
    pub fn virtual_machine(name: &str, subnet: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: MachineKind::Virtual,
            shape: "VM.Standard.E5.Flex".to_owned(),
            max_vnics: 24,
            ports: 1,
            metadata: BTreeMap::new(),
            vnics: vec![VnicSpec::new(subnet)],
            on_paper: false,
        }
    }

    /// A bare-metal machine with two physical ports, 256 VNICs at most.
    pub fn bare_metal(name: &str, subnet: &str) -> Self {
        Self {
            kind: MachineKind::BareMetal,
            shape: "BM.Standard.E4.128".to_owned(),
            max_vnics: 256,
            ports: 2,
            ..Self::virtual_machine(name, subnet)
        }
    }

    /// Names another shape, with its limit of VNICs.
    pub fn shape(mut self, shape: &str, max_vnics: u32) -> Self {
        shape.clone_into(&mut self.shape);
        self.max_vnics = max_vnics;
        self
    }

    /// Makes it an instance of the inventory only: no namespace, no links. For tests of many instances.
    pub const fn on_paper(mut self) -> Self {
        self.on_paper = true;
        self
    }

    /// Adds an entry of custom metadata.
    pub fn metadata(mut self, key: &str, value: &str) -> Self {
        self.metadata.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Makes it an instance of an OKE node pool, by its metadata.
    pub fn node_pool(self, id: &str) -> Self {
        self.metadata("oke-pool-id", id)
    }

    /// Adds a secondary VNIC.
    pub fn vnic(mut self, vnic: VnicSpec) -> Self {
        self.vnics.push(vnic);
        self
    }
}
