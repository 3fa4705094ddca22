//! What cargo and Rust's test harness print, as data. Programs that a test starts may print in between, so a line is
//! taken for what it is only where that is unmistakable.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

/// Test programs by file name, with the source they were built from (relative to where cargo ran).
pub(super) type Artifacts = BTreeMap<String, Source>;

/// Where a test program comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) path: String,
    pub(super) integration: bool,
}

/// One run of one test program (or of one crate's documentation tests).
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Binary {
    /// File name of the program; empty for documentation tests.
    pub(super) executable: String,
    /// Its root file, such as `crates/netlink/tests/vlan.rs`.
    pub(super) source: String,
    /// Whether it is a file of `tests/`, and not unit tests.
    pub(super) integration: bool,
    pub(super) tests: Vec<Test>,
    pub(super) passed: u64,
    pub(super) seconds: f64,
}

/// One test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) outcome: Outcome,
}

/// Whether a test was run. Whether it passed is cargo's to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Ran,
    /// Not run, with the reason it gave, or an empty one.
    Ignored(String),
}

#[derive(Deserialize)]
struct Message {
    executable: Option<String>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    src_path: String,
}

/// Reads what `cargo test --no-run --message-format=json` printed.
///
/// # Errors
/// When a line is not JSON.
pub(super) fn artifacts(messages: &str) -> anyhow::Result<Artifacts> {
    let here = std::env::current_dir().context("find the current folder")?;
    let mut artifacts = Artifacts::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line).context("read a message of cargo test --no-run")?;
        let (Some(executable), Some(target)) = (message.executable, message.target) else { continue };
        let path = Path::new(&target.src_path);
        let path = path.strip_prefix(&here).unwrap_or(path).display().to_string();
        let integration = target.kind.iter().any(|kind| kind == "test");
        artifacts.insert(file_name(&executable), Source { path, integration });
    }
    Ok(artifacts)
}

/// Reads what `cargo test` printed, standard error included.
pub(super) fn binaries(artifacts: &Artifacts, log: &str) -> Vec<Binary> {
    let mut binaries: Vec<Binary> = Vec::new();
    for line in log.lines().map(|line| line.trim_end_matches('\r')) {
        if let Some(binary) = started(artifacts, line) {
            binaries.push(binary);
        } else if let Some(binary) = binaries.last_mut() {
            binary.tests.extend(test(line));
            if let Some(counts) = line.split("test result: ").nth(1) {
                binary.passed += count_of(counts, " passed");
                binary.seconds += seconds(counts);
            }
        }
    }
    binaries
}

/// `     Running tests/vlan.rs (target/debug/deps/vlan-0123)` and `   Doc-tests vcn`.
fn started(artifacts: &Artifacts, line: &str) -> Option<Binary> {
    let line = line.trim_start();
    if let Some(package) = line.strip_prefix("Doc-tests ") {
        return Some(Binary { source: format!("documentation of {package}"), ..Binary::default() });
    }
    let (shown, program) = line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once(" (")?;
    let executable = file_name(program);
    let unknown = Source { path: shown.to_owned(), integration: !shown.starts_with("unittests ") };
    let Source { path, integration } = artifacts.get(&executable).cloned().unwrap_or(unknown);
    Some(Binary { executable, source: path, integration, ..Binary::default() })
}

/// `test NAME ... ok`, `... FAILED`, `... ignored, REASON`; `test NAME ... ` alone when the test's children printed next.
fn test(line: &str) -> Option<Test> {
    let (_, rest) = line.split_once("test ")?;
    let (name, outcome) = rest.split_once(" ... ")?;
    if name.contains(char::is_whitespace) && !name.contains(" - ") {
        return None; // prose; documentation tests are `src/lib.rs - item (line 3)`
    }
    let outcome = match outcome.strip_prefix("ignored") {
        Some(reason) => Outcome::Ignored(reason.trim_start_matches(", ").to_owned()),
        None => Outcome::Ran,
    };
    Some(Test { name: name.to_owned(), outcome })
}

/// The 7 of `ok. 7 passed; 0 failed; …`.
fn count_of(counts: &str, label: &str) -> u64 {
    let Some((before, _)) = counts.split_once(label) else { return 0 };
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The 0.12 of `…; finished in 0.12s`.
fn seconds(counts: &str) -> f64 {
    let Some((_, after)) = counts.split_once("finished in ") else { return 0.0 };
    after.trim().trim_end_matches('s').parse().unwrap_or(0.0)
}

fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}
