//! A node: an instance's network and files, as namespaces; programs under test run in it unchanged.

mod boot;
mod capabilities;
mod command;
mod filesystem;
mod namespaces;
mod pod;
mod sysctls;

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnetwork::IpNetwork;
use netlink::Netns;
use vcn::{Family, MachineKind, Ocid};

use crate::container::{Container, Image};
use crate::error::{ErrorContext, Result};
use crate::isolate::Isolated;
use crate::network::{Instance, Inventory, Vnic};
use crate::services::MetadataFault;
use namespaces::Namespaces;

pub(crate) use boot::{has_ipv6_default, primary as boot_primary};
pub use capabilities::Capabilities;
pub use command::Command;
pub(crate) use command::Spawner;
pub(crate) use namespaces::seal;
pub use pod::Pod;

/// A running node: namespaces with the links of its VNICs.
#[derive(Debug)]
pub struct Node {
    name: String,
    id: Ocid,
    kind: MachineKind,
    namespaces: Namespaces,
    spawner: Arc<Spawner>,
    inventory: Inventory,
}

impl Node {
    /// Makes the namespaces: its own files, a fresh kernel's settings, the loopback link.
    pub(crate) fn create(
        instance: &Instance,
        addresses: &[IpAddr],
        spawner: Arc<Spawner>,
        inventory: Inventory,
    ) -> Result<Self> {
        let Instance { name, id, kind, .. } = instance;
        let namespaces = Namespaces::create(|| {
            filesystem::prepare(name, addresses)?;
            sysctls::reset()
        })?;
        pod::raise_loopback(namespaces.net()).during(|| format!("raise the loopback link of {name}"))?;
        Ok(Self { name: name.clone(), id: id.clone(), kind: *kind, namespaces, spawner, inventory })
    }

    /// Its name: also the display name, the host name in DNS, and the label in drops.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The OCID of the instance.
    pub const fn id(&self) -> &Ocid {
        &self.id
    }

    /// What kind of machine it plays.
    pub const fn kind(&self) -> MachineKind {
        self.kind
    }

    /// The network namespace of the node.
    pub fn netns(&self) -> &Netns {
        self.namespaces.net()
    }

    /// Its VNICs as the metadata service lists them now: the primary one first.
    pub fn vnics(&self) -> Vec<Vnic> {
        self.inventory.lock().get(&self.name).map(|instance| instance.vnics.clone()).unwrap_or_default()
    }

    /// Its own address of a family, if the primary VNIC has one.
    pub fn address(&self, family: Family) -> Option<IpAddr> {
        self.inventory.lock().get(&self.name)?.primary()?.address.of(family).copied()
    }

    /// Runs a closure in its network and with its files, on a thread that ends with it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.namespaces.run(work)
    }

    /// A program on this node.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        Command::new(program.as_ref(), self.namespaces.clone(), Arc::clone(&self.spawner))
    }

    /// A container's command on this node: it sees the node's network, of the node's files its volumes only, and nothing
    /// of this process's environment.
    pub fn container(&self, container: &Container, image: &Image) -> Result<Command> {
        let confinement = self.run(|| container.confine(image))??;
        let (namespaces, spawner) = (self.namespaces.clone(), Arc::clone(&self.spawner));
        Ok(Command::contained(container.program(), confinement, namespaces, spawner))
    }

    /// Makes a pod's namespace at `/run/netns/<name>`, with nothing in it but its loopback link.
    pub fn add_pod(&self, name: &str) -> Result<Pod> {
        Pod::create(name, &self.namespaces, Arc::clone(&self.spawner))
    }

    /// Lets its metadata service fail; `None` ends that.
    pub fn set_metadata_fault(&self, fault: Option<MetadataFault>) {
        if let Some(instance) = self.inventory.lock().get_mut(&self.name) {
            instance.fault = fault;
        }
    }

    /// The command that enters it from outside the sandbox: a shell, or the program that follows.
    pub fn enter_hint(&self, sandbox: Isolated) -> String {
        let (_, mount, uts) = self.namespaces.descriptors();
        let holder = format!("/proc/{}/fd", sandbox.outer_pid);
        format!("{} --mount={holder}/{mount} --uts={holder}/{uts}", self.network_hint(sandbox))
    }

    /// The same for its network only: files and working directory stay the caller's.
    pub fn network_hint(&self, sandbox: Isolated) -> String {
        let holder = format!("/proc/{}", sandbox.outer_pid);
        let user = if sandbox.user_namespace {
            format!(" --user={holder}/ns/user --preserve-credentials")
        } else {
            String::new()
        };
        let (net, ..) = self.namespaces.descriptors();
        format!("nsenter{user} --net={holder}/fd/{net}")
    }
}

/// The default route of the family: `0.0.0.0/0` or `::/0`.
pub(crate) fn everywhere(family: Family) -> IpNetwork {
    let any: IpAddr = match family {
        Family::Ipv4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::Ipv6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    IpNetwork::new(any, 0).unwrap_or_else(|_| any.into())
}
