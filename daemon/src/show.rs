//! The subcommands: asked of the agent or, where none runs, found out without it. In columns for people or as JSON.

mod table;

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::Context;
use imds::{Backoff, Imds, Policy};
use ipam::BootId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

use crate::args::Format;
use crate::ask::{AskError, ask};
use crate::gather;
use crate::metrics::Metrics;
use crate::npn::NpnFile;
use crate::pass::{Cause, Pass};
use crate::reconcile::Reconciler;
use crate::settings::Settings;
use crate::status::{AgentState, Status};
use crate::usage::Usage;
use crate::world::World;

/// A person waits for it.
const POLICY: Policy = Policy {
    timeout: Duration::from_secs(2),
    attempts: 2,
    backoff: Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(1) },
    deadline: Duration::from_secs(4),
};

/// An answer, and whether an agent gave it.
struct Told<T> {
    running: bool,
    value: T,
}

/// `status`.
///
/// # Errors
/// When neither the agent nor the node says anything.
pub fn status(settings: &Arc<Settings>, format: Format) -> anyhow::Result<String> {
    let told = tell(settings, "/status", || {
        let (world, pass) = preview(settings)?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Status::of(AgentState { running: false, version, uptime_seconds: None }, &world, Some(&pass)))
    })?;
    print(&told, format, table::status)
}

/// `pools`.
///
/// # Errors
/// When there are none of this boot, or they cannot be read.
pub fn pools(settings: &Arc<Settings>, format: Format) -> anyhow::Result<String> {
    let told = tell(settings, "/pools", || {
        let boot = BootId::current().context("reading the boot id")?;
        Reconciler::usage(&settings.state_dir, &boot).context("reading the pools")
    })?;
    print::<Usage>(&told, format, table::pools)
}

/// `plan`.
///
/// # Errors
/// When neither the agent nor the node says anything.
pub fn plan(settings: &Arc<Settings>, format: Format) -> anyhow::Result<String> {
    let told = tell(settings, "/plan", || Ok(preview(settings)?.1))?;
    print::<Pass>(&told, format, table::plan)
}

fn tell<T: DeserializeOwned>(
    settings: &Settings,
    question: &str,
    alone: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<Told<T>> {
    match ask(&settings.socket(), question) {
        Ok(body) => {
            let value =
                serde_json::from_str(&body).with_context(|| format!("reading the agent's answer to {question}"))?;
            Ok(Told { running: true, value })
        }
        Err(AskError::NotRunning { .. }) => Ok(Told { running: false, value: alone()? }),
        Err(error) => Err(error.into()),
    }
}

fn print<T: Serialize>(told: &Told<T>, format: Format, table: fn(&T) -> String) -> anyhow::Result<String> {
    if format == Format::Json {
        return Ok(serde_json::to_string_pretty(&told.value)? + "\n");
    }
    let mut text = String::new();
    if !told.running {
        writeln!(text, "The agent is not running; this was found out without it.\n")?;
    }
    text.push_str(&table(&told.value));
    Ok(text)
}

/// What an agent that started now would do. Changes nothing.
fn preview(settings: &Arc<Settings>) -> anyhow::Result<(World, Pass)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let metadata = Imds::new(&settings.imds_base_url, POLICY).context("setting up the metadata client")?;
    let mut world = World::default();
    let npns = NpnFile::new(&settings.npn_file);
    runtime.block_on(gather::ask(&mut world, &metadata, &npns, settings, &Metrics::default()));
    let mut reconciler = Reconciler::new(settings.clone()).context("reading the boot id")?;
    let pass = reconciler.pass(&world, Cause::Preview);
    Ok((world, pass))
}
