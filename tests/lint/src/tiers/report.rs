//! What ran, as a table a reader takes in at a glance, and what did not, with the reasons.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::harness::{Binary, Outcome};
use super::{Tier, is_for_guest, tier_of};

/// One line a tier, then the tests that ran nowhere by their reason.
pub(super) fn table(here: &[Binary], guest: &[Binary]) -> String {
    let mut text = format!("{:<34}{:>8}{:>8}{:>9}\n", "tier", "programs", "passed", "seconds");
    let of = |tier| here.iter().filter(move |binary| tier_of(binary) == tier).collect::<Vec<_>>();
    for (tier, binaries) in
        [(Tier::Pure, of(Tier::Pure)), (Tier::Namespaces, of(Tier::Namespaces)), (Tier::Guest, guest.iter().collect())]
    {
        let ran: Vec<&&Binary> = binaries.iter().filter(|binary| binary.passed > 0).collect();
        let passed: u64 = ran.iter().map(|binary| binary.passed).sum();
        let seconds = ran.iter().map(|binary| binary.seconds).fold(0.0, |sum, more| sum + more);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<34}{:>8}{passed:>8}{seconds:>9.1}", title(tier), ran.len());
    }
    for (reason, count) in ran_nowhere(here) {
        let _ = writeln!(text, "ignored: {count} ({reason})");
    }
    text
}

fn title(tier: Tier) -> &'static str {
    match tier {
        Tier::Pure => "pure",
        Tier::Namespaces => "kernel, in namespaces",
        Tier::Guest => "kernel, in a guest (802.1Q)",
    }
}

fn ran_nowhere(here: &[Binary]) -> BTreeMap<&str, usize> {
    let mut reasons = BTreeMap::new();
    for test in here.iter().flat_map(|binary| &binary.tests) {
        if let Outcome::Ignored(reason) = &test.outcome
            && !is_for_guest(reason)
        {
            *reasons.entry(reason.as_str()).or_default() += 1;
        }
    }
    reasons
}
