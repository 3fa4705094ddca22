//! The host's services. Their cgroups show which of them run, without a request to systemd.

use super::cgroup::{Cgroups, UnitState};
use crate::collector::{CGROUPS, Kind, MINUTE, Sample};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

const SOURCE: &str = "`/sys/fs/cgroup/*.slice/UNIT/`: cgroup.events of version 2, pids.current of version 1";

pub(super) const KIND: Kind = Kind {
    area: Area::Host,
    name: "units",
    every: MINUTE,
    privilege: CGROUPS,
    collect,
    signals: &[
        Signal {
            name: "kubelet_running",
            unit: Unit::Yes,
            source: SOURCE,
            why: "Without the kubelet no pod starts or stops.",
            remedy: "Run `systemctl status kubelet` and `journalctl -u kubelet` on the node.",
        },
        Signal {
            name: "runtime_running",
            unit: Unit::Yes,
            source: SOURCE,
            why: "Without its runtime (CRI-O, containerd) no container starts. The controller reports which one the Node uses.",
            remedy: "Run `systemctl status crio containerd` on the node.",
        },
        Signal {
            name: "cloud_agent_running",
            unit: Unit::Yes,
            source: SOURCE,
            why: "The Oracle Cloud Agent configures RDMA, monitors the instance and runs commands.",
            remedy: "Run `systemctl restart oracle-cloud-agent` on the node (Ubuntu: `snap restart oracle-cloud-agent`).",
        },
    ],
};

/// Signals with the units that count, each.
const UNITS: &[(&str, &[&str])] = &[
    ("kubelet_running", &[KUBELET]),
    ("cloud_agent_running", &["oracle-cloud-agent.service", "snap.oracle-cloud-agent.oracle-cloud-agent.service"]),
];

pub(super) const KUBELET: &str = "kubelet.service";

/// Runtimes as Nodes name them, and their units.
const RUNTIMES: &[(&str, &[&str])] = &[
    ("cri-o", &["crio.service", "cri-o.service"]),
    ("containerd", &["containerd.service"]),
    ("docker", &["docker.service"]),
];

/// Where a unit's file is.
const FILES: &[&str] = &["etc/systemd/system", "usr/lib/systemd/system"];

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let cgroups = Cgroups::of(host)?;
    for (signal, units) in UNITS {
        sample.result(signal, running(host, &cgroups, units));
    }
    sample.result("runtime_running", runtime(host, &cgroups));
    Ok(())
}

/// Whether the unit runs that is there under one of these names.
pub(super) fn running(host: &Host, cgroups: &Cgroups<'_>, units: &[&str]) -> Result<(f64, String), Gap> {
    let states = || units.iter().map(|unit| (*unit, cgroups.unit(unit)));
    if let Some((unit, _)) = states().find(|(_, state)| *state == UnitState::Running) {
        return Ok((1.0, format!("{unit} has processes")));
    }
    if let Some((unit, _)) = states().find(|(_, state)| *state == UnitState::Unclear) {
        return Err(Gap::unknown(format!("no file of the cgroup of {unit} shows whether it has processes")));
    }
    let installed = units.iter().find(|unit| FILES.iter().any(|folder| host.has(&format!("{folder}/{unit}"))));
    let unit = installed.ok_or_else(|| Gap::absent(format!("this host has no unit {}", units.join(" or "))))?;
    Ok((0.0, format!("{unit} has no process")))
}

/// Whether the runtime runs that the Node reports. Until that is known, one of several proves nothing: Docker has a containerd, too.
fn runtime(host: &Host, cgroups: &Cgroups<'_>) -> Result<(f64, String), Gap> {
    if let Some(runtime) = &host.facts.runtime {
        let known = RUNTIMES.iter().find(|(name, _)| name == runtime);
        let (_, units) = known.ok_or_else(|| Gap::absent(format!("the unit of the runtime {runtime} is not known")))?;
        return running(host, cgroups, units);
    }
    let found: Vec<(f64, String)> =
        RUNTIMES.iter().filter_map(|(_, units)| running(host, cgroups, units).ok()).collect();
    let is_running = |(value, _): &(f64, String)| *value > 0.0;
    if found.iter().any(is_running) && !found.iter().all(is_running) {
        let texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
        let text = texts.join(", ");
        return Err(Gap::unknown(format!("no controller has reported which runtime the Node uses; {text}")));
    }
    found.into_iter().next().ok_or_else(|| Gap::absent("this host has no unit of a known runtime"))
}
