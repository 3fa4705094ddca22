//! What NVIDIA's dcgm-exporter reports about the node's GPUs: a second source, which an operator switches on. It is used only if it is
//! about this node and current. What the kernel reports about a GPU outranks it.

mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use self::page::{CLOCK_REASONS, GpuPage, HEALTH, Page, REMAP_FAILURE, Reading};
use super::device::FaultyDevice;
use super::events::{EVENTS_FILE, Events};
use super::inventory::{Inventory, NVIDIA};
use super::pci::PciAddress;
use crate::collector::{Area, Gap, Kind, Sample, Signal, Unit};
use crate::collectors::MINUTE;
use crate::host::{Host, names};

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

/// The longest time without a change of a GPU's values: by default the exporter measures every 30 s, and the energy that a GPU has
/// used grows always.
const MAX_AGE: Duration = Duration::from_secs(180);

/// The driver's files of its GPUs, below /proc.
const GPUS: &str = "driver/nvidia/gpus";

/// `GPU-` and 36 characters.
const MAX_UUID: usize = 48;

/// The largest number of watches that are named per GPU.
const MAX_WATCHES: usize = 3;

/// `dcgmHealthWatchResults_t`: fail.
const FAILS: f64 = 20.0;

/// Reasons of the hardware: slowdown, thermal slowdown by software and by hardware, power brake (`DCGM_CLOCKS_EVENT_REASON_*`).
const SLOWDOWN: u64 = 0x08 | 0x20 | 0x40 | 0x80;

/// Where the exporter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exporter {
    /// Its address.
    pub address: SocketAddr,
    /// The path of its page.
    pub path: String,
    /// Whether the address is one of this node. A page from any other must name the node's GPUs by their UUIDs, because GPUs of all
    /// nodes of a shape have the same places on the bus.
    pub is_of_node: bool,
}

/// What is kept of earlier pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pages {
    ages: BTreeMap<PciAddress, Age>,
    /// Metrics that a page had.
    known: BTreeSet<&'static str>,
}

/// The last values of a GPU, by their hash.
#[derive(Clone, Copy, Debug)]
struct Age {
    hash: u64,
    seen: Instant,
    changed: Option<Instant>,
}

/// A GPU that the driver has.
struct NodeGpu {
    address: PciAddress,
    /// Unknown while the driver has not started it.
    uuid: Option<String>,
    is_excluded: bool,
}

/// A signal.
struct Watched {
    signal: &'static str,
    metrics: &'static [&'static str],
    /// What is bad about a reading, if it is.
    bad: fn(&Reading) -> Option<String>,
}

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
    let gpus = node_gpus(host);
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
fn of_node(page: Page, gpus: &[NodeGpu], is_of_node: bool) -> Result<BTreeMap<PciAddress, GpuPage>, Gap> {
    if page.gpus.is_empty() {
        return Err(Gap::unknown("the page is empty, or names no GPU"));
    }
    let mut by_address = BTreeMap::new();
    for (identity, gpu) in page.gpus {
        let by_uuid = gpus.iter().find(|gpu| gpu.uuid.as_ref() == Some(&identity.uuid));
        // The UUID decides wherever both have one.
        let by_place = || {
            let place = gpus.iter().find(|gpu| Some(gpu.address) == identity.address && is_of_node)?;
            (identity.uuid.is_empty() || place.uuid.is_none()).then_some(place)
        };
        let Some(found) = by_uuid.or_else(by_place) else {
            let place = identity.address.map(|address| address.to_string()).unwrap_or_default();
            let name =
                if identity.uuid.is_empty() { place } else { vcn::excerpt(&identity.uuid, MAX_UUID).into_owned() };
            return Err(Gap::unknown(format!(
                "the page is of another node: {name} is no GPU of this one (a Service needs internalTrafficPolicy Local)"
            )));
        };
        by_address.insert(found.address, gpu);
    }
    Ok(by_address)
}

/// The GPUs of the NVIDIA driver.
fn node_gpus(host: &Host) -> Vec<NodeGpu> {
    let read = |address: PciAddress| {
        let text = host.proc(&format!("{GPUS}/{address}/information")).unwrap_or_default();
        let value = |name: &str| Some(text.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned());
        let uuid = value("GPU UUID:").filter(|uuid| !uuid.contains('?'));
        NodeGpu { address, uuid, is_excluded: value("GPU Excluded:").as_deref() == Some("Yes") }
    };
    names(&host.proc.join(GPUS)).iter().filter_map(|name| name.parse().ok()).map(read).collect()
}

/// Devices about which the kernel has reported a problem since boot.
fn kernel_problems(host: &Host) -> BTreeSet<PciAddress> {
    let Some(folder) = &host.facts.state_dir else { return BTreeSet::new() };
    let boot_id = host.proc("sys/kernel/random/boot_id").unwrap_or_default();
    let events = Events::load(&folder.join(EVENTS_FILE), boot_id.trim());
    events.problems().iter().filter_map(|problem| problem.device.parse().ok()).collect()
}

impl Pages {
    /// Whether the values of a GPU are of now.
    fn freshness(&mut self, address: PciAddress, hash: u64, now: Instant) -> Result<(), Gap> {
        let age = self.ages.entry(address).or_insert(Age { hash, seen: now, changed: None });
        if age.hash != hash {
            *age = Age { hash, seen: now, changed: Some(now) };
        }
        let unchanged = now.saturating_duration_since(age.seen);
        if unchanged > MAX_AGE {
            return Err(Gap::unknown(format!("has had the same values for {} s", unchanged.as_secs())));
        }
        age.changed.map(|_| ()).ok_or(Gap::Waiting)
    }

    /// Counts the GPUs of which a reading is bad.
    fn judge(
        &mut self,
        watched: &Watched,
        page: &BTreeMap<PciAddress, GpuPage>,
        current: &[(&PciAddress, &GpuPage)],
        gap: Option<&Gap>,
    ) -> Result<Vec<FaultyDevice>, Gap> {
        let Watched { metrics, bad, .. } = watched;
        let readings = |gpu: &GpuPage| -> Vec<Reading> {
            gpu.readings.iter().filter(|reading| metrics.contains(&reading.metric)).cloned().collect()
        };
        let names = metrics.join(" or ");
        if page.values().all(|gpu| readings(gpu).is_empty()) {
            let is_lost = metrics.iter().any(|metric| self.known.contains(metric));
            let text = if is_lost { "has stopped to export" } else { "does not export" };
            let text = format!("the exporter {text} {names}: add it to its list of metrics");
            return Err(if is_lost { Gap::unknown(text) } else { Gap::absent(text) });
        }
        self.known.extend(*metrics);
        let describe = |(address, gpu): &(&PciAddress, &GpuPage)| {
            let found: Vec<String> = readings(gpu).iter().filter_map(bad).take(MAX_WATCHES).collect();
            (!found.is_empty()).then(|| FaultyDevice::new(address, found.join(", ")))
        };
        let faulty: Vec<FaultyDevice> = current.iter().filter_map(describe).collect();
        let without = current.iter().find(|(_, gpu)| readings(gpu).is_empty());
        match (faulty.is_empty(), gap, without) {
            (true, Some(gap), _) => Err(gap.clone()),
            (true, None, Some((address, _))) => Err(Gap::unknown(format!("the page has no {names} of {address}"))),
            _ => Ok(faulty),
        }
    }
}
