//! What ran, as a table, and what did not, with the reasons.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::harness::{Binary, Outcome};
use super::{runs_elsewhere, works_on_a_kernel};

/// One line a tier, then the tests that another target of the Makefile runs, by their reason.
pub(super) fn table(here: &[Binary], guests: &[Binary]) -> String {
    let mut text = format!("{:<34}{:>8}{:>8}{:>9}\n", "tier", "programs", "passed", "seconds");
    let (kernel, pure): (Vec<&Binary>, Vec<&Binary>) = here.iter().partition(|binary| works_on_a_kernel(binary));
    let tiers = [("pure", pure), ("kernel, in namespaces", kernel), ("kernel, in a guest", guests.iter().collect())];
    // Writing to a String cannot fail.
    for (title, binaries) in tiers {
        let ran = binaries.iter().filter(|binary| binary.passed > 0).count();
        let passed: u64 = binaries.iter().map(|binary| binary.passed).sum();
        let seconds = binaries.iter().map(|binary| binary.seconds).fold(0.0, |sum, more| sum + more);
        let _ = writeln!(text, "{title:<34}{ran:>8}{passed:>8}{seconds:>9.1}");
    }
    for (reason, count) in ran_elsewhere(here) {
        let _ = writeln!(text, "ignored: {count} ({reason})");
    }
    text
}

fn ran_elsewhere(here: &[Binary]) -> BTreeMap<&str, usize> {
    let mut reasons = BTreeMap::new();
    for test in here.iter().flat_map(|binary| &binary.tests) {
        if let Outcome::Ignored(reason) = &test.outcome
            && runs_elsewhere(reason)
        {
            *reasons.entry(reason.as_str()).or_default() += 1;
        }
    }
    reasons
}
