//! What the agent shows: answers to questions by HTTP path, whoever serves them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipam::BootId;
use resident::logging::chain;
use resident::server::{Answer, Answers, Asker};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot, watch};

use crate::cni_records::Recent;
use crate::decide::usage::Usage;
use crate::lifecycle::reload::Configuration;
use crate::report::attachments;
use crate::report::condition::{Condition, Reason};
use crate::report::metrics::Metrics;
use crate::report::reconcile_report::{Finished, Pass};
use crate::report::status::{AgentState, Status};
use crate::sources::node_facts::NodeFacts;
use crate::triggers::reconcile_loop::PreviewRequest;

/// How long the loop may be without a finished pass before /healthz asks for a restart. Passes end within seconds and run
/// at least every resync interval; a loop this late hangs in the kernel or in a file system.
const STUCK: Duration = Duration::from_secs(300);

/// How long a preview may take, the pass in progress before it included.
const PREVIEW: Duration = Duration::from_secs(20);

/// Everything that can be asked for.
#[derive(Clone, Debug)]
pub struct Board {
    /// Where pools and allocations are.
    pub state_dir: PathBuf,
    /// Of which boot.
    pub boot: BootId,
    /// When the agent started.
    pub started: Instant,
    /// Kernel settings, as seen from here.
    pub sysctl_root: PathBuf,
    /// How often a pass runs at least.
    pub configurations: watch::Receiver<Configuration>,
    /// The last runs of plugins.
    pub recent: Arc<Recent>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What is known from outside.
    pub worlds: watch::Receiver<NodeFacts>,
    /// The last pass.
    pub passes: watch::Receiver<Option<Finished>>,
    /// Who makes previews.
    pub previews: mpsc::Sender<PreviewRequest>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ready {
    ready: bool,
    conditions: Vec<Condition>,
}

impl Answers for Board {
    async fn answer(&self, path: &str, asker: Asker) -> Answer {
        match (path, asker) {
            ("/healthz", _) => self.health(Instant::now()),
            ("/readyz", _) => self.readiness(),
            ("/metrics", _) => self.metrics_text().await,
            ("/status", Asker::Root) => self.status(),
            ("/pools", Asker::Root) => self.pools().await,
            ("/attachments", Asker::Root) => self.attachments().await,
            ("/plan", Asker::Root) => self.plan().await,
            ("/verbs", Asker::Root) => Answer::json(200, &self.recent.runs()),
            _ => Answer::text(404, "nothing is here\n"),
        }
    }
}

impl Board {
    /// The process lives and its loop turns. Nothing outside makes it unhealthy: a restart would mend nothing there.
    fn health(&self, now: Instant) -> Answer {
        let last = self.passes.borrow().as_ref().map_or(self.started, |finished| finished.at);
        match stuck(last, now, self.configurations.borrow().settings.resync) {
            Some(waited) => Answer::text(500, &format!("no pass has ended for {} s\n", waited.as_secs())),
            None => Answer::text(200, "ok\n"),
        }
    }

    fn readiness(&self) -> Answer {
        let pass = self.pass();
        let starting = || vec![Condition::blocking(Reason::Starting, "no pass has ended yet")];
        let ready = pass.as_ref().is_some_and(|pass| pass.is_ready());
        let conditions = pass.map_or_else(starting, |pass| pass.conditions.clone());
        Answer::json(if ready { 200 } else { 503 }, &Ready { ready, conditions })
    }

    async fn metrics_text(&self) -> Answer {
        let usage = self.usage(Usage::counted).await.ok();
        let world = self.worlds.borrow().clone();
        let body = self.metrics.text(&world, self.pass().as_deref(), usage.as_ref());
        Answer::metrics(body)
    }

    fn status(&self) -> Answer {
        let agent = AgentState {
            running: true,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: Some(self.started.elapsed().as_secs()),
        };
        let world = self.worlds.borrow().clone();
        Answer::json(200, &Status::of(agent, &world, self.pass().as_deref()))
    }

    async fn pools(&self) -> Answer {
        match self.usage(Usage::read).await {
            Ok(usage) => Answer::json(200, &usage),
            Err(error) => Answer::text(503, &format!("{error}\n")),
        }
    }

    async fn attachments(&self) -> Answer {
        let (state_dir, sysctl_root, boot) = (self.state_dir.clone(), self.sysctl_root.clone(), self.boot.clone());
        let read = tokio::task::spawn_blocking(move || attachments::read(&state_dir, &sysctl_root, &boot)).await;
        match read.map_err(|error| error.to_string()).flatten() {
            Ok(all) => Answer::json(200, &all),
            Err(error) => Answer::text(503, &format!("{error}\n")),
        }
    }

    async fn plan(&self) -> Answer {
        let (asker, answer) = oneshot::channel();
        let asked = async {
            self.previews.send(asker).await.ok()?;
            answer.await.ok()
        };
        match tokio::time::timeout(PREVIEW, asked).await {
            Ok(Some(pass)) => Answer::json(200, &pass),
            _ => Answer::text(503, "the agent is busy or stopping; ask again\n"),
        }
    }

    async fn usage(&self, read: fn(&Path, &BootId) -> Result<Usage, ipam::Error>) -> Result<Usage, String> {
        let (state_dir, boot) = (self.state_dir.clone(), self.boot.clone());
        let read = tokio::task::spawn_blocking(move || read(&state_dir, &boot).map_err(|error| chain(&error)));
        read.await.map_err(|error| error.to_string())?
    }

    fn pass(&self) -> Option<Arc<Pass>> {
        self.passes.borrow().as_ref().map(|finished| finished.pass.clone())
    }
}

/// How long ago the last pass ended, where that is too long. By a clock that nobody sets: whoever sets the wall clock back must
/// not hide a loop that hangs.
fn stuck(last: Instant, now: Instant, resync: Duration) -> Option<Duration> {
    let waited = now.saturating_duration_since(last);
    (waited > STUCK + resync).then_some(waited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_ends_no_pass_is_stuck_five_minutes_after_the_next_was_due() {
        let (last, resync) = (Instant::now(), Duration::from_secs(60));
        let at = |seconds| stuck(last, last + Duration::from_secs(seconds), resync);
        assert_eq!([at(0), at(360)], [None, None]);
        assert_eq!(at(361), Some(Duration::from_secs(361)));
    }
}
