//! What NVIDIA's dcgm-exporter reports about the node's GPUs: a second source, which an operator switches on. It is used only if it is
//! about this node and current. What the kernel reports about a GPU outranks it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::time::Duration;

use crate::collector::{Kind, MINUTE, Sample};
use crate::facts::Exporter;
use crate::hardware::dcgm::page::{CLOCK_REASONS, GpuPage, HEALTH, Page, REMAP_FAILURE};
use crate::hardware::dcgm::pages::Watched;
use crate::hardware::events::Events;
use crate::hardware::events::file::EVENTS_FILE;
use crate::hardware::inventory::{Inventory, NVIDIA};
use crate::hardware::nvidia_driver::{self, DriverGpu};
use crate::hardware::pci::PciAddress;
use crate::host::Host;
use crate::signal::{Area, Gap, Signal, Unit};

const SOURCE: &str = "the page of dcgm-exporter at `DCGM_METRICS`";

pub(crate) const KIND: Kind = Kind {
    area: Area::Accelerators,
    name: "dcgm",
    every: MINUTE,
    privilege: "the setting `DCGM_METRICS`, which is off by default: without it not applicable",
    collect,
    signals: &[
        Signal {
            name: "dcgm_failing_gpus",
            unit: Unit::Count,
            source: SOURCE,
            why: "A health watch of DCGM fails for a GPU about which the kernel reports nothing.",
            remedy: "Run `dcgmi health -c` and `dcgmi diag -r 1` on the node; if the watch that the detail names still fails, report the host to Oracle.",
        },
        Signal {
            name: "dcgm_remap_failures",
            unit: Unit::Count,
            source: SOURCE,
            why: "A GPU could not replace a broken row of its memory.",
            remedy: "Drain the node, report the host to Oracle and replace the node.",
        },
        Signal {
            name: "dcgm_slowed_gpus",
            unit: Unit::Count,
            source: SOURCE,
            why: "The hardware keeps a GPU's clocks low, because it is hot or lacks power, and each job on it is slow.",
            remedy: "Compare with other nodes; if it is this node only, report the host to Oracle.",
        },
    ],
};

/// The longest wait for a page. The engine gives up after 5 s.
const DEADLINE: Duration = Duration::from_secs(3);

/// `GPU-` and 36 characters.
const MAX_UUID: usize = 48;

/// The value "fail" of `dcgmHealthWatchResults_t`.
const FAILS: f64 = 20.0;

/// Reasons of the hardware: slowdown, thermal slowdown by software and by hardware, power brake (`DCGM_CLOCKS_EVENT_REASON_*`).
const SLOWDOWN: u64 = 0x08 | 0x20 | 0x40 | 0x80;

const SIGNALS: &[Watched] = &[
    Watched {
        signal: "dcgm_failing_gpus",
        metrics: &[HEALTH],
        bad: |reading| (reading.value >= FAILS).then(|| format!("fails {}", reading.watch)),
    },
    Watched {
        signal: "dcgm_remap_failures",
        metrics: &[REMAP_FAILURE],
        bad: |reading| (reading.value >= 1.0).then(|| "could not replace a row".to_owned()),
    },
    Watched {
        signal: "dcgm_slowed_gpus",
        metrics: &CLOCK_REASONS,
        bad: |reading| {
            let reasons = reading.value as u64 & SLOWDOWN;
            (reasons != 0).then(|| format!("has clock event reasons {reasons:#x}"))
        },
    },
];

fn collect(host: &Host, sample: &mut Sample) -> Result<(), Gap> {
    let found = Inventory::of(host, &mut sample.memory.functions)?;
    if !found.gpus.iter().any(|gpu| gpu.vendor == NVIDIA) {
        return Err(Gap::absent("this node has no NVIDIA GPU"));
    }
    let Some(exporter) = &host.facts.dcgm else { return Err(Gap::absent("DCGM_METRICS is off")) };
    let Exporter { address, path, is_of_node } = exporter;
    let answer = host.system.page(*address, path, DEADLINE);
    let answer = answer.map_err(|error| Gap::unknown(format!("no page from {address}: {error}")))?;
    if answer.status != 200 {
        return Err(Gap::unknown(format!("{address} answered with status {}", answer.status)));
    }
    let gpus = nvidia_driver::gpus(host);
    let page = of_node(Page::read(&answer.body), &gpus, *is_of_node)?;
    let mut pages = mem::take(&mut sample.memory.pages);
    let missing = gpus.iter().filter(|gpu| !gpu.is_excluded && !page.contains_key(&gpu.address));
    let mut gaps: Vec<String> = missing.map(|gpu| format!("the page lacks {}", gpu.address)).collect();
    let mut is_waiting = false;
    let mut current = Vec::new();
    for (address, gpu) in &page {
        match pages.freshness(*address, gpu.hash, host.now) {
            Ok(()) => current.push((address, gpu)),
            Err(Gap::Waiting) => is_waiting = true,
            Err(gap) => gaps.push(format!("{address} {gap}")),
        }
    }
    let gap = if gaps.is_empty() { is_waiting.then_some(Gap::Waiting) } else { Some(Gap::unknown(gaps.join(", "))) };
    // The kernel's verdict about a device is the one that counts, and there is one problem per device.
    let outranked = kernel_problems(host);
    current.retain(|(address, _)| !outranked.contains(address));
    for watched in SIGNALS {
        match pages.judge(watched, &page, &current, gap.as_ref()) {
            Ok(faulty) => sample.faulty(watched.signal, faulty),
            Err(gap) => sample.gap(watched.signal, gap),
        }
    }
    sample.memory.pages = pages;
    Ok(())
}

/// The page by place on the bus, if all of its GPUs are this node's.
fn of_node(page: Page, gpus: &[DriverGpu], is_of_node: bool) -> Result<BTreeMap<PciAddress, GpuPage>, Gap> {
    if page.gpus.is_empty() {
        return Err(Gap::unknown("the page is empty, or names no GPU"));
    }
    let mut by_address = BTreeMap::new();
    for (identity, gpu) in page.gpus {
        let by_uuid = gpus.iter().find(|gpu| known_uuid(gpu) == Some(&identity.uuid));
        // The UUID decides wherever both have one.
        let by_place = || {
            let place = gpus.iter().find(|gpu| Some(gpu.address) == identity.address && is_of_node)?;
            (identity.uuid.is_empty() || known_uuid(place).is_none()).then_some(place)
        };
        let Some(found) = by_uuid.or_else(by_place) else {
            let place = identity.address.map(|address| address.to_string()).unwrap_or_default();
            let name =
                if identity.uuid.is_empty() { place } else { vcn::excerpt(&identity.uuid, MAX_UUID).into_owned() };
            return Err(Gap::unknown(format!(
                "the page is of another node: {name} is not a GPU of this one (a Service needs internalTrafficPolicy Local)"
            )));
        };
        by_address.insert(found.address, gpu);
    }
    Ok(by_address)
}

/// The UUID, unless the driver has not started the GPU.
fn known_uuid(gpu: &DriverGpu) -> Option<&String> {
    gpu.uuid.as_ref().filter(|uuid| !uuid.contains('?'))
}

/// Devices about which the kernel has reported a problem since boot.
fn kernel_problems(host: &Host) -> BTreeSet<PciAddress> {
    let Some(folder) = &host.facts.state_dir else { return BTreeSet::new() };
    let boot_id = host.proc("sys/kernel/random/boot_id").unwrap_or_default();
    let events = Events::load(&folder.join(EVENTS_FILE), boot_id.trim());
    events.problems().iter().filter_map(|problem| problem.device.parse().ok()).collect()
}
