//! The thread of health signals: it feeds the collectors with what the agent knows, and publishes and logs their results. It
//! changes nothing on the node, and nothing of the agent waits for it.

mod facts;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use health::collectors::KINDS;
use health::engine::{DEADLINE, Now, RUN_THREAD, RulesFiles};
use health::summary::poll::NodeReport;
use health::system::Machine;
use health::{Engine, Host, Report, Verdict};
use resident::args::Toggle;
use tokio::sync::watch;

use crate::facts::reconcile_report::unix_millis;
use crate::lifecycle::agent::Agent;
use crate::settings::Settings;
use crate::sources::backoff::chance;

/// Starts the thread, unless HEALTH is off. It ends when the results have no reader any more. The controller reports what the
/// Node has.
pub(crate) fn start(
    agent: Arc<Agent>,
    node_report: watch::Receiver<NodeReport>,
) -> io::Result<watch::Receiver<Report>> {
    let settings = agent.settings.clone();
    if settings.health == Toggle::Off {
        return Ok(watch::channel(Report { is_off: true, ..Report::default() }).1);
    }
    let (results_in, results) = watch::channel(Report::default());
    let host = Host {
        proc: "/proc".into(),
        sys: "/sys".into(),
        root: settings.host_root.clone(),
        facts: Arc::default(),
        system: Arc::new(Machine),
        now: Instant::now(),
    };
    let rules = RulesFiles { controller: settings.controller_rules(), own: settings.health_rules.clone() };
    let mut engine = Engine::new(KINDS, host, rules, chance);
    let work = move || {
        let mut problems = BTreeSet::new();
        loop {
            let now = Now { instant: Instant::now(), unix_millis: unix_millis() };
            if engine.step(now, || facts::gather(&agent, node_report.borrow().clone())) {
                let report = permitted(engine.report(), &settings);
                log(&report, &mut problems);
                if results_in.send(report).is_err() {
                    return;
                }
            }
            engine.wait(Instant::now());
        }
    };
    thread::Builder::new().name("health".to_owned()).spawn(work)?;
    Ok(results)
}

/// Whether a collector's thread does not end, at most for the time that a run may take.
pub(crate) fn has_stuck_run() -> bool {
    let begun = Instant::now();
    while has_run() {
        if begun.elapsed() > DEADLINE {
            return true;
        }
        thread::sleep(DEADLINE / 50);
    }
    false
}

fn has_run() -> bool {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let mut names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.any(|name| name.starts_with(RUN_THREAD))
}

/// A result that says `repair` is one only where repairs are on: neither the agent nor the controller then acts on it.
fn permitted(report: Report, settings: &Settings) -> Report {
    if settings.repairs == Toggle::On { report } else { report.without_repairs() }
}

/// A line when a problem begins, and one when it ends.
fn log(report: &Report, problems: &mut BTreeSet<String>) {
    for state in &report.signals {
        if state.verdict == Verdict::Problem && problems.insert(state.signal.clone()) {
            let (rule, message) =
                (state.rule.as_deref().unwrap_or_default(), state.message.as_deref().unwrap_or_default());
            tracing::warn!(event = "signal.problem", signal = state.signal, rule, detail = state.detail, "{message}");
        } else if matches!(state.verdict, Verdict::Healthy | Verdict::NotApplicable) && problems.remove(&state.signal) {
            tracing::info!(event = "signal.healthy", signal = state.signal, detail = state.detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use health::rules::Action;
    use serde_json::json;

    use super::*;
    use crate::fixture::{agent, settings};

    #[test]
    fn health_off_measures_nothing() {
        let is_off = |arguments: &[&str]| {
            let results = start(agent(arguments), watch::channel(NodeReport::default()).1).unwrap();
            (results.borrow().is_off, results.has_changed().is_ok())
        };
        assert_eq!(is_off(&[]), (false, true), "a thread measures");
        assert_eq!(is_off(&["--health", "off"]), (true, false), "none will ever send a result");
    }

    #[test]
    fn repairs_off_leaves_no_signal_to_repair() {
        let report: Report = serde_json::from_value(json!({ "signals": [{
            "signal": "conntrack_use", "verdict": "problem", "action": "repair", "unit": "percent", "detail": "",
            "sampledUnixMillis": 1, "sinceUnixMillis": 1, "everySeconds": 60,
        }] }))
        .unwrap();
        let action = |arguments: &[&str]| permitted(report.clone(), &settings(arguments)).signals[0].action;
        assert_eq!([action(&[]), action(&["--repairs", "off"])], [Action::Repair, Action::Report]);
    }
}
