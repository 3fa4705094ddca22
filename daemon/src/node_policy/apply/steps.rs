//! Single steps: set and read back, withdraw, restore, forget.

use installer::{PolicySetting, forget_policy_settings, note_policy_settings};
use resident::logging::chain;
use tunables::value::is_same;
use tunables::{Item, ItemState};

use super::{AppliedChange, Applier, Outcome, Pass};
use crate::node_policy::plan::{Step, StepKind, not_granted, unrestored};
use crate::node_policy::sysctls::{Observed, WriteError, record_key};

/// What became of a write.
enum Written {
    /// The kernel has this value.
    Has(String),
    NotGranted,
    Failed(String),
}

impl Applier {
    /// Sets values, and reads them back.
    pub(super) fn set(&mut self, pass: &mut Pass<'_>, steps: &[Step]) {
        let Pass { document, record, proofs, now, outcome, .. } = pass;
        let now = *now;
        let mut rounded = Vec::new();
        for step in steps {
            let Some(desired) = step.desired() else { continue };
            let action = if matches!(step.kind, StepKind::SetBack(_)) { "set_back" } else { "set" };
            let Step { item, from, to, kind } = step;
            let is_trial = matches!(kind, StepKind::Try(_));
            let error = match self.write(step) {
                Written::Has(value) => {
                    if !is_same(&value, to) {
                        let open = record.get(item).and_then(|noted| noted.mark.previous.clone());
                        let previous = if is_trial { open.or_else(|| Some(from.clone())) } else { open };
                        let mark = desired.mark(document, previous);
                        rounded.push(PolicySetting { key: record_key(item), before: from.clone(), set: value, mark });
                    }
                    None
                }
                Written::NotGranted => {
                    outcome.reports.extend(step.report(ItemState::NotGranted, not_granted(item)));
                    proofs.take_back_attempt(item);
                    continue;
                }
                Written::Failed(error) => Some(error),
            };
            outcome.changes.push(AppliedChange { action, succeeded: error.is_none() });
            if let Some(error) = error {
                tracing::warn!(event = "policy.not_set", %item, from, to, policy = desired.policy, error);
                self.history.note_refused(item, to, &error, now);
                proofs.take_back_attempt(item);
                outcome.reports.extend(step.report(ItemState::Failed, error));
                continue;
            }
            tracing::info!(event = "policy.set", %item, from, to, policy = desired.policy, action);
            if action == "set_back" {
                self.history.note_set_back(item, to, now);
            }
            if is_trial {
                self.trials.insert(item.clone(), (desired.clone(), now));
            }
            self.history.note_in_sync(item, to);
            outcome.in_sync += 1;
        }
        if let Err(error) = note_policy_settings(&self.settings.data_dir, &self.boot, &rounded) {
            outcome.record_error = Some(chain(&error));
        }
    }

    fn write(&self, step: &Step) -> Written {
        let Step { item, from, to, .. } = step;
        match (self.kernel.write(item, to), self.kernel.read(item)) {
            (Err(WriteError::NotGranted), _) => Written::NotGranted,
            (Err(WriteError::Refused(error)), _) => Written::Failed(error),
            (Ok(()), Observed::Value(value)) => match is_same(&value, from) && !is_same(&value, to) {
                true if !is_rounded(to, &value) => {
                    Written::Failed(format!("the kernel accepted the value and kept {value}"))
                }
                _ => Written::Has(value),
            },
            (Ok(()), _) => Written::Failed("the value cannot be read back".to_owned()),
        }
    }

    /// Brings the value before back that was not confirmed. Of an amount in bytes and in percent the kernel refuses 0: then the
    /// counterpart's value comes back.
    pub(super) fn withdraw(&mut self, pass: &mut Pass<'_>, steps: &[Step]) {
        let Pass { record, now, outcome, .. } = pass;
        let (mut kept, mut forget) = (Vec::new(), Vec::new());
        for step in steps.iter().filter(|step| step.kind == StepKind::Withdraw) {
            let Step { item, from, to, .. } = step;
            let Some(noted) = record.get(item) else { continue };
            let partner = item.counterpart().and_then(|partner| Some((record.get(&partner)?, partner)));
            let written = match partner.filter(|_| to == "0") {
                Some((other, partner)) => self.kernel.write(&partner, &other.before),
                None => self.kernel.write(item, to),
            };
            let succeeded = matches!(self.kernel.read(item), Observed::Value(value) if is_same(&value, to));
            outcome.changes.push(AppliedChange { action: "withdraw", succeeded });
            if !succeeded {
                tracing::warn!(event = "policy.not_withdrawn", %item, from, to, error = ?written.err());
                self.history.note_refused(item, to, "not withdrawn", *now);
                continue;
            }
            tracing::warn!(event = "policy.withdrawn", %item, from, to, "no request of the leader arrived after it was set");
            self.history.forget(item);
            if is_same(to, &noted.before) {
                forget.push(item.clone());
            } else {
                let mut mark = noted.mark.clone();
                (mark.requested, mark.previous) = (to.clone(), None);
                kept.push(PolicySetting { set: to.clone(), mark, ..noted.clone() });
            }
        }
        if let Err(error) = note_policy_settings(&self.settings.data_dir, &self.boot, &kept) {
            outcome.record_error = Some(chain(&error));
        }
        self.forget(forget.into_iter(), outcome);
    }

    /// Restores earlier values; returns the items that have them. Of an amount in bytes and in percent the kernel refuses 0, and
    /// sets it when the other one is set, which therefore comes first.
    pub(super) fn restore(&mut self, pass: &mut Pass<'_>, steps: &[Step]) -> Vec<Item> {
        let Pass { now, outcome, .. } = pass;
        let mut steps: Vec<&Step> = steps.iter().filter(|step| step.kind == StepKind::Restore).collect();
        steps.sort_by_key(|step| step.to == "0");
        let mut restored = Vec::new();
        for Step { item, from, to, .. } in steps {
            let written = self.kernel.write(item, to);
            let succeeded = matches!(self.kernel.read(item), Observed::Value(value) if is_same(&value, to));
            outcome.changes.push(AppliedChange { action: "restore", succeeded });
            if succeeded {
                tracing::info!(event = "policy.restored", %item, from, to, "no policy requires it any more");
                restored.push(item.clone());
                continue;
            }
            let error = match written {
                Err(WriteError::Refused(error)) => error,
                Err(WriteError::NotGranted) => not_granted(item),
                Ok(()) => "the kernel has another value".to_owned(),
            };
            tracing::warn!(event = "policy.not_restored", %item, from, to, error);
            outcome.unrestored.push(unrestored(item, to, &error));
            self.history.note_refused(item, to, &error, *now);
        }
        restored
    }

    pub(super) fn forget(&self, items: impl Iterator<Item = Item>, outcome: &mut Outcome) {
        let keys: Vec<String> = items.map(|item| record_key(&item)).collect();
        if let Err(error) = forget_policy_settings(&self.settings.data_dir, &self.boot, &keys) {
            outcome.record_error = Some(chain(&error));
        }
    }
}

/// Whether the kernel may have made one number of the other: it rounds to pages and powers of two.
fn is_rounded(requested: &str, value: &str) -> bool {
    let numbers = requested.parse::<u64>().ok().zip(value.parse::<u64>().ok());
    numbers.is_some_and(|(requested, value)| value >= requested && value / 2 < requested)
}
