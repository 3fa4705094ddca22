//! What collectors take from the agent instead of reading it again: its view of VNICs, pools and interference.

mod quantity;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::signal::Gap;

pub use quantity::mebibytes;

/// The agent's knowledge of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The shape, such as `VM.Standard.E5.Flex`.
    pub shape: Option<String>,
    /// The name of the Node object.
    pub node_name: Option<String>,
    /// The address by which the Node is registered.
    pub node_ip: Option<IpAddr>,
    /// The addresses of the primary VNIC.
    pub primary_addresses: Vec<IpAddr>,
    /// The links of VNICs, the primary one's first. Other links, such as management ports that are down by design, are not
    /// examined.
    pub links: Vec<VnicLink>,
    /// Folders whose file systems must have room.
    pub paths: Vec<PathBuf>,
    /// The agent's folder in /run, which is empty after a boot.
    pub state_dir: Option<PathBuf>,
    /// Where the metadata service listens, and the path that is requested.
    pub metadata: Option<(SocketAddr, String)>,
    /// The agent's version, which is also that of the plugins that it ships.
    pub version: String,
    /// The plugins that the agent installs on this node.
    pub plugins: Vec<InstalledPlugin>,
    /// The Node's allocatable memory with huge pages, in bytes, as the controller reported it last.
    pub allocatable_memory: Option<u64>,
    /// The Node's allocatable GPUs, as the controller reported them last; none of a Node that offers none by this name.
    pub allocatable_gpus: Option<u64>,
    /// The runtime as the Node names it (`cri-o`), as the controller reported it last.
    pub runtime: Option<String>,
    /// Where the kubelet answers on loopback whether it is healthy; 0 where it does not.
    pub kubelet_port: u16,
    /// NVIDIA's dcgm-exporter, if DCGM_METRICS names one.
    pub dcgm: Option<Exporter>,
    /// The last reconcile, once there is one.
    pub network: Option<NetworkFacts>,
}

/// Where NVIDIA's dcgm-exporter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exporter {
    /// The address and port that it listens on.
    pub address: SocketAddr,
    /// The path of its page.
    pub path: String,
    /// Whether the address is one of this node. A page from any other must name the node's GPUs by their UUIDs, because GPUs of all
    /// nodes of a shape have the same places on the bus.
    pub is_of_node: bool,
}

/// A plugin that the agent installs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledPlugin {
    /// The name of its file.
    pub name: &'static str,
    /// The same plugin in the agent's image.
    pub shipped: PathBuf,
    /// The file that the runtime starts.
    pub installed: PathBuf,
}

/// The link of a VNIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VnicLink {
    /// The name of the link.
    pub name: String,
    /// Whether it is the primary VNIC's.
    pub primary: bool,
    /// Whether the agent or the operating system keeps it up; any other may be down on purpose.
    pub is_kept_up: bool,
}

/// The host network as the last reconcile reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkFacts {
    /// Active conditions of the agent.
    pub conditions: Vec<ActiveCondition>,
    /// How many of our objects were repaired since the agent started.
    pub repairs: u64,
    /// The pools that serve all pods, if pods get addresses from this node's VNICs, and those of shared VNICs.
    pub pools: Vec<PoolFacts>,
}

/// An active condition of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveCondition {
    /// The part of the node that it concerns.
    pub topic: Topic,
    /// The message of the condition.
    pub message: String,
}

/// What a condition concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// VNICs, their links, routes and rules.
    Vnic,
    /// A firewall that rejects forwarded packets.
    Forwarding,
    /// A program that also configures the network.
    NetworkManager,
}

/// A pool of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFacts {
    /// The name of the VNIC's link.
    pub link: String,
    /// The `spec.name` of the VnicAttachment by which pods share it; none for a pool that serves all pods.
    pub shared: Option<String>,
    /// The family, as `IPv4` or `IPv6`.
    pub family: String,
    /// The number of addresses for pods.
    pub total: u64,
    /// The number of addresses that pods hold.
    pub in_use: u64,
    /// Freed lately, and not used again yet.
    pub cooling: u64,
    /// The number of addresses that a pod could get now.
    pub free: u64,
}

/// Messages of one topic.
pub(crate) struct Messages {
    pub(crate) count: f64,
    pub(crate) text: String,
}

impl Facts {
    pub(crate) fn network(&self) -> Result<&NetworkFacts, Gap> {
        self.network.as_ref().ok_or_else(|| Gap::unknown("the agent has not finished a reconcile yet"))
    }

    pub(crate) fn links(&self) -> Result<&[VnicLink], Gap> {
        if self.links.is_empty() {
            return Err(Gap::unknown("the agent knows no link of a VNIC yet"));
        }
        Ok(&self.links)
    }
}

impl NetworkFacts {
    pub(crate) fn about(&self, topic: Topic) -> Messages {
        let of_it = self.conditions.iter().filter(|condition| condition.topic == topic);
        let texts: Vec<&str> = of_it.map(|condition| condition.message.as_str()).collect();
        Messages { count: texts.len() as f64, text: texts.join("; ") }
    }
}
