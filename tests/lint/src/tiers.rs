//! Tiers: which tests ran where, read from what cargo and the test harness printed. A tier that must run and did not is a
//! failure, and so is a test that is ignored on the machine's own kernel and ran in no guest: otherwise both look like
//! success.

mod harness;
mod report;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::finding::Finding;
use harness::{Binary, Outcome};

/// Folders whose `tests/*.rs` work on a kernel. Those of the others are pure.
const KERNEL_FOLDERS: &[&str] =
    &["crates/netlink", "crates/datapath", "installer", "plugins", "daemon", "sandbox", "tests"];

/// What the reason of an ignored test says when `make test` does not run it: another target of the Makefile does.
const ELSEWHERE: &[&str] = &["make ", "tests/qemu/run"];

/// Reads the artifacts that `cargo test --no-run --message-format=json` listed and the logs of the run here and of those in
/// guests, prints what ran and what is wrong with it. True when every tier that must run did.
///
/// # Errors
/// When a file cannot be read.
pub fn run(artifacts: &Path, log: &Path, guest_logs: &[PathBuf]) -> anyhow::Result<bool> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("read {}", path.display()));
    let artifacts = harness::artifacts(&String::from_utf8_lossy(&read(artifacts)?))?;
    let here = harness::binaries(&artifacts, &String::from_utf8_lossy(&read(log)?));
    let mut guests = Vec::new();
    for log in guest_logs {
        guests.extend(harness::binaries(&artifacts, &String::from_utf8_lossy(&read(log)?)));
    }
    print!("{}", report::table(&here, &guests));
    let findings = check(&here, &guests);
    for finding in &findings {
        println!("{finding}");
    }
    Ok(findings.is_empty())
}

fn check(here: &[Binary], guests: &[Binary]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let passed = |binaries: &[&Binary]| binaries.iter().map(|binary| binary.passed).sum::<u64>();
    let kernel: Vec<&Binary> = here.iter().filter(|binary| works_on_a_kernel(binary)).collect();
    for (what, binaries) in [("tests in namespaces", kernel), ("tests in a guest", guests.iter().collect())] {
        if passed(&binaries) == 0 {
            findings.push(Finding::new("tiers", what, "none ran, and some must"));
        }
    }
    for binary in here {
        for test in &binary.tests {
            let Outcome::Ignored(reason) = &test.outcome else { continue };
            let place = format!("{} {}", binary.source, test.name);
            if reason.is_empty() {
                findings.push(Finding::new("tiers", place, "ignored without a reason: #[ignore = \"needs …\"]"));
            } else if !runs_elsewhere(reason) && !ran_in(guests, binary, &test.name) {
                findings.push(Finding::new("tiers", place, format!("ignored here ({reason}) and not run in a guest")));
            }
        }
    }
    findings
}

fn ran_in(guests: &[Binary], binary: &Binary, name: &str) -> bool {
    let same = guests.iter().filter(|other| other.executable == binary.executable);
    same.flat_map(|other| &other.tests).any(|test| test.name == name && test.outcome == Outcome::Ran)
}

fn runs_elsewhere(reason: &str) -> bool {
    ELSEWHERE.iter().any(|words| reason.contains(words))
}

fn works_on_a_kernel(binary: &Binary) -> bool {
    binary.integration && KERNEL_FOLDERS.iter().any(|folder| Path::new(&binary.source).starts_with(folder))
}

#[cfg(test)]
mod tests;
