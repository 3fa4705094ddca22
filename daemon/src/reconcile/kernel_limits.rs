//! Raises limits of the kernel that are nearly used up, where a rule of a health signal says so, and sets them back if that did
//! not help. Only while the controller asks for this node's health and does not stop repairs: it stops them when too many nodes
//! repair at once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use health::Report;
use health::repair::{Attempt, Change, Limit, Outcome, Repairs, Situation, Step};
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

/// The limits of a kernel and the attempts to raise them.
#[derive(Debug)]
pub struct KernelLimits {
    sysctls: Sysctls,
    repairs: Repairs,
}

impl KernelLimits {
    /// Those of the settings below a folder.
    pub fn new(sysctl_root: &Path) -> Self {
        Self { sysctls: Sysctls::new(sysctl_root), repairs: Repairs::default() }
    }

    /// Raises and restores what is due. The attempts are conditions, which are reported as Events as well.
    pub fn repair(&mut self, report: &Report, is_allowed: bool, now: Instant) -> Vec<Condition> {
        let situation = Situation { report, now, is_allowed, memory: memory() };
        for Step { limit, mut changes } in self.repairs.plan(situation, |setting| value(&self.sysctls, setting)) {
            changes.retain(|change| carry_out(&self.sysctls, *change));
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
    notices: Notices,
) {
    let mut limits = KernelLimits::new(&sysctl_root);
    loop {
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

/// A limit whose rise helped is no condition.
fn conditions(repairs: &Repairs) -> Vec<Condition> {
    let condition = |(limit, attempt): (&Limit, &Attempt)| {
        let text = |Change { setting, from, to }: &Change| format!("{} from {from} to {to}", setting.replace('/', "."));
        let raised = attempt.raised.iter().map(text).collect::<Vec<_>>().join(", ");
        let condition = match attempt.outcome {
            Outcome::Helped => return None,
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
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    kibibytes.map_or(0, |kibibytes: u64| kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use health::SignalState;
    use serde_json::json;

    use super::*;

    const CONNECTIONS: &str = "net/netfilter/nf_conntrack_max";

    fn problem(signal: &str) -> Report {
        let now = unix_millis();
        let state: SignalState = serde_json::from_value(json!({
            "signal": signal, "verdict": "problem", "action": "repair", "unit": "percent", "detail": "",
            "sampledUnixMillis": now, "sinceUnixMillis": now, "everySeconds": 3600,
        }))
        .unwrap();
        Report { signals: vec![state], ..Report::default() }
    }

    fn write(root: &Path, settings: &[(&str, &str)]) {
        for (setting, value) in settings {
            let file = root.join(setting);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, value).unwrap();
        }
    }

    fn read(root: &Path, setting: &str) -> String {
        std::fs::read_to_string(root.join(setting)).unwrap().trim().to_owned()
    }

    /// Repairs, permitted after a while, until a condition is there: its text.
    async fn repaired(root: &Path, report: Report) -> String {
        let before = read(root, CONNECTIONS);
        let (signals_in, signals) = watch::channel(report.clone());
        let (notices, mut notes) = Notices::channel();
        let gate = RepairGate::default();
        tokio::spawn(run(root.to_owned(), signals, gate.clone(), Notices::of("limits", &notices)));
        sleep(LOOK * 3).await;
        assert_eq!(read(root, CONNECTIONS), before, "the controller has not asked");
        gate.note(true, Instant::now());
        notes.mark_unchanged();
        signals_in.send_replace(report);
        while notes.borrow_and_update().values().flatten().next().is_none() {
            notes.changed().await.unwrap();
        }
        let conditions = notes.borrow();
        conditions.values().flatten().next().unwrap().to_string()
    }

    #[tokio::test(start_paused = true)]
    async fn limit_is_raised_while_the_controller_allows_it() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &[(CONNECTIONS, "262144\n")]);
        let condition = repaired(directory.path(), problem("conntrack_use")).await;
        assert_eq!(read(directory.path(), CONNECTIONS), "524288");
        let expected = "LimitRaised (connections): raised net.netfilter.nf_conntrack_max from 262144 to 524288";
        assert!(condition.starts_with(expected), "{condition}");
    }

    #[tokio::test(start_paused = true)]
    async fn each_family_is_raised_from_its_own_value() {
        let directory = tempfile::tempdir().unwrap();
        let family = |name, [first, second, third]: [&'static str; 3]| {
            let settings = [("gc_thresh1", first), ("gc_thresh2", second), ("gc_thresh3", third)];
            settings.map(|(setting, value)| (format!("net/{name}/neigh/default/{setting}"), value))
        };
        let settings = [family("ipv4", ["2048", "4096", "8192"]), family("ipv6", ["128", "512", "1024"])].concat();
        for (setting, value) in &settings {
            write(directory.path(), &[(setting, value), (CONNECTIONS, "1")]);
        }
        let condition = repaired(directory.path(), problem("neighbour_use")).await;
        let raised: Vec<_> = settings.iter().map(|(setting, _)| read(directory.path(), setting)).collect();
        assert_eq!(raised, ["4096", "8192", "16384", "256", "1024", "2048"]);
        assert!(condition.contains("net.ipv4.neigh.default.gc_thresh3 from 8192 to 16384"), "{condition}");
        assert!(condition.contains("net.ipv6.neigh.default.gc_thresh3 from 1024 to 2048"), "{condition}");
    }
}
