//! Whether the fabric manager runs on nodes with NVSwitches. With NVLink 5 its unit starts the subnet manager (nvlsm), too.

use super::cgroup::Cgroups;
use super::units::running;
use crate::collector::{CGROUPS, Kind, MINUTE, Sample};
use crate::hardware::inventory::Inventory;
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

pub(super) const KIND: Kind = Kind {
    area: Area::Accelerators,
    name: "fabric_manager",
    every: MINUTE,
    privilege: CGROUPS,
    collect,
    signals: &[Signal {
        name: "fabric_manager_running",
        unit: Unit::Yes,
        source: "`/sys/fs/cgroup/*.slice/nvidia-fabricmanager.service/` as for `kubelet_running`, where the bus or the shape has an NVSwitch",
        why: "Without the fabric manager (and, with NVLink 5, the subnet manager nvlsm in its unit) no program can use the GPUs of a node with NVSwitches.",
        remedy: "Run `systemctl status nvidia-fabricmanager` on the node; its version must be the driver's.",
    }],
};

/// An operator may run it in a container: a missing unit is not a problem.
fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    if !Inventory::of(host, &mut sample.memory.functions)?.has_nvswitch {
        return Err(Gap::absent("this node has no NVSwitch that a fabric manager configures"));
    }
    sample.result("fabric_manager_running", running(host, &Cgroups::of(host)?, &["nvidia-fabricmanager.service"]));
    Ok(())
}
