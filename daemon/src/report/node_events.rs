//! Tells people of conditions by events of Kubernetes about the Node: that one is there, and that it is over.
//!
//! ```text
//!   reports ─▶ plan (what is, what was told) ─▶ one event after the other, each with a deadline ─▶ told.json
//! ```
//!
//! What is told is the difference between what is and what people know, when it has stood for a while. So nothing queues while
//! no API server answers, a condition that comes and goes does not flood anybody, and an agent that takes over from another one
//! tells nothing that the other told. Nothing waits for an event, and nothing depends on one.

mod kept;
mod plan;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use imds::Backoff;
use resident::events::{Reporter, write};
use resident::logging::chain;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::lifecycle::reload::{self, Configuration};
use crate::report::metrics::Metrics;
use crate::report::reconcile_report::CompletedReconcile;
use crate::settings::Settings;
use kept::Kept;
use plan::{Name, Plan, Standing, Telling};
use resident::api_server::client;

/// The task.
#[derive(Debug)]
pub struct Recorder {
    /// Whether to tell, and in whose name.
    pub configurations: watch::Receiver<Configuration>,
    /// What is.
    pub reports: watch::Receiver<Option<CompletedReconcile>>,
    /// Where events are counted.
    pub metrics: Arc<Metrics>,
    /// Whether there is an API server.
    pub in_cluster: bool,
    /// A number in 0.0–1.0, so that nodes that have the same trouble do not tell of it together.
    pub chance: fn() -> f64,
}

/// About whom, and in whose name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Whom {
    node: String,
    pod: String,
}

/// What a condition stands until it is told, at most; then as long again by chance. What a start, a VNIC just attached or a
/// change that OKE is about to finish brings along is over by then.
const HOLD: Duration = Duration::from_secs(30);
/// Between two events of a node.
const PACE: Duration = Duration::from_secs(1);
/// Between failures. All nodes of a cluster fail together when its API server does.
const RETRY: Backoff = Backoff { first: Duration::from_secs(4), cap: Duration::from_secs(300) };

impl Recorder {
    /// Tells for ever.
    pub async fn run(mut self) {
        let mut last = None;
        loop {
            let settings = self.configurations.borrow_and_update().settings.clone();
            match whom(&settings, self.in_cluster) {
                Ok(whom) => {
                    last = None;
                    self.tell(&whom).await;
                }
                Err(why) => {
                    if last.replace(why) != Some(why) {
                        tracing::info!(event = "kubernetes_events.off", "{why}");
                    }
                    reload::changed(&mut self.configurations).await;
                }
            }
        }
    }

    /// Tells until the configuration has it otherwise.
    async fn tell(&mut self, whom: &Whom) {
        let settings = self.configurations.borrow().settings.clone();
        let kept = Kept::new(&settings.data_dir);
        let mut plan = Plan::new(known(&kept, &whom.node));
        let (mut hold, mut failures, mut rested) = (self.hold(&settings), 0, Instant::now());
        loop {
            let last = self.reports.borrow_and_update().clone();
            if let Some(CompletedReconcile { report, .. }) = last {
                self.metrics.events_dropped(plan.note(&report.conditions, hold, Instant::now()));
            }
            let now = Instant::now();
            if rested <= now
                && let Some(telling) = plan.due(hold, now)
            {
                let pause = self.tell_one(whom, telling, &mut plan, &mut failures).await;
                if failures == 0 {
                    keep(&kept, whom, plan.standing()).await;
                }
                rested = Instant::now() + pause;
                continue;
            }
            let next = plan.next(hold, now).map(|next| next.max(rested));
            tokio::select! {
                () = sleep_until(next.unwrap_or(now)), if next.is_some() => {}
                () = reload::changed(&mut self.reports) => {}
                () = reload::changed(&mut self.configurations) => {
                    let settings = self.configurations.borrow_and_update().settings.clone();
                    if crate::report::node_events::whom(&settings, self.in_cluster).as_ref() != Ok(whom) {
                        return;
                    }
                    hold = self.hold(&settings);
                }
            }
        }
    }

    /// Tries to tell it; after which pause there may be another.
    async fn tell_one(&self, whom: &Whom, telling: Telling, plan: &mut Plan, failures: &mut u32) -> Duration {
        let news = words::news(&whom.node, &telling, unix_millis());
        let reporter = Reporter { controller: words::CONTROLLER, instance: whom.pod.clone() };
        let written = match client() {
            Ok((client, _)) => write(client, &reporter, &news, words::names(&whom.node, unix_millis()))
                .await
                .map_err(|error| chain(&error)),
            Err(why) => Err(why),
        };
        self.metrics.event_attempted(written.is_ok());
        match written {
            Ok(()) => {
                plan.told(telling, unix_millis(), Instant::now());
                if std::mem::take(failures) > 0 {
                    tracing::info!(event = "kubernetes_events.written_again");
                }
                PACE
            }
            Err(why) => {
                if *failures == 0 {
                    let reason = news.reason;
                    tracing::warn!(event = "kubernetes_events.failing", reason, why, "it is tried again");
                }
                *failures = failures.saturating_add(1);
                RETRY.delay(*failures, (self.chance)())
            }
        }
    }

    fn hold(&self, settings: &Settings) -> Duration {
        settings.resync.min(HOLD).mul_f64(1.0 + (self.chance)())
    }
}

/// Whether to tell, or why not.
fn whom(settings: &Settings, in_cluster: bool) -> Result<Whom, &'static str> {
    if !settings.kubernetes_events {
        return Err("KUBERNETES_EVENTS is deny");
    }
    if !in_cluster {
        return Err("this is no pod in a cluster");
    }
    match (settings.node_name.clone(), settings.pod_name.clone()) {
        (Some(node), Some(pod)) => Ok(Whom { node, pod }),
        (None, _) => Err("NODE_NAME is not set"),
        (_, None) => Err("POD_NAME is not set"),
    }
}

fn known(kept: &Kept, node: &str) -> BTreeMap<Name, Standing> {
    kept.look(node).unwrap_or_else(|error| {
        let path = kept.path().display();
        tracing::warn!(event = "kubernetes_events.forgotten", %path, %error, "what still stands is told again");
        BTreeMap::new()
    })
}

async fn keep(kept: &Kept, whom: &Whom, standing: &BTreeMap<Name, Standing>) {
    let (file, node, standing) = (kept.clone(), whom.node.clone(), standing.clone());
    let written = tokio::task::spawn_blocking(move || file.write(&node, &standing)).await;
    if let Ok(Err(error)) = written {
        let path = kept.path().display();
        tracing::warn!(event = "kubernetes_events.not_kept", %path, %error, "the next agent may tell it again");
    }
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Args;

    fn of(arguments: &[&str], in_cluster: bool) -> Result<Whom, &'static str> {
        let command = ["oke-node-agent"].iter().chain(arguments);
        whom(&Settings::new(Args::try_parse_from(command).unwrap().options).unwrap(), in_cluster)
    }

    #[test]
    fn events_need_a_cluster_both_names_and_that_nobody_switched_them_off() {
        let names = ["--node-name", "a", "--pod-name", "b"];
        assert_eq!(of(&names, true), Ok(Whom { node: "a".into(), pod: "b".into() }));
        assert_eq!(of(&names, false), Err("this is no pod in a cluster"));
        assert_eq!(of(&["--node-name", "", "--pod-name", "b"], true), Err("NODE_NAME is not set"));
        assert_eq!(of(&["--node-name", "a"], true), Err("POD_NAME is not set"));
        let denied = [&names[..], &["--kubernetes-events", "deny"]].concat();
        assert_eq!(of(&denied, true), Err("KUBERNETES_EVENTS is deny"));
    }
}
