//! What to change for a document: values to set, earlier values to restore, notes to forget, and what is reported instead. Pure.

#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use installer::PolicySetting;
use tunables::value::is_same;
use tunables::{DocumentMode, Item, ItemReport, ItemState, NodeDocument};

use super::history::{Attempt, History};
use super::proofs::{ATTEMPTS_MAX, Evidence, Proofs};
use super::resolve::{DesiredValue, Resolved, report};
use super::sysctls::Observed;

/// What policies changed in this boot.
pub(super) type Record = BTreeMap<Item, PolicySetting>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) document: &'a NodeDocument,
    pub(super) resolved: &'a Resolved,
    pub(super) record: &'a Record,
    pub(super) observed: &'a BTreeMap<Item, Observed>,
    pub(super) history: &'a History,
    /// Nothing for links, which have their own proofs.
    pub(super) trials: Option<Trials<'a>>,
    pub(super) now: Instant,
}

/// What the leader confirmed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trials<'a> {
    pub(super) proofs: &'a Proofs,
    /// Items that were changed, and no request of the leader came since.
    pub(super) unconfirmed: &'a BTreeSet<Item>,
    pub(super) trial: Trial,
}

/// Whether values may be set that this node never had while the leader reached it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// All of the document: it has just come.
    New,
    /// Those that were tried before: the leader reaches the agent now.
    Repeated,
    None,
}

/// A change of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) item: Item,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) kind: StepKind,
}

/// Why a value changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    /// A policy requires it, and the node has had it.
    Set(DesiredValue),
    /// A policy requires it, and the leader must reach the node afterwards.
    Try(DesiredValue),
    /// It was not confirmed.
    Withdraw,
    /// The same, and another program changed it.
    SetBack(DesiredValue),
    /// No policy requires it any more.
    Restore,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Items that have the value of their policy.
    pub(super) in_sync: Vec<(Item, DesiredValue)>,
    /// Compared only, and equal.
    pub(super) compared: u32,
    /// Items to leave alone because of another program.
    pub(super) stopped: Vec<(Item, String)>,
    /// Items whose notes are void.
    pub(super) forget: Vec<Item>,
    /// Earlier values that no policy replaces any more, and that cannot be restored now.
    pub(super) unrestored: Vec<String>,
    pub(super) reports: Vec<ItemReport>,
}

impl Step {
    /// What requires the value; nothing where an earlier one comes back.
    pub(super) const fn desired(&self) -> Option<&DesiredValue> {
        match &self.kind {
            StepKind::Set(desired) | StepKind::Try(desired) | StepKind::SetBack(desired) => Some(desired),
            StepKind::Withdraw | StepKind::Restore => None,
        }
    }

    /// A report about a step that sets a value, which the kernel does not have.
    pub(super) fn report(&self, state: ItemState, message: String) -> Option<ItemReport> {
        Some(report(&self.item, self.desired()?, &self.from, state, message))
    }
}

impl Plan {
    /// Notes of values that belong to another policy now.
    pub(super) fn moved(&self, document: &NodeDocument, record: &Record) -> Vec<PolicySetting> {
        let moved = self.in_sync.iter().filter_map(|(item, desired)| {
            let known = record.get(item)?;
            let mark = desired.mark(document, known.mark.previous.clone());
            (mark != known.mark).then(|| PolicySetting { mark, ..known.clone() })
        });
        moved.collect()
    }
}

pub(super) fn plan(facts: Facts<'_>) -> Plan {
    let mut plan = Plan { reports: facts.resolved.refused.clone(), ..Plan::default() };
    for (item, desired) in &facts.resolved.apply {
        apply(facts, item, desired, &mut plan);
    }
    for (item, desired) in &facts.resolved.report {
        match facts.observed.get(item) {
            Some(Observed::Value(current)) if is_same(current, &desired.value) => plan.compared += 1,
            Some(Observed::Value(current)) => {
                plan.reports.push(report(item, desired, current, ItemState::Drifted, String::new()));
            }
            other => plan.reports.push(absent(item, desired, other)),
        }
    }
    for (item, setting) in facts.record {
        if let Some(restored) = restore(facts, item, setting) {
            match restored {
                Restored::Step(step) => plan.steps.push(step),
                Restored::Forget => plan.forget.push(item.clone()),
                Restored::Later(error) => plan.unrestored.push(unrestored(item, &setting.before, &error)),
                Restored::LinkGone => {}
            }
        }
    }
    plan
}

fn apply(facts: Facts<'_>, item: &Item, desired: &DesiredValue, plan: &mut Plan) {
    let current = match facts.observed.get(item) {
        Some(Observed::Value(current)) => current,
        other => return plan.reports.push(absent(item, desired, other)),
    };
    let noted = facts.record.get(item).filter(|noted| noted.mark.requested == desired.value);
    if let Some(previous) = noted.and_then(|noted| noted.mark.previous.as_ref())
        && facts.trials.is_some_and(|trials| trials.unconfirmed.contains(item))
        && !is_same(current, previous)
    {
        let kind = StepKind::Withdraw;
        plan.steps.push(Step { item: item.clone(), from: current.clone(), to: previous.clone(), kind });
        let message = "no request of the leader arrived after it was set".to_owned();
        return plan.reports.push(report(item, desired, previous, ItemState::Unconfirmed, message));
    }
    // A kernel may round a value: what it made of it is as good.
    if is_same(current, &desired.value) || noted.is_some_and(|noted| is_same(current, &noted.set)) {
        return plan.in_sync.push((item.clone(), desired.clone()));
    }
    let step = |kind: fn(DesiredValue) -> StepKind| Step {
        item: item.clone(),
        from: current.clone(),
        to: desired.value.clone(),
        kind: kind(desired.clone()),
    };
    // A value that was noted and never set has not drifted: the agent was killed in between.
    let is_drift = noted.is_some_and(|noted| !is_same(current, &noted.before));
    match facts.history.attempt(item, &desired.value, is_drift, facts.now) {
        Attempt::Set => match permission(facts, item, desired) {
            Ok(kind) => plan.steps.push(step(kind)),
            Err((state, message)) => plan.reports.push(report(item, desired, current, state, message.to_owned())),
        },
        Attempt::SetBack => plan.steps.push(step(StepKind::SetBack)),
        Attempt::Wait => {
            let message = "another program changed it; the agent sets it again within a minute".to_owned();
            plan.reports.push(report(item, desired, current, ItemState::Drifted, message));
        }
        Attempt::Stop(left) => {
            plan.stopped.push((item.clone(), desired.value.clone()));
            let message =
                format!("reverted 3 times in 10 minutes; next attempt in {} minutes", left.as_secs().div_ceil(60));
            plan.reports.push(report(item, desired, current, ItemState::Reverted, message));
        }
        Attempt::Backoff(error, _) => {
            plan.reports.push(report(item, desired, current, ItemState::Failed, error));
        }
    }
}

/// The kind of a step that may be made now, or why none may be.
type Permission = Result<fn(DesiredValue) -> StepKind, (ItemState, &'static str)>;

/// How a value may be set now, or why not.
fn permission(facts: Facts<'_>, item: &Item, desired: &DesiredValue) -> Permission {
    let Some(Trials { proofs, trial, .. }) = facts.trials else { return Ok(StepKind::Set) };
    match (proofs.evidence(item, desired), trial) {
        (Evidence::Proven, _) => Ok(StepKind::Set),
        (Evidence::Tried(ATTEMPTS_MAX..), _) => {
            Err((ItemState::Unconfirmed, "not confirmed in three attempts; waits for another revision of the policy"))
        }
        (_, Trial::New) | (Evidence::Tried(_), Trial::Repeated) => Ok(StepKind::Try),
        (Evidence::Tried(_), Trial::None) => {
            Err((ItemState::Unconfirmed, "not confirmed; retried when the leader reaches the agent"))
        }
        (Evidence::Unknown, _) => Err((
            ItemState::Drifted,
            "it became writable after the document arrived; the next change of the policy sets it",
        )),
    }
}

enum Restored {
    Step(Step),
    Forget,
    /// It cannot be restored now, and why.
    Later(String),
    /// It has no value without its link.
    LinkGone,
}

/// What becomes of a noted item that no policy requires any more; `None` if one does.
fn restore(facts: Facts<'_>, item: &Item, noted: &PolicySetting) -> Option<Restored> {
    let Facts { document, resolved, .. } = facts;
    if (&noted.mark.cluster, &noted.mark.instance) != (&document.cluster, &document.instance) {
        // The values of another cluster's policies stay as they are.
        return Some(Restored::Forget);
    }
    let is_required = |item: &Item| resolved.apply.contains_key(item);
    if is_required(item) || item.counterpart().is_some_and(|partner| is_required(&partner)) {
        return None;
    }
    let of = document.policies.iter().find(|policy| policy.uid == noted.mark.policy);
    if of.is_some_and(|policy| policy.mode == DocumentMode::Keep) {
        return Some(Restored::Forget);
    }
    let current = match facts.observed.get(item) {
        Some(Observed::Value(current)) => current,
        Some(Observed::Unsupported) => return Some(Restored::Forget),
        Some(Observed::NotGranted) => return Some(Restored::Later(not_granted(item))),
        Some(Observed::Unreadable(error)) => return Some(Restored::Later(error.clone())),
        None => return Some(Restored::LinkGone),
    };
    // While a change is not confirmed, the kernel may have rounded the value, and the note does not have that yet.
    let is_ours = is_same(current, &noted.set) || noted.mark.previous.is_some();
    if is_same(current, &noted.before) || !is_ours {
        // Restored, or another program set it since.
        return Some(Restored::Forget);
    }
    match facts.history.attempt(item, &noted.before, false, facts.now) {
        Attempt::Set | Attempt::SetBack => Some(Restored::Step(Step {
            item: item.clone(),
            from: current.clone(),
            to: noted.before.clone(),
            kind: StepKind::Restore,
        })),
        Attempt::Backoff(error, _) => Some(Restored::Later(error)),
        Attempt::Wait | Attempt::Stop(_) => Some(Restored::Later("another program changes it".to_owned())),
    }
}

/// Why an earlier value is not restored.
pub(super) fn unrestored(item: &Item, before: &str, error: &str) -> String {
    format!("{item} to {before}: {error}")
}

/// About an item without a value.
fn absent(item: &Item, desired: &DesiredValue, observed: Option<&Observed>) -> ItemReport {
    let (state, message) = match observed {
        Some(Observed::NotGranted) => (ItemState::NotGranted, not_granted(item)),
        Some(Observed::Unreadable(error)) => (ItemState::Failed, error.clone()),
        _ => (ItemState::Unsupported, "this kernel does not have it".to_owned()),
    };
    report(item, desired, "", state, message)
}

/// Which mount is missing.
pub(super) fn not_granted(item: &Item) -> String {
    let key = super::sysctls::record_key(item);
    let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
    let root = if *item == Item::HugePages { "/sys/kernel/mm" } else { "/proc/sys" };
    format!("the agent's container has no writable mount of {root}/{folder}")
}
