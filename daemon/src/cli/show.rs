//! The subcommands that print what the agent answers.

mod health;
mod other_network;
mod table;
mod why;

use std::time::SystemTime;

use anyhow::Context;
use resident::args::{ConfigArgs, Format};
use resident::config::Layers;
use resident::explain;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::exit::Exit;
use crate::cli::query::query;
use crate::report::attachments::Attachment;
use crate::report::status::Status;
use crate::settings::Settings;
use command::page::Page;

/// What is printed, and the exit status.
pub(crate) type Printout = (String, Exit);

/// Prints `status`; the exit status is `Not` unless the agent is ready.
pub(crate) fn status(settings: &Settings, format: Format) -> anyhow::Result<Printout> {
    let status: Status = answer(settings, "/status")?;
    let exit = if status.readiness.ready { Exit::Fine } else { Exit::Not };
    print(&status, format, exit, table::status)
}

/// Prints `why-not-ready`: the cause and the next step, from the agent's status and its health signals.
pub(crate) fn why_not_ready(settings: &Settings, format: Format) -> anyhow::Result<Printout> {
    let status: Status = answer(settings, "/status")?;
    let other = other_network::OtherNetwork::of(&status, settings);
    let mut diagnosis = why::Diagnosis::of(&status, other, SystemTime::now());
    // Without them the diagnosis is the same.
    if let Ok(signals) = answer(settings, "/health-signals") {
        diagnosis = diagnosis.with_signals(&signals);
    }
    let exit = if diagnosis.ready == Some(false) { Exit::Not } else { Exit::Fine };
    print(&diagnosis, format, exit, why::text)
}

/// Prints `pools` as the agent answers it.
pub(crate) fn pools(settings: &Settings, format: Format) -> anyhow::Result<Printout> {
    print(&answer(settings, "/pools")?, format, Exit::Fine, table::pools)
}

/// Prints `attachments` as the agent answers it.
pub(crate) fn attachments(settings: &Settings, format: Format) -> anyhow::Result<Printout> {
    let all: Vec<Attachment> = answer(settings, "/attachments")?;
    print(&all, format, Exit::Fine, |page, all| table::attachments(page, all))
}

/// Prints `plan`: the changes that the agent would make now.
pub(crate) fn plan(settings: &Settings, format: Format) -> anyhow::Result<Printout> {
    print(&answer(settings, "/plan")?, format, Exit::Fine, table::plan)
}

/// Prints `health`; the exit status is `Not` if a signal has a problem.
pub(crate) fn health(settings: &Settings, format: Format) -> anyhow::Result<Printout> {
    let report: ::health::Report = answer(settings, "/health-signals")?;
    let has_problem = report.signals.iter().any(|state| state.verdict == ::health::Verdict::Problem);
    let exit = if has_problem { Exit::Not } else { Exit::Fine };
    print(&report, format, exit, |page, report| health::text(page, report, SystemTime::now()))
}

/// Prints `config` without the agent; the exit status is `Usage` if a setting is not valid.
pub(crate) fn configuration(layers: &Layers, args: &ConfigArgs) -> anyhow::Result<Printout> {
    let (text, is_valid) = explain::render::<Settings>(&crate::args::keys(), layers, args)?;
    Ok((text, if is_valid { Exit::Fine } else { Exit::Usage }))
}

fn answer<T: DeserializeOwned>(settings: &Settings, path: &str) -> anyhow::Result<T> {
    let body = query(&settings.socket(), path)?;
    serde_json::from_str(&body).with_context(|| format!("reading the agent's answer to {path}"))
}

fn print<T: Serialize>(
    answer: &T,
    format: Format,
    exit: Exit,
    table: impl FnOnce(&mut Page, &T),
) -> anyhow::Result<Printout> {
    if format == Format::Json {
        return Ok((serde_json::to_string_pretty(answer)? + "\n", exit));
    }
    let mut page = Page::default();
    table(&mut page, answer);
    Ok((page.into_text(), exit))
}
