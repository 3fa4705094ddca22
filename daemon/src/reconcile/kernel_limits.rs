//! Raises limits of the kernel that are nearly used up, where a rule of a health signal says so, and sets them back if that did
//! not help. Only while the controller asks for this node's health and does not stop repairs: it stops them when too many nodes
//! repair at once.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use health::repair::{Limit, Outcome, Repairs, Step};
use netlink::Sysctls;
use resident::logging::chain;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::report::condition::{Condition, Reason};
use crate::report::notices::Notices;

/// The controller asks every few minutes. Without it, nothing is raised.
const PERMISSION: Duration = Duration::from_mins(10);

/// The interval at which trials are ended.
const LOOK: Duration = Duration::from_secs(15);

/// What the controller said last about repairs.
#[derive(Clone, Debug, Default)]
pub struct RepairGate(Arc<Mutex<Option<Instant>>>);

impl RepairGate {
    /// Notes what the controller says.
    pub fn note(&self, is_allowed: bool, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = is_allowed.then_some(now);
    }

    fn is_open(&self, now: Instant) -> bool {
        let allowed = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        allowed.is_some_and(|at| now.saturating_duration_since(at) < PERMISSION)
    }
}

/// Repairs until the agent ends.
pub(crate) async fn run(
    sysctl_root: PathBuf,
    mut signals: watch::Receiver<health::Report>,
    gate: RepairGate,
    notices: Notices,
) {
    let (sysctls, mut repairs) = (Sysctls::new(&sysctl_root), Repairs::default());
    loop {
        let report = signals.borrow_and_update().clone();
        let now = Instant::now();
        for step in repairs.plan(&report, now, gate.is_open(now), |limit| read(&sysctls, limit)) {
            carry_out(&sysctls, step, &mut repairs, now);
        }
        notices.report(conditions(&repairs));
        // Cancel-safe: both branches only wake.
        tokio::select! {
            () = sleep(LOOK) => {}
            Ok(()) = signals.changed() => {}
        }
    }
}

fn read(sysctls: &Sysctls, limit: &Limit) -> Option<u64> {
    sysctls.read(&key(limit)).ok()?.trim().parse().ok()
}

fn carry_out(sysctls: &Sysctls, step: Step, repairs: &mut Repairs, now: Instant) {
    let (limit, to) = match step {
        Step::Raise { limit, to, .. } | Step::Restore { limit, to } => (limit, to),
    };
    let setting = limit.setting;
    if let Err(error) = sysctls.write(&key(limit), &to.to_string()) {
        return tracing::warn!(event = "limit.not_written", setting, value = to, error = chain(&error));
    }
    match step {
        Step::Raise { from, .. } => {
            tracing::warn!(event = "limit.raised", setting, from, to, "a rule of a health signal says so");
            repairs.raised(limit, from, to, now);
        }
        Step::Restore { .. } => tracing::warn!(event = "limit.restored", setting, to, "raising it did not help"),
    }
}

/// The attempts as conditions, which are reported as Events as well. A limit whose rise helped is no condition.
fn conditions(repairs: &Repairs) -> Vec<Condition> {
    let condition = |(setting, attempt): (&str, health::repair::Attempt)| {
        let (from, to) = (attempt.from, attempt.to);
        let condition = match attempt.outcome {
            Outcome::Helped => return None,
            Outcome::Trial => Condition::degraded(
                Reason::LimitRaised,
                format!("raised from {from} to {to}; set back in ten minutes if that does not help"),
            ),
            Outcome::Undone => Condition::degraded(
                Reason::RepairWithoutEffect,
                format!("raising it from {from} to {to} did not help, so it is {from} again"),
            ),
        };
        Some(condition.about(setting.replace('/', ".")))
    };
    repairs.attempts().filter_map(condition).collect()
}

fn key(limit: &Limit) -> Vec<&'static str> {
    limit.setting.split('/').collect()
}

#[cfg(test)]
mod tests {
    use health::{Report, SignalState};

    use super::*;

    fn report(text: &str) -> Report {
        let state: SignalState = serde_json::from_str(text).unwrap();
        Report { signals: vec![state] }
    }

    #[tokio::test(start_paused = true)]
    async fn limit_is_raised_while_the_controller_allows_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("net/netfilter/nf_conntrack_max");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "262144\n").unwrap();
        let problem = r#"{"signal": "conntrack_use", "verdict": "problem", "action": "repair", "unit": "percent", "detail": "",
            "sampledUnixMillis": 1, "sinceUnixMillis": 1, "everySeconds": 60}"#;
        let (signals_in, signals) = watch::channel(report(problem));
        let (board, mut notes) = Notices::channel();
        let gate = RepairGate::default();
        tokio::spawn(run(directory.path().to_owned(), signals, gate.clone(), Notices::of("limits", &board)));
        sleep(LOOK * 3).await;
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "262144\n", "the controller has not asked");
        gate.note(true, Instant::now());
        notes.mark_unchanged();
        signals_in.send_replace(report(problem));
        while notes.borrow_and_update().values().flatten().next().is_none() {
            notes.changed().await.unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "524288");
        let condition = notes.borrow().values().flatten().next().unwrap().to_string();
        assert!(condition.starts_with("LimitRaised (net.netfilter.nf_conntrack_max): raised from 262144 to 524288"));
    }
}
