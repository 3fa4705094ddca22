//! Tiers: which tests ran where, read from what cargo and the test harness printed. A tier that must run and did not is a
//! failure, and so is a test that was ignored in one tier and ran in no other: otherwise both look like success.

mod harness;
mod report;

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::finding::Finding;
use harness::{Binary, Outcome};

/// Where a test runs and what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    /// Pure code and fakes.
    Pure,
    /// The machine's own kernel, in fresh namespaces.
    Namespaces,
    /// A user-mode-linux guest: a kernel with what the machine's own may lack, such as VLANs.
    Guest,
}

/// Folders whose `tests/*.rs` work on a kernel. Those of the others are pure.
const KERNEL_FOLDERS: &[&str] =
    &["crates/netlink", "crates/datapath", "installer", "plugins", "daemon", "sandbox", "tests"];

/// What the reason of an ignored test says when the guest runs it. `.ci/test` finds the files by the same words.
const GUEST_REASONS: &[&str] = &["802.1Q", "tests/uml/run"];

/// Reads the artifacts that `cargo test --no-run --message-format=json` listed and the logs of the two runs, prints what
/// ran and what is wrong with it. True when every tier that must run did.
///
/// # Errors
/// When a file cannot be read.
pub fn run(artifacts: &Path, log: &Path, guest_log: &Path) -> anyhow::Result<bool> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("read {}", path.display()));
    let artifacts = harness::artifacts(&String::from_utf8_lossy(&read(artifacts)?))?;
    let here = harness::binaries(&artifacts, &String::from_utf8_lossy(&read(log)?));
    let guest = harness::binaries(&artifacts, &String::from_utf8_lossy(&read(guest_log)?));
    print!("{}", report::table(&here, &guest));
    let findings = check(&here, &guest);
    for finding in &findings {
        println!("{finding}");
    }
    Ok(findings.is_empty())
}

fn check(here: &[Binary], guest: &[Binary]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let kernel = here.iter().filter(|binary| tier_of(binary) == Tier::Namespaces);
    for (what, passed) in [
        ("tests in namespaces", kernel.map(|binary| binary.passed).sum::<u64>()),
        ("tests in the guest (user-mode-linux)", guest.iter().map(|binary| binary.passed).sum()),
    ] {
        if passed == 0 {
            findings.push(Finding::new("tiers", what, "none ran, and some must"));
        }
    }
    for binary in here {
        for test in &binary.tests {
            let Outcome::Ignored(reason) = &test.outcome else { continue };
            let place = format!("{} {}", binary.source, test.name);
            if reason.is_empty() {
                findings.push(Finding::new("tiers", place, "ignored without a reason: #[ignore = \"needs …\"]"));
            } else if is_for_guest(reason) && !ran_in(guest, binary, &test.name) {
                let message = format!("ignored here ({reason}) and not run in the guest either");
                findings.push(Finding::new("tiers", place, message));
            }
        }
    }
    findings
}

fn ran_in(guest: &[Binary], binary: &Binary, name: &str) -> bool {
    let same = guest.iter().filter(|other| other.executable == binary.executable);
    same.flat_map(|other| &other.tests).any(|test| test.name == name && test.outcome == Outcome::Ran)
}

fn is_for_guest(reason: &str) -> bool {
    GUEST_REASONS.iter().any(|words| reason.contains(words))
}

fn tier_of(binary: &Binary) -> Tier {
    let kernel = KERNEL_FOLDERS.iter().any(|folder| Path::new(&binary.source).starts_with(folder));
    if kernel && binary.integration { Tier::Namespaces } else { Tier::Pure }
}

#[cfg(test)]
mod tests;
