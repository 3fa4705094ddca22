//! Whether the fabric manager runs on nodes with NVSwitches.

use super::cgroup::{Cgroups, UnitState};
use super::{CGROUPS, MINUTE};
use crate::collector::{Area, Gap, Kind, Sample, Signal, Unit};
use crate::hardware::inventory::Inventory;
use crate::host::Host;

pub(super) const KIND: Kind = Kind {
    area: Area::Accelerators,
    name: "fabric_manager",
    every: MINUTE,
    privilege: CGROUPS,
    collect,
    signals: &[Signal {
        name: "fabric_manager_running",
        unit: Unit::Yes,
        source: "`/sys/fs/cgroup/system.slice/nvidia-fabricmanager.service/`, where there is an NVSwitch",
        why: "Without the fabric manager no program can use the GPUs of a node with NVSwitches.",
        remedy: "Run `systemctl status nvidia-fabricmanager` on the node; its version must be the driver's.",
    }],
};

const UNIT: &str = "nvidia-fabricmanager.service";

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    if !Inventory::of(host, &mut sample.memory.functions)?.has_nvswitch {
        return Err(Gap::absent("this node has no NVSwitch that a fabric manager configures"));
    }
    let cgroups = Cgroups::of(host)?;
    match cgroups.unit(UNIT) {
        UnitState::Running => {
            sample.value("fabric_manager_running", 1.0, format!("{UNIT} has processes"));
            return Ok(());
        }
        UnitState::Unclear => return Err(Gap::unknown(format!("the cgroup of {UNIT} does not show its processes"))),
        UnitState::Stopped => {}
    }
    let is_installed =
        ["etc/systemd/system", "usr/lib/systemd/system"].iter().any(|folder| host.has(&format!("{folder}/{UNIT}")));
    if !is_installed {
        return Err(Gap::absent(format!("this host has no unit {UNIT}: the GPU Operator runs it in a container")));
    }
    sample.value("fabric_manager_running", 0.0, format!("{UNIT} has no process"));
    Ok(())
}
