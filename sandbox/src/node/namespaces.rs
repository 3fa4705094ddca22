//! A network, a mount and a UTS namespace together, held open by descriptors only: when this process ends, however it
//! ends, the kernel removes them with everything in them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread;

use netlink::Netns;
use nix::NixPath;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};

use crate::error::{Error, ErrorContext, Result};

#[derive(Clone, Debug)]
pub(crate) struct Namespaces {
    net: Arc<Netns>,
    mount: Arc<OwnedFd>,
    /// Servers answer with the host name, and the kubelet's Node is named by it.
    uts: Arc<OwnedFd>,
}

impl Namespaces {
    /// Makes them and runs `prepare` inside, before another process can enter. Mounts made there stay there.
    pub(crate) fn create(prepare: impl FnOnce() -> Result<()> + Send) -> Result<Self> {
        on_own_thread(|| {
            // CLONE_FS: a thread that shares its root and working directory cannot change its mount namespace.
            let all = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS;
            unshare(CloneFlags::CLONE_FS | all).during(|| "make a node's namespaces")?;
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
                .during(|| "make a node's mounts private")?;
            prepare()?;
            let net = Netns::current().during(|| "hold a node's network namespace")?;
            let mount = File::open("/proc/thread-self/ns/mnt").during(|| "hold a node's mount namespace")?;
            let uts = File::open("/proc/thread-self/ns/uts").during(|| "hold a node's UTS namespace")?;
            Ok(Self { net: Arc::new(net), mount: Arc::new(mount.into()), uts: Arc::new(uts.into()) })
        })
    }

    /// The same mounts, another network namespace.
    pub(crate) fn with_net(&self, net: Arc<Netns>) -> Self {
        Self { net, mount: Arc::clone(&self.mount), uts: Arc::clone(&self.uts) }
    }

    pub(crate) fn net(&self) -> &Netns {
        &self.net
    }

    /// The descriptors (network, mount, UTS), for `nsenter` through `/proc/<pid>/fd`.
    pub(crate) fn descriptors(&self) -> (RawFd, RawFd, RawFd) {
        (self.net.as_fd().as_raw_fd(), self.mount.as_raw_fd(), self.uts.as_raw_fd())
    }

    /// Runs a closure inside, on a thread that ends with it.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        on_own_thread(|| {
            unshare(CloneFlags::CLONE_FS).during(|| "leave the shared working directory")?;
            self.enter().during(|| "enter a node's namespaces")?;
            Ok(work())
        })
    }

    /// Enters them with the calling thread, which must not share its working directory. Only system calls, so that it
    /// is safe between fork and exec.
    pub(crate) fn enter(&self) -> io::Result<()> {
        setns(self.mount.as_fd(), CloneFlags::CLONE_NEWNS)?;
        setns(self.net.as_fd(), CloneFlags::CLONE_NEWNET)?;
        setns(self.uts.as_fd(), CloneFlags::CLONE_NEWUTS)?;
        Ok(())
    }
}

/// Makes a mount read-only. In a user namespace, flags that the machine set cannot be dropped: they are repeated. Only
/// system calls.
pub(crate) fn seal<P: ?Sized + NixPath>(path: &P) -> Result<(), Errno> {
    let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    let present = statvfs(path)?.flags();
    for (from, to) in [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ] {
        flags.set(to, present.contains(from));
    }
    mount(None::<&P>, path, None::<&P>, flags, None::<&P>)
}

/// Runs a closure on a thread of its own: whatever it does to its namespaces, no other thread sees it.
pub(crate) fn on_own_thread<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("sandbox-scratch".to_owned())
            .spawn_scoped(scope, work)
            .during(|| "start a thread")?;
        thread.join().unwrap_or(Err(Error::Panicked("work inside a namespace")))
    })
}
