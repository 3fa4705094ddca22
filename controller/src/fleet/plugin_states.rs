//! What the OCI API knows of the Oracle Cloud Agent's plugins, of nodes with an RDMA network: plugins that are wanted and do not
//! run. The API has no list for many instances, so each is asked about by itself, with a tenth of the requests (decision 0023).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use health::Area;
use health::fleet::CLOUD_AGENT_PLUGINS;
use health::report::Verdict;
use health::rules::{Action, Severity};
use health::summary::Check;
use k8s_openapi::jiff::Timestamp;
use oci::{AgentPlugin, BudgetState, CloudView, Instance, Kind};
use resident::logging::chain;
use tokio::time::{Instant, sleep, sleep_until};
use vcn::Ocid;

use crate::cluster::store::Store;
use crate::fleet::shared::SharedRoster;

/// The part of all requests that these may be.
const SHARE: f64 = 0.1;
/// Of each instance: GetInstance and ListInstanceAgentPlugins.
const REQUESTS: f64 = 2.0;
/// How often the list of nodes is read at least.
const LOOK: Duration = Duration::from_secs(10);
/// After a refusal: a missing permission is the same for all instances.
const REFUSED: Duration = Duration::from_mins(15);
/// Consecutive readings that show a plugin which does not run, before it is a problem: after an instance's launch it takes ten minutes.
const BAD_READINGS: u32 = 4;
/// Consecutive readings that fail, before the state is unknown.
const FAILED_READINGS: u32 = 2;
/// The longest kept error, in characters.
const ERROR_MAX: usize = 300;

/// What it needs.
#[derive(Debug)]
pub struct PluginStates {
    /// The OCI API, to read.
    pub cloud: CloudView,
    /// The Nodes and their instances.
    pub store: Arc<Store>,
    /// Their shapes, and where results go.
    pub roster: Arc<SharedRoster>,
    /// Each instance is asked about once in this time, if the requests allow it.
    pub interval: Duration,
}

/// A node and its instance.
type NodeInstance = (String, Ocid);

/// What is known of a node.
#[derive(Debug, Default)]
struct Readings {
    bad: u32,
    failed: u32,
    last: Option<Instant>,
}

/// What a reading changes.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    Nothing,
    Shown(Option<Check>),
}

impl PluginStates {
    /// Asks about all nodes, again and again; never returns.
    pub async fn run(self) {
        let mut known: HashMap<NodeInstance, Readings> = HashMap::new();
        let mut last_error = None;
        loop {
            self.follow(&mut known);
            let next = known.iter().min_by_key(|(_, readings)| readings.last);
            let due = next.map(|(node, readings)| (node.clone(), readings.last.map(|last| last + self.interval)));
            match due {
                Some((_, Some(due))) if due > Instant::now() + LOOK => sleep(LOOK).await,
                Some((node, due)) => {
                    sleep_until(due.unwrap_or_else(Instant::now)).await;
                    let refused = self.read(&node, known.entry(node.clone()).or_default(), &mut last_error).await;
                    sleep(if refused { REFUSED } else { self.shortest_interval() }).await;
                }
                None => sleep(LOOK).await,
            }
        }
    }

    /// Adds new nodes with an RDMA network, by the shape that their agent reports, and forgets those that are gone.
    fn follow(&self, known: &mut HashMap<NodeInstance, Readings>) {
        let (nodes, mut roster) = (self.store.nodes(), self.roster.lock());
        let now: HashSet<NodeInstance> = {
            let rdma = nodes.iter().filter(|node| roster.shape(&node.name).is_some_and(health::has_rdma_network));
            rdma.filter_map(|node| Some((node.name.clone(), node.instance.clone()?))).collect()
        };
        known.retain(|node, _| {
            now.contains(node) || {
                roster.set_controller_check(&node.0, None);
                false
            }
        });
        for node in now {
            known.entry(node).or_default();
        }
    }

    /// A tenth of the requests that OCI accepts at present.
    fn shortest_interval(&self) -> Duration {
        let BudgetState { usual, paused, .. } = self.cloud.budget().state();
        paused + Duration::from_secs_f64(REQUESTS / (usual * SHARE).max(0.01))
    }

    /// Reads a node's state. Whether a permission is missing.
    async fn read(
        &self,
        node: &NodeInstance,
        readings: &mut Readings,
        last_error: &mut Option<(Kind, String)>,
    ) -> bool {
        let (name, instance) = node;
        let result = self.not_running(instance).await;
        let error = result.as_ref().err().map(|error| (error.kind(), error.operation().unwrap_or_default().to_owned()));
        if let (Err(failure), true) = (&result, error != *last_error) {
            let failure = chain(failure);
            tracing::warn!(
                event = "plugin_states.unknown",
                node = name,
                error = failure,
                "retried; docs/iam.md has the permissions"
            );
        }
        // GetInstance is also refused for an instance that is gone.
        let refused = error.as_ref().is_some_and(|(kind, operation)| {
            operation == "ListInstanceAgentPlugins" && matches!(kind, Kind::NotFoundOrForbidden | Kind::Forbidden)
        });
        *last_error = error;
        readings.last = Some(Instant::now());
        if let Change::Shown(check) = readings.add(result.map_err(|error| shown(&error))) {
            self.roster.lock().set_controller_check(name, check);
        }
        refused
    }

    /// The wanted plugins for RDMA that do not run, in words.
    async fn not_running(&self, instance: &Ocid) -> Result<Vec<String>, oci::Error> {
        let Instance { agent_config, compartment_id, .. } = self.cloud.instance(instance).await?;
        let config = agent_config.unwrap_or_default();
        // The others only monitor and run commands, and the flags for these two groups overrule `pluginsConfig`.
        let wanted: Vec<&str> = config.wanted().filter(|name| name.contains("RDMA")).collect();
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let plugins = self.cloud.agent_plugins(&compartment_id, instance).await?;
        Ok(wanted.into_iter().filter_map(|name| trouble(name, &plugins)).collect())
    }
}

fn shown(error: &oci::Error) -> String {
    let text: String = chain(error).chars().take(ERROR_MAX).collect();
    format!("Read the plugins' states from the OCI API: {text}")
}

fn trouble(name: &str, plugins: &[AgentPlugin]) -> Option<String> {
    let Some(plugin) = plugins.iter().find(|plugin| plugin.name == name) else {
        return Some(format!("{name}: has not reported"));
    };
    if ["RUNNING", "NOT_SUPPORTED"].contains(&plugin.status.as_str()) {
        return None;
    }
    let time = plugin.time_last_updated_utc.as_ref().map(|time| format!(" at {time}")).unwrap_or_default();
    Some(format!("{name}: {}{time}", plugin.status))
}

impl Readings {
    /// Adds a reading: the plugins that do not run, or why they are not known.
    fn add(&mut self, result: Result<Vec<String>, String>) -> Change {
        let (verdict, message) = match result {
            Ok(plugins) => {
                self.failed = 0;
                if plugins.is_empty() {
                    self.bad = 0;
                    return Change::Shown(None);
                }
                self.bad = self.bad.saturating_add(1);
                if self.bad < BAD_READINGS {
                    return Change::Nothing;
                }
                let plugins = plugins.join(", ");
                (Verdict::Problem, format!("Plugins of the Oracle Cloud Agent are enabled and do not run. {plugins}"))
            }
            Err(error) => {
                self.failed = self.failed.saturating_add(1);
                if self.failed < FAILED_READINGS {
                    return Change::Nothing;
                }
                (Verdict::Unknown, error)
            }
        };
        Change::Shown(Some(Check {
            name: CLOUD_AGENT_PLUGINS.name.to_owned(),
            subject: None,
            area: Area::Host,
            verdict,
            severity: Severity::Warning,
            action: Action::Report,
            message,
            since_unix_millis: u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin(status: &str) -> [AgentPlugin; 1] {
        let time_last_updated_utc = Some("2026-01-01T00:00:00Z".to_owned());
        [AgentPlugin { name: "A".to_owned(), status: status.to_owned(), time_last_updated_utc }]
    }

    #[test]
    fn plugin_that_is_supported_must_run() {
        let of = |status| trouble("A", &plugin(status));
        assert_eq!([of("RUNNING"), of("NOT_SUPPORTED")], [None, None]);
        assert_eq!(of("STOPPED").as_deref(), Some("A: STOPPED at 2026-01-01T00:00:00Z"));
        assert_eq!(trouble("B", &plugin("RUNNING")).as_deref(), Some("B: has not reported"));
    }

    #[test]
    fn several_readings_in_turn_are_a_problem_or_unknown() {
        let stopped = || Ok(vec!["A: STOPPED".to_owned()]);
        let failed = || Err("503".to_owned());
        let mut readings = Readings::default();
        let mut verdict = |result: Result<Vec<String>, String>| match readings.add(result) {
            Change::Nothing => "same",
            Change::Shown(None) => "healthy",
            Change::Shown(Some(check)) if check.verdict == Verdict::Problem => "problem",
            Change::Shown(Some(_)) => "unknown",
        };
        let all = [
            stopped(),
            stopped(),
            stopped(),
            stopped(),
            failed(),
            stopped(),
            failed(),
            failed(),
            Ok(Vec::new()),
            stopped(),
        ];
        let verdicts = all.map(&mut verdict);
        assert_eq!(verdicts.join(" "), "same same same problem same problem same unknown healthy same");
    }
}
