//! Pages of dcgm-exporter over time: whether the values of a GPU are current, and which GPUs have a bad one. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::page::{GpuPage, Reading};
use crate::hardware::device::FaultyDevice;
use crate::hardware::pci::PciAddress;
use crate::signal::Gap;

/// The longest time without a change of a GPU's values: by default the exporter measures every 30 s, and the energy that a GPU has
/// used grows always.
const MAX_AGE: Duration = Duration::from_secs(180);

/// The largest number of watches that are named per GPU.
const MAX_WATCHES: usize = 3;

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

pub(crate) struct Watched {
    pub(crate) signal: &'static str,
    pub(crate) metrics: &'static [&'static str],
    /// What is bad about a reading, if it is.
    pub(crate) bad: fn(&Reading) -> Option<String>,
}

impl Pages {
    /// Whether the values of a GPU are of now.
    pub(crate) fn freshness(&mut self, address: PciAddress, hash: u64, now: Instant) -> Result<(), Gap> {
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
    pub(crate) fn judge(
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
