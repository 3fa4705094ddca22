//! The host's services, by their cgroups: systemd is not asked.

use super::cgroup::Cgroups;
use super::{CGROUPS, MINUTE};
use crate::collector::{Area, Gap, Kind, Sample, Signal, Unit};
use crate::host::Host;

const SOURCE: &str = "`/sys/fs/cgroup/*.slice/UNIT/`, of version 1 or 2";

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
            why: "Without CRI-O or containerd no container starts.",
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

/// A signal and the units that count, each.
const UNITS: &[(&str, &[&str])] = &[
    ("kubelet_running", &["kubelet.service"]),
    ("runtime_running", &["crio.service", "containerd.service"]),
    ("cloud_agent_running", &["oracle-cloud-agent.service", "snap.oracle-cloud-agent.oracle-cloud-agent.service"]),
];

/// Where images put these units.
const SLICES: &[&str] = &["system.slice", "kubelet.slice", "runtime.slice", "podruntime.slice"];

/// Where a unit's file is.
const FILES: &[&str] = &["etc/systemd/system", "usr/lib/systemd/system"];

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let cgroups = Cgroups::of(host)?;
    for (signal, units) in UNITS {
        let runs = |unit: &&&str| SLICES.iter().any(|slice| cgroups.is_populated(slice, unit));
        let is_installed = |unit: &&&str| FILES.iter().any(|folder| host.has(&format!("{folder}/{unit}")));
        if let Some(unit) = units.iter().find(runs) {
            sample.value(signal, 1.0, format!("{unit} has processes"));
        } else if let Some(unit) = units.iter().find(is_installed) {
            sample.value(signal, 0.0, format!("{unit} has no process"));
        } else {
            sample.gap(signal, Gap::absent(format!("this host has no unit {}", units.join(" or "))));
        }
    }
    Ok(())
}
