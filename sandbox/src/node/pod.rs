//! A pod's network namespace, where a container runtime puts it: `/run/netns/<name>` in its node.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use netlink::{LinkChange, Netns, Socket};
use nix::sched::{CloneFlags, unshare};
use vcn::IfName;

use crate::error::{Error, ErrorContext, Result};
use crate::node::Namespaces;
use crate::node::sysctls;
use crate::node::{Command, Spawner};

/// A pod without containers.
#[derive(Debug)]
pub struct Pod {
    name: String,
    path: PathBuf,
    namespaces: Namespaces,
    spawner: Arc<Spawner>,
}

impl Pod {
    pub(crate) fn create(name: &str, node: &Namespaces, spawner: Arc<Spawner>) -> Result<Self> {
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(Error::Invalid(format!("{name:?} is not a pod name: it must be a file name")));
        }
        let path = Path::new("/run/netns").join(name);
        let net = node.run(|| -> Result<Netns> {
            unshare(CloneFlags::CLONE_NEWNET).during(|| "make a pod's namespace")?;
            sysctls::reset()?;
            let net = Netns::current().during(|| format!("hold pod {name}"))?;
            raise_loopback(&net).during(|| format!("raise the loopback link of pod {name}"))?;
            net.bind_to(&path).during(|| format!("show pod {name}"))?;
            Ok(net)
        })??;
        Ok(Self { name: name.to_owned(), path, namespaces: node.with_net(Arc::new(net)), spawner })
    }

    /// The name of the pod.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The namespace's path inside the node: CNI_NETNS.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The network namespace of the pod.
    pub fn netns(&self) -> &Netns {
        self.namespaces.net()
    }

    /// Runs a closure in the pod's network, with the node's files.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        self.namespaces.run(work)
    }

    /// A program in the pod's network, with the node's files.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        Command::new(program.as_ref(), self.namespaces.clone(), Arc::clone(&self.spawner))
    }

    /// Removes it as a runtime does: the path goes, and with the last holder the namespace.
    pub fn remove(self) -> Result<()> {
        let Self { name, path, namespaces, .. } = self;
        namespaces.run(|| Netns::unbind(&path))?.during(|| format!("remove pod {name}"))
    }
}

/// Sets the loopback link up.
pub(crate) fn raise_loopback(netns: &Netns) -> netlink::Result<()> {
    let mut socket = Socket::open_in(netns)?;
    match IfName::new("lo") {
        Ok(name) => socket.change_link_named(&name, &[LinkChange::Up]),
        Err(_) => Ok(()),
    }
}
