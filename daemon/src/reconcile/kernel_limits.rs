//! Raises limits of the kernel that are nearly used up, where a rule of a health signal says so, and sets them back if that did
//! not help. Only while the controller reads this node's health and does not stop repairs: it stops them when too many nodes
//! repair at once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use health::Report;
use health::repair::{Attempt, Change, Limit, Outcome, Repairs, Situation, Step};
use netlink::Sysctls;
use resident::logging::chain;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::facts::condition::{Condition, Reason};
use crate::facts::reconcile_report::unix_millis;
use crate::report::notices::Notices;

/// The controller polls every few minutes. Without it, nothing is raised.
const PERMISSION: Duration = Duration::from_mins(10);

/// The interval at which trials are ended.
const LOOK: Duration = Duration::from_secs(15);

/// What the controller said last about repairs.
#[derive(Clone, Debug, Default)]
pub struct RepairGate(Arc<Mutex<Option<Instant>>>);

impl RepairGate {
    pub(crate) fn note(&self, is_allowed: bool, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = is_allowed.then_some(now);
    }

    fn is_open(&self, now: Instant) -> bool {
        let allowed = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        allowed.is_some_and(|at| now.saturating_duration_since(at) < PERMISSION)
    }
}

/// The limits of a kernel and the attempts to raise them.
#[derive(Debug)]
pub struct KernelLimits {
    sysctls: Sysctls,
    repairs: Repairs,
    /// Keys that node policies name, with periods: their values are the users' choice.
    named: Arc<BTreeSet<String>>,
}

impl KernelLimits {
    /// Those of the settings below a folder.
    pub fn new(sysctl_root: &Path) -> Self {
        Self { sysctls: Sysctls::new(sysctl_root), repairs: Repairs::default(), named: Arc::default() }
    }

    /// Leaves these settings alone from now on.
    pub fn leave(&mut self, named: Arc<BTreeSet<String>>) {
        self.named = named;
    }

    /// Raises and restores what is due. The attempts are conditions, which are reported as Events as well.
    pub fn repair(&mut self, report: &Report, is_allowed: bool, now: Instant) -> Vec<Condition> {
        let situation = Situation { report, now, is_allowed, memory: memory() };
        let is_named = |setting: &str| self.named.contains(&setting.replace('/', "."));
        let known = |setting: &str| value(&self.sysctls, setting).filter(|_| !is_named(setting));
        for Step { limit, mut changes } in self.repairs.plan(situation, known) {
            changes.retain(|change| !is_named(change.setting) && carry_out(&self.sysctls, *change));
            self.repairs.carried_out(Step { limit, changes }, now);
        }
        conditions(&self.repairs)
    }
}

/// Repairs until the agent ends.
pub(crate) async fn run(
    sysctl_root: PathBuf,
    mut signals: watch::Receiver<Report>,
    gate: RepairGate,
    mut named: watch::Receiver<Arc<BTreeSet<String>>>,
    notices: Notices,
) {
    let mut limits = KernelLimits::new(&sysctl_root);
    loop {
        limits.leave(named.borrow_and_update().clone());
        let report = signals.borrow_and_update().clone().at(unix_millis());
        let now = Instant::now();
        notices.report(limits.repair(&report, gate.is_open(now), now));
        // Cancel-safe: both branches only wake.
        tokio::select! {
            () = sleep(LOOK) => {}
            Ok(()) = signals.changed() => {}
        }
    }
}

/// A setting's value; the kernel may lack it (IPv6).
fn value(sysctls: &Sysctls, setting: &str) -> Option<u64> {
    sysctls.read(setting).ok()?.trim().parse().ok()
}

fn carry_out(sysctls: &Sysctls, change: Change) -> bool {
    let Change { setting, from, to } = change;
    match sysctls.write(setting, &to.to_string()) {
        Ok(_) => {
            tracing::warn!(event = "limit.set", setting, from, to, "a rule of a health signal says so");
            true
        }
        Err(error) => {
            tracing::warn!(event = "limit.not_set", setting, to, error = chain(&error));
            false
        }
    }
}

/// Conditions for limits. A limit is not reported once a higher value helped.
fn conditions(repairs: &Repairs) -> Vec<Condition> {
    let condition = |(limit, attempt): (&Limit, &Attempt)| {
        let text = |Change { setting, from, to }: &Change| format!("{} from {from} to {to}", setting.replace('/', "."));
        let raised = attempt.raised.iter().map(text).collect::<Vec<_>>().join(", ");
        let condition = match attempt.outcome {
            Outcome::Effective => return None,
            Outcome::Trial => Condition::degraded(Reason::LimitRaised, format!("raised {raised}")),
            Outcome::WithoutEffect => {
                Condition::degraded(Reason::RepairWithoutEffect, format!("this was not enough: raised {raised}"))
            }
        };
        Some(condition.about(limit.name))
    };
    repairs.attempts().filter_map(condition).collect()
}

/// The machine's memory in bytes; 0 if it is unknown, and nothing is raised then.
pub(crate) fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    kibibytes.map_or(0, |kibibytes: u64| kibibytes * 1024)
}
