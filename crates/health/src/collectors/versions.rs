//! What runs on the node. The Node object has the kubelet's and the runtime's version.

use super::FIVE_MINUTES;
use crate::collector::{Area, Collector, Gap, Kind, Sample, Signal, Unit};
use crate::host::Host;

const WHY: &str = "A problem that only some nodes have is often one of a version.";

const fn version(name: &'static str, source: &'static str) -> Signal {
    Signal { name, unit: Unit::Text, source, why: WHY, remedy: "-" }
}

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "versions",
    every: FIVE_MINUTES,
    privilege: "`/usr`, read-only",
    make: || Box::new(Versions),
    signals: &[
        version("version_kernel", "`/proc/sys/kernel/osrelease`"),
        version("version_os", "`/usr/lib/os-release`"),
        version("version_agent", "the agent"),
        version("version_plugin", "`vcn-native`, which the agent installs"),
        version("version_attach_plugin", "`vnic-attach`, which the agent installs"),
    ],
};

struct Versions;

impl Collector for Versions {
    fn collect(&mut self, host: &Host, sample: &mut Sample) -> Result<(), Gap> {
        for (signal, program) in [
            ("version_agent", "oke-node-agent"),
            ("version_plugin", "vcn-native"),
            ("version_attach_plugin", "vnic-attach"),
        ] {
            match host.facts.versions.iter().find(|(name, _)| *name == program) {
                Some((_, version)) => sample.text(signal, version.clone()),
                None => sample.gap(signal, Gap::absent(format!("{program} is not installed here"))),
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
}
