//! What the drivers of RDMA adapters report about their firmware, by devlink.

use crate::collector::{Kind, MINUTE, NO_PRIVILEGE, Sample};
use crate::hardware::device::FaultyDevice;
use crate::hardware::inventory::{Adapter, Inventory};
use crate::hardware::pci::PciAddress;
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

pub(crate) const KIND: Kind = Kind {
    area: Area::Accelerators,
    name: "adapter_health",
    every: MINUTE,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[Signal {
        name: "rdma_adapters_unhealthy",
        unit: Unit::Count,
        source: "devlink's health reporters of the RDMA functions, by netlink",
        why: "The driver found an error of the adapter's firmware and has not recovered from it.",
        remedy: "Run `devlink health show` on the node; reboot it, and if the error comes back, report the host to Oracle.",
    }],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let found = Inventory::of(host, &mut sample.memory.functions)?;
    let adapters: Vec<&Adapter> =
        if found.has_unknown_rdma() { found.adapters.iter().collect() } else { found.rdma()? };
    let reporters = host.system.health_reporters();
    let reporters = reporters.map_err(|error| Gap::unknown(format!("read devlink's health reporters: {error}")))?;
    let address = |device: &str| {
        device.parse::<PciAddress>().ok().filter(|address| adapters.iter().any(|adapter| adapter.address == *address))
    };
    let known: Vec<_> = reporters.iter().filter_map(|reporter| Some((address(&reporter.device)?, reporter))).collect();
    if known.is_empty() {
        return Err(Gap::absent("no driver of an RDMA adapter reports its health by devlink"));
    }
    let failed = known.into_iter().filter(|(_, reporter)| reporter.is_failed);
    let faulty =
        failed.map(|(at, reporter)| FaultyDevice::new(at, format!("{}: {} errors", reporter.name, reporter.errors)));
    sample.faulty("rdma_adapters_unhealthy", faulty.collect());
    Ok(())
}
