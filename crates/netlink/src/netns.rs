//! Network namespaces: opened, made, bound to a path, entered by a closure on a thread of its own.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;
use nix::sys::statfs::fstatfs;

use crate::error::{Cause, Result};

/// The calling *thread's* namespace; `/proc/self` would be the main thread's.
const CURRENT: &str = "/proc/thread-self/ns/net";

/// Opens the namespace that a socket is in (linux/sockios.h; since 4.10, with CAP_NET_ADMIN there).
const SIOCGSKNS: u64 = 0x894c;

/// An open network namespace. It lives at least as long as this.
#[derive(Debug)]
pub struct Netns {
    file: OwnedFd,
    id: NetnsId,
}

/// The namespace that a thread was in when it left for another: where it comes back to.
#[derive(Debug)]
pub struct Home(Netns);

impl Home {
    /// The calling thread's.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn of_this_thread() -> Result<Self> {
        Netns::current().map(Self)
    }

    /// As [`Home::of_this_thread`], for a thread that opened `socket` in its own namespace: the kernel says which one that is. The
    /// kernel makes a process's files in `/proc` at the first lookup and frees them at its end, which costs 1 % of an ADD.
    ///
    /// # Errors
    /// When the kernel does not know SIOCGSKNS and `/proc` is not mounted.
    pub fn of_socket(socket: &impl AsFd) -> Result<Self> {
        match netns_of(socket).and_then(Netns::of_file) {
            Ok(netns) => Ok(Self(netns)),
            Err(_) => Self::of_this_thread(),
        }
    }

    /// Which namespace this is.
    pub const fn id(&self) -> NetnsId {
        self.0.id
    }
}

/// Takes the thread home when it is dropped.
struct HomeGuard<'a>(&'a Home);

impl Drop for HomeGuard<'_> {
    fn drop(&mut self) {
        if setns(self.0, CloneFlags::CLONE_NEWNET).is_err() {
            // Out of memory. A thread that goes on in the wrong network is worse than none.
            std::process::abort();
        }
    }
}

impl AsFd for Home {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

/// Which namespace: equal ids are the same namespace, as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetnsId {
    /// The device number of the kernel's namespace file system.
    pub dev: u64,
    /// The namespace's inode number there. It may be reused after the namespace is gone.
    pub inode: u64,
}

impl fmt::Display for NetnsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.dev, self.inode)
    }
}

impl Netns {
    /// Opens the namespace at a path.
    ///
    /// # Errors
    /// `is_not_found()` when nothing is there; [`Cause::NotANamespace`] when it is something else.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_cause(path).map_err(|cause| cause.during("open network namespace", path.display()))
    }

    /// The calling thread's namespace.
    ///
    /// # Errors
    /// When `/proc` is not mounted.
    pub fn current() -> Result<Self> {
        Self::open(Path::new(CURRENT))
    }

    /// Makes a new namespace that no other program knows. Its loopback link is down.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN.
    pub fn create() -> Result<Self> {
        on_own_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Self::open_cause(Path::new(CURRENT))
        })
        .map_err(|cause| cause.during("create", "a network namespace"))
    }

    /// Which namespace this is.
    pub const fn id(&self) -> NetnsId {
        self.id
    }

    /// Runs a closure inside the namespace, on a thread that ends with it: whatever the closure does, returns or
    /// panics, no other thread is ever in the wrong namespace.
    ///
    /// # Errors
    /// When the namespace cannot be entered, or the closure panicked.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        on_own_thread(|| {
            setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })
        .map_err(|cause| cause.during("work in network namespace", self.id))
    }

    /// Does something short inside the namespace on this thread, and comes back `home`, however it ends: opens a socket that
    /// stays there, or reads or writes a setting. A thread for it costs as much as several requests.
    ///
    /// # Errors
    /// When the namespace cannot be entered, and the work's own.
    pub fn visit<T: Send>(&self, home: &Home, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        // A thread that may enter the namespace may still not be allowed to come back (a user namespace in the host's network);
        // entering one's own shows it beforehand.
        if setns(home, CloneFlags::CLONE_NEWNET).is_err() {
            return self.run(work)?;
        }
        setns(&self.file, CloneFlags::CLONE_NEWNET)
            .map_err(|errno| Cause::from(errno).during("work in network namespace", self.id))?;
        let _guard = HomeGuard(home);
        work()
    }

    /// Makes the namespace reachable at a path, as container runtimes do: a new file with the namespace mounted on it.
    ///
    /// # Errors
    /// `is_already_exists()` when the path is taken.
    pub fn bind_to(&self, path: &Path) -> Result<()> {
        let bind = || -> Result<(), Cause> {
            OpenOptions::new().write(true).create_new(true).mode(0o444).open(path)?;
            let source = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            mount(Some(source.as_str()), path, None::<&str>, MsFlags::MS_BIND, None::<&str>).map_err(|errno| {
                // The empty file would look like a namespace that died.
                let _ = std::fs::remove_file(path);
                errno.into()
            })
        };
        bind().map_err(|cause| cause.during("bind network namespace to", path.display()))
    }

    /// Takes back `bind_to`: unmounts and removes the file. The namespace lives on while a process holds it.
    ///
    /// # Errors
    /// `is_not_found()` when there is no such file.
    pub fn unbind(path: &Path) -> Result<()> {
        let unbind = || -> Result<(), Cause> {
            // EINVAL: it is a plain file, its mount went with another mount namespace.
            match umount2(path, MntFlags::MNT_DETACH) {
                Ok(()) | Err(nix::errno::Errno::EINVAL) => {}
                Err(errno) => return Err(errno.into()),
            }
            Ok(std::fs::remove_file(path)?)
        };
        unbind().map_err(|cause| cause.during("unbind network namespace from", path.display()))
    }

    fn open_cause(path: &Path) -> Result<Self, Cause> {
        // Non-blocking, because the path may lead to a pipe. Not the standard library's: with musl that sets O_CLOEXEC twice.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(openat(AT_FDCWD, path, flags, Mode::empty())?);
        // C libraries differ in the width of both numbers.
        let is_nsfs = i128::from(fstatfs(&file)?.filesystem_type().0) == i128::from(libc::NSFS_MAGIC);
        if !is_nsfs || !is_network(&file) {
            return Err(Cause::NotANamespace);
        }
        Self::of_file(file)
    }

    /// Of what is surely one.
    fn of_file(file: File) -> Result<Self, Cause> {
        let metadata = file.metadata()?;
        Ok(Self { id: NetnsId { dev: metadata.dev(), inode: metadata.ino() }, file: file.into() })
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[expect(unsafe_code, reason = "no crate wraps NS_GET_NSTYPE")]
fn is_network(file: &File) -> bool {
    // SAFETY: NS_GET_NSTYPE takes no argument and the descriptor is open.
    unsafe { libc::ioctl(file.as_raw_fd(), libc::NS_GET_NSTYPE as _) == libc::CLONE_NEWNET }
}

#[expect(unsafe_code, reason = "no crate wraps SIOCGSKNS")]
fn netns_of(socket: &impl AsFd) -> Result<File, Cause> {
    // SAFETY: SIOCGSKNS takes no argument and the descriptor is open.
    match unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCGSKNS as _) } {
        -1 => Err(io::Error::last_os_error().into()),
        // SAFETY: the kernel has just made it, for us.
        descriptor => Ok(unsafe { File::from_raw_fd(descriptor) }),
    }
}

fn on_own_thread<T: Send>(work: impl FnOnce() -> Result<T, Cause> + Send) -> Result<T, Cause> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, work)?;
        thread.join().unwrap_or(Err(Cause::Panicked))
    })
}
