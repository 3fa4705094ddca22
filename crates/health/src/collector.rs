//! What a collector is: one function, the signals that it measures, and how often.

use std::collections::BTreeMap;
use std::mem;
use std::time::{Duration, Instant};

use crate::hardware::dcgm::pages::Pages;
use crate::hardware::device::{Device, FaultyDevice};
use crate::hardware::events::Events;
use crate::hardware::inventory::KnownFunctions;
use crate::host::Host;
use crate::verdict::{NotMeasured, Severity};

pub use crate::signal::{Area, Gap, Signal, Unit};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const FIVE_MINUTES: Duration = Duration::from_secs(300);

/// What needs nothing but the container's own /proc and /sys, which show the host's network and kernel.
pub(crate) const NO_PRIVILEGE: &str = "nothing";

/// What the agent knows anyway.
pub(crate) const AGENT_REPORT: &str = "nothing: the agent's own report";

/// The mount of the host's cgroups.
pub(crate) const CGROUPS: &str = "`/sys/fs/cgroup`, read-only";

/// A collector as the engine and the documents know it.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What its signals are about.
    pub area: Area,
    /// The collector's name, as in metrics.
    pub name: &'static str,
    /// The signals that it measures.
    pub signals: &'static [Signal],
    /// The time between two runs.
    pub every: Duration,
    /// What the agent's container needs for it, beyond its own /proc and /sys.
    pub privilege: &'static str,
    /// Measures now. An error holds for each signal of the collector that has no reading in the sample yet.
    pub collect: fn(&Host, &mut Sample) -> Result<(), Gap>,
}

/// A value, with what a person wants to know about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// In the signal's unit; none for [`Unit::Text`].
    pub number: Option<f64>,
    /// The evidence: which link, which file, the counts behind a percentage.
    pub detail: String,
    /// What the evidence allows at most, whatever a rule says.
    pub at_most: Severity,
    /// The devices that the evidence is about, where it is about devices.
    pub devices: Vec<FaultyDevice>,
    /// Why it is an earlier value.
    pub not_measured: Option<NotMeasured>,
}

/// The readings of one run of a collector.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    readings: BTreeMap<&'static str, Result<Value, Gap>>,
    /// What it read about devices, by PCI address.
    devices: BTreeMap<String, Device>,
    pub(crate) memory: Memory,
}

/// What a collector keeps for its next run.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The last totals of counters that only grow. Those of a link that is gone stay: VNICs have few names.
    totals: BTreeMap<String, (f64, Instant)>,
    /// The time of the newest kernel message that was counted, in seconds since boot.
    pub(crate) newest_message: Option<f64>,
    /// What the kernel logged about devices since this boot.
    pub(crate) events: Option<Events>,
    /// What the PCI functions of the node are.
    pub(crate) functions: KnownFunctions,
    /// Earlier pages of dcgm-exporter.
    pub(crate) pages: Pages,
    /// Whether the host once had the Node's name.
    pub(crate) had_node_name: bool,
}

/// The readings of one run, complete: one for each signal of the collector.
pub type Readings = Vec<(&'static str, Result<Value, Gap>)>;

/// The results of one run.
#[derive(Clone, Debug, Default)]
pub struct RunResults {
    pub(crate) readings: Readings,
    /// What it read about devices, by PCI address.
    pub(crate) devices: BTreeMap<String, Device>,
}

impl Kind {
    /// Runs the collector with its memory.
    pub fn run(&self, memory: &mut Memory, host: &Host) -> RunResults {
        let mut sample = Sample { memory: mem::take(memory), ..Sample::default() };
        let rest = (self.collect)(host, &mut sample);
        *memory = sample.memory;
        let gap = rest.err().unwrap_or_else(|| Gap::unknown("the collector measured nothing"));
        let reading = |signal: &Signal| {
            let read = sample.readings.remove(signal.name);
            (signal.name, read.unwrap_or_else(|| Err(gap.clone())))
        };
        RunResults { readings: self.signals.iter().map(reading).collect(), devices: sample.devices }
    }

    /// The same reading for all of its signals.
    pub fn gap(&self, gap: &Gap) -> Readings {
        self.signals.iter().map(|signal| (signal.name, Err(gap.clone()))).collect()
    }
}

impl Sample {
    /// Records the value of a signal.
    pub fn value(&mut self, signal: &'static str, number: f64, detail: impl Into<String>) {
        self.value_at_most(signal, number, detail, Severity::Critical);
    }

    /// A value that may be no worse problem than this.
    pub(crate) fn value_at_most(
        &mut self,
        signal: &'static str,
        number: f64,
        detail: impl Into<String>,
        at_most: Severity,
    ) {
        let number = number.is_finite().then_some(number);
        let detail = detail.into();
        self.insert(signal, Value { number, detail, at_most, devices: Vec::new(), not_measured: None });
    }

    /// The number of devices that are faulty, and each of them.
    pub(crate) fn faulty(&mut self, signal: &'static str, devices: Vec<FaultyDevice>) {
        let lines: Vec<String> = devices.iter().map(FaultyDevice::describe).collect();
        self.faulty_with(signal, devices.len() as f64, lines.join("; "), devices);
    }

    /// A value about devices.
    pub(crate) fn faulty_with(
        &mut self,
        signal: &'static str,
        number: f64,
        detail: String,
        devices: Vec<FaultyDevice>,
    ) {
        let at_most = Severity::Critical;
        self.insert(signal, Value { number: Some(number), detail, at_most, devices, not_measured: None });
    }

    /// Marks a signal's value as an earlier one.
    pub(crate) fn outdate(&mut self, signal: &'static str, gap: NotMeasured) {
        if let Some(Ok(value)) = self.readings.get_mut(signal) {
            value.not_measured = Some(gap);
        }
    }

    /// The highest rate of a counter that several devices have, with that device. `gap` says why none has it.
    pub(crate) fn worst_rate(
        &mut self,
        signal: &'static str,
        totals: impl Iterator<Item = (FaultyDevice, f64)>,
        now: Instant,
        mut gap: Gap,
    ) {
        let mut worst: Option<(f64, FaultyDevice)> = None;
        for (device, total) in totals {
            match self.per_minute(&format!("{signal} {}", device.address), total, now) {
                Ok(rate) if worst.as_ref().is_none_or(|(highest, _)| rate > *highest) => worst = Some((rate, device)),
                Ok(_) => {}
                Err(why) => gap = why,
            }
        }
        match worst {
            Some((rate, device)) => self.faulty_with(signal, rate, device.describe(), vec![device]),
            None => self.gap(signal, gap),
        }
    }

    /// What this run sees of a device.
    pub(crate) fn sees(&mut self, device: Device) {
        let address = device.address.clone();
        self.devices.entry(address.clone()).or_insert_with(|| Device { address, ..Device::default() }).merge(device);
    }

    fn insert(&mut self, signal: &'static str, value: Value) {
        self.readings.insert(signal, Ok(value));
    }

    /// Words without a value.
    pub fn text(&mut self, signal: &'static str, text: impl Into<String>) {
        self.value(signal, f64::NAN, text);
    }

    /// Records why a signal has no value.
    pub fn gap(&mut self, signal: &'static str, gap: Gap) {
        self.readings.insert(signal, Err(gap));
    }

    /// A value, or why there is none.
    pub fn result(&mut self, signal: &'static str, read: Result<(f64, String), Gap>) {
        match read {
            Ok((number, detail)) => self.value(signal, number, detail),
            Err(gap) => self.gap(signal, gap),
        }
    }

    /// The events per minute of a signal whose total only grows.
    pub(crate) fn rate(&mut self, signal: &'static str, total: f64, now: Instant, detail: String) {
        let rate = self.per_minute(signal, total, now);
        self.result(signal, rate.map(|rate| (rate, detail)));
    }

    /// Events per minute since the last run, of a counter by its name.
    pub(crate) fn per_minute(&mut self, counter: &str, total: f64, now: Instant) -> Result<f64, Gap> {
        let last = self.memory.totals.insert(counter.to_owned(), (total, now));
        let grown = last.and_then(|(before, then)| {
            let minutes = now.saturating_duration_since(then).as_secs_f64() / 60.0;
            // A counter that began again at zero has no rate this time.
            (total >= before && minutes > 0.0).then(|| (total - before) / minutes)
        });
        grown.ok_or(Gap::Waiting)
    }
}
