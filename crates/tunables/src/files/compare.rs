//! The state of a node's files, for its agent: the agent compares and answers, and a Pod changes them. Pure.
//!
//! ```text
//!   NodeDocument ─┐
//!   FileRecord ───┼─▶ compare ─▶ state (does a Pod have to run?), reports, policies whose files change
//!   ObservedFile ─┘
//! ```

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use api::node_policy::{FileGrant, HostUnit};

use crate::document::{DesiredReservations, DocumentMode, NodeDocument};
use crate::files::answer::{FilesAnswer, FilesState};
use crate::files::folders::{Place, locate};
use crate::files::order::{FileOrder, OrderedReservations, rendered_paths};
use crate::files::plan::{DesiredFile, DesiredFiles, FilePlan, FileReport, ObservedFile, not_granted, plan};
use crate::files::record::{FileRecord, FileState, RecordedFile, RecordedReservations};
use crate::files::reservations;
use crate::item::KUBELET;
use crate::report::{ItemReport, ItemState};

/// What a comparison finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileComparison {
    /// The state of the files; `None` if the node has none.
    pub answer: Option<FilesAnswer>,
    /// Items that differ from the policies, or are refused, each with its state.
    pub reports: Vec<ItemReport>,
    /// How many items are as the policies require.
    pub in_sync: u32,
    /// Names of policies whose files a Pod changes, or must.
    pub changing: BTreeSet<String>,
    /// Files of policies that left the node, which stay, and why.
    pub unrestored: Vec<String>,
}

/// The paths that [`compare`] needs.
pub fn paths(document: &NodeDocument, record: &FileRecord) -> BTreeSet<String> {
    let of_document = document.files.iter().map(|file| file.path.clone());
    let of_kubelet = rendered_paths().into_iter().filter(|_| !document.kubelet.is_empty());
    of_document.chain(record.files.keys().cloned()).chain(of_kubelet).collect()
}

/// Compares. `observed` has each path of [`paths`] whose folder is mounted; `is_mounted` says that of a folder.
pub fn compare(
    document: &NodeDocument,
    record: &FileRecord,
    observed: &BTreeMap<String, ObservedFile>,
    is_mounted: impl Fn(&str) -> bool,
) -> FileComparison {
    let order = FileOrder::of(document);
    // A copied disk, or a new cluster: the Pod begins a new record, too.
    let is_own = record.is_of(&document.cluster, document.instance.as_deref());
    let record = if is_own { record.clone() } else { FileRecord::default() };
    let is_blank = document.files.is_empty() && document.kubelet.is_empty();
    if is_blank && record.files.is_empty() && record.pending.is_none() {
        return FileComparison::default();
    }
    let is_left = |file: &RecordedFile| document.policies.iter().all(|policy| policy.uid != file.policy);
    let left = record.files.iter().filter(|(_, file)| is_left(file)).map(|(path, _)| path.clone()).collect();
    let grants: Vec<FileGrant> = document.grants.iter().copied().collect();
    let (desired, found) = (order.explicit(&grants), Vec::new());
    let mut comparison = Comparison { document, order: &order, observed, desired, record, left, found };
    comparison.desired.report = reported(document);
    comparison.leave_unmounted(is_mounted);
    let (is_kubelet_due, matches) = comparison.reservations();
    let mut plan = plan(&comparison.desired, &comparison.record, observed);
    plan.in_sync += matches;
    plan.reports.append(&mut comparison.found);
    comparison.conclude(plan, is_kubelet_due)
}

/// The same, where the record cannot be read. An unreadable record must not count as an empty one.
pub fn unreadable(document: &NodeDocument, reason: &str) -> FileComparison {
    let (order, record, observed) = (FileOrder::of(document), FileRecord::default(), BTreeMap::new());
    let desired = DesiredFiles::default();
    let (left, found) = (Vec::new(), Vec::new());
    let comparison = Comparison { document, order: &order, observed: &observed, desired, record, left, found };
    let report = |(policy, path): (String, String)| {
        let (state, message) = (ItemState::Failed, reason.to_owned());
        comparison.item(&FileReport { path, policy, state, message })
    };
    let reports: Vec<ItemReport> = comparison.applied().into_iter().filter_map(report).collect();
    let (_, sha256) = order.to_text();
    let answer = FilesAnswer { order: sha256, ..FilesAnswer::default() };
    FileComparison { answer: (!reports.is_empty()).then_some(answer), reports, ..FileComparison::default() }
}

/// The files of policies that only compare.
fn reported(document: &NodeDocument) -> BTreeMap<String, DesiredFile> {
    let report = |index: usize| document.policy(index).filter(|policy| policy.mode == DocumentMode::Report);
    let file = |file: &crate::document::DesiredHostFile| {
        let (content, mode, policy) = (file.content.clone(), file.mode, report(file.policy)?.uid.clone());
        Some((file.path.clone(), DesiredFile { content, mode, policy, is_rendered: false }))
    };
    document.files.iter().filter_map(file).collect()
}

struct Comparison<'a> {
    document: &'a NodeDocument,
    order: &'a FileOrder,
    observed: &'a BTreeMap<String, ObservedFile>,
    desired: DesiredFiles,
    record: FileRecord,
    /// Paths of policies that left the node.
    left: Vec<String>,
    found: Vec<FileReport>,
}

impl Comparison<'_> {
    /// Leaves out what this container does not see.
    fn leave_unmounted(&mut self, is_mounted: impl Fn(&str) -> bool) {
        let grants = self.desired.grants.clone();
        let place = |path: &str| locate(path).ok().filter(|place| grants.contains(&place.grant));
        let unseen = |path: &str| place(path).filter(|place| !is_mounted(place.folder));
        let found = &mut self.found;
        let mut keep = |path: &String, file: &mut DesiredFile| {
            let Some(Place { folder, grant, .. }) = unseen(path) else { return true };
            let message =
                format!("the agent's container lacks the mount of {folder}. Set the chart's value {grant} to true.");
            let (path, policy) = (path.clone(), file.policy.clone());
            found.push(FileReport { path, policy, state: ItemState::NotGranted, message });
            false
        };
        self.desired.apply.retain(&mut keep);
        self.desired.report.retain(&mut keep);
        // What only compares is not seen without its grant, either.
        self.desired.report.retain(|path, file| match locate(path) {
            Ok(place) if !grants.contains(&place.grant) => {
                found.push(not_granted(path, &file.policy, place.grant));
                false
            }
            _ => true,
        });
        self.record.files.retain(|path, _| unseen(path).is_none());
    }

    /// Compares the files that reservations became. Only their Pod knows the kubelet's flags, so its findings are in the record.
    /// Returns whether a Pod must run, and how many items match.
    fn reservations(&mut self) -> (bool, u32) {
        let mut in_sync = 0;
        let reported = self.document.kubelet.iter().filter_map(|desired| {
            let policy = self.document.policy(desired.policy).filter(|policy| policy.mode == DocumentMode::Report)?;
            Some((policy.uid.clone(), FileState::of(reservations::drop_in(&desired.reservations).as_bytes(), 0o644)))
        });
        let is_granted = self.desired.grants.contains(&FileGrant::HostCode);
        for (policy, state) in reported.collect::<Vec<_>>() {
            let [drop_in, _] = rendered_paths();
            match self.observed.get(&drop_in) {
                _ if !is_granted => self.found.push(not_granted(KUBELET, &policy, FileGrant::HostCode)),
                Some(ObservedFile::Present(present)) if *present == state => in_sync += 1,
                _ => self.report(
                    &policy,
                    ItemState::Drifted,
                    format!("the kubelet has other reservations in {drop_in}, or none."),
                ),
            }
        }
        let Some(OrderedReservations { reservations, policy }) = &self.order.kubelet else { return (false, in_sync) };
        let own: Vec<_> =
            rendered_paths().into_iter().filter_map(|path| self.record.files.remove_entry(&path)).collect();
        if !is_granted {
            self.found.push(not_granted(KUBELET, policy, FileGrant::HostCode));
            return (false, in_sync);
        }
        let known = self.record.kubelet.take();
        let Some(known) = known.filter(|known| known.is_of(reservations)) else { return (true, in_sync) };
        let is_changed = |(path, recorded): &&(String, RecordedFile)| !matches!(self.observed.get(path), Some(ObservedFile::Present(state)) if *state == recorded.applied);
        match (known, own.iter().find(is_changed)) {
            (RecordedReservations { state: Some(state), message, .. }, _) => self.report(policy, state, message),
            (_, Some((path, _))) => self.report(
                policy,
                ItemState::Drifted,
                format!("another program changed {path}, so it stays. Change the policy to write it again."),
            ),
            _ => in_sync += 1,
        }
        (false, in_sync)
    }

    fn report(&mut self, policy: &str, state: ItemState, message: String) {
        self.found.push(FileReport { path: KUBELET.to_owned(), policy: policy.to_owned(), state, message });
    }

    fn conclude(self, plan: FilePlan, is_kubelet_due: bool) -> FileComparison {
        let (_, sha256) = self.order.to_text();
        let state = self.state(&plan, &sha256, is_kubelet_due);
        let mut reports: Vec<ItemReport> = plan.reports.iter().filter_map(|report| self.item(report)).collect();
        // Units of a change that no Pod has made yet are not reported: they still run with the file that is there.
        let waiting = plan.waiting.iter().filter(|unit| self.record.owed.contains(unit));
        reports.extend(waiting.filter_map(|unit| self.waiting(*unit)));
        let applied = self.applied();
        if state == FilesState::RolledBack {
            reports.extend(self.rolled_back(&applied));
        }
        let is_changing = state.is_unsettled();
        let pending = self.record.pending.as_ref().filter(|_| state == FilesState::Confirmable);
        let owners = applied.keys().cloned().chain(self.record.files.values().map(|file| file.policy.clone()));
        let answer = FilesAnswer {
            order: sha256,
            state,
            owners: owners.collect::<BTreeSet<_>>().into_iter().collect(),
            kubelet_started: pending.and_then(|pending| pending.kubelet_started),
        };
        let changing = applied.keys().filter(|_| is_changing).filter_map(|uid| self.name(uid)).collect();
        let unrestored = self.unrestored(state);
        FileComparison { answer: Some(answer), reports, in_sync: plan.in_sync, changing, unrestored }
    }

    fn unrestored(&self, state: FilesState) -> Vec<String> {
        let reason = match state {
            FilesState::RolledBack => self.record.rejection.as_ref().map_or("", |rejection| &rejection.message),
            FilesState::NotGranted => "the chart's value hostFiles or hostCode is false",
            _ => return Vec::new(),
        };
        self.left.iter().map(|path| format!("{path}: {reason}")).collect()
    }

    fn state(&self, plan: &FilePlan, sha256: &str, is_kubelet_due: bool) -> FilesState {
        match &self.record.pending {
            Some(pending) if pending.order == sha256 && pending.is_proven => return FilesState::Confirmable,
            Some(_) => return FilesState::Changing,
            None if self.record.rejected == sha256 => return FilesState::RolledBack,
            None => {}
        }
        if !plan.is_empty() || is_kubelet_due {
            return FilesState::Due;
        }
        let is_blocked = plan.is_blocked || plan.reports.iter().any(|report| report.state == ItemState::NotGranted);
        if is_blocked { FilesState::NotGranted } else { FilesState::Applied }
    }

    /// Policies that have files to apply, by uid, with one of their items.
    fn applied(&self) -> BTreeMap<String, String> {
        let kubelet = self.order.kubelet.iter().map(|kubelet| (kubelet.policy.clone(), KUBELET.to_owned()));
        let files = self.order.files.iter().rev().map(|file| (file.policy.clone(), file.path.clone()));
        kubelet.chain(files).collect()
    }

    fn rolled_back(&self, applied: &BTreeMap<String, String>) -> Vec<ItemReport> {
        let (message, culprits) = match &self.record.rejection {
            Some(rejection) => (rejection.message.clone(), rejection.policies.clone()),
            None => Default::default(),
        };
        let is_known = applied.keys().any(|uid| culprits.contains(uid));
        let affected = applied.iter().filter(|(uid, _)| !is_known || culprits.contains(*uid));
        let report = |(uid, path): (&String, &String)| {
            let (path, policy, message) = (path.clone(), uid.clone(), message.clone());
            self.item(&FileReport { path, policy, state: ItemState::RolledBack, message })
        };
        affected.filter_map(report).collect()
    }

    /// A unit that runs with earlier files.
    fn waiting(&self, unit: HostUnit) -> Option<ItemReport> {
        let is_of_unit = |path: &str| locate(path).is_ok_and(|place| place.unit == Some(unit));
        let of_file = self.order.files.iter().find(|file| is_of_unit(&file.path)).map(|file| &file.policy);
        let of_kubelet = self.order.kubelet.iter().find(|_| unit == HostUnit::Kubelet).map(|kubelet| &kubelet.policy);
        let message =
            "it runs with earlier files, because no policy has it in settings.restart. Add it there, or restart it.";
        self.item(&FileReport {
            path: unit.to_string(),
            policy: of_file.or(of_kubelet)?.clone(),
            state: ItemState::Drifted,
            message: message.to_owned(),
        })
    }

    /// A report in the words of an answer.
    fn item(&self, report: &FileReport) -> Option<ItemReport> {
        let desired = self.desired.apply.get(&report.path).or_else(|| self.desired.report.get(&report.path));
        let desired = desired.map(|file| FileState::of(file.content.as_bytes(), file.mode));
        let current = match self.observed.get(&report.path) {
            Some(ObservedFile::Present(state)) => state.to_string(),
            Some(ObservedFile::Absent) => "absent".to_owned(),
            Some(ObservedFile::Unusable(_)) | None => String::new(),
        };
        Some(ItemReport {
            item: report.path.clone(),
            policy: self.name(&report.policy)?,
            state: report.state,
            current,
            desired: desired.map(|state| state.to_string()).or_else(|| self.reserved(report)).unwrap_or_default(),
            message: report.message.clone(),
        })
    }

    /// The reservations that a report is about.
    fn reserved(&self, report: &FileReport) -> Option<String> {
        let is_own = |desired: &&DesiredReservations| {
            self.document.policy(desired.policy).is_some_and(|policy| policy.uid == report.policy)
        };
        let desired = self.document.kubelet.iter().find(is_own).filter(|_| report.path == KUBELET)?;
        serde_json::to_string(&desired.reservations).ok()
    }

    fn name(&self, uid: &str) -> Option<String> {
        self.document.policies.iter().find(|policy| policy.uid == uid).map(|policy| policy.name.clone())
    }
}
