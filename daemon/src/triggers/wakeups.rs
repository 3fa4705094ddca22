//! What wakes the reconcile loop: news of a source, a change of the kernel's network or of a file, a run of a plugin, a request,
//! or the schedule.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::file_changes::{FileChange, FileWatch};
use super::kernel_events::{KernelChange, KernelWatch, NftWatch};
use super::schedule::Schedule;
use crate::facts::condition::Condition;
use crate::facts::node_facts::NodeFacts;
use crate::facts::reconcile_report::{Cause, CompletedReconcile, ReconcileReport};
use crate::lifecycle::agent::Agent;
use crate::reconcile::drift_hints::DriftHints;
use crate::report::notices::Notes;
use crate::report::status_server::PreviewRequest;
use crate::sources::backoff::chance;
use crate::sources::subscription::Subscription;

/// What wakes the loop.
#[derive(Debug)]
pub(crate) struct Wakeups {
    agent: Arc<Agent>,
    /// Conditions of other tasks.
    notices: watch::Receiver<Notes>,
    previews: mpsc::Receiver<PreviewRequest>,
    /// Where reports are published.
    reports: watch::Sender<Option<CompletedReconcile>>,
    /// Its own receiver, which notes what it has seen.
    changed_facts: watch::Receiver<NodeFacts>,
    /// What is known from outside.
    pub(super) facts: NodeFacts,
    kernel: Subscription<KernelWatch>,
    nft: Subscription<NftWatch>,
    files: Subscription<FileWatch>,
}

/// Why the loop wakes.
#[derive(Debug)]
pub(super) enum WakeReason {
    Reconcile(Cause),
    /// There are hints that a running pod drifted, or pods may have taken or freed addresses: to be looked at when it settled.
    Hints,
    HintsSettled,
    Preview(PreviewRequest),
    /// No source has news any more: the agent ends.
    Ended,
}

impl Wakeups {
    pub(crate) fn new(
        agent: Arc<Agent>,
        notices: watch::Receiver<Notes>,
        previews: mpsc::Receiver<PreviewRequest>,
        reports: watch::Sender<Option<CompletedReconcile>>,
    ) -> Self {
        let kernel = Subscription::open("kernel", chance, KernelWatch::open);
        let nft = Subscription::open("nft", chance, NftWatch::open);
        let files = Subscription::open("files", chance, || FileWatch::watch(&agent.settings));
        let (changed_facts, facts) = (agent.facts.clone(), NodeFacts::default());
        Self { agent, notices, previews, reports, changed_facts, facts, kernel, nft, files }
    }

    /// Waits for the first facts. Events are gathered meanwhile: a link that comes then is news for the sources.
    pub(super) async fn wait_for_facts(&mut self, patience: Duration) {
        let _ = tokio::time::timeout(patience, self.changed_facts.changed()).await;
        self.facts = self.changed_facts.borrow_and_update().clone();
    }

    pub(super) fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Publishes a report; returns the one before.
    pub(super) fn publish(&self, completed: CompletedReconcile) -> Option<Arc<ReconcileReport>> {
        self.reports.send_replace(Some(completed)).map(|completed| completed.report)
    }

    /// Notes the files as they are, before a reconcile that reads all of them.
    pub(super) fn settle_files(&mut self) {
        if let Some(files) = self.files.source() {
            files.note_files();
        }
    }

    /// Notes the files that a reconcile wrote.
    pub(super) fn note_written(&mut self, report: &ReconcileReport) {
        if let Some(files) = self.files.source() {
            files.written(report);
        }
    }

    /// What is wrong with the sources of wake-ups.
    pub(super) fn conditions(&mut self) -> impl Iterator<Item = Condition> {
        let notices = self.notices.borrow_and_update().clone();
        let own = [self.kernel.condition(), self.nft.condition(), self.files.condition()];
        own.into_iter().flatten().chain(notices.into_values().flatten())
    }

    /// Whether there are hints about running pods, or attachments that a DEL ended.
    pub(super) fn has_hints(&mut self) -> bool {
        !self.agent.deleted.is_empty() || self.kernel.source().is_some_and(|events| events.has_hints())
    }

    /// Takes the hints about running pods.
    pub(super) fn take_hints(&mut self) -> DriftHints {
        self.kernel.source().map(KernelWatch::take_hints).unwrap_or_default()
    }

    /// Waits until the loop has something to do.
    pub(super) async fn next(&mut self, schedule: &Schedule) -> WakeReason {
        loop {
            if let Some(wake) = self.wait(schedule).await {
                return wake;
            }
        }
    }

    /// Waits once; `None` if the loop need not know.
    async fn wait(&mut self, schedule: &Schedule) -> Option<WakeReason> {
        let hints_due = schedule.hints_due;
        // Cancel-safe: each branch waits on a channel, a timer, or a subscription, which loses no event for good. What a branch
        // does after its wait is not cancelled.
        Some(tokio::select! {
            () = sleep_until(schedule.next) => WakeReason::Reconcile(schedule.cause()),
            () = sleep_until(hints_due.unwrap_or(schedule.next)), if hints_due.is_some() => WakeReason::HintsSettled,
            () = self.agent.plugin_ran.notified() => WakeReason::Hints,
            Ok(()) = self.notices.changed() => WakeReason::Reconcile(Cause::Retry),
            Some(request) = self.previews.recv() => WakeReason::Preview(request),
            changed = self.changed_facts.changed() => {
                if changed.is_err() {
                    return Some(WakeReason::Ended);
                }
                let before = std::mem::replace(&mut self.facts, self.changed_facts.borrow_and_update().clone());
                return (!self.facts.says_the_same(&before)).then_some(WakeReason::Reconcile(Cause::Sources));
            }
            concern = self.kernel.news(KernelWatch::open, KernelWatch::concerning) => {
                let are_links = match concern {
                    Some(KernelChange::Hints) => return Some(WakeReason::Hints),
                    Some(KernelChange::Host { links }) => self.gather(schedule).await || links,
                    None => true,
                };
                if are_links {
                    self.agent.note_links();
                }
                WakeReason::Reconcile(Cause::Kernel)
            }
            touched = self.nft.news(NftWatch::open, NftWatch::touched) => {
                if touched.is_some() && self.gather(schedule).await {
                    self.agent.note_links();
                }
                WakeReason::Reconcile(Cause::Kernel)
            }
            news = self.files.news(|| FileWatch::watch(&self.agent.settings), FileWatch::news) => {
                if news.is_none_or(|news| news.npn) {
                    self.agent.npn_changed.notify_one();
                }
                match news {
                    Some(FileChange { installed: false, .. }) => return None,
                    Some(_) => sleep(schedule.debounce(Instant::now())).await,
                    None => {}
                }
                WakeReason::Reconcile(Cause::Files)
            }
        })
    }

    /// Waits for more events and takes them in: they need no reconcile of their own. Returns whether links may have changed.
    async fn gather(&mut self, schedule: &Schedule) -> bool {
        sleep(schedule.debounce(Instant::now())).await;
        if let Some(nft) = self.nft.source() {
            nft.take_in();
        }
        self.kernel.source().is_none_or(|events| events.take_in().unwrap_or(true))
    }
}
