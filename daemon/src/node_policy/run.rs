//! The task of node policies: compares with each new document, each minute, and when links change. One comparison at a time; links
//! are changed in a thread of their own, one change at a time, because that may take minutes.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use installer::host_files::{FOLDER, Host};
use ipam::BootId;
use resident::logging::chain;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};
use tunables::files::FileComparison;
use tunables::{NodeAnswer, NodeDocument};

use super::answer::answer;
use super::apply::{Applier, Moment, Outcome};
use super::files::{self, compare_files, is_unsettled};
use super::links::{AgentPhase, LinkApplier, LinkContext, LinkOutcome, StopFlag};
use super::store::StoredDocument;
use super::{Answered, Held, NodePolicies};
use crate::facts::condition::{Condition, Reason};
use crate::facts::node_facts::NodeFacts;
use crate::settings::Settings;
use crate::sources::poller::PUBLISHED;

const INTERVAL: Duration = Duration::from_secs(60);

/// Between comparisons while a value waits for its confirmation by the leader.
const TRIAL_INTERVAL: Duration = Duration::from_secs(2);

/// How long events of links are gathered.
const LINK_EVENTS: Duration = Duration::from_secs(1);

/// The agent becomes ready after this time, even if the stored document is not applied yet.
const START_MAX: Duration = Duration::from_secs(15);

/// What the task reads, and where it reports.
pub(crate) struct PolicySurroundings {
    pub(crate) settings: Arc<Settings>,
    pub(crate) boot: BootId,
    pub(crate) facts: watch::Receiver<NodeFacts>,
    pub(crate) policies: Arc<NodePolicies>,
    /// Gets what is wrong with the files and what could not be restored, or nothing.
    pub(crate) report: Box<dyn Fn(Vec<Condition>)>,
    /// Gets each change: what was done, and whether it succeeded.
    pub(crate) count_change: Box<dyn Fn(&'static str, bool)>,
    pub(crate) count_items: Box<dyn Fn(&NodeAnswer)>,
}

/// Applies policies until the agent ends.
///
/// # Errors
/// If a comparison panicked: the agent must be restarted.
pub(crate) async fn run(surroundings: PolicySurroundings) -> Result<(), JoinError> {
    let mut task = Task::new(surroundings);
    match timeout(START_MAX, task.start()).await {
        Ok(started) => started?,
        Err(_) => {
            tracing::warn!(event = "policy.start_slow", "the agent is ready before the stored document is applied")
        }
    }
    task.surroundings.policies.is_started.store(true, Ordering::Relaxed);
    loop {
        task.compare(AgentPhase::Running).await?;
        task.wait().await?;
    }
}

struct Task {
    surroundings: PolicySurroundings,
    held: watch::Receiver<Held>,
    /// Locked by one thread at a time: the mutexes only let these work on other threads.
    applier: Arc<Mutex<Applier>>,
    link_applier: Arc<Mutex<LinkApplier>>,
    host: Host,
    /// The stamp of the record of files before the last comparison.
    record_stamp: Option<(u64, i64, i64)>,
    /// What the last comparison of a document found.
    compared: Option<Compared>,
    /// Whether links are compared next time, too.
    is_full: bool,
    links: LinkThread,
    failed_files: Vec<Condition>,
    /// What is wrong with a record of files.
    file_error: Option<(&'static str, String)>,
}

struct Compared {
    held: Held,
    outcome: Outcome,
    files: FileComparison,
}

type LinkResult = Result<Option<LinkOutcome>, String>;

/// The thread that changes links.
#[derive(Default)]
struct LinkThread {
    running: Option<JoinHandle<LinkResult>>,
    /// The number of the document that it works on, or worked on last.
    number: u64,
    outcome: Option<LinkOutcome>,
    /// What is left of an unfinished change.
    unfinished: Option<String>,
    /// Whether links are to be compared again when it ends.
    is_due: bool,
    stop: StopFlag,
}

impl LinkThread {
    /// Takes an outcome. Without one, the last of the same document holds.
    fn keep(&mut self, result: LinkResult) {
        self.unfinished = result.as_ref().err().cloned();
        self.outcome = result.ok().flatten().or(self.outcome.take());
    }
}

impl Drop for LinkThread {
    fn drop(&mut self) {
        self.stop.set();
    }
}

impl Task {
    fn new(surroundings: PolicySurroundings) -> Self {
        let (settings, boot) = (surroundings.settings.clone(), surroundings.boot.clone());
        Self {
            held: surroundings.policies.held.subscribe(),
            host: files::host(&settings),
            record_stamp: None,
            applier: Arc::new(Mutex::new(Applier::new(settings.clone(), boot.clone()))),
            link_applier: Arc::new(Mutex::new(LinkApplier::new(settings, boot))),
            compared: None,
            is_full: true,
            links: LinkThread::default(),
            failed_files: Vec::new(),
            file_error: None,
            surroundings,
        }
    }

    /// Undoes what an earlier agent did not finish, and applies the document of an earlier agent.
    async fn start(&mut self) -> Result<(), JoinError> {
        // First: it may be what keeps the metadata service from answering.
        self.recover_links().await?;
        let mut facts = self.surroundings.facts.clone();
        let _ = timeout(PUBLISHED, facts.changed()).await;
        self.compare(AgentPhase::Start).await?;
        if self.links.running.is_some() {
            self.finish_links().await?;
        }
        Ok(())
    }

    async fn recover_links(&mut self) -> Result<(), JoinError> {
        let links = self.link_applier.clone();
        self.links.unfinished = spawn_blocking(move || lock(&links).recover()).await?.err();
        Ok(())
    }

    /// Compares everything with the document, and answers.
    async fn compare(&mut self, phase: AgentPhase) -> Result<(), JoinError> {
        // A guard of the channel must not live while the document is taken over.
        let is_held = self.held.borrow().document.is_some();
        let store_error = if is_held { None } else { self.load().await? };
        let held = self.held.borrow_and_update().clone();
        let record_error = match held.document.clone() {
            None => {
                self.recover_links().await?;
                None
            }
            Some(document) => {
                let applier = self.applier.clone();
                let is_known = self.compared.as_ref().is_some_and(|known| known.held.number == held.number);
                let contact = self.surroundings.policies.contact.last().map(|reply| reply.accepted);
                let is_new = held.is_received && !is_known;
                let host = self.host.clone();
                self.record_stamp = host.record_stamp();
                let compared = spawn_blocking(move || {
                    let outcome = lock(&applier).compare(&document, Moment { is_new, contact, now: Instant::now() });
                    (outcome, compare_files(&host, &document))
                });
                let (outcome, (files, file_error)) = compared.await?;
                self.file_error = file_error;
                for change in &outcome.changes {
                    (self.surroundings.count_change)(change.action, change.succeeded);
                }
                let error = outcome.record_error.clone();
                self.compared = Some(Compared { held, outcome, files });
                self.links.is_due |= !is_known || self.is_full;
                self.start_links(phase);
                self.publish();
                error
            }
        };
        let failed = |file: &str, error: String| Condition::degraded(Reason::StateFailed, error).about(file);
        let store_error = store_error.map(|error| failed(vcn::NODE_POLICY_FILE, error));
        self.failed_files = store_error.into_iter().collect();
        let of_files = self.file_error.as_ref();
        self.failed_files.extend(of_files.map(|(file, error)| failed(&format!("{FOLDER}/{file}"), error.clone())));
        self.failed_files.extend(record_error.map(|error| failed("sysctls.json", error)));
        self.report();
        Ok(())
    }

    /// Reports what is wrong with the files, and earlier values that could not be restored: no policy names these any more.
    fn report(&self) {
        let of_kernel = self.compared.iter().flat_map(|compared| &compared.outcome.unrestored);
        let of_links = self.links.outcome.iter().flat_map(|links| &links.unrestored).chain(&self.links.unfinished);
        let of_files = self.compared.iter().flat_map(|compared| &compared.files.unrestored);
        let unrestored: Vec<&str> = of_kernel.chain(of_links).chain(of_files).map(String::as_str).collect();
        let condition = || Condition::degraded(Reason::SettingNotRestored, unrestored.join("; "));
        let unrestored = (!unrestored.is_empty()).then(condition);
        (self.surroundings.report)(self.failed_files.iter().cloned().chain(unrestored).collect());
    }

    /// Takes the document of an earlier agent, if it is of this machine. Returns why it cannot be read.
    async fn load(&self) -> Result<Option<String>, JoinError> {
        let policies = &self.surroundings.policies;
        let reader = policies.store.lock().await.clone();
        let stored = match spawn_blocking(move || reader.read()).await? {
            Err(error) => return Ok(Some(chain(&error))),
            Ok(None) => return Ok(None),
            Ok(Some(stored)) => stored,
        };
        let instance = self.surroundings.facts.borrow().instance.value.as_ref().map(|instance| instance.id.to_string());
        if !stored.is_of(instance.as_deref(), &self.surroundings.boot) {
            tracing::debug!(event = "policy.void", "the stored document is for another instance");
            return Ok(None);
        }
        let StoredDocument { document, .. } = stored;
        policies.held.send_if_modified(|held| {
            let is_first = held.document.is_none();
            if is_first {
                let (number, document) = (held.number + 1, Some(Arc::new(document)));
                *held = Held { number, document, is_received: false };
            }
            is_first
        });
        Ok(None)
    }

    /// Starts a comparison of links, unless one is running.
    fn start_links(&mut self, phase: AgentPhase) {
        let Some(Compared { held: Held { number, document: Some(document), .. }, .. }) = &self.compared else { return };
        if self.links.running.is_some() || !std::mem::take(&mut self.links.is_due) {
            return;
        }
        let context = LinkContext {
            document: document.clone(),
            facts: self.surroundings.facts.borrow().clone(),
            phase,
            contact: self.surroundings.policies.contact.clone(),
            stop: self.links.stop.clone(),
        };
        if self.links.number != *number {
            (self.links.number, self.links.outcome) = (*number, None);
        }
        let applier = self.link_applier.clone();
        self.links.running = Some(spawn_blocking(move || lock(&applier).apply(&context)));
    }

    /// Waits for the thread that changes links.
    async fn finish_links(&mut self) -> Result<(), JoinError> {
        let outcome = finished(&mut self.links.running).await?;
        self.finish(outcome);
        Ok(())
    }

    fn finish(&mut self, links: LinkResult) {
        self.links.keep(links);
        self.start_links(AgentPhase::Running);
        self.publish();
        self.report();
    }

    /// Compares files alone, and answers, if a Pod changed the record since the last comparison.
    async fn compare_files(&mut self) -> Result<(), JoinError> {
        let stamp = self.host.record_stamp();
        if std::mem::replace(&mut self.record_stamp, stamp) == stamp {
            return Ok(());
        }
        let Some(Compared { held: Held { document: Some(document), .. }, .. }) = &self.compared else { return Ok(()) };
        let (host, document) = (self.host.clone(), document.clone());
        let (files, _) = spawn_blocking(move || compare_files(&host, &document)).await?;
        if let Some(compared) = &mut self.compared {
            compared.files = files;
        }
        self.publish();
        Ok(())
    }

    /// Waits until something is to be compared.
    async fn wait(&mut self) -> Result<(), JoinError> {
        let is_on_trial = self.compared.as_ref().is_some_and(|compared| !compared.outcome.on_trial.is_empty());
        let next = tokio::time::Instant::now() + if is_on_trial { TRIAL_INTERVAL } else { INTERVAL };
        self.is_full = !is_on_trial;
        loop {
            // Cancel-safe: each branch waits on a channel, a timer or a thread, whose result is taken when it is there.
            tokio::select! {
                _ = self.held.changed() => return Ok(()),
                () = tokio::time::sleep_until(next) => return Ok(()),
                () = self.surroundings.policies.wake.notified() => {
                    sleep(LINK_EVENTS).await;
                    self.is_full = true;
                    return Ok(());
                }
                outcome = finished(&mut self.links.running) => self.finish(outcome?),
                () = sleep(TRIAL_INTERVAL), if self.compared.as_ref().is_some_and(|it| is_unsettled(&it.files)) => {
                    self.compare_files().await?;
                }
            }
        }
    }

    fn publish(&self) {
        let Some(Compared { held: Held { number, document: Some(document), .. }, outcome, files }) = &self.compared
        else {
            return;
        };
        // An outcome for an earlier document says nothing about this one.
        let links = self.links.outcome.as_ref().filter(|_| self.links.number == *number);
        let policies: &NodePolicies = &self.surroundings.policies;
        let answer = answer(document, outcome, files, links);
        (self.surroundings.count_items)(&answer);
        policies.answered.send_replace(Answered { number: *number, answer });
        policies.named.send_if_modified(|named| {
            let keys = named_keys(document);
            let is_other = **named != keys;
            if is_other {
                *named = Arc::new(keys);
            }
            is_other
        });
    }
}

fn named_keys(document: &NodeDocument) -> BTreeSet<String> {
    document.sysctls.iter().map(|desired| desired.key.clone()).collect()
}

/// The result of a thread, when it ends; never if none runs.
async fn finished(running: &mut Option<JoinHandle<LinkResult>>) -> Result<LinkResult, JoinError> {
    match running {
        Some(handle) => {
            let outcome = handle.await;
            *running = None;
            outcome
        }
        None => std::future::pending().await,
    }
}

fn lock<T>(applier: &Mutex<T>) -> MutexGuard<'_, T> {
    applier.lock().unwrap_or_else(PoisonError::into_inner)
}
