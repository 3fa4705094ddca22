//! Whether the driver has each GPU that the bus shows. A read of the driver's files may hang while a GPU is lost, so this is a
//! collector of its own.

use crate::collector::{Kind, MINUTE, NO_PRIVILEGE, Sample};
use crate::hardware::device::{Device, FaultyDevice};
use crate::hardware::inventory::{AMD, Gpu, Inventory, NVIDIA, driver};
use crate::hardware::nvidia_driver::{self, GPUS};
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

pub(crate) const KIND: Kind = Kind {
    area: Area::Accelerators,
    name: "gpu_driver",
    every: MINUTE,
    privilege: NO_PRIVILEGE,
    collect,
    signals: &[
        Signal {
            name: "gpus_without_driver",
            unit: Unit::Count,
            source: "`/proc/driver/nvidia/gpus`, `/sys/bus/pci/devices/ADDRESS/driver`",
            why: "The driver could not start a GPU that the bus shows, so no pod gets it.",
            remedy: "Look for `NVRM` or `amdgpu` in the node's kernel log; reboot the node, then report the host to Oracle.",
        },
        Signal {
            name: "gpus_excluded",
            unit: Unit::Count,
            source: "`/proc/driver/nvidia/gpus/ADDRESS/information`: GPU Excluded",
            why: "The driver keeps a GPU out of use, because it is configured to or because the GPU failed a test.",
            remedy: "Compare with the module parameter NVreg_ExcludedGpus; if it is not set, report the host to Oracle.",
        },
        Signal {
            name: "gpus_not_allocatable",
            unit: Unit::Count,
            source: "the GPUs that the driver has, minus the Node's allocatable `nvidia.com/gpu` or `amd.com/gpu`, which the controller reports",
            why: "The device plugin does not offer a GPU that the driver has: it stopped, or holds the GPU for unhealthy.",
            remedy: "Read the log of the device plugin's pod on the node: `kubectl get pods -A --field-selector spec.nodeName=NODE`. Restart the pod when the GPU works.",
        },
        Signal {
            name: "version_gpu_driver",
            unit: Unit::Text,
            source: "`/sys/module/{nvidia,amdgpu}/version`",
            why: "A problem that only some nodes have is often one of a version.",
            remedy: "-",
        },
    ],
};

/// `GPU-` and 36 characters.
const MAX_UUID: usize = 48;

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let found = Inventory::of(host, &mut sample.memory.functions)?;
    let version = |module: &str| {
        let text = host.sys(&format!("module/{module}/version")).ok()?;
        Some(format!("{module} {}", text.trim()))
    };
    let versions: Vec<String> = ["nvidia", "amdgpu"].into_iter().filter_map(version).collect();
    sample
        .text("version_gpu_driver", if versions.is_empty() { "no GPU driver".to_owned() } else { versions.join(", ") });
    let has_nvidia = host.proc.join(GPUS).is_dir();
    let has_amd = host.sys.join("module/amdgpu").is_dir();
    // One that is passed through to a virtual machine has another driver on purpose.
    let is_given_away = |gpu: &Gpu| driver(host, gpu.address).is_some_and(|name| name.starts_with("vfio"));
    let is_loaded = |gpu: &Gpu| gpu.vendor == NVIDIA && has_nvidia || gpu.vendor == AMD && has_amd;
    let gpus: Vec<&Gpu> = found.gpus.iter().filter(|gpu| is_loaded(gpu) && !is_given_away(gpu)).collect();
    if gpus.is_empty() {
        return Err(Gap::absent("no driver is loaded for the node's GPUs"));
    }
    let known = nvidia_driver::gpus(host);
    let has_driver = |gpu: &&Gpu| match gpu.vendor {
        NVIDIA => known.iter().any(|known| known.address == gpu.address),
        _ => driver(host, gpu.address).as_deref() == Some("amdgpu"),
    };
    let (with, without): (Vec<&Gpu>, Vec<&Gpu>) = gpus.into_iter().partition(has_driver);
    let faulty = |gpu: &Gpu| FaultyDevice::new(gpu.address, "no driver has it");
    sample.faulty("gpus_without_driver", without.into_iter().map(faulty).collect());
    let excluded = known.iter().filter(|gpu| gpu.is_excluded);
    let excluded: Vec<FaultyDevice> = excluded.map(|gpu| FaultyDevice::new(gpu.address, "excluded")).collect();
    for gpu in &known {
        if let Some(uuid) = &gpu.uuid {
            let uuid = Some(vcn::excerpt(uuid, MAX_UUID).into_owned());
            sample.sees(Device { address: gpu.address.to_string(), is_gpu: true, uuid, ..Device::default() });
        }
    }
    offered(host, sample, with.len().saturating_sub(excluded.len()));
    if known.is_empty() {
        return Err(Gap::absent("the NVIDIA driver has no GPU"));
    }
    sample.faulty("gpus_excluded", excluded);
    Ok(())
}

/// How many of the driver's GPUs pods cannot get.
fn offered(host: &Host, sample: &mut Sample, usable: usize) {
    let Some(allocatable) = host.facts.allocatable_gpus else {
        let gap = "no controller has reported `nvidia.com/gpu` or `amd.com/gpu` of the Node: no device plugin runs, GPUs are \
                   divided (MIG), or pods get them by DRA";
        return sample.gap("gpus_not_allocatable", Gap::absent(gap));
    };
    let missing = usable.saturating_sub(usize::try_from(allocatable).unwrap_or(usize::MAX));
    let detail = format!("{allocatable} allocatable, {usable} with a driver");
    sample.value("gpus_not_allocatable", missing as f64, detail);
}
