//! The plugin's own part of the configuration. Everything has a default: the conflist needs to name only the type.

use std::path::PathBuf;

use cni::Error;
use serde::{Deserialize, Deserializer};
use vcn::{Mtu, STATE_DIR};

/// What the conflist may say to this plugin.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// Where pools and allocations are: absolute, for plugins are started wherever the runtime is.
    #[serde(deserialize_with = "absolute")]
    pub state_dir: PathBuf,
    /// The largest MTU a pod's link gets; the VNIC's, where that is smaller or nothing is said. A chained plugin that
    /// changes the MTU (tuning) needs the same value here, or CHECK calls it a difference.
    #[serde(deserialize_with = "pod_mtu")]
    pub mtu: Option<Mtu>,
}

impl Default for Conf {
    fn default() -> Self {
        Self { state_dir: PathBuf::from(STATE_DIR), mtu: None }
    }
}

impl Conf {
    /// DEL and GC clean up whatever has become of the configuration.
    pub(crate) fn or_default(conf: &Result<Self, Error>) -> Self {
        conf.as_ref().map_or_else(|_| Self::default(), Clone::clone)
    }
}

fn absolute<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let path = PathBuf::deserialize(deserializer)?;
    if path.is_absolute() {
        return Ok(path);
    }
    Err(serde::de::Error::custom(format!("{path:?} is not an absolute path")))
}

/// The smallest MTU that IPv6 works with (RFC 8200 §5).
const MIN_MTU: u32 = 1280;

fn pod_mtu<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Mtu>, D::Error> {
    match Option::<u32>::deserialize(deserializer)? {
        Some(mtu) if mtu < MIN_MTU => {
            Err(serde::de::Error::custom(format!("an MTU of {mtu} is below {MIN_MTU}, which IPv6 needs")))
        }
        mtu => Ok(mtu.map(Mtu)),
    }
}
