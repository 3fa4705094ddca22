//! The agent's HTTP endpoints. `/healthz`, `/readyz` and `/metrics` answer every client, the others only root's socket.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use resident::logging::chain;
use resident::server::{Answer, Caller, Handler};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};

use crate::decide::usage::Usage;
use crate::facts::reconcile_report::{ReconcileReport, unix_millis};
use crate::lifecycle::agent::Agent;
use crate::report::attachments;
use crate::report::status::{AgentState, Readiness, Status};

/// Time without a completed reconcile after which /healthz demands a restart. Reconciles take seconds and run at least every
/// resync interval; a loop this late hangs in the kernel or in a file system.
const STUCK: Duration = Duration::from_secs(300);

/// Time limit of a preview, including the reconcile in progress before it.
const PREVIEW: Duration = Duration::from_secs(20);

/// Requests a preview: the report of a reconcile that changed nothing.
pub(crate) type PreviewRequest = oneshot::Sender<ReconcileReport>;

/// What the answers are made from.
#[derive(Clone, Debug)]
pub(crate) struct StatusServer {
    pub agent: Arc<Agent>,
    pub signals: watch::Receiver<health::Report>,
    /// The loop that makes previews.
    pub previews: mpsc::Sender<PreviewRequest>,
}

impl Handler for StatusServer {
    async fn answer(&self, path: &str, caller: Caller) -> Answer {
        match (path, caller) {
            ("/healthz", _) => self.health(Instant::now()),
            ("/readyz", _) => {
                let readiness =
                    Readiness::of(self.agent.report().as_deref()).after_policies(self.agent.policies.is_started());
                Answer::json(if readiness.ready { 200 } else { 503 }, &readiness)
            }
            ("/metrics", _) => {
                let usage = self.read(|agent| Usage::counted(&agent.settings.state_dir, &agent.boot)).await.ok();
                let Agent { metrics, facts, .. } = &*self.agent;
                metrics.set_signals(&self.signals());
                Answer::metrics(metrics.text(&facts.borrow(), self.agent.report().as_deref(), usage.as_ref()))
            }
            ("/status", Caller::Root) => Answer::json(200, &self.current_status()),
            ("/pools", Caller::Root) => {
                json(&self.read(|agent| Usage::read(&agent.settings.state_dir, &agent.boot)).await)
            }
            ("/attachments", Caller::Root) => {
                let read = |Agent { settings, boot, .. }: &Agent| {
                    attachments::read(&settings.state_dir, &settings.sysctl_root, boot)
                };
                json(&self.read(read).await)
            }
            ("/health-signals", Caller::Root) => Answer::json(200, &self.signals()),
            ("/plan", Caller::Root) => self.plan().await,
            ("/verbs", Caller::Root) => Answer::json(200, &self.agent.recent.runs()),
            _ => Answer::text(404, "not found\n"),
        }
    }
}

impl StatusServer {
    /// The process lives and its loop runs. No outside failure makes it unhealthy: a restart would not repair that.
    fn health(&self, now: Instant) -> Answer {
        let last = self.agent.reports.borrow().as_ref().map_or(self.agent.started, |completed| completed.at);
        match stuck(last, now, self.agent.settings.resync) {
            Some(waited) => Answer::text(500, &format!("no reconcile has finished for {} s\n", waited.as_secs())),
            None => Answer::text(200, "ok\n"),
        }
    }

    pub(crate) fn signals(&self) -> health::Report {
        let report = self.signals.borrow().clone();
        report.at(unix_millis())
    }

    pub(crate) fn current_status(&self) -> Status {
        let agent = AgentState {
            running: true,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.agent.started.elapsed().as_secs(),
        };
        Status::of(agent, &self.agent.facts.borrow(), self.agent.report().as_deref())
    }

    async fn plan(&self) -> Answer {
        let (request, answer) = oneshot::channel();
        let preview = async {
            self.previews.send(request).await.ok()?;
            answer.await.ok()
        };
        match tokio::time::timeout(PREVIEW, preview).await {
            Ok(Some(report)) => Answer::json(200, &report),
            _ => Answer::text(503, "the agent is busy or stopping; retry\n"),
        }
    }

    /// Reads state files, not on the thread that answers health checks.
    async fn read<T: Send + 'static, E: Into<Box<dyn Error + Send + Sync>>>(
        &self,
        read: impl FnOnce(&Agent) -> Result<T, E> + Send + 'static,
    ) -> Result<T, String> {
        let agent = self.agent.clone();
        let read = tokio::task::spawn_blocking(move || read(&agent).map_err(|error| chain(&*error.into())));
        read.await.map_err(|error| error.to_string())?
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
