//! The plugin's own part of the configuration. Everything has a default: the conflist needs to name only the type.

use std::path::PathBuf;

use cni::{Config, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use vcn::{Mtu, STATE_DIR};

/// Where the kernel's settings are, from a plugin's point of view.
pub(crate) const SYSCTL_ROOT: &str = "/proc/sys";

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
        Self { state_dir: state_dir(), mtu: None }
    }
}

impl Conf {
    /// DEL and GC clean up whatever has become of the configuration: where a field is wrong, the sound ones still count, or
    /// a slip in the MTU would make DEL look for the pod's record in another directory.
    pub(crate) fn as_far_as_sound(conf: &Result<Self, Error>, config: &Config) -> Self {
        match conf {
            Ok(conf) => conf.clone(),
            Err(_) => Self {
                state_dir: config.raw().get("stateDir").and_then(|it| absolute(it).ok()).unwrap_or_else(state_dir),
                mtu: config.raw().get("mtu").and_then(|it| pod_mtu(it).ok()).flatten(),
            },
        }
    }
}

/// The state directory that a configuration names of which nothing else is sound, perhaps.
pub(crate) fn state_dir_of(document: Option<&Value>) -> PathBuf {
    document.and_then(|document| document.get("stateDir")).and_then(|it| absolute(it).ok()).unwrap_or_else(state_dir)
}

fn state_dir() -> PathBuf {
    PathBuf::from(STATE_DIR)
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
