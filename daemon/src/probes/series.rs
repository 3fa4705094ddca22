//! Many probes at a rate, and their answers in any order: the part that echo requests, datagrams and queries share.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use nettest::probe::{Failure, SendTask, Tally};

/// How many, how often, how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) count: u16,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
}

/// An answer to the probe of this number; what it says if that is a failure.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) number: u16,
    pub(super) failure: Option<Failure>,
}

/// Sends probes by number, and receives answers.
pub(super) trait Exchange {
    fn send(&mut self, number: u16) -> io::Result<()>;
    /// `None` when the time is over, or the packet was another one.
    fn receive(&mut self, within: Duration) -> io::Result<Option<Answer>>;
}

/// Results, as they come.
#[derive(Debug, Default)]
pub(super) struct Results {
    sent: u16,
    micros: Vec<u32>,
    failures: Vec<Failure>,
}

impl From<&SendTask> for Pace {
    fn from(task: &SendTask) -> Self {
        Self {
            count: task.count.into(),
            interval: Duration::from_millis(task.interval_ms.into()),
            timeout: Duration::from_millis(task.timeout_ms.into()),
        }
    }
}

impl Results {
    /// A probe left, or was to leave.
    pub(super) fn sent(&mut self) {
        self.sent += 1;
    }

    pub(super) fn answered(&mut self, took: Duration) {
        self.micros.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
    }

    pub(super) fn failed(&mut self, failure: Failure) {
        self.failures.push(failure);
    }

    /// The tally, with the most frequent failure.
    pub(super) fn tally(mut self) -> Tally {
        let received = u16::try_from(self.micros.len()).unwrap_or(u16::MAX);
        for _ in self.failures.len()..usize::from(self.sent.saturating_sub(received)) {
            self.failures.push(Failure::Silence);
        }
        let mut frequency: BTreeMap<Failure, usize> = BTreeMap::new();
        self.failures.into_iter().for_each(|failure| *frequency.entry(failure).or_default() += 1);
        let failure = frequency.into_iter().max_by_key(|(_, count)| *count).map(|(failure, _)| failure);
        self.micros.sort_unstable();
        Tally { sent: self.sent, received, failure, micros: self.micros }
    }
}

/// Sends all probes in time, and waits for the last answer.
pub(super) fn send_series(exchange: &mut impl Exchange, pace: Pace) -> Tally {
    let mut results = Results::default();
    let mut waiting: BTreeMap<u16, Instant> = BTreeMap::new();
    let began = Instant::now();
    let mut end = began + pace.timeout;
    loop {
        let now = Instant::now();
        let due = began + pace.interval * u32::from(results.sent);
        if results.sent < pace.count && now >= due {
            let number = results.sent;
            results.sent();
            end = now + pace.timeout;
            match exchange.send(number) {
                Ok(()) => drop(waiting.insert(number, now)),
                Err(error) => results.failed(of_error(&error)),
            }
            continue;
        }
        let all_sent = results.sent == pace.count;
        if all_sent && (waiting.is_empty() || now >= end) {
            return results.tally();
        }
        let until = if all_sent { end } else { due };
        match exchange.receive(until.saturating_duration_since(now)) {
            Ok(Some(answer)) => {
                let Some(sent) = waiting.remove(&answer.number) else { continue };
                match answer.failure {
                    Some(failure) => results.failed(failure),
                    None if sent.elapsed() <= pace.timeout => results.answered(sent.elapsed()),
                    None => results.failed(Failure::Silence),
                }
            }
            Ok(None) => {}
            // An error that the kernel reports for one of the packets: for the first one, most likely.
            Err(error) => {
                waiting.pop_first();
                results.failed(of_error(&error));
            }
        }
    }
}

/// The tally where not even a socket could be had.
pub(super) fn failed(error: &io::Error) -> Tally {
    let mut results = Results::default();
    results.sent();
    results.failed(of_error(error));
    results.tally()
}

/// What an error of a socket means for its probe.
pub(super) fn of_error(error: &io::Error) -> Failure {
    match error.raw_os_error().map(nix::errno::Errno::from_raw) {
        Some(nix::errno::Errno::ECONNREFUSED | nix::errno::Errno::ECONNRESET) => Failure::Refused,
        Some(nix::errno::Errno::ETIMEDOUT | nix::errno::Errno::EAGAIN) => Failure::Silence,
        Some(_) => Failure::Local(super::errno(error)),
        None if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => Failure::Silence,
        None => Failure::Local(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers every second probe.
    struct EverySecond(Vec<u16>);

    impl Exchange for EverySecond {
        fn send(&mut self, number: u16) -> io::Result<()> {
            if number.is_multiple_of(2) {
                self.0.push(number);
            }
            Ok(())
        }

        fn receive(&mut self, within: Duration) -> io::Result<Option<Answer>> {
            let answer = self.0.pop().map(|number| Answer { number, failure: None });
            if answer.is_none() {
                std::thread::sleep(within);
            }
            Ok(answer)
        }
    }

    #[test]
    fn unanswered_probes_count_as_silence() {
        let pace = Pace { count: 10, interval: Duration::from_millis(1), timeout: Duration::from_millis(30) };
        let tally = send_series(&mut EverySecond(Vec::new()), pace);
        assert_eq!((tally.sent, tally.received, tally.failure), (10, 5, Some(Failure::Silence)));
    }
}
