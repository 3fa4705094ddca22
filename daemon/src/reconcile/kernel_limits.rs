//! Raises limits of the kernel that are nearly used up, where a rule of a health signal says so, and sets them back if that did
//! not help. Only while the controller asks for this node's health and does not stop repairs: it stops them when too many nodes
//! repair at once.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use health::repair::{Attempt, Limit, Outcome, Repairs, Situation, Step};
use netlink::Sysctls;
use resident::logging::chain;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::report::condition::{Condition, Reason};
use crate::report::notices::Notices;
use crate::report::signals::unix_millis;

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
        let report = signals.borrow_and_update().clone().at(unix_millis());
        let now = Instant::now();
        let situation = Situation { report: &report, now, is_allowed: gate.is_open(now), memory: memory() };
        for step in repairs.plan(situation, |limit| values(&sysctls, limit).min()) {
            if carry_out(&sysctls, step) {
                repairs.carried_out(step, now);
            }
        }
        notices.report(conditions(&repairs));
        // Cancel-safe: both branches only wake.
        tokio::select! {
            () = sleep(LOOK) => {}
            Ok(()) = signals.changed() => {}
        }
    }
}

/// The values of a limit's settings; the kernel may lack one (IPv6).
fn values(sysctls: &Sysctls, limit: &Limit) -> impl Iterator<Item = u64> {
    limit.settings.iter().filter_map(|setting| sysctls.read(&key(setting)).ok()?.trim().parse().ok())
}

/// Whether the step is done with: carried out, or void because another program set the limit. Otherwise it is retried.
fn carry_out(sysctls: &Sysctls, step: Step) -> bool {
    let Step { limit, from, to } = step;
    if values(sysctls, limit).min() != Some(from) {
        tracing::info!(event = "limit.left", limit = limit.name, "another program set it in the meantime");
        return true;
    }
    for setting in limit.settings {
        match sysctls.write(&key(setting), &to.to_string()) {
            Ok(_) => tracing::warn!(event = "limit.set", setting, from, to, "a rule of a health signal says so"),
            Err(error) if error.is_not_found() => {}
            Err(error) => {
                tracing::warn!(event = "limit.not_set", setting, to, error = chain(&error), "retried");
                return false;
            }
        }
    }
    true
}

/// The attempts as conditions, which are reported as Events as well. A limit whose rise helped is no condition.
fn conditions(repairs: &Repairs) -> Vec<Condition> {
    let condition = |(limit, attempt): (&Limit, Attempt)| {
        let (from, to) = (attempt.from, attempt.to);
        let settings = limit.settings.join(", ").replace('/', ".");
        let condition = match attempt.outcome {
            Outcome::Helped => return None,
            Outcome::Trial => {
                Condition::degraded(Reason::LimitRaised, format!("raised {settings} from {from} to {to}"))
            }
            Outcome::WithoutEffect => Condition::degraded(
                Reason::RepairWithoutEffect,
                format!("raising {settings} from {from} to {to} was not enough"),
            ),
        };
        Some(condition.about(limit.name))
    };
    repairs.attempts().filter_map(condition).collect()
}

fn key(setting: &str) -> Vec<&str> {
    setting.split('/').collect()
}

/// The machine's memory in bytes; 0 if it is unknown, and nothing is raised then.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    kibibytes.map_or(0, |kibibytes: u64| kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use health::{Report, SignalState};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn limit_is_raised_while_the_controller_allows_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("net/netfilter/nf_conntrack_max");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "262144\n").unwrap();
        let now = unix_millis();
        let state: SignalState = serde_json::from_value(serde_json::json!({
            "signal": "conntrack_use", "verdict": "problem", "action": "repair", "unit": "percent", "detail": "",
            "sampledUnixMillis": now, "sinceUnixMillis": now, "everySeconds": 3600,
        }))
        .unwrap();
        let problem = Report { signals: vec![state], ..Report::default() };
        let (signals_in, signals) = watch::channel(problem.clone());
        let (notices, mut notes) = Notices::channel();
        let gate = RepairGate::default();
        tokio::spawn(run(directory.path().to_owned(), signals, gate.clone(), Notices::of("limits", &notices)));
        sleep(LOOK * 3).await;
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "262144\n", "the controller has not asked");
        gate.note(true, Instant::now());
        notes.mark_unchanged();
        signals_in.send_replace(problem);
        while notes.borrow_and_update().values().flatten().next().is_none() {
            notes.changed().await.unwrap();
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "524288");
        let condition = notes.borrow().values().flatten().next().unwrap().to_string();
        assert!(
            condition
                .starts_with("LimitRaised (connections): raised net.netfilter.nf_conntrack_max from 262144 to 524288")
        );
    }
}
