//! GPUs on the bus: how many there are, and whether they answer.

use crate::collector::{Kind, MINUTE, NO_PRIVILEGE, Sample};
use crate::hardware::device::{Device, FaultyDevice};
use crate::hardware::inventory::{Gpu, Inventory, file, is_awake, numa};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

pub(crate) const KIND: Kind = Kind {
    area: Area::Accelerators,
    name: "gpus",
    every: MINUTE,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[
        Signal {
            name: "gpus_missing",
            unit: Unit::Count,
            source: "`/sys/bus/pci/devices/*/{class,vendor}` and the GPUs of the shape",
            why: "A GPU that the bus does not show is broken or has no power; the node runs fewer jobs than its shape promises.",
            remedy: "Drain the node, reboot it and uncordon it; if the GPU stays away, report the host to Oracle and replace the node.",
        },
        Signal {
            name: "gpus_off_bus",
            unit: Unit::Count,
            source: "`/sys/bus/pci/devices/ADDRESS/config` of GPUs that are awake",
            why: "A GPU whose registers are all ones has fallen off the bus: jobs on it hang.",
            remedy: "Drain the node, reboot it and uncordon it; if it happens again, report the host to Oracle.",
        },
        Signal {
            name: "gpu_links_narrow",
            unit: Unit::Count,
            source: "`/sys/bus/pci/devices/ADDRESS/{current,max}_link_width` of GPUs that are awake",
            why: "A GPU with fewer PCIe lanes than it has copies data slower, and so does each job that it is part of.",
            remedy: "Drain the node, reboot it and uncordon it; if the width stays, report the host to Oracle.",
        },
    ],
};

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let found = Inventory::of(host, &mut sample.memory.functions)?;
    missing(&found, sample);
    let listed = found.row.and_then(|row| row.gpus.as_ref()).map(|gpus| gpus.at.as_slice()).unwrap_or_default();
    for (number, gpu) in found.gpus.iter().enumerate() {
        let slot = if listed.is_empty() { Some(number) } else { listed.iter().position(|at| *at == gpu.address) };
        let address = gpu.address.to_string();
        sample.sees(Device { address, is_gpu: true, slot, numa: numa(host, gpu.address), ..Device::default() });
    }
    if found.gpus.is_empty() {
        return Err(Gap::absent("the bus shows no GPU"));
    }
    let awake: Vec<&Gpu> = found.gpus.iter().filter(|gpu| is_awake(host, gpu.address)).collect();
    if awake.is_empty() {
        return Err(Gap::absent(format!("{} GPUs, none of them awake", found.gpus.len())));
    }
    let lost = awake.iter().filter(|gpu| is_lost(host, gpu));
    sample
        .faulty("gpus_off_bus", lost.map(|gpu| FaultyDevice::new(gpu.address, "its registers are all ones")).collect());
    // The link of these GPUs to the bus is managed by their processor.
    if found.shape.contains(".GB") {
        sample.gap("gpu_links_narrow", Gap::absent("not judged on this shape"));
    } else {
        sample.faulty("gpu_links_narrow", awake.iter().filter_map(|gpu| narrow_link(host, gpu)).collect());
    }
    Ok(())
}

fn missing(found: &Inventory, sample: &mut Sample) {
    let (seen, shape) = (found.gpus.len(), &found.shape);
    let gpus = match found.row.map(|row| (row.gpus.as_ref(), &row.source)) {
        Some((Some(gpus), _)) => gpus,
        Some((None, source)) => {
            let gap = format!("{seen} GPUs seen; how many {shape} has is not known ({source})");
            return sample.gap("gpus_missing", Gap::absent(gap));
        }
        None => {
            let gap = format!("the shape {shape} is not in the table: {seen} GPUs seen");
            return sample.gap("gpus_missing", Gap::absent(gap));
        }
    };
    let seen: Vec<_> = found.gpus.iter().filter(|gpu| gpu.vendor == gpus.vendor).map(|gpu| gpu.address).collect();
    let missing = gpus.expected().saturating_sub(seen.len());
    let empty: Vec<_> = gpus.at.iter().filter(|at| missing > 0 && !seen.contains(at)).collect();
    let places: Vec<String> = empty.iter().map(ToString::to_string).collect();
    let places = if places.is_empty() { String::new() } else { format!("; none at {}", places.join(", ")) };
    let devices = empty.into_iter().map(|at| FaultyDevice::new(at, "no GPU on the bus")).collect();
    let detail = format!("{} of {}{places}", seen.len(), gpus.expected());
    sample.faulty_with("gpus_missing", missing as f64, detail, devices);
}

/// The revision and the numbers in other files are the kernel's copies: only the configuration space itself shows it.
fn is_lost(host: &Host, gpu: &Gpu) -> bool {
    host.sys_start(&file(gpu.address, "config"), 4).is_ok_and(|bytes| bytes == [0xff; 4])
}

/// The speed falls while a GPU is idle, the width does not.
fn narrow_link(host: &Host, gpu: &Gpu) -> Option<FaultyDevice> {
    let width = |name: &str| host.sys_number(&file(gpu.address, name)).ok();
    let (now, max_width) = (width("current_link_width")?, width("max_link_width")?);
    (now > 0.0 && now < max_width).then(|| FaultyDevice::new(gpu.address, format!("{now} of {max_width} lanes")))
}
