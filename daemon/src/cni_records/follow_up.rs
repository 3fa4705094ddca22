//! What may come after a verb and need not hold it up: telling the subnet where an address lives now, and forgetting the
//! connections of one that was freed. Plugins leave it to us by sending us their record; where nobody listens they do it
//! themselves, and where we fail, an ADD that gets the address later forgets its connections first.
//!
//! ```text
//!   records ─▶ Duties ─▶ run ─▶ Worker ─┬─ ADD: announce at once and 1 s later
//!                        (when)  (what) ├─ DEL, GC: forget connections, many addresses in one walk
//!                                       └─ 130 s later: forget again, mark the address as forgotten
//! ```

mod worker;

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ipam::COOLDOWN;
use telemetry::VerbRecord;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

pub use worker::Worker;

/// A neighbour that missed the first announcement gets a second one (RFC 5227 §2.3: two, 2 s apart; sooner is enough).
const SECOND_ANNOUNCEMENT: Duration = Duration::from_secs(1);

/// How long freed addresses are gathered before the kernel's connections are gone through.
const GATHERING: Duration = Duration::from_millis(100);

/// The least between two looks for addresses whose cooldown has ended.
const BETWEEN_LOOKS: Duration = Duration::from_secs(5);

/// When what failed is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// The most addresses noted at a time; a node has a few hundred.
const NOTED: usize = 8192;

/// What records say is to be done.
#[derive(Debug, Default)]
pub struct Duties {
    noted: Mutex<Noted>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Noted {
    added: HashSet<IpAddr>,
    freed: HashSet<IpAddr>,
    /// More were freed than are listed: a GC's record has no room for many.
    freed_more: bool,
    /// Some verb ran, so addresses may have started to cool down.
    ran: bool,
}

/// Work that is due, all of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Addresses to announce.
    pub announce: Vec<IpAddr>,
    /// Freed addresses whose connections are to be forgotten.
    pub forget: HashSet<IpAddr>,
    /// Whether those of every address that is free are to be forgotten, as far as they are not yet.
    pub forget_all: bool,
    /// Whether to look for addresses whose cooldown has ended.
    pub look: bool,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// How long until the next cooldown ends, of those that are seen now; nothing when a look was not asked for, or there
    /// is none.
    pub next_look: Option<Duration>,
    /// Whether something failed.
    pub failed: bool,
}

impl Duties {
    /// Notes what a plugin's record leaves to do. Adds up, so it does not matter how late it is seen to.
    pub fn note(&self, record: &VerbRecord) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let addresses = record.addresses.iter().copied();
        match (record.verb.as_str(), record.code) {
            ("ADD", 0) if noted.added.len() < NOTED => noted.added.extend(addresses),
            // What a failed one freed is freed all the same. A GC of a plugin of before does not say that it names a few only.
            ("GC", _) if !record.addresses.is_empty() => noted.freed_more = true,
            ("DEL", _) if noted.freed.len() < NOTED => noted.freed.extend(addresses),
            ("DEL", _) => noted.freed_more = true,
            _ => {}
        }
        noted.ran = true;
        self.news.notify_one();
    }

    /// Notes addresses that the agent itself freed.
    pub fn freed(&self, addresses: &[IpAddr]) {
        if addresses.is_empty() {
            return;
        }
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.freed.extend(addresses);
        noted.ran = true;
        self.news.notify_one();
    }

    fn take(&self) -> Noted {
        std::mem::take(&mut self.noted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Does what is due when it is due, for ever. Sleeps without a timer when nothing is.
///
/// # Errors
/// When the worker panicked.
pub async fn run(duties: Arc<Duties>, mut worker: Worker) -> io::Result<()> {
    let mut plan = Plan { look: Some(Instant::now()), ..Plan::default() };
    loop {
        tokio::select! {
            () = duties.news.notified() => plan.add(duties.take(), Instant::now()),
            () = sleep_until(plan.next().unwrap_or_else(Instant::now)), if plan.next().is_some() => {}
        }
        let due = plan.due(Instant::now());
        if due == Due::default() {
            continue;
        }
        let looked = due.look;
        // Kernel and files: short, but not on the thread that answers health checks.
        let work = tokio::task::spawn_blocking(move || {
            let done = worker.work(&due);
            (worker, done)
        });
        let (returned, done) = work.await.map_err(io::Error::other)?;
        worker = returned;
        plan.done(done, looked, Instant::now());
    }
}

/// When what is due.
#[derive(Debug, Default)]
struct Plan {
    announce: Vec<IpAddr>,
    /// Second announcements, the earliest first.
    again: std::collections::VecDeque<(Instant, Vec<IpAddr>)>,
    forget: HashSet<IpAddr>,
    forget_all: bool,
    forget_at: Option<Instant>,
    look: Option<Instant>,
}

impl Plan {
    fn add(&mut self, noted: Noted, now: Instant) {
        self.announce.extend(noted.added);
        if !noted.freed.is_empty() || noted.freed_more {
            self.forget.extend(noted.freed);
            self.forget_all |= noted.freed_more;
            self.forget_at.get_or_insert(now + GATHERING);
        }
        if noted.ran {
            self.look.get_or_insert(now + COOLDOWN + BETWEEN_LOOKS);
        }
    }

    fn next(&self) -> Option<Instant> {
        let again = self.again.front().map(|(at, _)| *at);
        [again, self.forget_at, self.look].into_iter().flatten().min()
    }

    /// What is due by now; it is then no longer planned.
    fn due(&mut self, now: Instant) -> Due {
        let mut announce = std::mem::take(&mut self.announce);
        if !announce.is_empty() {
            self.again.push_back((now + SECOND_ANNOUNCEMENT, announce.clone()));
        }
        while self.again.front().is_some_and(|(at, _)| *at <= now) {
            announce.extend(self.again.pop_front().into_iter().flat_map(|(_, addresses)| addresses));
        }
        let (forget, forget_all) = match self.forget_at.take_if(|at| *at <= now) {
            Some(_) => (std::mem::take(&mut self.forget), std::mem::take(&mut self.forget_all)),
            None => (HashSet::new(), false),
        };
        Due { announce, forget, forget_all, look: self.look.take_if(|at| *at <= now).is_some() }
    }

    fn done(&mut self, done: Done, looked: bool, now: Instant) {
        let next = match done {
            Done { failed: true, .. } if looked => Some(RETRY),
            Done { next_look, .. } => next_look.map(|wait| wait.max(BETWEEN_LOOKS)),
        };
        if let Some(wait) = next {
            let at = now + wait;
            self.look = Some(self.look.map_or(at, |planned| planned.min(at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 4, last])
    }

    fn noted(verb: &str, code: u32, last: u8) -> Noted {
        let duties = Duties::default();
        duties.note(&VerbRecord { addresses: vec![address(last)], code, ..VerbRecord::begin("vcn-native", "0", verb) });
        duties.take()
    }

    #[test]
    fn an_added_address_is_announced_at_once_and_a_second_later() {
        let (mut plan, now) = (Plan::default(), Instant::now());
        plan.add(noted("ADD", 0, 7), now);
        assert_eq!(plan.due(now).announce, [address(7)]);
        assert_eq!(plan.due(now), Due::default());
        assert_eq!(plan.next(), Some(now + SECOND_ANNOUNCEMENT));
        assert_eq!(plan.due(now + SECOND_ANNOUNCEMENT).announce, [address(7)]);
        assert_eq!(plan.due(now + 2 * SECOND_ANNOUNCEMENT), Due::default());
    }

    #[test]
    fn an_add_that_failed_and_a_check_announce_nothing() {
        let (mut plan, now) = (Plan::default(), Instant::now());
        plan.add(noted("ADD", 11, 7), now);
        plan.add(noted("CHECK", 0, 8), now);
        assert_eq!(plan.due(now), Due::default());
    }

    #[test]
    fn freed_addresses_are_gathered_and_looked_at_again_when_they_have_cooled_down() {
        let (mut plan, now) = (Plan::default(), Instant::now());
        plan.add(noted("DEL", 0, 7), now);
        plan.add(noted("GC", 999, 8), now + GATHERING / 2);
        assert_eq!(plan.due(now + GATHERING / 2), Due::default());
        let due = plan.due(now + GATHERING);
        assert_eq!((due.forget, due.forget_all, due.look), (HashSet::from([address(7)]), true, false));
        let end = plan.next().unwrap();
        assert!(end > now + COOLDOWN);
        assert!(plan.due(end).look);
        assert_eq!(plan.next(), None, "nothing is planned while nothing happens");
    }

    #[test]
    fn a_gc_that_freed_nothing_has_nothing_to_forget() {
        let (mut plan, now) = (Plan::default(), Instant::now());
        let duties = Duties::default();
        duties.note(&VerbRecord::begin("vcn-native", "0", "GC"));
        plan.add(duties.take(), now);
        assert_eq!(plan.due(now + GATHERING), Due::default());
    }

    #[test]
    fn looks_are_apart_and_a_failed_one_is_repeated() {
        let (mut plan, now) = (Plan::default(), Instant::now());
        plan.done(Done { next_look: Some(Duration::from_millis(1)), failed: false }, true, now);
        assert_eq!(plan.next(), Some(now + BETWEEN_LOOKS));
        let (mut plan, failed) = (Plan::default(), Done { next_look: None, failed: true });
        plan.done(failed, true, now);
        assert_eq!(plan.next(), Some(now + RETRY));
    }
}
