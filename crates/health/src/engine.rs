//! Runs collectors, spread over time. Each run has a thread of its own: one that hangs (a file system that is gone) is
//! abandoned, its signals are unknown, and it is not started again until it returns.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::collector::{Gap, Kind, Memory, Readings, Value};
use crate::facts::Facts;
use crate::host::Host;
use crate::judge::{Judge, Reading};
use crate::report::Report;
use crate::rules::{Hardware, INVALID_RULES, Rules, RulesText, version};

/// How long a run may take: the slowest waits 3 s for a local service.
const DEADLINE: Duration = Duration::from_secs(5);

/// Runs at the same time, those that hang among them. With as many hanging, nothing is started.
const MOST: usize = 4;

/// The agent finishes its first reconcile within this time after a start: some collectors use its report.
const SETTLE: Duration = Duration::from_secs(5);

/// The first runs are spread over this time after a start.
const SPREAD: Duration = Duration::from_secs(15);

/// A collector that could not measure runs again after this.
const SOON: Duration = Duration::from_secs(60);

/// How often the files of overrides are read. The kubelet takes about a minute to update it, too.
const RULES_EVERY: Duration = Duration::from_secs(60);

/// Collectors read files into buffers on the heap.
const STACK: usize = 256 << 10;

/// The collectors and their results.
pub struct Engine {
    host: Host,
    tasks: Vec<Task>,
    judge: Judge,
    overrides: Overrides,
    /// MemTotal in GiB, read together with the rules.
    memory: Option<f64>,
    chance: fn() -> f64,
    done_in: Sender<FinishedRun>,
    done: Receiver<FinishedRun>,
    /// What `wait` received.
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

/// Files of rules that override the shipped ones; none need be there.
#[derive(Clone, Debug, Default)]
pub struct RulesFiles {
    /// What the controller sent.
    pub controller: PathBuf,
    /// The agent's own, which override the controller's.
    pub own: PathBuf,
}

struct Overrides {
    files: RulesFiles,
    /// The last texts, once read.
    texts: Option<[Option<String>; 2]>,
    due: Instant,
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
    readings: Readings,
}

/// Now, by two clocks.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For intervals.
    pub instant: Instant,
    /// For people.
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
            due: start + SETTLE + SPREAD / count * number,
            overdue: false,
        });
        let overrides = Overrides { files: rules, texts: None, due: start };
        Self {
            tasks: tasks.collect(),
            host,
            judge: Judge::default(),
            overrides,
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
        let has_room = self.running().count() < MOST;
        let waits = |task: &&Task| if task.memory.is_none() { !task.overdue } else { has_room || self.is_stuck() };
        let next = self.tasks.iter().filter(waits).map(|task| task.due).chain([self.overrides.due]).min();
        let until = next.map_or(RULES_EVERY, |due| due.saturating_duration_since(now));
        // It cannot be disconnected: the engine holds a sender.
        self.received = self.done.recv_timeout(until).ok();
    }

    /// The results so far.
    pub fn report(&self) -> Report {
        let controller_rules = self.overrides.texts.as_ref().map(|[text, _]| text.as_deref().map(version));
        Report {
            signals: self.judge.states(),
            controller_rules: controller_rules.map(Option::unwrap_or_default),
            is_off: false,
        }
    }

    fn running(&self) -> impl Iterator<Item = &Task> {
        self.tasks.iter().filter(|task| task.memory.is_none())
    }

    /// Whether no run will make room for another one soon.
    fn is_stuck(&self) -> bool {
        self.running().filter(|task| task.overdue).count() >= MOST
    }

    /// Starts a collector that is due, or gives up waiting for one. Whether that is a result.
    fn attend(&mut self, number: usize, now: Now) -> bool {
        let names: Vec<&str> = self.running().map(|task| task.kind.name).collect();
        let hanging = self.is_stuck().then(|| names.join(", "));
        let is_full = names.len() >= MOST;
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
        let FinishedRun { task: number, memory, readings } = done;
        let Some(task) = self.tasks.get_mut(number) else { return };
        task.memory = Some(memory);
        task.overdue = false;
        let is_unknown = readings.iter().any(|(_, read)| matches!(read, Err(Gap::Unknown(_))));
        let every = if is_unknown { task.kind.every.min(SOON) } else { task.kind.every };
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
        self.overrides.due = now.instant + RULES_EVERY;
        self.memory = self.host.total_memory().ok().map(|mebibytes| mebibytes / 1024.0);
        let mut unreadable = Vec::new();
        let mut read = |file: &Path| match std::fs::read_to_string(file) {
            Ok(text) => Some(text),
            Err(error) => {
                let is_missing = error.kind() == std::io::ErrorKind::NotFound;
                unreadable.extend((!is_missing).then(|| format!("{}: {error}", file.display())));
                None
            }
        };
        let RulesFiles { controller, own } = &self.overrides.files;
        let texts = [read(controller), read(own)];
        let sources = ["the controller's HEALTH_RULES", "HEALTH_RULES"].iter().zip(&texts);
        let given: Vec<RulesText<'_>> =
            sources.filter_map(|(source, text)| Some(RulesText { source, text: text.as_deref()? })).collect();
        let mut rules = Rules::read(&given);
        rules.problems.extend(unreadable);
        let value = Value {
            number: u32::try_from(rules.problems.len()).ok().map(f64::from),
            detail: rules.problems.join("; "),
        };
        if self.overrides.texts.as_ref() != Some(&texts) {
            self.judge.adopt(rules);
            self.overrides.texts = Some(texts);
        }
        let (signal, every_seconds) = (&INVALID_RULES, RULES_EVERY.as_secs());
        let reading = Reading {
            signal,
            every_seconds,
            read: Ok(value),
            hardware: Hardware::default(),
            unix_millis: now.unix_millis,
        };
        self.judge.record(reading);
        true
    }
}

fn start(run: Run) -> std::io::Result<()> {
    let name = format!("health {}", run.kind.name);
    let work = move || {
        let Run { task, kind, mut memory, host, done } = run;
        let readings = kind.run(&mut memory, &host);
        // The engine may be gone.
        let _ = done.send(FinishedRun { task, memory, readings });
    };
    thread::Builder::new().name(name).stack_size(STACK).spawn(work).map(drop)
}
