//! The plugin's own part of the configuration. Everything has a default: the conflist needs to name only the type.

use std::path::PathBuf;

use cni::Error;
use serde::Deserialize;
use vcn::STATE_DIR;

/// What the conflist may say to this plugin.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// Where pools and allocations are.
    pub state_dir: PathBuf,
}

impl Default for Conf {
    fn default() -> Self {
        Self { state_dir: PathBuf::from(STATE_DIR) }
    }
}

impl Conf {
    /// DEL and GC clean up whatever has become of the configuration.
    pub(crate) fn or_default(conf: &Result<Self, Error>) -> Self {
        conf.as_ref().map_or_else(|_| Self::default(), Clone::clone)
    }
}
