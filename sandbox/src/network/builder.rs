//! From a description to a running VCN.

use vcn::MachineKind;

use crate::error::{Error, Result};
use crate::network::Vcn;
use crate::network::{NodeSpec, SubnetSpec};
use crate::node::Capabilities;

/// Collects what to build.
#[must_use]
#[derive(Clone, Debug, Default)]
pub struct Builder {
    subnets: Vec<SubnetSpec>,
    nodes: Vec<NodeSpec>,
}

impl Vcn {
    /// Starts the description of a VCN.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Adds a subnet to the description.
    pub fn subnet(mut self, subnet: SubnetSpec) -> Self {
        self.subnets.push(subnet);
        self
    }

    /// Adds a node to the description.
    pub fn node(mut self, node: NodeSpec) -> Self {
        self.nodes.push(node);
        self
    }

    /// Builds it. On success every node is booted: its primary VNIC is configured, its secondary ones are attached but not
    /// configured, the services answer.
    ///
    /// # Errors
    /// Without root (see [`crate::isolate()`]); when the description contradicts itself; when a bare-metal node is requested
    /// and the kernel has no 802.1Q.
    pub fn start(self) -> Result<Vcn> {
        if let Some(node) = self.nodes.iter().find(|node| node.kind == MachineKind::BareMetal && !node.on_paper)
            && !Capabilities::probe()?.vlan
        {
            let message = format!("{} is a bare-metal node, which needs 802.1Q (VLAN) in this kernel", node.name);
            return Err(Error::Invalid(message));
        }
        let mut vcn = Vcn::empty()?;
        for subnet in self.subnets {
            vcn.add_subnet(subnet)?;
        }
        for node in self.nodes {
            vcn.add_node(node)?;
        }
        Ok(vcn)
    }
}
