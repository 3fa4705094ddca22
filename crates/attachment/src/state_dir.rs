//! Where pools, allocations and the kernel's settings are. Never in a configuration: a user who may write a
//! NetworkAttachmentDefinition would choose the files that a plugin reads and writes as root.

use std::path::PathBuf;

/// The kernel's settings, from a plugin's point of view.
pub(crate) const SYSCTL_ROOT: &str = "/proc/sys";

/// Names another directory. A plugin has the runtime's environment, which is root's own.
pub const STATE_DIR_VARIABLE: &str = "VCN_NATIVE_STATE_DIR";

/// The state directory of this process. A path that is not absolute counts as none: plugins are started wherever the runtime is.
pub(crate) fn state_dir() -> PathBuf {
    let named = std::env::var_os(STATE_DIR_VARIABLE).map(PathBuf::from).filter(|path| path.is_absolute());
    named.unwrap_or_else(|| PathBuf::from(vcn::STATE_DIR))
}
