//! The subcommands that print: they ask the agent or, if none runs, collect the answer themselves.

mod health;
mod table;
mod why;

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use resident::args::{ConfigArgs, Format};
use resident::config::{Layers, explain};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cli::exit::Exit;
use crate::cli::offline;
use crate::cli::query::{QueryError, query};
use crate::settings::Settings;
use resident::page::Page;

/// What is printed, and the exit status.
pub(crate) type Printout = (String, Exit);

struct Answer<T> {
    from_agent: bool,
    value: T,
}

/// `status`.
pub(crate) fn status(settings: &Arc<Settings>, format: Format) -> anyhow::Result<Printout> {
    let answer = answer(settings, "/status", || offline::status(settings))?;
    let exit = if answer.value.readiness.ready { Exit::Fine } else { Exit::Not };
    print(&answer, format, exit, table::status)
}

/// `why-not-ready`.
pub(crate) fn why_not_ready(settings: &Arc<Settings>, format: Format) -> anyhow::Result<Printout> {
    let Answer { from_agent, value } = answer(settings, "/status", || offline::status(settings))?;
    let value = why::Diagnosis::of(&value, SystemTime::now());
    let exit = if value.ready { Exit::Fine } else { Exit::Not };
    print(&Answer { from_agent, value }, format, exit, why::text)
}

/// `pools`.
pub(crate) fn pools(settings: &Arc<Settings>, format: Format) -> anyhow::Result<Printout> {
    print(&answer(settings, "/pools", || offline::pools(settings))?, format, Exit::Fine, table::pools)
}

/// `attachments`.
pub(crate) fn attachments(settings: &Arc<Settings>, format: Format) -> anyhow::Result<Printout> {
    let answer = answer(settings, "/attachments", || offline::attachments(settings))?;
    print(&answer, format, Exit::Fine, |page, all| table::attachments(page, all))
}

/// `plan`.
pub(crate) fn plan(settings: &Arc<Settings>, format: Format) -> anyhow::Result<Printout> {
    let answer = answer(settings, "/plan", || Ok(offline::preview(settings)?.1))?;
    print(&answer, format, Exit::Fine, table::plan)
}

/// `health`.
pub(crate) fn health(settings: &Settings, format: Format) -> anyhow::Result<Printout> {
    // Signals are measured over time, so that there are none without an agent.
    let answer = answer(settings, "/health-signals", || Ok(::health::Report::default()))?;
    let has_problem = answer.value.signals.iter().any(|state| state.verdict == ::health::Verdict::Problem);
    let exit = if has_problem { Exit::Not } else { Exit::Fine };
    print(&answer, format, exit, |page, report| health::text(page, report, SystemTime::now()))
}

/// `config`.
pub(crate) fn configuration(layers: &Layers, asked: &ConfigArgs) -> anyhow::Result<Printout> {
    let (text, is_valid) = explain::tell::<Settings>(&crate::args::keys(), layers, asked)?;
    Ok((text, if is_valid { Exit::Fine } else { Exit::Usage }))
}

fn answer<T: DeserializeOwned>(
    settings: &Settings,
    path: &str,
    offline: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<Answer<T>> {
    match query(&settings.socket(), path) {
        Ok(body) => {
            let value = serde_json::from_str(&body).with_context(|| format!("reading the agent's answer to {path}"))?;
            Ok(Answer { from_agent: true, value })
        }
        Err(QueryError::NotRunning { .. }) => Ok(Answer { from_agent: false, value: offline()? }),
        Err(error) => Err(error.into()),
    }
}

fn print<T: Serialize>(
    answer: &Answer<T>,
    format: Format,
    exit: Exit,
    table: impl FnOnce(&mut Page, &T),
) -> anyhow::Result<Printout> {
    let exit = if answer.from_agent { exit } else { Exit::NotRunning };
    if format == Format::Json {
        return Ok((serde_json::to_string_pretty(&answer.value)? + "\n", exit));
    }
    let mut page = Page::default();
    if !answer.from_agent {
        page.line("The agent is not running; this command collected the following itself.");
        page.line("");
    }
    table(&mut page, &answer.value);
    Ok((page.into_text(), exit))
}
