//! `bundle`: the state of this node's network in a tar, for support. An entry that cannot be read is listed, and the others
//! follow, so that the kernel's state and the files are there without an agent.
//!
//! A bundle has no secrets, because it has only the agent's answers, the kernel's network state and our state files by name. Of
//! CNI configurations it has the names, plugin types and keys, never a value. Texts of other programs in these are redacted.
//!
//! ```text
//!   agent: its answers ─────────────┐
//!   kernel: links … nft, sysctls ───┼─▶ entry ─▶ tar (streamed: the container has little memory)
//!   files: state, CNI, versions ────┘     └────▶ README.txt: its entries, and missing ones
//! ```

mod archive;
mod files;
mod kernel;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use ipam::AtomicFile;
use resident::config::Layers;
use resident::explain;

use crate::cli::exit::Exit;
use crate::cli::query::{QueryError, query};
use crate::redaction::Redactions;
use crate::settings::Settings;
use archive::Archive;

/// The requests to an agent, and the entries with its answers.
const ANSWERS: [(&str, &str); 7] = [
    ("/status", "agent/status.json"),
    ("/pools", "agent/pools.json"),
    ("/attachments", "agent/attachments.json"),
    ("/plan", "agent/plan.json"),
    ("/health-signals", "agent/health.json"),
    ("/verbs", "agent/verbs.json"),
    ("/metrics", "agent/metrics.txt"),
];

/// Writes a bundle to a file, or to standard output.
pub(crate) fn write(settings: &Settings, layers: &Layers, output: Option<&Path>) -> anyhow::Result<Exit> {
    if let Some(path) = output {
        let file = AtomicFile::create(path, 0o600).with_context(|| format!("writing {}", path.display()))?;
        let written = write_to(file, settings, layers);
        written.and_then(|(file, _)| file.commit()).with_context(|| format!("writing {}", path.display()))?;
        return Ok(Exit::Fine);
    }
    let out = io::stdout().lock();
    if out.is_terminal() {
        eprintln!(
            "oke-node-agent: a bundle cannot be written to a terminal; name a file with --file, or redirect the output"
        );
        return Ok(Exit::Usage);
    }
    write_to(out, settings, layers).map(drop).context("writing to standard output")?;
    Ok(Exit::Fine)
}

/// Writes a bundle, and returns where it went and what was redacted.
pub(crate) fn write_to<W: io::Write>(to: W, settings: &Settings, layers: &Layers) -> io::Result<(W, Redactions)> {
    let mut archive = Archive::new(to)?;
    collect(settings, layers, &mut archive)?;
    archive.finish()
}

fn collect<W: io::Write>(settings: &Settings, layers: &Layers, archive: &mut Archive<W>) -> io::Result<()> {
    let origin = agent(settings, archive)?;
    let keys = crate::args::keys();
    let read = layers.read(&keys);
    let problems: Vec<String> = read.problems.iter().map(ToString::to_string).collect();
    let set = explain::set(&keys, &read.values);
    archive.json("agent/config.json", Ok(serde_json::json!({ "set": set, "problems": problems })))?;
    kernel::collect(&settings.sysctl_root, archive)?;
    files::collect(settings, archive)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let version = env!("CARGO_PKG_VERSION");
    archive.readme(&format!(
        "The state of this node's network. Written at {now} (seconds since 1970) by oke-node-agent {version}.\n{origin}\n"
    ))
}

/// The agent's answers; returns a sentence that says whether there are any.
fn agent<W: io::Write>(settings: &Settings, archive: &mut Archive<W>) -> io::Result<&'static str> {
    for (path, name) in ANSWERS {
        match query(&settings.socket(), path) {
            Ok(body) => archive.text(name, &body)?,
            Err(error @ QueryError::NotRunning(_)) => {
                archive.missing(&format!("{name} and later answers of the agent"), &error.to_string());
                return Ok("The agent was not running: agent/ lacks answers.");
            }
            // It hangs, and would delay every request.
            Err(error @ QueryError::NoAnswer(_)) => {
                archive.missing(&format!("{name} and later answers of the agent"), &error.to_string());
                return Ok("The agent was running and DID NOT ANSWER: agent/ lacks answers.");
            }
            Err(error) => archive.missing(name, &error.to_string()),
        }
    }
    Ok("The agent was running: agent/ has its answers.")
}
