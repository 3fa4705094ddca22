//! The answers without a running agent, from the same sources and by the same code. Changes nothing.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use backoff::{Backoff, Policy};
use imds::Imds;
use ipam::BootId;

use crate::decide::usage::Usage;
use crate::reconcile::Reconciler;
use crate::report::attachments::{self, Attachment};
use crate::report::metrics::Metrics;
use crate::report::reconcile_report::{Cause, ReconcileReport};
use crate::report::status::{AgentState, Status};
use crate::settings::Settings;
use crate::sources::machine_copy;
use crate::sources::node_facts::NodeFacts;
use crate::sources::poller;
use crate::sources::poller::ClusterSources;

/// For requests to the metadata service; a person waits for the answer.
const POLICY: Policy = Policy {
    timeout: Duration::from_secs(2),
    attempts: 2,
    backoff: Backoff { first: Duration::from_millis(200), cap: Duration::from_secs(1) },
    deadline: Duration::from_secs(4),
};

pub(super) fn status(settings: &Arc<Settings>) -> anyhow::Result<Status> {
    let (facts, report) = preview(settings)?;
    Ok(Status::of(AgentState::stopped(), &facts, Some(&report)))
}

pub(super) fn pools(settings: &Settings) -> anyhow::Result<Usage> {
    Usage::read(&settings.state_dir, &boot()?).context("reading the pools")
}

pub(super) fn attachments(settings: &Settings) -> anyhow::Result<Vec<Attachment>> {
    let read = attachments::read(&settings.state_dir, &settings.sysctl_root, &boot()?);
    read.map_err(|error| anyhow!(error)).context("reading the attachments")
}

/// What an agent that starts now would do.
pub(super) fn preview(settings: &Arc<Settings>) -> anyhow::Result<(NodeFacts, ReconcileReport)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let metadata = Imds::new(&settings.metadata_url, POLICY).context("setting up the metadata client")?;
    let mut facts = machine_copy::recalled(settings);
    let cluster = ClusterSources::at_hand(settings);
    runtime.block_on(poller::ask(&mut facts, &metadata, &cluster, settings, &Metrics::default()));
    let mut reconciler = Reconciler::new(settings.clone()).context("reading the boot id")?;
    let report = reconciler.reconcile(&facts, Cause::Preview);
    Ok((facts, report))
}

fn boot() -> anyhow::Result<BootId> {
    BootId::current().context("reading the boot id")
}
