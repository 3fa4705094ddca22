//! Carries a plan out: notes earlier values first, sets, reads back, restores. It holds no opinions; the plan has them.
//! A value that the node never had is on trial until the leader has reached the node again.

mod steps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use installer::{PolicySetting, note_policy_settings, policy_settings};
use ipam::BootId;
use resident::logging::chain;
use tunables::{Item, ItemReport, ItemState, NodeDocument, bounds};

use super::history::History;
use super::plan::{Facts, Plan, Record, Step, StepKind, Trial, Trials, plan};
use super::proofs::{ProofStore, Proofs};
use super::resolve::{DesiredValue, Resolved, resolve};
use super::sysctls::{KernelSettings, Observed, item_of, record_key};
use super::writers::name_writers;
use crate::reconcile::kernel_limits;
use crate::settings::Settings;

/// A request of the leader confirms a value this long after it was set: the kernel's effects may take a moment.
const CONFIRM_AFTER: Duration = Duration::from_secs(5);
/// Without such a request, the value is withdrawn after this time.
const CONFIRM_WITHIN: Duration = Duration::from_secs(120);
/// A leader whose last request is no older reaches the agent.
const LEADER_RECENT: Duration = Duration::from_secs(60);

/// What changes settings of the kernel. One at a time.
#[derive(Debug)]
pub(super) struct Applier {
    settings: Arc<Settings>,
    boot: BootId,
    /// Keys that the node adds to the table.
    added: BTreeSet<String>,
    kernel: KernelSettings,
    history: History,
    proofs: ProofStore,
    /// Values on trial of this process, with the time since when.
    trials: BTreeMap<Item, (DesiredValue, Instant)>,
}

/// When a comparison is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Whether the document has just come from the leader.
    pub(super) is_new: bool,
    /// The last request of the leader to this process.
    pub(super) contact: Option<Instant>,
    pub(super) now: Instant,
}

/// What a comparison found and did.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) reports: Vec<ItemReport>,
    pub(super) in_sync: u32,
    pub(super) changes: Vec<AppliedChange>,
    /// Earlier values that could not be restored, and why.
    pub(super) unrestored: Vec<String>,
    /// The policies with values on trial, by name.
    pub(super) on_trial: BTreeSet<String>,
    /// Why the record of earlier values, or the proofs, cannot be read or written.
    pub(super) record_error: Option<String>,
}

/// A change, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AppliedChange {
    pub(super) action: &'static str,
    pub(super) succeeded: bool,
}

/// What a comparison knows and finds.
struct Pass<'a> {
    document: &'a NodeDocument,
    resolved: Resolved,
    record: Record,
    proofs: Proofs,
    now: Instant,
    outcome: Outcome,
}

impl Applier {
    pub(super) fn new(settings: Arc<Settings>, boot: BootId) -> Self {
        let kernel = KernelSettings::new(&settings.sysctl_root, &settings.host_root);
        let proofs = ProofStore::new(&settings.data_dir);
        let added = settings.tunable_keys.clone().unwrap_or_default().0;
        Self { settings, boot, added, kernel, history: History::default(), proofs, trials: BTreeMap::new() }
    }

    /// Brings the kernel in sync with a document.
    pub(super) fn compare(&mut self, document: &NodeDocument, moment: Moment) -> Outcome {
        let Moment { is_new, contact, now } = moment;
        let mut outcome = Outcome::default();
        let mut resolved = resolve(document, &self.added);
        let record = self.record(&mut outcome);
        let items = resolved.apply.keys().chain(resolved.report.keys()).chain(record.keys());
        let observed: BTreeMap<Item, Observed> = items.map(|item| (item.clone(), self.kernel.read(item))).collect();
        refuse_harmful(&mut resolved, &record, &observed);
        self.history.retain(|item| resolved.apply.contains_key(item) || record.contains_key(item));
        let mut proofs = self.proofs.of(document);
        proofs.retain(|item| resolved.apply.contains_key(item));
        let mut pass = Pass { document, resolved, record, proofs, now, outcome };
        self.judge_trials(&mut pass, contact);
        let is_open = |(item, setting): &(&Item, &PolicySetting)| {
            setting.mark.previous.is_some() && !self.trials.contains_key(*item)
        };
        let unconfirmed = pass.record.iter().filter(is_open).map(|(item, _)| item.clone()).collect();
        let has_leader = contact.is_some_and(|at| now.saturating_duration_since(at) < LEADER_RECENT);
        let trial = match is_new {
            true => Trial::New,
            false if has_leader => Trial::Repeated,
            false => Trial::None,
        };
        let planned = plan(Facts {
            document,
            resolved: &pass.resolved,
            record: &pass.record,
            observed: &observed,
            history: &self.history,
            trials: Some(Trials { proofs: &pass.proofs, unconfirmed: &unconfirmed, trial }),
            now,
        });
        self.carry_out(&mut pass, planned);
        if let Err(error) = self.proofs.write(&pass.proofs) {
            pass.outcome.record_error = Some(error);
        }
        pass.outcome.on_trial = self.trials.values().map(|(desired, _)| desired.policy.clone()).collect();
        pass.outcome
    }

    /// What policies changed in this boot, but for links.
    fn record(&self, outcome: &mut Outcome) -> Record {
        let settings = policy_settings(&self.settings.data_dir, &self.boot).unwrap_or_else(|error| {
            outcome.record_error = Some(chain(&error));
            Vec::new()
        });
        settings.into_iter().filter_map(|setting| Some((item_of(&setting.key)?, setting))).collect()
    }

    /// Ends trials: a request of the leader confirms a value, and without any its time runs out.
    fn judge_trials(&mut self, pass: &mut Pass<'_>, contact: Option<Instant>) {
        let Pass { resolved, record, proofs, now, outcome, .. } = pass;
        let mut confirmed = Vec::new();
        self.trials.retain(|item, (desired, since)| {
            if resolved.apply.get(item).is_none_or(|now| now.value != desired.value) {
                return false;
            }
            if contact.is_some_and(|at| at >= *since + CONFIRM_AFTER) {
                proofs.note_proven(item, desired);
                if let Some(setting) = record.get_mut(item) {
                    setting.mark.previous = None;
                    confirmed.push(setting.clone());
                }
                return false;
            }
            *now < *since + CONFIRM_WITHIN
        });
        if let Err(error) = note_policy_settings(&self.settings.data_dir, &self.boot, &confirmed) {
            outcome.record_error = Some(chain(&error));
        }
    }

    fn carry_out(&mut self, pass: &mut Pass<'_>, planned: Plan) {
        let notes = self.notes(pass, &planned);
        let Plan { steps, in_sync, compared, stopped, forget, unrestored, reports } = planned;
        (pass.outcome.reports, pass.outcome.unrestored) = (reports, unrestored);
        pass.outcome.in_sync = compared + u32::try_from(in_sync.len()).unwrap_or(u32::MAX);
        for (item, desired) in in_sync {
            self.history.note_in_sync(&item, &desired.value);
            if !self.trials.contains_key(&item) {
                pass.proofs.note_proven(&item, &desired);
            }
        }
        for (item, value) in stopped {
            self.history.note_stop(&item, &value, pass.now);
        }
        name_writers(&mut pass.outcome.reports, &pass.resolved, &self.settings.host_root);
        for step in &steps {
            if let StepKind::Try(desired) = &step.kind {
                pass.proofs.note_attempt(&step.item, desired);
            }
        }
        let noted = note_policy_settings(&self.settings.data_dir, &self.boot, &notes).map_err(|error| chain(&error));
        match noted.and_then(|()| self.proofs.write(&pass.proofs)) {
            Ok(()) => self.set(pass, &steps),
            Err(error) => {
                let failed = |step: &Step| step.report(ItemState::Failed, format!("not noted: {error}"));
                pass.outcome.reports.extend(steps.iter().filter_map(failed));
                pass.outcome.record_error = Some(error);
            }
        }
        self.withdraw(pass, &steps);
        let restored = self.restore(pass, &steps);
        self.forget(forget.into_iter().chain(restored), &mut pass.outcome);
    }

    /// What is to be noted before anything changes: values that will be set, their counterparts, and values that belong to
    /// another policy now.
    fn notes(&self, pass: &Pass<'_>, planned: &Plan) -> Vec<PolicySetting> {
        let Pass { document, resolved, record, .. } = pass;
        let mut notes = planned.moved(document, record);
        for Step { item, from, to, kind } in &planned.steps {
            let open = record.get(item).and_then(|noted| noted.mark.previous.clone());
            let (desired, previous) = match kind {
                StepKind::Try(desired) => (desired, open.or_else(|| Some(from.clone()))),
                StepKind::SetBack(desired) => (desired, open),
                StepKind::Set(desired) => (desired, None),
                StepKind::Withdraw | StepKind::Restore => continue,
            };
            let (before, set, mark) = (from.clone(), to.clone(), desired.mark(document, previous));
            notes.push(PolicySetting { key: record_key(item), before, set, mark });
            if let Some(counterpart) = item.counterpart().filter(|item| !resolved.apply.contains_key(item))
                && let Observed::Value(before) = self.kernel.read(&counterpart)
            {
                let (set, mark) = ("0".to_owned(), desired.mark(document, None));
                notes.push(PolicySetting { key: record_key(&counterpart), before, set, mark });
            }
        }
        notes
    }
}

/// Refuses values that would harm this node: compared with its memory, and with what the kernel chose at boot.
fn refuse_harmful(resolved: &mut Resolved, record: &Record, observed: &BTreeMap<Item, Observed>) {
    let memory = kernel_limits::memory() / 1024;
    resolved.refuse(|item, desired| {
        let boot = match (record.get(item), observed.get(item)) {
            (Some(noted), _) => &noted.before,
            (None, Some(Observed::Value(current))) => current,
            _ => return Ok(()),
        };
        bounds::check(&item.to_string(), &desired.value, boot, memory)
    });
}
