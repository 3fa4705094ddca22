//! Which plugins of the Oracle Cloud Agent are enabled and do not run, on nodes with an RDMA network, by the OCI API. The API has no
//! list for many instances, so each is read by itself, with a tenth of the requests (decision 0023).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use health::fleet::CLOUD_AGENT_PLUGINS;
use health::report::Verdict;
use health::rules::Severity;
use health::summary::Check;
use k8s_openapi::jiff::Timestamp;
use oci::{AgentPlugin, BudgetState, CloudView, Instance, InstanceState, Kind};
use resident::logging::chain;
use tokio::time::{Instant, sleep, sleep_until};
use vcn::Ocid;

use crate::cluster::store::Store;
use crate::fleet::findings::{millis, problem};
use crate::fleet::shared::SharedRoster;

/// The part of all requests that these may be.
const REQUEST_SHARE: f64 = 0.1;
/// Of each instance: GetInstance and ListInstanceAgentPlugins.
const REQUESTS_PER_INSTANCE: f64 = 2.0;
/// The list of nodes is read at least this often.
const MAX_SLEEP: Duration = Duration::from_secs(10);
/// While the permission is missing.
const REFUSAL_BACKOFF: Duration = Duration::from_mins(15);
/// Consecutive readings that show a plugin which does not run, before it is a problem: after an instance's launch it takes ten minutes.
const BAD_READINGS: u32 = 4;
/// Consecutive readings that fail, before the state is unknown.
const FAILED_READINGS: u32 = 2;
/// The longest kept error, in characters.
const ERROR_MAX: usize = 300;

#[derive(Debug)]
pub(crate) struct PluginStates {
    /// The OCI API, to read.
    pub cloud: CloudView,
    pub store: Arc<Store>,
    /// Their shapes, and where results go.
    pub roster: Arc<SharedRoster>,
    /// The plugins of each instance are read once in this time, if the requests allow it.
    pub interval: Duration,
}

type NodeInstance = (String, Ocid);

/// The plugins of an instance that do not run, if any is enabled.
type Reading = Result<Option<Vec<String>>, oci::Error>;

/// What is known of each node.
type Known = HashMap<NodeInstance, Readings>;

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
    /// Reads the plugins of all nodes, again and again; never returns.
    pub(crate) async fn run(self) {
        let mut known = Known::new();
        let mut last_error = None;
        loop {
            self.follow(&mut known);
            let next = known.iter().min_by_key(|(_, readings)| readings.last);
            let due = next.map(|(node, readings)| (node.clone(), readings.last.map(|last| last + self.interval)));
            match due {
                Some((_, Some(due))) if due > Instant::now() + MAX_SLEEP => sleep(MAX_SLEEP).await,
                Some((node, due)) => {
                    sleep_until(due.unwrap_or_else(Instant::now)).await;
                    let result = self.not_running(&node.1).await;
                    let refused = is_refused_again(&node.0, &result, &mut last_error);
                    self.record(&mut known, node, result, refused);
                    sleep(if refused { REFUSAL_BACKOFF } else { self.shortest_interval() }).await;
                }
                None => sleep(MAX_SLEEP).await,
            }
        }
    }

    /// Adds new nodes with an RDMA network, by the shape that their agent reports, and forgets those that are gone.
    fn follow(&self, known: &mut Known) {
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
        paused + Duration::from_secs_f64(REQUESTS_PER_INSTANCE / (usual * REQUEST_SHARE).max(0.01))
    }

    /// Shows the result. A missing permission is one of all nodes.
    fn record(&self, known: &mut Known, node: NodeInstance, result: Reading, refused: bool) {
        let mut roster = self.roster.lock();
        if let (Err(error), true) = (&result, refused) {
            known
                .keys()
                .for_each(|(name, _)| roster.set_controller_check(name, Some(check(Verdict::Unknown, shown(error)))));
        }
        let readings = known.entry(node.clone()).or_default();
        readings.last = Some(Instant::now());
        if let Change::Shown(check) = readings.add(result.map(Option::unwrap_or_default).map_err(|error| shown(&error)))
        {
            roster.set_controller_check(&node.0, check);
        }
    }

    /// The enabled plugins for RDMA that do not run, in words; `None` if none is enabled.
    async fn not_running(&self, instance: &Ocid) -> Reading {
        let Instance { agent_config, compartment_id, lifecycle_state, .. } = self.cloud.instance(instance).await?;
        let config = agent_config.filter(|_| lifecycle_state == InstanceState::Running).unwrap_or_default();
        // The others only monitor and run commands, and the flags for these two groups overrule `pluginsConfig`.
        let enabled: Vec<&str> = config.enabled_plugins().filter(|name| name.contains("RDMA")).collect();
        if enabled.is_empty() {
            return Ok(None);
        }
        let plugins = self.cloud.agent_plugins(&compartment_id, instance).await?;
        Ok(Some(enabled.into_iter().filter_map(|name| trouble(name, &plugins)).collect()))
    }
}

/// Logs an error that is new, and tells whether the permission is missing: the second refusal in a row, because OCI also refuses an
/// instance that is gone.
fn is_refused_again(node: &str, result: &Reading, last: &mut Option<(Kind, Option<&'static str>)>) -> bool {
    let failure = match result {
        Err(failure) => failure,
        Ok(None) => return false,
        Ok(Some(_)) => {
            *last = None;
            return false;
        }
    };
    let error = (failure.kind(), failure.operation());
    let is_refusal =
        error.1 == Some("ListInstanceAgentPlugins") && matches!(error.0, Kind::NotFoundOrForbidden | Kind::Forbidden);
    let is_repeated = *last == Some(error);
    if !is_repeated {
        let hint = if is_refusal { "docs/iam.md names the permission" } else { "retried" };
        tracing::warn!(event = "plugin_states.unknown", node, error = chain(failure), "{hint}");
    }
    *last = Some(error);
    is_refusal && is_repeated
}

fn check(verdict: Verdict, message: String) -> Check {
    let problem = problem(CLOUD_AGENT_PLUGINS.name, Severity::Warning);
    Check { verdict, message, since_unix_millis: millis(Some(Timestamp::now())), ..problem }
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
        Change::Shown(Some(check(verdict, message)))
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
