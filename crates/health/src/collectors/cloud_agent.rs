//! The version of the Oracle Cloud Agent.

use crate::collector::{FIVE_MINUTES, Kind, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit, version_number};

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "cloud_agent",
    every: FIVE_MINUTES,
    privilege: "`/usr`, read-only; of a snap also a mount of `/snap` that is not shipped: without it not applicable",
    collect,
    signals: &[Signal {
        name: "cloud_agent_version",
        unit: Unit::Version,
        source: "`/usr/share/{doc,licenses}/oracle-cloud-agent-VERSION`, `/snap/oracle-cloud-agent/current/meta/snap.yaml`",
        why: "Older versions do not configure the RDMA network of current GPU shapes.",
        remedy: "Update it on the node: `dnf update oracle-cloud-agent`, or `snap refresh oracle-cloud-agent`.",
    }],
};

const PACKAGES: &[&str] = &["usr/share/doc", "usr/share/licenses"];
const SNAP: &str = "snap/oracle-cloud-agent/current/meta/snap.yaml";
/// A package, or a snap.
const INSTALLED: &[&str] =
    &["usr/libexec/oracle-cloud-agent", "etc/systemd/system/snap.oracle-cloud-agent.oracle-cloud-agent.service"];

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let package = || {
        let names = PACKAGES.iter().flat_map(|folder| host.names(folder));
        let versions = names.filter_map(|name| name.strip_prefix("oracle-cloud-agent-").map(str::to_owned));
        versions.max_by(|a, b| version_number(a).unwrap_or(0.0).total_cmp(&version_number(b).unwrap_or(0.0)))
    };
    let snap = || {
        let text = host.file(SNAP).ok()?;
        text.lines().find_map(|line| Some(line.strip_prefix("version:")?.trim().trim_matches(['\'', '"']).to_owned()))
    };
    let Some(version) = snap().or_else(package) else {
        return Err(if INSTALLED.iter().any(|path| host.has(path)) {
            Gap::absent("not granted: a snap's version is in /snap (docs/signals.md)")
        } else {
            Gap::absent("it is not installed")
        });
    };
    let number = version_number(&version).ok_or_else(|| Gap::unknown(format!("{version} is not a version")))?;
    sample.value("cloud_agent_version", number, version);
    Ok(())
}
