//! What the agent's tasks share, and the parts of them that are made of it.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use ipam::BootId;
use tokio::sync::{Notify, mpsc, watch};

use crate::cni_records::follow_up::{FollowUps, Worker};
use crate::cni_records::{Intake, RecentRuns};
use crate::report::metrics::Metrics;
use crate::report::node_events::Recorder;
use crate::report::notices::Notes;
use crate::report::reconcile_report::CompletedReconcile;
use crate::report::signals;
use crate::report::status_server::StatusServer;
use crate::report::vnic_reports::VnicReporter;
use crate::settings::Settings;
use crate::sources::backoff::chance;
use crate::sources::node_facts::NodeFacts;
use crate::triggers::reconcile_loop::{Channels, Outputs, PreviewRequest};

/// What several tasks use.
pub(super) struct Shared {
    pub(super) settings: Arc<Settings>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) follow_ups: Arc<FollowUps>,
    /// Notified when the kernel reports a link.
    pub(super) links_changed: Arc<Notify>,
    /// Notified when an object of the API server has changed.
    pub(super) npn_changed: Arc<Notify>,
    plugin_ran: Arc<Notify>,
    recent: Arc<RecentRuns>,
    boot: BootId,
    facts: watch::Receiver<NodeFacts>,
    reports: watch::Receiver<Option<CompletedReconcile>>,
}

impl Shared {
    pub(super) fn new(
        settings: Arc<Settings>,
        facts: watch::Receiver<NodeFacts>,
        reports: watch::Receiver<Option<CompletedReconcile>>,
    ) -> anyhow::Result<Self> {
        let [links_changed, npn_changed, plugin_ran] = std::array::from_fn(|_| Arc::new(Notify::new()));
        let boot = BootId::current().context("reading the boot id")?;
        let (metrics, follow_ups, recent) = Default::default();
        Ok(Self { settings, metrics, follow_ups, links_changed, npn_changed, plugin_ran, recent, boot, facts, reports })
    }

    /// Starts the thread of health signals.
    pub(super) fn signals(
        &self,
        allocatable_memory: watch::Receiver<Option<u64>>,
    ) -> anyhow::Result<watch::Receiver<health::Report>> {
        let sources = signals::Sources {
            settings: self.settings.clone(),
            boot: self.boot.clone(),
            metrics: self.metrics.clone(),
            facts: self.facts.clone(),
            allocatable_memory,
            reports: self.reports.clone(),
        };
        signals::start(sources).context("starting the thread of health signals")
    }

    /// What the servers answer from.
    pub(super) fn status_server(
        &self,
        signals: watch::Receiver<health::Report>,
        previews: mpsc::Sender<PreviewRequest>,
    ) -> Arc<StatusServer> {
        Arc::new(StatusServer {
            signals,
            state_dir: self.settings.state_dir.clone(),
            boot: self.boot.clone(),
            started: Instant::now(),
            sysctl_root: self.settings.sysctl_root.clone(),
            resync: self.settings.resync,
            recent: self.recent.clone(),
            metrics: self.metrics.clone(),
            facts: self.facts.clone(),
            reports: self.reports.clone(),
            previews,
        })
    }

    /// What the reconcile loop reads.
    pub(super) fn channels(
        &self,
        notices: watch::Receiver<Notes>,
        previews: mpsc::Receiver<PreviewRequest>,
    ) -> Channels {
        Channels {
            settings: self.settings.clone(),
            notices,
            facts: self.facts.clone(),
            previews,
            plugin_ran: self.plugin_ran.clone(),
            links_changed: self.links_changed.clone(),
            npn_changed: self.npn_changed.clone(),
        }
    }

    /// Where the reconcile loop writes.
    pub(super) fn outputs(&self, reports: watch::Sender<Option<CompletedReconcile>>) -> Outputs {
        Outputs { metrics: self.metrics.clone(), follow_ups: self.follow_ups.clone(), reports }
    }

    /// The reader of the plugins' records.
    pub(super) fn intake(&self) -> Arc<Intake> {
        let (metrics, follow_ups) = (self.metrics.clone(), self.follow_ups.clone());
        let (recent, plugin_ran) = (self.recent.clone(), self.plugin_ran.clone());
        Arc::new(Intake::new(&self.settings.state_dir, metrics, follow_ups, recent, plugin_ran))
    }

    /// The writer of Events about the Node.
    pub(super) fn recorder(&self) -> Recorder {
        Recorder {
            settings: self.settings.clone(),
            reports: self.reports.clone(),
            metrics: self.metrics.clone(),
            in_cluster: resident::api_server::in_cluster(),
            chance,
        }
    }

    /// The writer of `status.node`.
    pub(super) fn vnic_reporter(&self) -> VnicReporter {
        VnicReporter {
            state_dir: self.settings.state_dir.clone(),
            facts: self.facts.clone(),
            reports: self.reports.clone(),
            boot: self.boot.clone(),
            metrics: self.metrics.clone(),
        }
    }

    /// The worker after plugin runs.
    pub(super) fn worker(&self) -> Worker {
        let Settings { state_dir, sysctl_root, .. } = &*self.settings;
        Worker::new(state_dir, sysctl_root, self.boot.clone(), self.metrics.clone())
    }
}
