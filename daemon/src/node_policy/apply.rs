//! Carries a plan out: notes earlier values first, sets, reads back, restores. It holds no opinions; the plan has them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use installer::{PolicyMark, PolicySetting, forget_policy_settings, note_policy_settings, policy_settings};
use ipam::BootId;
use resident::logging::chain;
use tunables::value::is_same;
use tunables::{Item, ItemReport, ItemState, NodeDocument, keys};

use super::history::History;
use super::plan::{Facts, Step, StepKind, not_granted, plan, report};
use super::resolve::{DesiredValue, Resolved, resolve};
use super::sysctls::{KernelSettings, Observed, WriteError, item_of, record_key};
use super::writers::likely_writer;
use crate::settings::Settings;
use crate::sources::backoff::chance;

/// What changes settings of the kernel. One at a time.
#[derive(Debug)]
pub(super) struct Applier {
    settings: Arc<Settings>,
    boot: BootId,
    kernel: KernelSettings,
    history: History,
}

/// What a comparison found and did.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) reports: Vec<ItemReport>,
    pub(super) in_sync: u32,
    pub(super) changes: Vec<AppliedChange>,
    /// Why the record of earlier values cannot be read or written.
    pub(super) record_error: Option<String>,
}

/// A change, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AppliedChange {
    pub(super) action: &'static str,
    pub(super) succeeded: bool,
}

impl Applier {
    pub(super) fn new(settings: Arc<Settings>, boot: BootId) -> Self {
        let kernel = KernelSettings::new(&settings.sysctl_root, &settings.host_root);
        Self { settings, boot, kernel, history: History::default() }
    }

    /// Brings the kernel in sync with a document.
    pub(super) fn compare(&mut self, document: &NodeDocument, now: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        let resolved = resolve(document, &self.settings.tunable_keys.0);
        let record = policy_settings(&self.settings.data_dir, &self.boot).unwrap_or_else(|error| {
            outcome.record_error = Some(chain(&error));
            Vec::new()
        });
        let record: BTreeMap<Item, PolicySetting> =
            record.into_iter().filter_map(|setting| Some((item_of(&setting.key)?, setting))).collect();
        let items = resolved.apply.keys().chain(resolved.report.keys()).chain(record.keys());
        let observed: BTreeMap<Item, Observed> = items.map(|item| (item.clone(), self.kernel.read(item))).collect();
        self.history.retain(|item| resolved.apply.contains_key(item) || record.contains_key(item));
        let facts =
            Facts { document, resolved: &resolved, record: &record, observed: &observed, history: &self.history, now };
        let planned = plan(facts);
        let notes = self.notes(document, &planned.steps, &planned.in_sync, &record, &resolved);
        outcome.reports = planned.reports;
        outcome.in_sync = planned.compared + u32::try_from(planned.in_sync.len()).unwrap_or(u32::MAX);
        for (item, desired) in planned.in_sync {
            self.history.note_in_sync(&item, &desired.value);
        }
        for (item, value) in planned.stopped {
            self.history.note_stop(&item, &value, now);
        }
        for reverted in outcome.reports.iter_mut().filter(|report| report.state == ItemState::Reverted) {
            let writer = reverted.item.parse().map(|item| likely_writer(&item, &resolved, &self.settings.host_root));
            reverted.message = format!("likely writer: {}; {}", writer.unwrap_or_default(), reverted.message);
        }
        let (restores, sets): (Vec<_>, Vec<_>) =
            planned.steps.into_iter().partition(|step| step.kind == StepKind::Restore);
        match note_policy_settings(&self.settings.data_dir, &self.boot, &notes) {
            Ok(()) => self.set(document, sets, now, &mut outcome),
            Err(error) => {
                let error = chain(&error);
                outcome.reports.extend(sets.iter().filter_map(|step| failed(step, &format!("not noted: {error}"))));
                outcome.record_error = Some(error);
            }
        }
        let mut forget = planned.forget;
        forget.extend(self.restore(restores, now, &mut outcome));
        let forget: Vec<String> = forget.iter().map(record_key).collect();
        if let Err(error) = forget_policy_settings(&self.settings.data_dir, &self.boot, &forget) {
            outcome.record_error = Some(chain(&error));
        }
        outcome
    }

    /// What is to be noted before anything changes: values that will be set, their counterparts, and values that belong to
    /// another policy now.
    fn notes(
        &self,
        document: &NodeDocument,
        steps: &[Step],
        in_sync: &[(Item, DesiredValue)],
        record: &BTreeMap<Item, PolicySetting>,
        resolved: &Resolved,
    ) -> Vec<PolicySetting> {
        let mut notes = Vec::new();
        for step in steps {
            let (StepKind::Set(desired) | StepKind::SetBack(desired)) = &step.kind else { continue };
            notes.push(noted(document, &step.item, &step.from, &step.to, desired));
            let Item::Sysctl(key) = &step.item else { continue };
            let counterpart = keys::counterpart(key).map(|key| Item::Sysctl(key.to_owned()));
            if let Some(counterpart) = counterpart.filter(|item| !resolved.apply.contains_key(item))
                && let Observed::Value(before) = self.kernel.read(&counterpart)
            {
                let zero = DesiredValue { value: "0".to_owned(), ..desired.clone() };
                notes.push(noted(document, &counterpart, &before, "0", &zero));
            }
        }
        for (item, desired) in in_sync {
            let Some(known) = record.get(item) else { continue };
            let note = noted(document, item, &known.before, &known.set, desired);
            notes.extend((note.mark != known.mark).then_some(note));
        }
        notes
    }

    /// Sets values, and reads them back.
    fn set(&mut self, document: &NodeDocument, steps: Vec<Step>, now: Instant, outcome: &mut Outcome) {
        let mut rounded = Vec::new();
        for step in steps {
            let (desired, action) = match &step.kind {
                StepKind::Set(desired) => (desired, "set"),
                StepKind::SetBack(desired) => (desired, "set_back"),
                StepKind::Restore => continue,
            };
            let Step { item, from, to, .. } = &step;
            let written = self.kernel.write(item, to);
            let error = match (written, self.kernel.read(item)) {
                (Err(WriteError::NotGranted), _) => {
                    let message = not_granted(item);
                    outcome.reports.push(report(item, desired, from, ItemState::NotGranted, message));
                    continue;
                }
                (Err(WriteError::Refused(error)), _) => error,
                (Ok(()), Observed::Value(value)) if is_same(&value, to) => String::new(),
                (Ok(()), Observed::Value(value)) if is_same(&value, from) => {
                    format!("the kernel accepted the value and kept {value}")
                }
                (Ok(()), Observed::Value(value)) => {
                    rounded.push(noted(document, item, from, &value, desired));
                    String::new()
                }
                (Ok(()), _) => "the value cannot be read back".to_owned(),
            };
            outcome.changes.push(AppliedChange { action, succeeded: error.is_empty() });
            if error.is_empty() {
                tracing::info!(event = "policy.set", %item, from, to, policy = desired.policy, action);
                if action == "set_back" {
                    self.history.note_set_back(item, to, now);
                }
                self.history.note_in_sync(item, to);
                outcome.in_sync += 1;
            } else {
                tracing::warn!(event = "policy.not_set", %item, from, to, policy = desired.policy, error);
                self.history.note_refused(item, to, &error, now, chance());
                outcome.reports.extend(failed(&step, &error));
            }
        }
        if let Err(error) = note_policy_settings(&self.settings.data_dir, &self.boot, &rounded) {
            outcome.record_error = Some(chain(&error));
        }
    }

    /// Restores earlier values; returns the items that have them. One that the kernel refuses may come back with another:
    /// 0 bytes are set by setting percent.
    fn restore(&mut self, steps: Vec<Step>, now: Instant, outcome: &mut Outcome) -> Vec<Item> {
        let written: Vec<_> = steps.iter().map(|step| self.kernel.write(&step.item, &step.to)).collect();
        let mut restored = Vec::new();
        for (Step { item, from, to, .. }, written) in steps.into_iter().zip(written) {
            let succeeded = matches!(self.kernel.read(&item), Observed::Value(value) if is_same(&value, &to));
            outcome.changes.push(AppliedChange { action: "restore", succeeded });
            if succeeded {
                tracing::info!(event = "policy.restored", %item, from, to, "no policy requires it any more");
                restored.push(item);
            } else {
                let error = match written {
                    Err(WriteError::Refused(error)) => error,
                    Err(WriteError::NotGranted) => not_granted(&item),
                    Ok(()) => "the kernel has another value".to_owned(),
                };
                tracing::warn!(event = "policy.not_restored", %item, from, to, error);
                self.history.note_refused(&item, &to, &error, now, chance());
            }
        }
        restored
    }
}

fn noted(document: &NodeDocument, item: &Item, before: &str, set: &str, desired: &DesiredValue) -> PolicySetting {
    let mark =
        PolicyMark { policy: desired.uid.clone(), cluster: document.cluster.clone(), requested: desired.value.clone() };
    PolicySetting { key: record_key(item), before: before.to_owned(), set: set.to_owned(), mark }
}

fn failed(step: &Step, error: &str) -> Option<ItemReport> {
    let (StepKind::Set(desired) | StepKind::SetBack(desired)) = &step.kind else { return None };
    Some(report(&step.item, desired, &step.from, ItemState::Failed, error.to_owned()))
}
