//! The last runs of plugins, for `bundle`: who was called with what when it went wrong. Failures are kept apart, so that a
//! burst of successes does not push them out.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use telemetry::VerbRecord;

/// How many of each are kept, of some 500 bytes each.
const KEPT: usize = 64;

/// The last runs.
#[derive(Debug, Default)]
pub struct Recent {
    runs: Mutex<Runs>,
}

#[derive(Debug, Default)]
struct Runs {
    fine: VecDeque<VerbRecord>,
    failed: VecDeque<VerbRecord>,
}

impl Recent {
    /// Keeps a run.
    pub fn note(&self, record: &VerbRecord) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = if record.code == 0 { &mut runs.fine } else { &mut runs.failed };
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(record.clone());
    }

    /// Those that are kept, the oldest first.
    #[must_use]
    pub fn runs(&self) -> Vec<VerbRecord> {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<VerbRecord> = runs.fine.iter().chain(&runs.failed).cloned().collect();
        all.sort_by_key(|record| record.unix_millis);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_outlast_a_burst_of_successes() {
        let recent = Recent::default();
        for unix_millis in 0..1000 {
            recent.note(&VerbRecord { unix_millis, code: u32::from(unix_millis == 3), ..VerbRecord::default() });
        }
        let runs = recent.runs();
        assert_eq!((runs.len(), runs[0].unix_millis, runs[0].code), (KEPT + 1, 3, 1));
    }
}
