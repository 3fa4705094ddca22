//! The subcommands: asked of the agent or, where none runs, found out without it. In columns for people or as JSON.

mod attached;
mod table;
mod why;

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::Context;
use imds::{Imds, Policy};
use ipam::BootId;
use patience::Backoff;
use resident::args::{ConfigArgs, Format};
use resident::config::{Layers, explain};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::{Duration, SystemTime};

use crate::cli::exit::Exit;
use crate::cli::query::{AskError, ask};
use crate::decide::usage::Usage;
use crate::reconcile::Reconciler;
use crate::report::attachments::{self, Attachment};
use crate::report::metrics::Metrics;
use crate::report::reconcile_report::{Cause, Pass};
use crate::report::status::{AgentState, Status};
use crate::settings::Settings;
use crate::sources::machine_copy;
use crate::sources::node_facts::NodeFacts;
use crate::sources::poller;
use crate::sources::poller::ClusterSources;

/// A person waits for it.
const POLICY: Policy = Policy {
    timeout: Duration::from_secs(2),
    attempts: 2,
    backoff: Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(1) },
    deadline: Duration::from_secs(4),
};

/// What is said, and how it ends.
pub type Told = (String, Exit);

/// An answer, and whether an agent gave it.
pub(crate) struct Answered<T> {
    pub(crate) running: bool,
    pub(crate) value: T,
}

/// `status`.
///
/// # Errors
/// When neither the agent nor the node says anything.
pub fn status(settings: &Arc<Settings>, format: Format) -> anyhow::Result<Told> {
    let answered = status_of(settings)?;
    let exit = if answered.value.ready { Exit::Fine } else { Exit::Not };
    print(&answered, format, exit, table::status)
}

/// `why-not-ready`.
///
/// # Errors
/// When neither the agent nor the node says anything.
pub fn why_not_ready(settings: &Arc<Settings>, format: Format) -> anyhow::Result<Told> {
    let Answered { running, value } = status_of(settings)?;
    let value = why::Why::of(&value, SystemTime::now());
    let exit = if value.ready { Exit::Fine } else { Exit::Not };
    print(&Answered { running, value }, format, exit, why::text)
}

/// `pools`.
///
/// # Errors
/// When there are none of this boot, or they cannot be read.
pub fn pools(settings: &Arc<Settings>, format: Format) -> anyhow::Result<Told> {
    print(&pools_of(settings)?, format, Exit::Fine, table::pools)
}

/// `attachments`.
///
/// # Errors
/// When they cannot be read.
pub fn attachments(settings: &Arc<Settings>, format: Format) -> anyhow::Result<Told> {
    print(&attachments_of(settings)?, format, Exit::Fine, |all: &Vec<Attachment>| attached::text(all))
}

/// `plan`.
///
/// # Errors
/// When neither the agent nor the node says anything.
pub fn plan(settings: &Arc<Settings>, format: Format) -> anyhow::Result<Told> {
    print(&plan_of(settings)?, format, Exit::Fine, table::plan)
}

/// `config`.
///
/// # Errors
/// When it cannot be written down.
pub fn configuration(layers: &Layers, asked: &ConfigArgs) -> anyhow::Result<Told> {
    let (text, right) = explain::tell::<Settings>(&crate::args::keys(), layers, asked)?;
    Ok((text, if right { Exit::Fine } else { Exit::Usage }))
}

pub(crate) fn status_of(settings: &Arc<Settings>) -> anyhow::Result<Answered<Status>> {
    answer(settings, "/status", || {
        let (world, pass) = preview(settings)?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Status::of(AgentState { running: false, version, uptime_seconds: None }, &world, Some(&pass)))
    })
}

pub(crate) fn pools_of(settings: &Settings) -> anyhow::Result<Answered<Usage>> {
    answer(settings, "/pools", || {
        let boot = BootId::current().context("reading the boot id")?;
        Usage::read(&settings.state_dir, &boot).context("reading the pools")
    })
}

pub(crate) fn attachments_of(settings: &Settings) -> anyhow::Result<Answered<Vec<Attachment>>> {
    answer(settings, "/attachments", || {
        let boot = BootId::current().context("reading the boot id")?;
        attachments::read(&settings.state_dir, &settings.sysctl_root, &boot).map_err(anyhow::Error::msg)
    })
}

pub(crate) fn plan_of(settings: &Arc<Settings>) -> anyhow::Result<Answered<Pass>> {
    answer(settings, "/plan", || Ok(preview(settings)?.1))
}

fn answer<T: DeserializeOwned>(
    settings: &Settings,
    question: &str,
    alone: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<Answered<T>> {
    match ask(&settings.socket(), question) {
        Ok(body) => {
            let value =
                serde_json::from_str(&body).with_context(|| format!("reading the agent's answer to {question}"))?;
            Ok(Answered { running: true, value })
        }
        Err(AskError::NotRunning { .. }) => Ok(Answered { running: false, value: alone()? }),
        Err(error) => Err(error.into()),
    }
}

fn print<T: Serialize>(
    answered: &Answered<T>,
    format: Format,
    exit: Exit,
    table: impl FnOnce(&T) -> String,
) -> anyhow::Result<Told> {
    let exit = if answered.running { exit } else { Exit::NotRunning };
    if format == Format::Json {
        return Ok((in_json(&answered.value)?, exit));
    }
    let mut text = String::new();
    if !answered.running {
        writeln!(text, "The agent is not running; this was found out without it.\n")?;
    }
    text.push_str(&table(&answered.value));
    Ok((text, exit))
}

fn in_json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// What an agent that started now would do. Changes nothing.
pub(crate) fn preview(settings: &Arc<Settings>) -> anyhow::Result<(NodeFacts, Pass)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let metadata = Imds::new(&settings.imds_base_url, POLICY).context("setting up the metadata client")?;
    let mut world = machine_copy::recalled(settings);
    let cluster = ClusterSources::at_hand(settings);
    runtime.block_on(poller::ask(&mut world, &metadata, &cluster, settings, &Metrics::default()));
    let mut reconciler = Reconciler::new(settings.clone()).context("reading the boot id")?;
    let pass = reconciler.reconcile(&world, Cause::Preview);
    Ok((world, pass))
}
