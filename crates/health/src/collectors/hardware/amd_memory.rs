//! Memory of AMD's GPUs. Reading these files while a GPU sleeps adds errors to its counts, so only those that are awake are read.

use crate::collector::{FIVE_MINUTES, Kind, NO_PRIVILEGE, Sample};
use crate::hardware::device::FaultyDevice;
use crate::hardware::inventory::{AMD, Gpu, Inventory, file, is_awake};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

pub(crate) const KIND: Kind = Kind {
    area: Area::Accelerators,
    name: "amd_memory",
    every: FIVE_MINUTES,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[
        Signal {
            name: "amd_memory_errors",
            unit: Unit::Count,
            source: "`/sys/bus/pci/devices/ADDRESS/ras/umc_err_count` of GPUs that are awake: ue",
            why: "Memory errors that ECC could not correct end the jobs that read them.",
            remedy: "End the GPU's jobs and reset it, or reboot the node; if it happens again, report the host to Oracle.",
        },
        Signal {
            name: "amd_bad_pages",
            unit: Unit::Count,
            source: "`/sys/bus/pci/devices/ADDRESS/ras/gpu_vram_bad_pages` of GPUs that are awake: pages not yet reserved",
            why: "Bad pages that the driver could not take out of use are used by jobs.",
            remedy: "Drain the node, reboot it and uncordon it; if pages stay, report the host to Oracle.",
        },
    ],
};

/// What a count grows by when registers are read that are all ones.
const INVALID_GROWTH: f64 = 1_048_560.0;

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let found = Inventory::of(host, &mut sample.memory.functions)?;
    let amd: Vec<&Gpu> = found.gpus.iter().filter(|gpu| gpu.vendor == AMD).collect();
    if amd.is_empty() {
        return Err(Gap::absent("this node has no GPU of AMD"));
    }
    let awake: Vec<&Gpu> = amd.into_iter().filter(|gpu| is_awake(host, gpu.address)).collect();
    let counts = awake.iter().filter_map(|gpu| Some((gpu.address, uncorrected(host, gpu)?)));
    let counts: Vec<_> = counts.filter(|(_, count)| count % INVALID_GROWTH != 0.0 || *count == 0.0).collect();
    if counts.is_empty() {
        return Err(Gap::absent("no GPU that is awake counts memory errors"));
    }
    let wrong = counts.iter().filter(|(_, count)| *count > 0.0);
    let wrong = wrong.map(|(address, count)| FaultyDevice::new(address, format!("{count} errors"))).collect();
    sample.faulty("amd_memory_errors", wrong);
    let pages = awake.iter().map(|gpu| (gpu.address, bad_pages(host, gpu))).filter(|(_, pages)| *pages > 0);
    let pages = pages.map(|(address, pages)| FaultyDevice::new(address, format!("{pages} pages"))).collect();
    sample.faulty("amd_bad_pages", pages);
    Ok(())
}

/// `ue: 0`, `ce: 2`.
fn uncorrected(host: &Host, gpu: &Gpu) -> Option<f64> {
    let text = host.sys(&file(gpu.address, "ras/umc_err_count")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("ue:"))?.trim().parse().ok()
}

/// `0x00012340 : 0x00001000 : P`: R is reserved, P will be at the next reset, F cannot be.
fn bad_pages(host: &Host, gpu: &Gpu) -> usize {
    let text = host.sys(&file(gpu.address, "ras/gpu_vram_bad_pages")).unwrap_or_default();
    let state = |line: &str| line.rsplit(':').next().map(|word| word.trim().to_owned());
    text.lines().filter_map(state).filter(|state| matches!(state.as_str(), "P" | "F")).count()
}
