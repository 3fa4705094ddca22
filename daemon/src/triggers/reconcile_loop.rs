//! The reconcile loop: waits until something calls for a reconcile, runs it, publishes its report. One task; reconciles never
//! overlap.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::schedule::Schedule;
use super::wakeups::WakeReason;
use crate::facts::reconcile_report::{Cause, CompletedReconcile, ReconcileReport};
use crate::lifecycle::agent::Agent;
use crate::reconcile::Reconciler;
use crate::reconcile::pods::SETTLED;
use crate::report::transitions;
use crate::sources::backoff::chance;
use crate::sources::poller::PUBLISHED;

pub(crate) use super::wakeups::Wakeups;

#[derive(Debug)]
pub(crate) struct ReconcileLoop {
    /// Locked by one task at a time: the mutex only lets the reconciler run on another thread.
    reconciler: Arc<Mutex<Reconciler>>,
    wakeups: Wakeups,
    schedule: Schedule,
}

impl ReconcileLoop {
    /// Runs reconciles until the sources' task ends. After an error the agent must be restarted.
    pub(crate) async fn run(reconciler: Reconciler, mut wakeups: Wakeups) -> io::Result<()> {
        wakeups.wait_for_facts(PUBLISHED).await;
        let reconciler = Arc::new(Mutex::new(reconciler));
        let mut this = Self { reconciler, wakeups, schedule: Schedule::new(Instant::now()) };
        let mut cause = Cause::Start;
        loop {
            this.reconcile(cause).await?;
            match this.wait().await? {
                Some(next) => cause = next,
                None => return Ok(()),
            }
        }
    }

    async fn reconcile(&mut self, cause: Cause) -> io::Result<()> {
        // A reconcile for kernel events does not look at what is installed.
        if cause != Cause::Kernel {
            self.wakeups.settle_files();
        }
        if let Some(path) = self.reconciler().lost(cause) {
            return Err(io::Error::other(format!(
                "{} was removed or moved away while it was in use; an agent that is restarted uses the directory that is there \
                 then",
                path.display()
            )));
        }
        let mut report = self.run_once(cause).await?;
        report.conditions.extend(self.schedule.note(&report, Instant::now()));
        report.conditions.extend(self.wakeups.conditions());
        report.date_conditions(self.wakeups.agent().report().as_deref());
        self.wakeups.note_written(&report);
        self.plan(&report);
        self.publish(report);
        Ok(())
    }

    /// Plans the next reconcile, and the next check of hints.
    fn plan(&mut self, report: &ReconcileReport) {
        let now = Instant::now();
        self.schedule.plan(report, self.wakeups.agent().settings.resync, now, chance());
        let (due, again) = {
            let reconciler = self.reconciler();
            (reconciler.due(), reconciler.next_check())
        };
        if let Some(due) = due {
            self.schedule.bring_forward(now + due);
        }
        // Hints that came with this reconcile are looked at all the same: kept, they would hide the next ones, which repeat them.
        let hints = self.wakeups.has_hints().then_some(SETTLED);
        self.schedule.hints_due = again.into_iter().chain(hints).min().map(|wait| now + wait);
    }

    fn publish(&self, report: ReconcileReport) {
        let Agent { metrics, follow_ups, .. } = self.wakeups.agent();
        metrics.reconciled(&report);
        if report.changes.iter().any(|changed| changed.noun == "attachment") {
            follow_ups.freed();
        }
        let report = Arc::new(report);
        let completed = CompletedReconcile { at: std::time::Instant::now(), report: report.clone() };
        let before = self.wakeups.publish(completed);
        transitions::log(before.as_deref(), &report);
    }

    /// Waits for the next cause to reconcile; `None` at the end.
    async fn wait(&mut self) -> io::Result<Option<Cause>> {
        loop {
            match self.wakeups.next(&self.schedule).await {
                WakeReason::Reconcile(cause) => return Ok(Some(cause)),
                WakeReason::Ended => return Ok(None),
                WakeReason::Hints => self.schedule.check_hints_by(Instant::now() + SETTLED),
                WakeReason::HintsSettled => {
                    let (hints, deleted) = (self.wakeups.take_hints(), self.wakeups.agent().deleted.take());
                    let is_due = self.on_thread(move |reconciler| reconciler.needs_reconcile(hints, &deleted)).await?;
                    let again = self.reconciler().next_check();
                    self.schedule.hints_due = again.map(|wait| Instant::now() + wait);
                    if is_due {
                        return Ok(Some(Cause::Kernel));
                    }
                }
                WakeReason::Preview(request) => {
                    let report = self.run_once(Cause::Preview).await?;
                    // The client may have gone.
                    let _ = request.send(report);
                }
            }
        }
    }

    async fn run_once(&self, cause: Cause) -> io::Result<ReconcileReport> {
        let facts = self.wakeups.facts.clone();
        self.on_thread(move |reconciler| reconciler.reconcile(&facts, cause)).await
    }

    /// Kernel and files are short but synchronous work: not on the thread that answers health checks.
    async fn on_thread<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Reconciler) -> T + Send + 'static,
    ) -> io::Result<T> {
        let reconciler = self.reconciler.clone();
        let done = tokio::task::spawn_blocking(move || act(&mut lock(&reconciler)));
        done.await.map_err(io::Error::other)
    }

    fn reconciler(&self) -> MutexGuard<'_, Reconciler> {
        lock(&self.reconciler)
    }
}

/// After a panic the loop ends, so that a poisoned lock is never used.
fn lock(reconciler: &Mutex<Reconciler>) -> MutexGuard<'_, Reconciler> {
    reconciler.lock().unwrap_or_else(PoisonError::into_inner)
}
