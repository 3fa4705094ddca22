//! Opening files for reading. A pipe among them does not wait for its writer.

use std::fs::File;
use std::io;
use std::path::Path;

/// What happens where the path itself is a symbolic link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FinalLink {
    /// The file that it leads to is opened.
    Follow,
    Refuse,
}

#[cfg(target_os = "linux")]
pub(crate) fn open(path: &Path, final_link: FinalLink) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;

    let flags = match final_link {
        FinalLink::Follow => libc::O_NONBLOCK,
        FinalLink::Refuse => libc::O_NONBLOCK | libc::O_NOFOLLOW,
    };
    File::options().read(true).custom_flags(flags).open(path)
}

/// Collectors run on nodes only.
#[cfg(not(target_os = "linux"))]
pub(crate) fn open(_: &Path, _: FinalLink) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}
