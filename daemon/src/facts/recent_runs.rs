//! The last plugin runs, for `bundle`. Failures are kept apart, so that a burst of successes does not replace them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use telemetry::VerbRecord;

/// How many of each are kept; a record has some 500 bytes.
const RUNS_MAX: usize = 64;

#[derive(Debug, Default)]
pub struct RecentRuns {
    runs: Mutex<Runs>,
}

#[derive(Debug, Default)]
struct Runs {
    successes: VecDeque<VerbRecord>,
    failures: VecDeque<VerbRecord>,
}

impl RecentRuns {
    pub fn note(&self, record: &VerbRecord) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let list = if record.code == 0 { &mut runs.successes } else { &mut runs.failures };
        if list.len() == RUNS_MAX {
            list.pop_front();
        }
        list.push_back(record.clone());
    }

    /// The kept runs, oldest first.
    pub fn runs(&self) -> Vec<VerbRecord> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<VerbRecord> = runs.successes.iter().chain(&runs.failures).cloned().collect();
        all.sort_by_key(|record| record.unix_millis);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_outlast_a_burst_of_successes() {
        let recent = RecentRuns::default();
        for unix_millis in 0..1000 {
            recent.note(&VerbRecord { unix_millis, code: u32::from(unix_millis == 3), ..VerbRecord::default() });
        }
        let runs = recent.runs();
        assert_eq!((runs.len(), runs[0].unix_millis, runs[0].code), (RUNS_MAX + 1, 3, 1));
    }
}
