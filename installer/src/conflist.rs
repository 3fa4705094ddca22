//! What `05-vcn-native.conflist` is to say, and its text. Pure: the same chain and versions give the same bytes, so that an
//! unchanged node is not written to.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::Entry;
use crate::versions::Version;

/// Readable by root alone: the CIS benchmark asks for it, and the runtime is root. A mode that somebody gave it stays.
pub(crate) const MODE: u32 = 0o600;

/// What the configuration is to say. `chain` lists the plugins in order, `versions` is what every one of them speaks.
pub(crate) fn wanted(chain: &[Entry], versions: &BTreeSet<Version>) -> Value {
    // Runtimes that know no `cniVersions` (containerd 1.6) read this one only: the newest that all of them know, unless a
    // plugin that somebody chained behind ours is older than that.
    let newest = versions.iter().rev().find(|version| **version <= Version::CONFIGURATION);
    json!({
        "cniVersion": newest.unwrap_or(&Version::CONFIGURATION).to_string(),
        "cniVersions": versions.iter().map(Version::to_string).collect::<Vec<_>>(),
        "name": vcn::NETWORK_NAME,
        "plugins": chain.iter().map(Entry::to_json).collect::<Vec<_>>(),
    })
}

/// Its text where nobody else has put anything in.
pub(crate) fn text(wanted: &Value) -> String {
    format!("{wanted:#}\n")
}
