//! What changes on a node for its policies' files: written, put back, removed, or left alone; and which units restart. Pure.
//!
//! Afterwards each path that policies name has their content, unless another program changed it since: that is reported, and not fought.
//! Each other path that policies had has what was there before, again unless another program changed it.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use api::node_policy::{FileGrant, HostUnit};

use crate::files::check::{check, check_content};
use crate::files::folders::{Place, locate};
use crate::files::record::{
    FileRecord, FileState, Original, PendingChange, RecordedFile, RecordedReservations, VERSION,
};
use crate::report::ItemState;

/// A file as a policy has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredFile {
    /// The content of the file.
    pub content: String,
    /// The permission bits of the file.
    pub mode: u32,
    /// The uid of the policy.
    pub policy: String,
    /// Whether it is rendered from reservations: those have names that no policy may use.
    pub is_rendered: bool,
}

/// What the policies of a node require.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredFiles {
    /// Files to have, by path.
    pub apply: BTreeMap<String, DesiredFile>,
    /// Files to compare only.
    pub report: BTreeMap<String, DesiredFile>,
    /// Units that may restart when their files change.
    pub restart: BTreeSet<HostUnit>,
    /// Uids of policies whose files stay as they are.
    pub kept: BTreeSet<String>,
    /// What the cluster's owner permits.
    pub grants: Vec<FileGrant>,
    /// What the record says about the kubelet's reservations afterwards.
    pub kubelet: Option<RecordedReservations>,
    /// What this node cannot have, whatever is there.
    pub refused: Vec<FileReport>,
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedFile {
    /// There is no file at the path.
    Absent,
    /// There is a file at the path.
    Present(FileState),
    /// Something that policies do not change, such as a link, in words.
    Unusable(String),
}

/// The steps from the observed to the desired files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePlan {
    /// The changes, by path.
    pub steps: Vec<FileStep>,
    /// Units to restart, in this order.
    pub restart: BTreeSet<HostUnit>,
    /// Units that keep the earlier file, because no policy lets them restart.
    pub waiting: BTreeSet<HostUnit>,
    /// Units that policies let us restart.
    pub allowed: BTreeSet<HostUnit>,
    /// Whether systemd must read its units again.
    pub reload: bool,
    /// Files that differ from the policies.
    pub reports: Vec<FileReport>,
    /// How many files match.
    pub in_sync: u32,
    /// Whether a file cannot be undone without a permit.
    pub is_blocked: bool,
}

/// The change of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStep {
    /// The path of the file.
    pub path: String,
    /// The change that is made.
    pub action: StepAction,
    /// The present content; `None` if the file is missing.
    pub before: Option<FileState>,
    /// The record's entry afterwards; `None` if the record forgets the path.
    pub record: Option<RecordedFile>,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepAction {
    /// Writes the file whole.
    Write(DesiredFile),
    /// Writes the kept copy of what was there before any policy.
    PutBack(FileState),
    /// Removes the file: nothing was there before.
    Remove,
    /// Records a file that already matches the policy.
    Note,
    /// Forgets a file, and leaves it as it is.
    Forget,
}

/// A file that differs from its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// The path of the file.
    pub path: String,
    /// The uid of the policy.
    pub policy: String,
    /// The state of the file.
    pub state: ItemState,
    /// The cause, and the next step.
    pub message: String,
}

impl StepAction {
    /// Whether a file changes.
    pub const fn changes_file(&self) -> bool {
        matches!(self, Self::Write(_) | Self::PutBack(_) | Self::Remove)
    }
}

impl FilePlan {
    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.restart.is_empty()
    }

    /// Whether the node might be lost, so that a guard must be there first.
    pub fn is_guarded(&self) -> bool {
        self.restart.iter().any(|unit| unit.is_guarded())
    }
}

/// Plans. `observed` has each path that the policies or the record name; one that is missing counts as unreadable.
pub fn plan(desired: &DesiredFiles, record: &FileRecord, observed: &BTreeMap<String, ObservedFile>) -> FilePlan {
    let unread = ObservedFile::Unusable("it was not read".to_owned());
    let at = |path: &String| observed.get(path).unwrap_or(&unread);
    let (allowed, reports) = (desired.restart.clone(), desired.refused.clone());
    let mut plan = FilePlan { allowed, reports, ..FilePlan::default() };
    let mut changed = record.owed.clone();
    for (path, file) in &desired.report {
        plan.compare(path, file, at(path));
    }
    for (path, file) in &desired.apply {
        match permit(path, file, &desired.grants) {
            Ok(place) => {
                if plan.set(path, file, record.files.get(path), at(path)) {
                    plan.note_change(place, &mut changed);
                }
            }
            Err(report) => plan.reports.push(report),
        }
    }
    for (path, recorded) in record.files.iter().filter(|(path, _)| !desired.apply.contains_key(*path)) {
        let (place, is_kept) = (locate(path).ok(), desired.kept.contains(&recorded.policy));
        // Its folder is not mounted, so it is neither seen nor forgotten.
        if place.is_some_and(|place| !desired.grants.contains(&place.grant)) && !is_kept {
            plan.is_blocked = true;
            continue;
        }
        let is_changed = plan.undo(path, recorded, at(path), is_kept);
        if let Some(place) = place.filter(|_| is_changed) {
            plan.note_change(place, &mut changed);
        }
    }
    plan.steps.sort_by(|one, other| one.path.cmp(&other.path));
    let may_restart: BTreeSet<HostUnit> = desired.restart.union(&record.restart).copied().collect();
    (plan.restart, plan.waiting) = changed.into_iter().partition(|unit| may_restart.contains(unit));
    plan
}

/// Whether a policy may have this file here.
fn permit(path: &str, file: &DesiredFile, grants: &[FileGrant]) -> Result<Place, FileReport> {
    let refused = |state, message| FileReport { path: path.to_owned(), policy: file.policy.clone(), state, message };
    let place = match file.is_rendered {
        true => locate(path).and_then(|place| check_content(place, &file.content, file.mode).map(|()| place)),
        false => check(path, &file.content, file.mode),
    };
    let place = place.map_err(|refusal| refused(ItemState::Refused, refusal.to_string()))?;
    if grants.contains(&place.grant) { Ok(place) } else { Err(not_granted(path, &file.policy, place.grant)) }
}

/// What the cluster's owner does not permit.
pub(crate) fn not_granted(path: &str, policy: &str, grant: FileGrant) -> FileReport {
    let message = format!("the chart's value {grant} is false. Set it to true.");
    FileReport { path: path.to_owned(), policy: policy.to_owned(), state: ItemState::NotGranted, message }
}

impl FilePlan {
    /// The record while the plan is carried out. It is stored before the first file changes, so that a killed program leaves what the
    /// next one needs to bring the earlier files back.
    pub fn begin(&self, record: &FileRecord, order: &str, failed: &BTreeSet<HostUnit>) -> FileRecord {
        let mut next = record.clone();
        let mut pending = PendingChange {
            order: order.to_owned(),
            units: self.restart.clone(),
            failed: self.restart.intersection(failed).copied().collect(),
            reload: self.reload,
            restart: record.restart.clone(),
            owed: record.owed.clone(),
            ..PendingChange::default()
        };
        for step in &self.steps {
            if step.action.changes_file() {
                pending.before.insert(step.path.clone(), step.before.clone());
            }
            pending.records.insert(step.path.clone(), record.files.get(&step.path).cloned());
            match &step.action {
                StepAction::Write(_) | StepAction::Note => {
                    if let Some(entry) = &step.record {
                        next.files.insert(step.path.clone(), entry.clone());
                    }
                }
                StepAction::PutBack(_) | StepAction::Remove | StepAction::Forget => drop(next.files.remove(&step.path)),
            }
        }
        next.version = VERSION;
        next.restart.clone_from(&self.allowed);
        // Units that wait for a permit are owed a restart, too, until a policy permits it.
        next.owed = self.restart.union(&self.waiting).copied().collect();
        next.pending = Some(pending);
        next
    }

    fn note_change(&mut self, place: Place, changed: &mut BTreeSet<HostUnit>) {
        self.reload |= place.is_of_systemd();
        changed.extend(place.unit);
    }

    /// Compares a file that a policy only reports.
    fn compare(&mut self, path: &str, file: &DesiredFile, observed: &ObservedFile) {
        let state = FileState::of(file.content.as_bytes(), file.mode);
        match observed {
            ObservedFile::Present(present) if *present == state => self.in_sync += 1,
            ObservedFile::Unusable(why) => self.report(path, file, ItemState::Drifted, why.clone()),
            ObservedFile::Present(_) => self.report(path, file, ItemState::Drifted, "the file differs".to_owned()),
            ObservedFile::Absent => self.report(path, file, ItemState::Drifted, "the file is missing".to_owned()),
        }
    }

    /// Plans a file that a policy has. Whether the file changes.
    fn set(
        &mut self,
        path: &str,
        file: &DesiredFile,
        recorded: Option<&RecordedFile>,
        observed: &ObservedFile,
    ) -> bool {
        let applied = FileState::of(file.content.as_bytes(), file.mode);
        let before = match observed {
            ObservedFile::Absent => None,
            ObservedFile::Present(state) => Some(state.clone()),
            ObservedFile::Unusable(why) => {
                self.report(path, file, ItemState::Failed, why.clone());
                return false;
            }
        };
        let is_same = before.as_ref() == Some(&applied);
        if let Some(recorded) = recorded
            && recorded.applied == applied
            && !is_same
        {
            let what = if before.is_some() { "changed" } else { "removed" };
            let message = format!("another program {what} the file, so it stays. Change the policy to write it again.");
            self.report(path, file, ItemState::Drifted, message);
            return false;
        }
        let original = match (recorded, &before) {
            (Some(recorded), _) => recorded.original.clone(),
            (None, Some(state)) => Original::Kept(state.clone()),
            (None, None) => Original::Absent,
        };
        let record = RecordedFile { original, applied, policy: file.policy.clone() };
        if is_same {
            self.in_sync += 1;
            if recorded == Some(&record) {
                return false;
            }
        }
        let action = if is_same { StepAction::Note } else { StepAction::Write(file.clone()) };
        self.steps.push(FileStep { path: path.to_owned(), action, before, record: Some(record) });
        !is_same
    }

    /// Plans a file that no policy has any more. Whether the file changes.
    fn undo(&mut self, path: &str, recorded: &RecordedFile, observed: &ObservedFile, is_kept: bool) -> bool {
        let is_ours = matches!(observed, ObservedFile::Present(state) if *state == recorded.applied);
        let action = match &recorded.original {
            _ if is_kept || !is_ours => StepAction::Forget,
            Original::Kept(state) if *state == recorded.applied => StepAction::Forget,
            Original::Kept(state) => StepAction::PutBack(state.clone()),
            Original::Absent => StepAction::Remove,
        };
        let before = match observed {
            ObservedFile::Present(state) => Some(state.clone()),
            _ => None,
        };
        let changes = action.changes_file();
        self.steps.push(FileStep { path: path.to_owned(), action, before, record: None });
        changes
    }

    fn report(&mut self, path: &str, file: &DesiredFile, state: ItemState, message: String) {
        self.reports.push(FileReport { path: path.to_owned(), policy: file.policy.clone(), state, message });
    }
}
