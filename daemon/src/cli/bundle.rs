//! `bundle`: the state of this node's network in a tar, for support. The running agent answers most of it; without one the
//! command collects the same itself. What cannot be read is listed and stops nothing else.
//!
//! No secret leaves the node, because only these are collected: the agent's own answers, the kernel's network state, our own
//! state files by name, and of CNI configurations their names, plugin types and keys, never a value.
//!
//! ```text
//!   agent (or the same, collected) ─┐
//!   kernel: links … nft, sysctls ───┼─▶ entry ─▶ tar (streamed: the agent's container has little memory)
//!   files: state, CNI, versions ────┘     └────▶ README.txt: what is in it, what is missing
//! ```

mod archive;
mod files;
mod kernel;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use ipam::{AtomicFile, BootId};
use resident::config::{Layers, explain};
use serde::Serialize;

use crate::cli::exit::Exit;
use crate::cli::query::{AskError, ask};
use crate::cli::show::preview;
use crate::cni_records::Recent;
use crate::decide::usage::Usage;
use crate::report::attachments;
use crate::report::status::{AgentState, Status};
use crate::settings::Settings;
use archive::Archive;

/// What an agent is asked, and what its answer is called.
const QUESTIONS: [(&str, &str); 6] = [
    ("/status", "agent/status.json"),
    ("/pools", "agent/pools.json"),
    ("/attachments", "agent/attachments.json"),
    ("/plan", "agent/plan.json"),
    ("/verbs", "agent/verbs.json"),
    ("/metrics", "agent/metrics.txt"),
];

/// Writes it to a file, or to standard output.
///
/// # Errors
/// When it cannot be written.
pub fn write(settings: &Arc<Settings>, layers: &Layers, output: Option<&Path>) -> anyhow::Result<Exit> {
    if let Some(path) = output {
        let file = AtomicFile::create(path, 0o600).with_context(|| format!("writing {}", path.display()))?;
        let mut archive = Archive::new(file);
        collect(settings, layers, &mut archive).with_context(|| format!("writing {}", path.display()))?;
        archive.finish().and_then(AtomicFile::commit).with_context(|| format!("writing {}", path.display()))?;
        return Ok(Exit::Fine);
    }
    let out = io::stdout().lock();
    if out.is_terminal() {
        eprintln!("oke-node-agent: a tar is nothing for a terminal; name a file with -o, or send the output to one");
        return Ok(Exit::Usage);
    }
    let mut archive = Archive::new(out);
    collect(settings, layers, &mut archive).context("writing to standard output")?;
    archive.finish().map(drop).context("writing to standard output")?;
    Ok(Exit::Fine)
}

fn collect<W: io::Write>(settings: &Arc<Settings>, layers: &Layers, archive: &mut Archive<W>) -> io::Result<()> {
    let agent = told_by_agent(settings, archive)?;
    let keys = crate::args::keys();
    let read = layers.read(&keys);
    let problems: Vec<String> = read.problems.iter().map(ToString::to_string).collect();
    let set = explain::set(&keys, &read.values);
    archive.json("agent/config.json", &serde_json::json!({ "set": set, "problems": problems }))?;
    kernel::collect(&settings.sysctl_root, archive)?;
    files::collect(settings, archive)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let version = env!("CARGO_PKG_VERSION");
    archive.readme(&format!(
        "What the node agent knows of this node's network. Written at {now} (seconds since 1970) by oke-node-agent {version}.\n\
         {agent}\n"
    ))
}

/// What the agent says of the node; in words, whether it was the agent who said it.
fn told_by_agent<W: io::Write>(settings: &Arc<Settings>, archive: &mut Archive<W>) -> io::Result<&'static str> {
    for (question, name) in QUESTIONS {
        match ask(&settings.socket(), question) {
            Ok(body) => archive.text(name, &body)?,
            Err(AskError::NotRunning { .. }) => {
                told_without(settings, archive)?;
                return Ok("The agent was not running: what is in agent/ was found out without it.");
            }
            // It hangs, and would let each question wait.
            Err(error @ AskError::Silent { .. }) => {
                archive.missing(name, &resident::logging::chain(&error));
                told_without(settings, archive)?;
                return Ok("The agent was running and DID NOT ANSWER: what is in agent/ was found out without it.");
            }
            Err(error) => archive.missing(name, &resident::logging::chain(&error)),
        }
    }
    Ok("The agent was running: what is in agent/ is what it said.")
}

fn told_without<W: io::Write>(settings: &Arc<Settings>, archive: &mut Archive<W>) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    match preview(settings) {
        Ok((world, pass)) => {
            let agent = AgentState { running: false, version, uptime_seconds: None };
            archive.json("agent/status.json", &Status::of(agent, &world, Some(&pass)))?;
            archive.json("agent/plan.json", &pass)?;
        }
        Err(error) => archive.missing("agent/plan.json", &format!("{error:#}")),
    }
    let boot = match BootId::current() {
        Ok(boot) => boot,
        Err(error) => {
            archive.missing("agent/pools.json", &resident::logging::chain(&error));
            return Ok(());
        }
    };
    let usage = Usage::read(&settings.state_dir, &boot).map_err(|error| resident::logging::chain(&error));
    either(archive, "agent/pools.json", usage)?;
    let all = attachments::read(&settings.state_dir, &settings.sysctl_root, &boot);
    either(archive, "agent/attachments.json", all)?;
    // As many as an agent tells of: all of them may be too long for a document, and the log itself is there, too.
    let runs = telemetry::read_log(&settings.state_dir).map_err(|error| error.to_string()).map(|all| {
        let recent = Recent::default();
        all.iter().for_each(|run| recent.note(run));
        recent.runs()
    });
    either(archive, "agent/verbs.json", runs)
}

fn either<W: io::Write>(archive: &mut Archive<W>, name: &str, value: Result<impl Serialize, String>) -> io::Result<()> {
    match value {
        Ok(value) => archive.json(name, &value),
        Err(why) => {
            archive.missing(name, &why);
            Ok(())
        }
    }
}
