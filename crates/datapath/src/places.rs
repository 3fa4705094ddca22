//! The namespaces that steps happen in.

use std::path::{Path, PathBuf};

use netlink::{Home, Netns, NetnsId, Socket, Sysctls};
use serde::{Deserialize, Serialize};
use vcn::{IfName, words};

use crate::SysctlSpec;

/// A namespace by its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The network namespace of the node.
    Host,
    /// The network namespace of the pod.
    Pod,
}

words!(Place: Host = "host", Pod = "pod");

/// Sockets into the namespaces at hand.
#[derive(Debug)]
pub struct Places {
    pub(crate) host: Socket,
    pub(crate) pod: Option<PodPlace>,
    pub(crate) sysctl_root: PathBuf,
    pub(crate) skips_waiting: bool,
}

#[derive(Debug)]
pub(crate) struct PodPlace {
    pub(crate) netns: Netns,
    pub(crate) socket: Socket,
    /// The host's namespace, for what is made from the pod's.
    pub(crate) home: Home,
}

impl Places {
    /// The namespace of the calling thread as the host, no pod. Settings are written below `sysctl_root`: a container
    /// sees its /proc/sys read-only and is given the host's elsewhere.
    ///
    /// # Errors
    /// When a netlink socket cannot be had.
    pub fn host(sysctl_root: &Path) -> Result<Self, netlink::Error> {
        Ok(Self { host: Socket::open()?, pod: None, sysctl_root: sysctl_root.to_owned(), skips_waiting: false })
    }

    /// The same, where links are removed without waiting until the kernel has freed them: for programs that end soon, see
    /// [`Socket::unlist_link_named`].
    #[must_use]
    pub fn without_waiting(self) -> Self {
        Self { skips_waiting: true, ..self }
    }

    /// The same with a pod, from the same thread.
    ///
    /// # Errors
    /// When the pod's namespace cannot be entered.
    pub fn with_pod(mut self, netns: Netns) -> Result<Self, netlink::Error> {
        self.enter(netns)?;
        Ok(self)
    }

    /// Takes in a pod, from the same thread.
    ///
    /// # Errors
    /// When the pod's namespace cannot be entered; then there is none.
    pub fn enter(&mut self, netns: Netns) -> Result<(), netlink::Error> {
        let home = Home::of_socket(&self.host)?;
        let socket = Socket::open_in_from(&netns, &home)?;
        self.pod = Some(PodPlace { netns, socket, home });
        Ok(())
    }

    /// Which namespace the pod's is.
    pub fn pod_id(&self) -> Option<NetnsId> {
        self.pod.as_ref().map(|pod| pod.netns.id())
    }

    /// Whether the pod's namespace is the host's.
    pub fn pod_is_host(&self) -> bool {
        self.pod.as_ref().is_some_and(|pod| pod.netns.id() == pod.home.id())
    }

    /// Whether the host has a link of this name: it has unless the kernel says no.
    pub fn has_link(&mut self, name: &IfName) -> bool {
        !self.host.index_of(name).is_err_and(|error| error.is_not_found())
    }

    /// Whether the host has a link of this name that is down: it is up unless the kernel says no.
    pub fn is_down(&mut self, name: &IfName) -> bool {
        self.host.is_up(name).is_ok_and(|up| !up)
    }

    /// The socket of a place; `None` for the pod when there is none (any more).
    pub(crate) fn socket(&mut self, place: Place) -> Option<&mut Socket> {
        match place {
            Place::Host => Some(&mut self.host),
            Place::Pod => self.pod.as_mut().map(|pod| &mut pod.socket),
        }
    }

    /// A setting as found; none where the kernel has no such setting.
    pub(crate) fn setting(&self, place: Place, key: &str) -> Option<SysctlSpec> {
        let value = self.sysctl(place, |sysctls| sysctls.read(key)).ok()?;
        Some(SysctlSpec { key: key.to_owned(), value: value.trim().to_owned() })
    }

    /// Settings of a place. /proc/sys/net shows the namespace of the thread that opens it, hence the visit to the pod.
    pub(crate) fn sysctl<T: Send>(
        &self,
        place: Place,
        act: impl FnOnce(&Sysctls) -> Result<T, netlink::Error> + Send,
    ) -> Result<T, netlink::Error> {
        match (place, &self.pod) {
            (Place::Pod, Some(pod)) => pod.netns.visit(&pod.home, || act(&Sysctls::new(Path::new("/proc/sys")))),
            _ => act(&Sysctls::new(&self.sysctl_root)),
        }
    }
}
