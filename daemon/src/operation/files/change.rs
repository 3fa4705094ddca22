//! One change of the host's files: the record, the guard, the files, the units, the confirmation; and the way back from any of them.
//!
//! ```text
//!   recover what an earlier run left ─▶ plan ─▶ keep copies ─▶ record ─▶ guard ─▶ files ─▶ reload, restart, prove
//!                                                                                  └─ any error ─▶ roll back ─▶ end the guard
//!   ─▶ confirmed ─▶ end the guard ─▶ record
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use installer::host_files::{CONFIRMATION, Copies, Host, RECORD};
use ipam::{read_state, write_atomically};
use tokio::time::{Instant, sleep, sleep_until};
use tunables::files::folders::locate;
use tunables::files::guard::{GUARD_DELAY, GUARD_UNIT, GuardCommand, GuardPaths, commands};
use tunables::files::{
    DesiredFiles, FilePlan, FileRecord, FileReport, HostUnit, ObservedFile, Original, PendingChange, StepAction, plan,
};

/// What the guard leaves when it put the files back.
const MARKER: &str = "restored";

/// Units of the host.
pub(super) trait Units {
    /// Lets systemd read its units again.
    async fn reload(&self) -> Result<(), String>;
    /// Whether a unit runs here, or should: one that was not started needs no restart, and must not be started by one.
    async fn usage(&self, unit: HostUnit) -> Result<UnitUsage, String>;
    /// Restarts a unit, and waits until one new invocation of it is proven to run, at most until a time.
    async fn restart(&self, unit: HostUnit, until: Instant) -> Result<(), String>;
    /// Starts a transient unit of these commands.
    async fn start(&self, name: &str, commands: &[GuardCommand]) -> Result<(), String>;
    /// Stops a unit, and waits until it does not run.
    async fn stop(&self, name: &str) -> Result<(), String>;
}

/// Whether a unit runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitUsage {
    Unused,
    Running,
    Failed,
}

/// How long the parts take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// The guard acts after this time.
    pub(super) guard: Duration,
    /// This much earlier, the change must be confirmed, or is rolled back here.
    pub(super) margin: Duration,
    /// Between two reads of the confirmation.
    pub(super) poll: Duration,
    /// From the restart of a unit other than the kubelet until the leader may confirm: a Node stays Ready at first without its runtime.
    pub(super) hold: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        let (margin, poll) = (Duration::from_secs(15), Duration::from_secs(1));
        Self { guard: GUARD_DELAY, margin, poll, hold: Duration::from_secs(45) }
    }
}

/// What became of a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All files that can be applied match the policies.
    Applied(Vec<FileReport>),
    /// The change was taken back, now or by an earlier run, and why.
    RolledBack(String),
    /// Nothing changed, because of an error.
    Failed(String),
}

/// The parts of a change.
pub(super) struct Change<'a, U> {
    pub(super) host: &'a Host,
    pub(super) units: &'a U,
    pub(super) timing: Timing,
}

/// Which change, and for whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity<'a> {
    /// The hash of the order.
    pub(super) order: &'a str,
    pub(super) cluster: &'a str,
    /// The instance's OCID, if it is known.
    pub(super) instance: Option<&'a str>,
}

impl<U: Units> Change<'_, U> {
    /// Applies the files of the policies.
    pub(super) async fn apply(&self, identity: Identity<'_>, desired: &DesiredFiles) -> Outcome {
        let record = match self.recover(identity).await {
            Ok(record) => record,
            Err(error) => return Outcome::Failed(error),
        };
        if record.rejected == identity.order {
            return Outcome::RolledBack("this change was rolled back before".to_owned());
        }
        let mut plan = plan(desired, &record, &self.observe(desired, &record));
        let failed = match self.leave_unused(&mut plan).await {
            Ok(failed) => failed,
            Err(error) => return Outcome::Failed(error),
        };
        let is_known = record.kubelet == desired.kubelet;
        let record = FileRecord { kubelet: desired.kubelet.clone(), ..record };
        if plan.is_empty() {
            return match if is_known { Ok(()) } else { self.store(&record) } {
                Ok(()) => Outcome::Applied(plan.reports),
                Err(error) => Outcome::Failed(error),
            };
        }
        let begun = plan.begin(&record, identity.order, &failed);
        if let Err(error) = self.prepare(&plan, &begun).await {
            // No file has changed yet.
            let undone = self.units.stop(GUARD_UNIT).await.and_then(|()| self.store(&record));
            return Outcome::Failed(undone.err().map_or(error.clone(), |second| format!("{error}; {second}")));
        }
        let until = Instant::now() + self.timing.guard.saturating_sub(self.timing.margin);
        match self.carry_out(&plan, &begun, until).await {
            Ok(()) => self.confirm(&begun, plan.reports).await,
            Err(error) => match self.roll_back(&begun, &error).await {
                Ok(_) => Outcome::RolledBack(error),
                // The guard is still there.
                Err(second) => Outcome::RolledBack(format!("{error}; the rollback failed, too: {second}")),
            },
        }
    }

    /// The record, after a change that an earlier run left unconfirmed is taken back.
    async fn recover(&self, identity: Identity<'_>) -> Result<FileRecord, String> {
        let record = self.host.record()?;
        if !record.is_of(identity.cluster, identity.instance) {
            // A copied disk, or a new cluster: what was there before is not known any more.
            return Ok(self.new_record(identity));
        }
        let record =
            FileRecord { instance: identity.instance.map(str::to_owned).or(record.instance.clone()), ..record };
        match record.pending {
            Some(_) => {
                self.roll_back(&record, "the program that changed the files ended before the confirmation").await
            }
            None => Ok(record),
        }
    }

    /// Units that do not run here read their files when they start. Returns those that failed.
    async fn leave_unused(&self, plan: &mut FilePlan) -> Result<BTreeSet<HostUnit>, String> {
        let mut failed = BTreeSet::new();
        for unit in plan.restart.union(&plan.waiting).copied().collect::<Vec<_>>() {
            match self.units.usage(unit).await? {
                UnitUsage::Unused => {
                    plan.restart.remove(&unit);
                    plan.waiting.remove(&unit);
                }
                UnitUsage::Failed => drop(failed.insert(unit)),
                UnitUsage::Running => {}
            }
        }
        Ok(failed)
    }

    fn new_record(&self, identity: Identity<'_>) -> FileRecord {
        FileRecord {
            cluster: identity.cluster.to_owned(),
            instance: identity.instance.map(str::to_owned),
            ..FileRecord::default()
        }
    }

    fn observe(&self, desired: &DesiredFiles, record: &FileRecord) -> BTreeMap<String, ObservedFile> {
        let paths = desired.apply.keys().chain(desired.report.keys()).chain(record.files.keys());
        paths.map(|path| (path.clone(), self.host.observe(path))).collect()
    }

    /// Keeps copies, stores the record, and starts the guard.
    async fn prepare(&self, plan: &FilePlan, begun: &FileRecord) -> Result<(), String> {
        let clean = self.host.forget_pending().and_then(|()| self.host.clear(MARKER));
        clean.and_then(|()| self.host.clear(CONFIRMATION)).map_err(|error| failed("clear", "copies", &error))?;
        for step in &plan.steps {
            let Some(before) = &step.before else { continue };
            let keep = |copies| self.host.keep(&step.path, copies).map_err(|error| failed("keep", &step.path, &error));
            // A copy may be there from a change that was rolled back before another program wrote this content.
            let is_original = matches!(&step.record, Some(record) if record.original == Original::Kept(before.clone()));
            if is_original {
                keep(Copies::Originals)?;
            }
            if step.action.changes_file() {
                keep(Copies::Pending)?;
            }
        }
        self.store(begun)?;
        match &begun.pending {
            Some(pending) if plan.is_guarded() => self.units.start(GUARD_UNIT, &self.guard(pending)).await,
            _ => Ok(()),
        }
    }

    fn guard(&self, pending: &PendingChange) -> Vec<GuardCommand> {
        let (copies, marker) = (self.host.copies(Copies::Pending), self.host.data(MARKER));
        let paths = GuardPaths { copies: &copies.display().to_string(), marker: &marker.display().to_string() };
        commands(pending, paths, self.timing.guard, |path| self.host.copy_size(path, Copies::Pending))
    }

    async fn carry_out(&self, plan: &FilePlan, begun: &FileRecord, until: Instant) -> Result<(), String> {
        for step in &plan.steps {
            let done = match &step.action {
                StepAction::Write(file) => self.host.write(&step.path, file.content.as_bytes(), file.mode),
                StepAction::PutBack(kept) => self.host.put_back(&step.path, Copies::Originals, kept),
                StepAction::Remove => self.host.remove(&step.path),
                StepAction::Note | StepAction::Forget => Ok(()),
            };
            done.map_err(|error| failed("change", &step.path, &error))?;
        }
        if plan.reload {
            self.units.reload().await?;
        }
        let (mut kubelet_started, mut proven) = (None, Instant::now());
        for unit in &plan.restart {
            match unit {
                HostUnit::Kubelet => kubelet_started = end_of_second().await,
                unit if unit.is_guarded() => proven = Instant::now() + self.timing.hold,
                _ => {}
            }
            self.units.restart(*unit, until).await?;
        }
        match &begun.pending {
            Some(pending) if plan.is_guarded() => {
                sleep_until(proven).await;
                self.store(&begun.prove(kubelet_started))?;
                self.wait_for_confirmation(&pending.order, until).await
            }
            _ => Ok(()),
        }
    }

    /// The agent leaves the order's hash when the leader saw the node Ready after the restart.
    async fn wait_for_confirmation(&self, order: &str, until: Instant) -> Result<(), String> {
        let path = self.host.data(CONFIRMATION);
        while Instant::now() < until {
            if read_state(&path).is_ok_and(|text| text.trim_ascii() == order.as_bytes()) {
                return Ok(());
            }
            sleep(self.timing.poll).await;
        }
        Err("the leader did not confirm in time that the node is Ready".to_owned())
    }

    async fn confirm(&self, begun: &FileRecord, reports: Vec<FileReport>) -> Outcome {
        // In this order: with the guard gone, a record that still has the change is rolled back by the next run.
        let ended = self.units.stop(GUARD_UNIT).await.and_then(|()| match self.host.data(MARKER).exists() {
            true => Err("the guard put the earlier files back before the confirmation".to_owned()),
            false => self.store(&begun.confirm()),
        });
        if let Err(error) = ended {
            let second = self.roll_back(begun, &error).await.err();
            return Outcome::RolledBack(second.map_or(error.clone(), |second| format!("{error}; {second}")));
        }
        let pending = begun.pending.iter().flat_map(|pending| pending.records.keys());
        // Of a file that cannot be read, the copy is all that is left of the earlier content.
        let is_readable = |path: &&String| !matches!(self.host.observe(path), ObservedFile::Unusable(_));
        let mut gone = pending.filter(|path| !begun.files.contains_key(*path)).filter(is_readable);
        let cleared = gone.try_for_each(|path| self.host.forget(path, Copies::Originals));
        if let Err(error) = cleared.and_then(|()| self.host.forget_pending()) {
            tracing::warn!(event = "files.copies", error = error.to_string(), "copies of earlier files are left");
        }
        Outcome::Applied(reports)
    }

    /// Brings back what the changed paths had, and restarts their units. Only when all of it is done, the guard and the record of the
    /// change end.
    async fn roll_back(&self, begun: &FileRecord, reason: &str) -> Result<FileRecord, String> {
        let Some(pending) = &begun.pending else { return Ok(begun.clone()) };
        // A permit may be gone since: what is not mounted is read as absent.
        if let Some(path) = pending.before.keys().find(|path| !self.is_mounted(path)) {
            return Err(format!("put back {path}: its folder is not mounted. Set hostFiles and hostCode as before"));
        }
        for (path, before) in &pending.before {
            let is_back = self.host.take_back(path, before.as_ref(), begun.written(path));
            if !is_back.map_err(|error| failed("put back", path, &error))? {
                tracing::warn!(
                    event = "files.changed_by_others",
                    path,
                    "another program changed the file since, so it stays"
                );
            }
        }
        if pending.reload {
            self.units.reload().await?;
        }
        // Each unit has its time, also if the change used up its own.
        let mut problems = Vec::new();
        for unit in &pending.units {
            let until = Instant::now() + self.timing.guard.saturating_sub(self.timing.margin);
            let Err(error) = self.units.restart(*unit, until).await else { continue };
            // The guard and the next run repeat the restart of what the node needs. Others must not keep all files waiting.
            match unit.is_guarded() && !pending.failed.contains(unit) {
                true => problems.push(error),
                false => tracing::warn!(event = "files.restart", error, "the unit does not run with its earlier files"),
            }
        }
        if !problems.is_empty() {
            return Err(problems.join("; "));
        }
        self.units.stop(GUARD_UNIT).await?;
        let record = begun.roll_back(reason);
        self.store(&record).map(|()| record)
    }

    fn is_mounted(&self, path: &str) -> bool {
        locate(path).is_ok_and(|place| self.host.has_folder(place.folder))
    }

    fn store(&self, record: &FileRecord) -> Result<(), String> {
        let record = FileRecord { version: tunables::files::record::VERSION, ..record.clone() };
        let written = serde_json::to_vec(&record).map_err(io::Error::from);
        let written = written.and_then(|text| write_atomically(&self.host.data(RECORD), &text));
        written.map_err(|error| failed("write", RECORD, &error))
    }
}

/// Waits until a second ends, and returns it. The API server keeps heartbeats in whole seconds, and a kubelet starts within one. So
/// exactly the heartbeats after the restart that follows have a later second.
async fn end_of_second() -> Option<i64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    sleep(Duration::from_secs(1).saturating_sub(Duration::from_nanos(now.subsec_nanos().into()))).await;
    i64::try_from(now.as_secs()).ok()
}

fn failed(operation: &str, subject: &str, error: &io::Error) -> String {
    format!("{operation} {subject}: {error}")
}

#[cfg(test)]
mod tests;
