//! The agent's HTTP endpoints. `/healthz`, `/readyz` and `/metrics` answer every client, the others only root's socket.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipam::BootId;
use resident::logging::chain;
use resident::server::{Answer, Caller, Handler};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};

use crate::cni_records::RecentRuns;
use crate::decide::usage::Usage;
use crate::report::attachments;
use crate::report::metrics::Metrics;
use crate::report::reconcile_report::{CompletedReconcile, ReconcileReport};
use crate::report::signals;
use crate::report::status::{AgentState, Readiness, Status};
use crate::sources::node_facts::NodeFacts;
use crate::triggers::reconcile_loop::PreviewRequest;

/// Time without a completed reconcile after which /healthz asks for a restart. Reconciles take seconds and run at least every
/// resync interval; a loop this late hangs in the kernel or in a file system.
const STUCK: Duration = Duration::from_secs(300);

/// Time limit of a preview, including the reconcile in progress before it.
const PREVIEW: Duration = Duration::from_secs(20);

/// What the answers are made from.
#[derive(Clone, Debug)]
pub struct StatusServer {
    /// The directory of pools and allocations.
    pub state_dir: PathBuf,
    /// Their boot.
    pub boot: BootId,
    /// When the agent started.
    pub started: Instant,
    /// Where kernel settings are mounted.
    pub sysctl_root: PathBuf,
    /// The resync interval.
    pub resync: Duration,
    /// The last plugin runs.
    pub recent: Arc<RecentRuns>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The node's facts.
    pub facts: watch::Receiver<NodeFacts>,
    /// The last reconcile.
    pub reports: watch::Receiver<Option<CompletedReconcile>>,
    /// The results of health signals.
    pub signals: watch::Receiver<health::Report>,
    /// The loop that makes previews.
    pub previews: mpsc::Sender<PreviewRequest>,
}

impl Handler for StatusServer {
    async fn answer(&self, path: &str, caller: Caller) -> Answer {
        match (path, caller) {
            ("/healthz", _) => self.health(Instant::now()),
            ("/readyz", _) => {
                let readiness = Readiness::of(self.report().as_deref());
                Answer::json(if readiness.ready { 200 } else { 503 }, &readiness)
            }
            ("/metrics", _) => {
                let usage = self.read(Usage::counted).await.ok();
                self.metrics.set_signals(&self.signals());
                Answer::metrics(self.metrics.text(&self.facts.borrow(), self.report().as_deref(), usage.as_ref()))
            }
            ("/status", Caller::Root) => Answer::json(200, &self.current_status()),
            ("/pools", Caller::Root) => json(&self.read(Usage::read).await),
            ("/attachments", Caller::Root) => {
                let sysctl_root = self.sysctl_root.clone();
                json(&self.read(move |state_dir, boot| attachments::read(state_dir, &sysctl_root, boot)).await)
            }
            ("/health-signals", Caller::Root) => Answer::json(200, &self.signals()),
            ("/plan", Caller::Root) => self.plan().await,
            ("/verbs", Caller::Root) => Answer::json(200, &self.recent.runs()),
            _ => Answer::text(404, "not found\n"),
        }
    }
}

impl StatusServer {
    /// The process lives and its loop runs. No outside failure makes it unhealthy: a restart would not repair that.
    fn health(&self, now: Instant) -> Answer {
        let last = self.reports.borrow().as_ref().map_or(self.started, |completed| completed.at);
        match stuck(last, now, self.resync) {
            Some(waited) => Answer::text(500, &format!("no reconcile has finished for {} s\n", waited.as_secs())),
            None => Answer::text(200, "ok\n"),
        }
    }

    /// The results of health signals.
    pub(crate) fn signals(&self) -> health::Report {
        let report = self.signals.borrow().clone();
        report.at(signals::unix_millis())
    }

    /// The node as it is now.
    pub(crate) fn current_status(&self) -> Status {
        let agent = AgentState {
            running: true,
            uptime_seconds: Some(self.started.elapsed().as_secs()),
            ..AgentState::stopped()
        };
        Status::of(agent, &self.facts.borrow(), self.report().as_deref())
    }

    async fn plan(&self) -> Answer {
        let (request, answer) = oneshot::channel();
        let asked = async {
            self.previews.send(request).await.ok()?;
            answer.await.ok()
        };
        match tokio::time::timeout(PREVIEW, asked).await {
            Ok(Some(report)) => Answer::json(200, &report),
            _ => Answer::text(503, "the agent is busy or stopping; retry\n"),
        }
    }

    /// Reads state files, not on the thread that answers health checks.
    async fn read<T: Send + 'static, E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        read: impl FnOnce(&Path, &BootId) -> Result<T, E> + Send + 'static,
    ) -> Result<T, String> {
        let (state_dir, boot) = (self.state_dir.clone(), self.boot.clone());
        let read = tokio::task::spawn_blocking(move || read(&state_dir, &boot).map_err(|error| chain(&*error.into())));
        read.await.map_err(|error| error.to_string())?
    }

    fn report(&self) -> Option<Arc<ReconcileReport>> {
        self.reports.borrow().as_ref().map(|completed| completed.report.clone())
    }
}

fn json(value: &Result<impl Serialize, String>) -> Answer {
    match value {
        Ok(value) => Answer::json(200, value),
        Err(error) => Answer::text(503, &format!("{error}\n")),
    }
}

/// The time since the last completed reconcile, if that is too long. By a clock that cannot be set: setting the wall clock back
/// must not hide a loop that hangs.
fn stuck(last: Instant, now: Instant, resync: Duration) -> Option<Duration> {
    let waited = now.saturating_duration_since(last);
    (waited > STUCK + resync).then_some(waited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_is_stuck_five_minutes_after_a_reconcile_was_due() {
        let (last, resync) = (Instant::now(), Duration::from_secs(60));
        let at = |seconds| stuck(last, last + Duration::from_secs(seconds), resync);
        assert_eq!([at(0), at(360)], [None, None]);
        assert_eq!(at(361), Some(Duration::from_secs(361)));
    }
}
