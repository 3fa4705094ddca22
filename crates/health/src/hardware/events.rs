//! What the kernel logged about devices since this boot: kept after the log has lost it, until something ends it. Pure.

pub(crate) mod file;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::messages::{Advice, Effect, FaultLevel, Finding, Reader, Subsystem};
use crate::kernel_log::Record;

/// The most events that are kept. With eight GPUs and eighteen adapters there is room for four codes of each.
const MAX_EVENTS: usize = 128;

/// The longest text of a message that is kept, in characters.
const MAX_TEXT: usize = 200;

/// Lines of one code about one device within this time are one occurrence: the driver prints several. In seconds.
const ONE_OCCURRENCE: f64 = 1.0;

/// A warning or a count ends when it has not been repeated for a day.
const WARNING_LIFETIME: f64 = 86_400.0;

/// A link that came back and stayed for an hour is no longer a problem.
const LINK_LIFETIME: f64 = 3600.0;

/// The driver's own verdict.
const RECOVERY_ACTION: &str = "154";

/// Events of one boot, by device and code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Events {
    /// The boot, as in /proc/sys/kernel/random/boot_id.
    boot_id: String,
    /// The log's time of the last message that was read, in seconds since boot; below 0 before the first.
    newest: f64,
    events: Vec<Event>,
}

/// Messages of one code about one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// The driver or subsystem that wrote the messages.
    pub subsystem: Subsystem,
    /// Empty where they name none.
    pub device: String,
    /// Such as `79` or `EDAC_UE`.
    pub code: String,
    /// How bad it is.
    pub level: FaultLevel,
    /// What it takes to end it.
    pub advice: Advice,
    /// Whether the device has a problem.
    pub is_fault: bool,
    /// How often it occurred.
    pub count: u64,
    /// When it occurred first, in seconds since boot.
    pub first: f64,
    /// When it occurred last.
    pub last: f64,
    /// The text of the first message.
    pub text: String,
}

/// What is wrong with a device: its events together.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// What wrote the worst.
    pub subsystem: Subsystem,
    /// Empty where no message names one.
    pub device: String,
    /// The level of the worst event.
    pub level: FaultLevel,
    /// The driver's own verdict, or what the worst takes.
    pub advice: Advice,
    /// The worst one's code first, then the others.
    pub codes: Vec<String>,
    /// When the first occurred, in seconds since boot.
    pub since: f64,
    /// The worst one's message.
    pub text: String,
}

impl Events {
    /// No event of a boot yet.
    pub fn of_boot(boot_id: &str) -> Self {
        Self { boot_id: boot_id.to_owned(), newest: -1.0, events: Vec::new() }
    }

    /// The time of the last message that was read, which is now by the log's clock.
    pub fn newest(&self) -> f64 {
        self.newest
    }

    /// All events, the oldest first.
    pub fn all(&self) -> &[Event] {
        &self.events
    }

    /// Adds what is new in the log. Records without a time cannot be distinguished from earlier ones and are left out.
    pub fn take(&mut self, records: &[Record]) {
        let mut reader = Reader::default();
        let before = self.newest;
        for record in records {
            // Older records are read too: later ones may refer to them.
            let finding = reader.read(record);
            if let Some(at) = record.at.filter(|at| *at > before) {
                self.newest = self.newest.max(at);
                self.add(finding, at, &record.text);
            }
        }
        let now = self.newest;
        self.events.retain(|event| !event.is_over(now));
    }

    fn add(&mut self, finding: Finding, at: f64, text: &str) {
        let Finding { subsystem, code, device, level, advice, is_fault, effect } = finding;
        match effect {
            Effect::EndsDevice => return self.events.retain(|event| event.device != device),
            Effect::EndsNvidia => {
                let is_other = |event: &Event| !matches!(event.subsystem, Subsystem::Nvidia | Subsystem::Nvswitch);
                return self.events.retain(is_other);
            }
            Effect::Occurrence | Effect::Detail => {}
        }
        if code.is_empty() {
            return;
        }
        let known = self.events.iter_mut().find(|event| event.device == device && event.code == code);
        if let Some(event) = known {
            let is_new = effect == Effect::Occurrence && at - event.last > ONE_OCCURRENCE;
            event.count += u64::from(is_new);
            event.last = at;
            // The newest verdict of the driver counts; of other codes, the worst.
            if code == RECOVERY_ACTION || (level, advice) > (event.level, event.advice) {
                (event.level, event.advice, event.is_fault) = (level, advice, is_fault);
                event.text = vcn::excerpt(text, MAX_TEXT).into_owned();
            }
        } else if level > FaultLevel::Info || effect == Effect::Occurrence {
            self.make_room();
            let text = vcn::excerpt(text, MAX_TEXT).into_owned();
            let (first, last) = (at, at);
            self.events.push(Event { subsystem, device, code, level, advice, is_fault, count: 1, first, last, text });
        }
    }

    /// Forgets the least important event where there are too many.
    fn make_room(&mut self) {
        if self.events.len() < MAX_EVENTS {
            return;
        }
        let rank = |event: &Event| (event.is_fault, event.level, event.last.to_bits());
        let least = self.events.iter().enumerate().min_by_key(|(_, event)| rank(event)).map(|(number, _)| number);
        if let Some(least) = least {
            self.events.swap_remove(least);
        }
    }

    /// One problem per device, the worst first.
    pub fn problems(&self) -> Vec<Problem> {
        let mut devices: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.is_fault) {
            devices.entry(&event.device).or_default().push(event);
        }
        // A message without a device is a companion of what is known about a device of the same driver.
        let unnamed = devices.remove("").unwrap_or_default();
        let is_alone = |event: &&Event| !devices.values().flatten().any(|other| other.subsystem == event.subsystem);
        let alone: Vec<Vec<&Event>> = unnamed.into_iter().filter(is_alone).map(|event| vec![event]).collect();
        let mut problems: Vec<Problem> =
            devices.into_values().chain(alone).filter_map(|events| Problem::of(&events)).collect();
        problems.sort_by(|a, b| b.level.cmp(&a.level).then(a.since.total_cmp(&b.since)));
        problems
    }
}

impl Problem {
    /// In a line: `0000:9b:00.0: Xid 119 (with Xid 154), for 3 min: end the GPU's jobs and reset it`. The time is the log's.
    pub fn describe(&self, now: f64) -> String {
        let device = if self.device.is_empty() { String::new() } else { format!("{}: ", self.device) };
        format!("{device}{}, for {}: {}", self.names(), duration(now - self.since), self.advice.text())
    }

    /// Its codes: `Xid 119 (with Xid 154)`.
    pub fn names(&self) -> String {
        let mut names = self.codes.iter().map(|code| name(self.subsystem, code));
        let first = names.next().unwrap_or_default();
        let others: Vec<String> = names.take(3).collect();
        if others.is_empty() { first } else { format!("{first} (with {})", others.join(", ")) }
    }

    /// Whether the worst code is a number.
    pub(crate) fn is_numbered(&self) -> bool {
        self.codes.first().is_some_and(|code| is_number(code))
    }
}

/// A code as operators call it.
fn name(subsystem: Subsystem, code: &str) -> String {
    match subsystem {
        Subsystem::Nvidia if is_number(code) => format!("Xid {code}"),
        Subsystem::Nvswitch => format!("SXid {code}"),
        _ => code.to_owned(),
    }
}

fn is_number(code: &str) -> bool {
    code.bytes().all(|byte| byte.is_ascii_digit())
}

fn duration(seconds: f64) -> String {
    let minutes = (seconds.max(0.0) / 60.0).floor();
    match minutes {
        0.0..60.0 => format!("{minutes} min"),
        60.0..2880.0 => format!("{:.0} h", (minutes / 60.0).floor()),
        _ => format!("{:.0} d", (minutes / 1440.0).floor()),
    }
}

impl Event {
    /// Its code and how often it occurred: `Xid 13, 5 times`.
    pub(crate) fn describe(&self) -> String {
        let name = name(self.subsystem, &self.code);
        if self.count > 1 { format!("{name}, {} times", self.count) } else { name }
    }

    fn is_over(&self, now: f64) -> bool {
        let lifetime = match (self.level, self.code.as_str()) {
            (FaultLevel::Fatal, _) => return false,
            (_, "LINK_DOWN") => LINK_LIFETIME,
            _ => WARNING_LIFETIME,
        };
        now - self.last > lifetime
    }
}

impl Problem {
    fn of(events: &[&Event]) -> Option<Self> {
        let worst = events.iter().max_by_key(|event| (event.level, event.advice))?;
        let verdict = events.iter().find(|event| event.code == RECOVERY_ACTION);
        let others = events.iter().filter(|event| event.code != worst.code).map(|event| event.code.clone());
        Some(Self {
            subsystem: worst.subsystem,
            device: worst.device.clone(),
            level: worst.level,
            advice: verdict.unwrap_or(worst).advice,
            codes: std::iter::once(worst.code.clone()).chain(others).collect(),
            since: events.iter().map(|event| event.first).fold(f64::INFINITY, f64::min),
            text: worst.text.clone(),
        })
    }
}
