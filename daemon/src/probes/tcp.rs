//! Connections, one after the other, each reset as soon as it is established.

use std::time::{Duration, Instant};

use nettest::probe::{SendTask, Tally};

use super::series::{Pace, Results, of_error};
use super::socket::ProbeRoute;

pub(super) fn probe(way: &ProbeRoute, task: &SendTask) -> Tally {
    let pace = Pace::from(task);
    one_by_one(pace, |results| {
        let began = Instant::now();
        match way.connect(pace.timeout) {
            Ok(_) => results.answered(began.elapsed()),
            Err(error) => results.failed(of_error(&error)),
        }
    })
}

/// Makes requests one after the other, not faster than the pace.
pub(super) fn one_by_one(pace: Pace, mut request: impl FnMut(&mut Results)) -> Tally {
    let mut results = Results::default();
    for number in 0..pace.count {
        let began = Instant::now();
        results.sent();
        request(&mut results);
        let left: Duration = pace.interval.saturating_sub(began.elapsed());
        if number + 1 < pace.count {
            std::thread::sleep(left);
        }
    }
    results.tally()
}
