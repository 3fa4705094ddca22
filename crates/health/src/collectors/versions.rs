//! What runs on the node. The Node object has the kubelet's and the runtime's version.

use std::fs::File;
use std::io::{self, Read as _};

use crate::collector::{FIVE_MINUTES, Kind, Sample};
use crate::facts::InstalledPlugin;
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

const REASON: &str = "A problem that only some nodes have is often one of a version.";

const fn version(name: &'static str, source: &'static str) -> Signal {
    Signal { name, unit: Unit::Text, source, why: REASON, remedy: "-" }
}

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "versions",
    every: FIVE_MINUTES,
    privilege: "`/usr`, read-only",
    collect,
    signals: &[
        version("version_kernel", "`/proc/sys/kernel/osrelease`"),
        version("version_os", "`/usr/lib/os-release`"),
        version("version_agent", "the agent"),
        version("version_plugin", "the installed `vcn-native`, if it is the agent's file"),
        version("version_attach_plugin", "the installed `vnic-attach`, if it is the agent's file"),
    ],
};

/// Bytes that are compared at a time.
const CHUNK_BYTES: u64 = 64 * 1024;

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let facts = &host.facts;
    sample.text("version_agent", facts.version.clone());
    for (signal, name) in [("version_plugin", "vcn-native"), ("version_attach_plugin", "vnic-attach")] {
        match facts.plugins.iter().find(|plugin| plugin.name == name) {
            None => sample.gap(signal, Gap::absent(format!("{name} is not installed here"))),
            Some(plugin) => match is_shipped(plugin) {
                Ok(true) => sample.text(signal, facts.version.clone()),
                Ok(false) => {
                    let file = plugin.installed.display();
                    sample.gap(signal, Gap::unknown(format!("{file} is not the file of agent {}", facts.version)));
                }
                Err(error) => {
                    sample.gap(signal, Gap::unknown(format!("compare {}: {error}", plugin.installed.display())));
                }
            },
        }
    }
    match host.file("usr/lib/os-release") {
        Ok(text) => {
            let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
            sample.text("version_os", name.unwrap_or("unnamed").trim_matches('"'));
        }
        Err(gap) => sample.gap("version_os", gap),
    }
    sample.text("version_kernel", host.proc("sys/kernel/osrelease")?.trim());
    Ok(())
}

/// Whether the installed file is the agent's. In pieces, because the agent's memory is small.
fn is_shipped(plugin: &InstalledPlugin) -> io::Result<bool> {
    let (mut shipped, mut installed) = (File::open(&plugin.shipped)?, File::open(&plugin.installed)?);
    let (mut one, mut other) = (Vec::new(), Vec::new());
    loop {
        one.clear();
        other.clear();
        shipped.by_ref().take(CHUNK_BYTES).read_to_end(&mut one)?;
        installed.by_ref().take(CHUNK_BYTES).read_to_end(&mut other)?;
        if one != other || one.is_empty() {
            return Ok(one == other);
        }
    }
}
