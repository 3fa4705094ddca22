//! The guard against a runtime that names the plugin's own (the host's) network namespace as the container's.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Whether `netns` is the namespace this thread is in. A path that cannot be looked at is not: whoever opens it says why.
pub(crate) fn is_own(netns: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    // Not /proc/self: that is the main thread's.
    identity(netns).is_some_and(|there| identity(Path::new("/proc/thread-self/ns/net")) == Some(there))
}
