//! The text of `05-vcn-native.conflist`. Pure: the same chain and versions give the same bytes, so that an unchanged
//! node is not written to.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::observed::PORTMAP;
use crate::versions::Version;

/// Readable by root alone: the CIS benchmark asks for it, and the runtime is root.
pub(crate) const MODE: u32 = 0o600;

/// Renders the configuration. `chain` names the plugins in order, `versions` is what every one of them speaks.
pub(crate) fn render(chain: &[&str], versions: &BTreeSet<Version>) -> Vec<u8> {
    let document = json!({
        // Runtimes that know no `cniVersions` (containerd 1.6) read this one only.
        "cniVersion": Version::CONFIGURATION.to_string(),
        "cniVersions": versions.iter().map(Version::to_string).collect::<Vec<_>>(),
        "name": vcn::NETWORK_NAME,
        "plugins": chain.iter().map(|name| plugin(name)).collect::<Vec<_>>(),
    });
    let mut text = format!("{document:#}").into_bytes();
    text.push(b'\n');
    text
}

fn plugin(name: &str) -> Value {
    match name {
        // A pod that connects to a host port of its own node needs the source rewritten.
        PORTMAP => json!({"type": name, "capabilities": {"portMappings": true}, "snat": true}),
        _ => json!({"type": name}),
    }
}
