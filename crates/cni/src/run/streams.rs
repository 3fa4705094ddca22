//! The standard streams of a plugin, made safe before anything is opened.

use std::fs::OpenOptions;
use std::os::fd::IntoRawFd;

/// If a runtime closed a stream, a state file must not take its number, or the answer would be written into the file. A runtime
/// that hangs up must not kill an ADD half-way.
#[expect(unsafe_code, reason = "descriptors that may be closed, and signal dispositions, are for libc only")]
pub(crate) fn secure() {
    for stream in 0..=2 {
        // SAFETY: F_GETFD touches no memory, whatever the number.
        if unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1
            && let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null")
        {
            // It got the lowest free number, which is this one, and keeps it.
            let _ = null.into_raw_fd();
        }
    }
    // SAFETY: this installs no handler, only the disposition "ignore".
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}
