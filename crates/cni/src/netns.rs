//! The container's network namespace, and the guard against a runtime that names the plugin's own (the host's) as it.

use std::path::{Path, PathBuf};

use crate::{Error, ErrorCode};

/// CNI_NETNS. Opening it shows whether it exists and whether it is the plugin's own namespace; parsing does not check that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerNetns {
    path: PathBuf,
    own_allowed: bool,
}

impl ContainerNetns {
    /// A path as the runtime gives it; `own_allowed` is CNI_NETNS_OVERRIDE.
    pub(crate) fn new(path: PathBuf, own_allowed: bool) -> Self {
        Self { path, own_allowed }
    }

    /// The path of the namespace, as the runtime gives it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// To be called before anything is changed, with whether the namespace that was opened is the one the plugin runs in.
    ///
    /// # Errors
    /// When it is, and the runtime does not say that it is meant.
    pub fn permit(&self, is_own: bool) -> Result<(), Error> {
        if self.own_allowed || !is_own {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::INVALID_NETNS,
            format!(
                "CNI_NETNS {} is the network namespace this plugin runs in: give the container's, \
                 or set CNI_NETNS_OVERRIDE=1 if it is meant",
                self.path.display()
            ),
        ))
    }
}
