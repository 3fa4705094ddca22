//! Reports conditions by Kubernetes Events about the Node, when they are raised and when they are cleared.
//!
//! ```text
//!   reports ─▶ plan (conditions now, conditions reported) ─▶ one Event at a time, with a deadline ─▶ reported-conditions.json
//! ```
//!
//! An Event is due when the conditions have differed from the reported ones for some time. So nothing is queued while the API
//! server is down, a flapping condition causes few Events, and a restarted agent repeats none. Nothing waits for an Event.

mod content;
mod plan;
mod reported;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backoff::Backoff;
use k8s_openapi::jiff::Timestamp;
use resident::api_server::{client, in_cluster};
use resident::events::{Reporter, event, write};
use resident::logging::chain;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::facts::reconcile_report::CompletedReconcile;
use crate::facts::reconcile_report::unix_millis;
use crate::lifecycle::agent::Agent;
use crate::settings::{Permission, Settings};
use crate::sources::backoff::chance;
use plan::{ConditionKey, Plan, ReportedEvent, Transition};
use reported::ReportedFile;

#[derive(Debug)]
struct Recorder {
    agent: Arc<Agent>,
    /// Its own receiver, which notes what it has seen.
    reports: watch::Receiver<Option<CompletedReconcile>>,
}

/// The names that an Event needs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Names {
    node: String,
    pod: String,
}

/// How long a transition must last before its Event is due, plus jitter of up to the same length. So nodes with the same failure
/// do not write together, and the transitions of a start or of a new VNIC are over.
const HOLD: Duration = Duration::from_secs(30);
const PACE: Duration = Duration::from_secs(1);
/// Between failures: all nodes of a cluster fail together when its API server does.
const RETRY: Backoff = Backoff { first: Duration::from_secs(4), cap: Duration::from_secs(300) };

/// Writes Events until no reports come any more.
pub(crate) async fn run(agent: Arc<Agent>) {
    match names(&agent.settings, in_cluster()) {
        Ok(names) => Recorder { reports: agent.reports.clone(), agent }.report(&names).await,
        Err(why) => {
            tracing::info!(event = "kubernetes_events.off", "{why}");
            std::future::pending().await
        }
    }
}

impl Recorder {
    async fn report(&mut self, names: &Names) {
        let file = ReportedFile::new(&self.agent.settings.data_dir);
        let mut plan = Plan::new(read(&file, &names.node), Instant::now());
        let (hold, mut failures, mut not_before) = (self.hold(), 0, Instant::now());
        loop {
            let last = self.reports.borrow_and_update().clone();
            if let Some(CompletedReconcile { report, .. }) = last {
                self.agent.metrics.events_dropped(plan.note(&report.conditions, hold, Instant::now()));
            }
            let now = Instant::now();
            if not_before <= now
                && let Some(transition) = plan.due(hold, now)
            {
                let pause = self.write(names, transition, &mut plan, &mut failures).await;
                if failures == 0 {
                    save(&file, names, plan.reported()).await;
                }
                not_before = Instant::now() + pause;
                continue;
            }
            let next = plan.next(hold, now).map(|next| next.max(not_before));
            // Both branches are cancel-safe: a timer, and a flag that `borrow_and_update` clears.
            tokio::select! {
                () = sleep_until(next.unwrap_or(now)), if next.is_some() => {}
                changed = self.reports.changed() => if changed.is_err() {
                    return;
                }
            }
        }
    }

    /// Tries to write an Event; returns the time until the next attempt.
    async fn write(&self, names: &Names, transition: Transition, plan: &mut Plan, failures: &mut u32) -> Duration {
        let content = content::content(&names.node, &transition, unix_millis());
        let reporter = Reporter { controller: content::CONTROLLER, instance: names.pod.clone() };
        let event = event(&content, &reporter, Timestamp::now());
        let written = match client() {
            Ok((client, _)) => {
                write(&client, event, content::names(&names.node, unix_millis())).await.map_err(|error| chain(&error))
            }
            Err(why) => Err(why),
        };
        self.agent.metrics.event_attempted(written.is_ok());
        match written {
            Ok(()) => {
                plan.written(transition, unix_millis(), Instant::now());
                if std::mem::take(failures) > 0 {
                    tracing::info!(event = "kubernetes_events.written_again");
                }
                PACE
            }
            Err(why) => {
                if *failures == 0 {
                    let reason = content.reason;
                    tracing::warn!(event = "kubernetes_events.failing", reason, why, "the agent retries");
                }
                *failures = failures.saturating_add(1);
                RETRY.delay(*failures, chance())
            }
        }
    }

    fn hold(&self) -> Duration {
        self.agent.settings.resync.min(HOLD).mul_f64(1.0 + chance())
    }
}

/// The names, or why no Events are written.
fn names(settings: &Settings, in_cluster: bool) -> Result<Names, &'static str> {
    if settings.kubernetes_events == Permission::Deny {
        return Err("KUBERNETES_EVENTS is deny");
    }
    if !in_cluster {
        return Err("the agent does not run in a cluster");
    }
    match (settings.node_name.clone(), settings.pod_name.clone()) {
        (Some(node), Some(pod)) => Ok(Names { node, pod }),
        (None, _) => Err("NODE_NAME is not set"),
        (_, None) => Err("POD_NAME is not set"),
    }
}

fn read(file: &ReportedFile, node: &str) -> BTreeMap<ConditionKey, ReportedEvent> {
    file.read(node).unwrap_or_else(|error| {
        let path = file.path().display();
        tracing::warn!(event = "kubernetes_events.forgotten", %path, %error, "standing conditions are reported again");
        BTreeMap::new()
    })
}

async fn save(file: &ReportedFile, names: &Names, reported: &BTreeMap<ConditionKey, ReportedEvent>) {
    let (target, node, reported) = (file.clone(), names.node.clone(), reported.clone());
    let written = tokio::task::spawn_blocking(move || target.write(&node, &reported)).await;
    if let Ok(Err(error)) = written {
        let path = file.path().display();
        tracing::warn!(event = "kubernetes_events.not_saved", %path, %error, "a restarted agent may repeat Events");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::settings;

    fn of(arguments: &[&str], in_cluster: bool) -> Result<Names, &'static str> {
        super::names(&settings(arguments), in_cluster)
    }

    #[test]
    fn events_need_a_cluster_both_names_and_permission() {
        let names = ["--node-name", "a", "--pod-name", "b"];
        assert_eq!(of(&names, true), Ok(Names { node: "a".into(), pod: "b".into() }));
        assert_eq!(of(&names, false), Err("the agent does not run in a cluster"));
        assert_eq!(of(&["--pod-name", "b"], true), Err("NODE_NAME is not set"));
        assert_eq!(of(&["--node-name", "a"], true), Err("POD_NAME is not set"));
        let denied = [&names[..], &["--kubernetes-events", "deny"]].concat();
        assert_eq!(of(&denied, true), Err("KUBERNETES_EVENTS is deny"));
    }
}
