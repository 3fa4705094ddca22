//! Which connections are accepted. A handshake costs a signature before the peer has proved anything, so strangers must neither
//! use up the processor nor keep the controller out. Sources that have shown a trusted key have a share of their own; of the
//! others, those whose handshake failed get the least.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);

/// How long the result of a source's last handshake counts: longer than the controller's interval between two requests.
const REMEMBERED: Duration = Duration::from_mins(15);

/// The most sources that are remembered, in about 100 bytes each.
const SOURCES_MAX: usize = 4096;

/// How many connections sources of one standing get, each of them and all together. One more is closed before a byte is read.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Handshakes of one source in a second.
    pub each_second: u32,
    /// Open connections of one source.
    pub each_open: u32,
    /// Handshakes of all sources in a second; 100 take about 2 % of a core.
    pub all_second: u32,
    /// Open connections of all sources.
    pub all_open: u32,
}

/// The shares of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of sources that have shown a trusted key. The controller queries an agent once in minutes, more often during network tests.
    pub passed: Share,
    /// Of all others together.
    pub strangers: Share,
    /// Of those whose last handshake failed, within the share of strangers. A new controller is one of them until its key is
    /// known.
    pub failed: Share,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            passed: Share { each_second: 32, each_open: 32, all_second: 100, all_open: 64 },
            strangers: Share { each_second: 8, each_open: 8, all_second: 100, all_open: 192 },
            failed: Share { each_second: 4, each_open: 4, all_second: 64, all_open: 128 },
        }
    }
}

/// What is known of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Unknown,
    /// Failed handshakes do not end it, because another program may share the source's address.
    Passed,
    Failed,
}

/// Handshakes of this second, and open connections.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    second: u32,
    open: u32,
}

#[derive(Debug)]
struct Source {
    standing: Standing,
    /// When its last handshake ended.
    judged: Instant,
    usage: Usage,
}

#[derive(Debug)]
struct Sources {
    limits: Limits,
    second: Instant,
    known: HashMap<IpAddr, Source>,
    passed: Usage,
    strangers: Usage,
    /// They are strangers, too.
    failed: Usage,
}

/// The connections of this second, and those that are open.
#[derive(Clone, Debug)]
pub(crate) struct Admission(Arc<Mutex<Sources>>);

/// A place among the open connections, given back when it is dropped. Without [`Self::pass`] the handshake has failed.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    admission: Admission,
    source: IpAddr,
    /// The source's when it connected.
    standing: Standing,
    has_passed: bool,
}

impl Usage {
    const fn add(&mut self) {
        self.second += 1;
        self.open += 1;
    }

    const fn release(&mut self) {
        self.open = self.open.saturating_sub(1);
    }
}

impl Share {
    const fn has_room(&self, all: Usage) -> bool {
        all.second < self.all_second && all.open < self.all_open
    }

    const fn has_room_for(&self, one: Usage) -> bool {
        one.second < self.each_second && one.open < self.each_open
    }
}

impl Admission {
    pub(crate) fn new(limits: Limits, now: Instant) -> Self {
        let [passed, strangers, failed] = [Usage::default(); 3];
        let known = HashMap::new();
        Self(Arc::new(Mutex::new(Sources { limits, second: now, known, passed, strangers, failed })))
    }

    /// A place for a connection; none while its source, or all of its standing, have their share.
    pub(crate) fn admit(&self, source: IpAddr, now: Instant) -> Option<ConnectionSlot> {
        let standing = self.lock().admit(source, now)?;
        Some(ConnectionSlot { admission: self.clone(), source, standing, has_passed: false })
    }

    fn lock(&self) -> MutexGuard<'_, Sources> {
        // Each change is complete by itself, so a panic elsewhere leaves it usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSlot {
    /// The peer has shown a trusted key.
    pub(crate) fn pass(&mut self, now: Instant) {
        self.has_passed = true;
        self.admission.lock().judge(self.source, Standing::Passed, now);
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut sources = self.admission.lock();
        if !self.has_passed {
            sources.judge(self.source, Standing::Failed, Instant::now());
        }
        sources.release(self.source, self.standing);
    }
}

impl Sources {
    fn admit(&mut self, source: IpAddr, now: Instant) -> Option<Standing> {
        self.begin_second(now);
        let is_full = self.known.len() >= SOURCES_MAX;
        let (standing, own) = match self.known.get(&source) {
            Some(known) => (known.standing, known.usage),
            // It cannot be distinguished from those that fill the table.
            None if is_full => (Standing::Failed, Usage::default()),
            None => (Standing::Unknown, Usage::default()),
        };
        let Limits { passed, strangers, failed } = self.limits;
        let has_room = match standing {
            Standing::Passed => passed.has_room_for(own) && passed.has_room(self.passed),
            Standing::Unknown => strangers.has_room_for(own) && strangers.has_room(self.strangers),
            Standing::Failed => {
                failed.has_room_for(own) && failed.has_room(self.failed) && strangers.has_room(self.strangers)
            }
        };
        if !has_room {
            return None;
        }
        if !is_full || self.known.contains_key(&source) {
            let new = Source { standing, judged: now, usage: Usage::default() };
            self.known.entry(source).or_insert(new).usage.add();
        }
        self.of(standing).into_iter().for_each(Usage::add);
        Some(standing)
    }

    /// What a connection of this standing counts in.
    fn of(&mut self, standing: Standing) -> Vec<&mut Usage> {
        match standing {
            Standing::Passed => vec![&mut self.passed],
            Standing::Unknown => vec![&mut self.strangers],
            Standing::Failed => vec![&mut self.strangers, &mut self.failed],
        }
    }

    fn begin_second(&mut self, now: Instant) {
        if now.saturating_duration_since(self.second) < SECOND {
            return;
        }
        self.second = now;
        for all in [&mut self.passed, &mut self.strangers, &mut self.failed] {
            all.second = 0;
        }
        let is_full = self.known.len() >= SOURCES_MAX;
        self.known.retain(|_, known| {
            known.usage.second = 0;
            let is_old = now.saturating_duration_since(known.judged) >= REMEMBERED;
            if is_old || is_full && known.standing == Standing::Failed {
                known.standing = Standing::Unknown;
            }
            known.usage.open > 0 || known.standing != Standing::Unknown
        });
    }

    fn judge(&mut self, source: IpAddr, standing: Standing, now: Instant) {
        let Some(known) = self.known.get_mut(&source) else { return };
        if known.standing != Standing::Passed || standing == Standing::Passed {
            (known.standing, known.judged) = (standing, now);
        }
    }

    fn release(&mut self, source: IpAddr, standing: Standing) {
        if let Some(known) = self.known.get_mut(&source) {
            known.usage.release();
        }
        self.of(standing).into_iter().for_each(Usage::release);
    }
}

#[cfg(test)]
mod tests;
