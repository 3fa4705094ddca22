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
use oci::{AgentPlugin, CloudView, Instance};
use resident::logging::chain;
use tokio::time::sleep;
use vcn::Ocid;

use crate::cluster::store::Store;
use crate::fleet::shared::SharedRoster;

/// The part of all requests that these may be.
const SHARE: f64 = 0.1;
/// Of each instance: GetInstance and ListInstanceAgentPlugins.
const REQUESTS: f64 = 2.0;
/// While there is no such node.
const IDLE: Duration = Duration::from_secs(10);
/// Readings that show a plugin which does not run, before it is a problem: it may be restarting.
const BAD_READINGS: u32 = 2;

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
    /// Requests per second that all may send together.
    pub rate: f64,
}

/// What is known of a node.
#[derive(Debug, Default)]
struct Readings {
    bad: u32,
    error: Option<String>,
}

impl PluginStates {
    /// Asks about all nodes, again and again; never returns.
    pub async fn run(self) {
        let mut known: HashMap<String, Readings> = HashMap::new();
        loop {
            let nodes = self.nodes();
            let names: HashSet<&str> = nodes.iter().map(|(node, _)| node.as_str()).collect();
            known.retain(|node, _| names.contains(node.as_str()));
            if nodes.is_empty() {
                sleep(IDLE).await;
            }
            let (shortest, even) = self.intervals(nodes.len());
            for (node, instance) in nodes {
                // A new node's state is shown soon.
                sleep(if known.contains_key(&node) { even } else { shortest }).await;
                let result = self.not_running(&instance).await;
                let check = known.entry(node.clone()).or_default().check(&node, result);
                self.roster.lock().set_controller_check(&node, check);
            }
        }
    }

    /// Nodes with an RDMA network, by the shape that their agent reports.
    fn nodes(&self) -> Vec<(String, Ocid)> {
        let (nodes, roster) = (self.store.nodes(), self.roster.lock());
        let has_rdma = |node: &str| roster.shape(node).is_some_and(health::has_rdma_network);
        let found = nodes.iter().filter_map(|node| Some((node.name.clone(), node.instance.clone()?)));
        found.filter(|(node, _)| has_rdma(node)).collect()
    }

    /// The shortest time between two instances, and the one that spreads `nodes` over the interval.
    fn intervals(&self, nodes: usize) -> (Duration, Duration) {
        let shortest = Duration::from_secs_f64(REQUESTS / (self.rate * SHARE));
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX).max(1);
        (shortest, shortest.max(self.interval / nodes))
    }

    /// The wanted plugins that do not run, in words.
    async fn not_running(&self, instance: &Ocid) -> Result<Vec<String>, oci::Error> {
        let Instance { agent_config, compartment_id, .. } = self.cloud.instance(instance).await?;
        let config = agent_config.unwrap_or_default();
        if config.wanted().next().is_none() {
            return Ok(Vec::new());
        }
        let plugins = self.cloud.agent_plugins(&compartment_id, instance).await?;
        Ok(config.wanted().filter_map(|name| trouble(name, &plugins)).collect())
    }
}

fn trouble(name: &str, plugins: &[AgentPlugin]) -> Option<String> {
    match plugins.iter().find(|plugin| plugin.name == name) {
        Some(AgentPlugin { status, .. }) if status == "RUNNING" => None,
        Some(AgentPlugin { status, time_last_updated_utc: Some(time), .. }) => {
            Some(format!("{name}: {status} at {time}"))
        }
        Some(AgentPlugin { status, .. }) => Some(format!("{name}: {status}")),
        None => Some(format!("{name}: has not reported")),
    }
}

impl Readings {
    /// What is shown, if something is wrong.
    fn check(&mut self, node: &str, result: Result<Vec<String>, oci::Error>) -> Option<Check> {
        let (verdict, message) = match result {
            Ok(plugins) if plugins.is_empty() => {
                *self = Self::default();
                return None;
            }
            Ok(plugins) => {
                self.error = None;
                self.bad = self.bad.saturating_add(1);
                if self.bad < BAD_READINGS {
                    return None;
                }
                let plugins = plugins.join(", ");
                (Verdict::Problem, format!("Plugins of the Oracle Cloud Agent are enabled and do not run. {plugins}"))
            }
            Err(error) => {
                let hint = if error.is_not_found_or_forbidden() { "; docs/iam.md has the permissions" } else { "" };
                let (error, request_id) = (chain(&error), error.request_id().map(str::to_owned));
                // The request's number differs each time.
                let text = request_id.map_or_else(|| error.clone(), |id| error.replace(&id, "…"));
                if self.error.as_ref() != Some(&text) {
                    tracing::warn!(event = "plugin_states.unknown", node, error, "asked again{hint}");
                }
                self.error = Some(text.clone());
                (Verdict::Unknown, format!("Read the plugins' states from the OCI API: {text}{hint}"))
            }
        };
        Some(Check {
            name: CLOUD_AGENT_PLUGINS.name.to_owned(),
            subject: None,
            area: Area::Host,
            verdict,
            severity: Severity::Warning,
            action: Action::Report,
            message,
            since_unix_millis: u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugin_is_a_problem_after_two_readings() {
        let plugin = |status: &str| AgentPlugin {
            name: "A".to_owned(),
            status: status.to_owned(),
            time_last_updated_utc: Some("2026-01-01T00:00:00Z".to_owned()),
        };
        assert_eq!(trouble("A", &[plugin("RUNNING")]), None);
        assert_eq!(trouble("B", &[plugin("RUNNING")]).as_deref(), Some("B: has not reported"));
        let stopped = || Ok(trouble("A", &[plugin("STOPPED")]).into_iter().collect());
        let mut readings = Readings::default();
        let verdicts = [stopped(), stopped(), Ok(Vec::new()), stopped(), stopped()]
            .map(|result| readings.check("a", result).map(|check| (check.verdict, check.message)));
        let message =
            "Plugins of the Oracle Cloud Agent are enabled and do not run. A: STOPPED at 2026-01-01T00:00:00Z"
                .to_owned();
        let problem = Some((Verdict::Problem, message));
        assert_eq!(verdicts, [None, problem.clone(), None, None, problem]);
    }
}
