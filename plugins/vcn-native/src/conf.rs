//! The plugin's own part of the configuration. Everything has a default: the conflist needs to name only the type. No path is
//! read from it: the author of a configuration would choose which files a program of root's reads and writes.

use serde::{Deserialize, Deserializer};
use vcn::Mtu;

/// What the conflist may say to this plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Conf {
    /// The largest MTU a pod's link gets. Without it, or if the VNIC's MTU is smaller, the VNIC's MTU applies. A chained plugin that
    /// changes the MTU (tuning) needs the same value here, or CHECK calls it a difference.
    #[serde(deserialize_with = "pod_mtu")]
    pub mtu: Option<Mtu>,
    /// Whether the tuning plugin follows in the chain and sets a requested MAC; the installer writes it. A plugin is not given the
    /// rest of its chain.
    pub tuning: bool,
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
