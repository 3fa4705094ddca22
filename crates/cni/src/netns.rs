//! The guard against a runtime that names the plugin's own (the host's) network namespace as the container's.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use nix::libc;

/// Opens the namespace that a socket is in.
const SIOCGSKNS: u64 = 0x894c;

/// Whether `netns` is the namespace this thread is in. A path that cannot be looked at is not: whoever opens it says why.
pub(crate) fn is_own(netns: &Path) -> bool {
    let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
    // Not /proc/self: that is the main thread's.
    let own = || own().and_then(|own| own.metadata()).or_else(|_| std::fs::metadata("/proc/thread-self/ns/net"));
    std::fs::metadata(netns).is_ok_and(|there| own().is_ok_and(|own| identity(own) == identity(there)))
}

/// This thread's, without /proc, where a process that is looked at for the first time costs a hundredth of an ADD.
#[expect(unsafe_code, reason = "no crate wraps SIOCGSKNS")]
fn own() -> io::Result<File> {
    let socket = UnixDatagram::unbound()?;
    // SAFETY: it takes no argument and the descriptor is open.
    match unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS as _) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just made it, for us.
        descriptor => Ok(unsafe { File::from_raw_fd(descriptor) }),
    }
}
