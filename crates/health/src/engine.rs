//! Runs collectors, spread over time. Each run has a thread of its own. One that hangs (a file system that is gone) is
//! abandoned and its signals are unknown. It is not started again until it returns.

mod overrides;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::collector::{Kind, Memory, Readings, RunResults};
use crate::collectors::INVALID_RULES;
use crate::facts::Facts;
use crate::hardware::device::Device;
use crate::host::Host;
use crate::judge::{Judge, Reading};
use crate::report::Report;
use crate::rules::{Hardware, version};
use crate::signal::Gap;

pub use overrides::RulesFiles;
use overrides::{Overrides, OverridesRead};

/// How long a run may take: the slowest waits 3 s for a local service.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// The prefix of the names of threads that run collectors.
pub const RUN_THREAD: &str = "health ";

/// Runs at the same time, those that hang among them. With as many hanging, nothing is started.
const MAX_RUNS: usize = 4;

/// The agent finishes its first reconcile within this time after a start: some collectors use its report.
const RECONCILE_TIME: Duration = Duration::from_secs(5);

/// The first runs are spread over this time after a start.
const START_PERIOD: Duration = Duration::from_secs(15);

/// A collector that could not measure runs again after this.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// The collectors and their results.
pub struct Engine {
    host: Host,
    tasks: Vec<Task>,
    judge: Judge,
    /// What the last run of each collector saw of devices, by its name.
    devices: BTreeMap<&'static str, BTreeMap<String, Device>>,
    overrides: Overrides,
    /// MemTotal in GiB, read together with the rules.
    memory: Option<f64>,
    chance: fn() -> f64,
    done_in: Sender<FinishedRun>,
    done: Receiver<FinishedRun>,
    /// The run that ended a call of `wait`; the next collection takes it first.
    received: Option<FinishedRun>,
}

struct Task {
    kind: Kind,
    /// Absent while the collector runs.
    memory: Option<Memory>,
    /// When it starts next; while it runs, when it is overdue.
    due: Instant,
    overdue: bool,
}

/// A run that begins.
struct Run {
    task: usize,
    kind: Kind,
    memory: Memory,
    host: Host,
    done: Sender<FinishedRun>,
}

/// A run that ended.
struct FinishedRun {
    task: usize,
    memory: Memory,
    results: RunResults,
}

/// Now, by two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// The monotonic time, for intervals.
    pub instant: Instant,
    /// The wall time in milliseconds since 1970, for people.
    pub unix_millis: u64,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("host", &self.host).field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

impl Engine {
    /// Collectors of these kinds, to be run on a host.
    pub fn new(kinds: &[Kind], host: Host, rules: RulesFiles, chance: fn() -> f64) -> Self {
        let (done_in, done) = channel();
        let start = host.now;
        let count = u32::try_from(kinds.len()).unwrap_or(1).max(1);
        let tasks = kinds.iter().zip(0_u32..).map(|(kind, number)| Task {
            kind: *kind,
            memory: Some(Memory::default()),
            due: start + RECONCILE_TIME + START_PERIOD / count * number,
            overdue: false,
        });
        Self {
            tasks: tasks.collect(),
            host,
            judge: Judge::shipped(),
            devices: BTreeMap::new(),
            overrides: Overrides::new(rules, start),
            memory: None,
            chance,
            done_in,
            done,
            received: None,
        }
    }

    /// Takes what has ended, starts what is due. Whether there are new results.
    pub fn step(&mut self, now: Now, facts: impl FnOnce() -> Facts) -> bool {
        let mut news = self.read_rules(now);
        while let Some(done) = self.received.take().or_else(|| self.done.try_recv().ok()) {
            self.end(done, now);
            news = true;
        }
        if self.tasks.iter().any(|task| task.memory.is_some() && task.due <= now.instant) {
            self.host.facts = Arc::new(facts());
        }
        for number in 0..self.tasks.len() {
            news |= self.attend(number, now);
        }
        news
    }

    /// Waits until something ends or is due.
    pub fn wait(&mut self, now: Instant) {
        let has_room = self.running().count() < MAX_RUNS;
        let waits = |task: &&Task| if task.memory.is_none() { !task.overdue } else { has_room || self.is_stuck() };
        let next = self.tasks.iter().filter(waits).map(|task| task.due).chain([self.overrides.due]).min();
        let until = next.map_or(overrides::INTERVAL, |due| due.saturating_duration_since(now));
        // It cannot be disconnected: the engine holds a sender.
        self.received = self.done.recv_timeout(until).ok();
    }

    /// The results so far.
    pub fn report(&self) -> Report {
        let controller_rules = self.overrides.controller_text().map(|text| text.map(version));
        Report {
            signals: self.judge.states(),
            devices: self.devices(),
            controller_rules: controller_rules.map(Option::unwrap_or_default),
            is_off: false,
        }
    }

    /// What all collectors know of each device.
    fn devices(&self) -> Vec<Device> {
        let mut all: BTreeMap<&str, Device> = BTreeMap::new();
        for (address, device) in self.devices.values().flatten() {
            let known = || Device { address: address.clone(), ..Device::default() };
            all.entry(address).or_insert_with(known).merge(device.clone());
        }
        all.into_values().collect()
    }

    fn running(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter().filter(|task| task.memory.is_none())
    }

    /// Whether no run will make room for another one soon.
    fn is_stuck(&self) -> bool {
        self.running().filter(|task| task.overdue).count() >= MAX_RUNS
    }

    /// Starts a collector that is due, or gives up waiting for one. Whether that is a result.
    fn attend(&mut self, number: usize, now: Now) -> bool {
        let names: Vec<&str> = self.running().map(|task| task.kind.name).collect();
        let hanging = self.is_stuck().then(|| names.join(", "));
        let is_full = names.len() >= MAX_RUNS;
        let host = Host { now: now.instant, ..self.host.clone() };
        let Some(task) = self.tasks.get_mut(number).filter(|task| task.due <= now.instant && !task.overdue) else {
            return false;
        };
        let (kind, next) = (task.kind, now.instant + task.kind.every);
        let gap = match (task.memory.take(), hanging) {
            (None, _) => {
                task.overdue = true;
                Gap::unknown(format!("the collector {} has not returned for {} s", kind.name, DEADLINE.as_secs()))
            }
            (Some(memory), Some(hanging)) => {
                (task.memory, task.due) = (Some(memory), next);
                Gap::unknown(format!("not measured: other collectors hang ({hanging})"))
            }
            (Some(memory), None) if is_full => {
                task.memory = Some(memory);
                return false;
            }
            (Some(memory), None) => {
                task.due = now.instant + DEADLINE;
                match start(Run { task: number, kind, memory, host, done: self.done_in.clone() }) {
                    Ok(()) => return false,
                    Err(error) => {
                        (task.memory, task.due) = (Some(Memory::default()), next);
                        Gap::unknown(format!("start a thread: {error}"))
                    }
                }
            }
        };
        self.record(&kind, kind.gap(&gap), now);
        true
    }

    fn end(&mut self, done: FinishedRun, now: Now) {
        let FinishedRun { task: number, memory, results: RunResults { readings, devices } } = done;
        let Some(task) = self.tasks.get_mut(number) else { return };
        self.devices.insert(task.kind.name, devices);
        task.memory = Some(memory);
        task.overdue = false;
        let is_unknown = readings.iter().any(|(_, read)| matches!(read, Err(Gap::Unknown(_) | Gap::Waiting)));
        let every = if is_unknown { task.kind.every.min(RETRY_INTERVAL) } else { task.kind.every };
        task.due = now.instant + every.mul_f64(0.9 + (self.chance)().clamp(0.0, 1.0) / 10.0);
        let kind = task.kind;
        self.record(&kind, readings, now);
    }

    fn record(&mut self, kind: &Kind, readings: Readings, now: Now) {
        let (facts, every_seconds) = (self.host.facts.clone(), kind.every.as_secs());
        for (name, read) in readings {
            if let Some(signal) = kind.signals.iter().find(|signal| signal.name == name) {
                let (hardware, unix_millis) =
                    (Hardware { shape: facts.shape.as_deref(), memory: self.memory }, now.unix_millis);
                self.judge.record(Reading { signal, every_seconds, read, hardware, unix_millis });
            }
        }
    }

    fn read_rules(&mut self, now: Now) -> bool {
        if self.overrides.due > now.instant {
            return false;
        }
        self.memory = self.host.total_memory().ok().map(|mebibytes| mebibytes / 1024.0);
        let OverridesRead { rules, reading } = self.overrides.update(now.instant);
        if let Some(rules) = rules {
            self.judge.adopt(rules);
        }
        let (signal, every_seconds) = (&INVALID_RULES, overrides::INTERVAL.as_secs());
        let reading = Reading {
            signal,
            every_seconds,
            read: reading,
            hardware: Hardware::default(),
            unix_millis: now.unix_millis,
        };
        self.judge.record(reading);
        true
    }
}

fn start(run: Run) -> std::io::Result<()> {
    let name = format!("{RUN_THREAD}{}", run.kind.name);
    let work = move || {
        let Run { task, kind, mut memory, host, done } = run;
        let results = kind.run(&mut memory, &host);
        // The engine may be gone.
        let _ = done.send(FinishedRun { task, memory, results });
    };
    worker::spawn(name, work)
}
