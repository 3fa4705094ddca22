//! Metrics of the fleet.

use std::collections::BTreeMap;
use std::time::Duration;

use health::fleet::NodeState;
use health::rules::Severity;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use resident::metrics::{FloatGauge, MetricRegistry};

use super::labels::{NodesInState, Outcome, Problem, SignalProblem};

/// The fleet in numbers, at a scrape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FleetCensus {
    pub nodes: BTreeMap<NodeState, usize>,
    /// Nodes with a problem, by signal.
    pub problems: BTreeMap<(&'static str, Severity), usize>,
    /// Devices with a problem, by reason.
    pub devices: BTreeMap<&'static str, usize>,
    /// The age of the oldest summary.
    pub oldest: Duration,
    /// The duration of the last sweep.
    pub sweep: Duration,
    /// Nodes that do not have the controller's rules.
    pub other_rules: usize,
}

#[derive(Debug)]
pub(crate) struct FleetMetrics {
    nodes: Family<NodesInState, Gauge>,
    problems: Family<SignalProblem, Gauge>,
    devices: Family<Problem, Gauge>,
    oldest: FloatGauge,
    sweep: FloatGauge,
    requests: Family<Outcome, Counter>,
    other_rules: Gauge,
    pub(crate) rules_invalid: Gauge,
    pub(crate) holds: Gauge,
}

impl FleetMetrics {
    pub(super) fn new(all: &mut MetricRegistry) -> Self {
        Self {
            nodes: all.family("fleet_nodes", "Nodes by state: Critical, Warning, Healthy, or Unknown, whose agent does not answer or has not answered yet"),
            problems: all.family("fleet_problems", "Nodes with a problem, by signal and severity; other: conditions of the agent"),
            devices: all.family("fleet_faulty_devices", "GPUs, RDMA ports and other devices of nodes with a problem, by reason: a reason of AcceleratorsHealthy or HostHealthy, or a signal"),
            oldest: all.metric("fleet_oldest_summary_seconds", "Age of the oldest summary of a node whose state is known, in seconds"),
            sweep: all.metric("fleet_sweep_seconds", "Seconds that the last query of all agents took"),
            requests: all.family("agent_requests", "Requests to agents, by result: ok, unchanged, connect, handshake (a wrong key), slow, too_long, broken, status or unreadable; rules_refused: an agent that answered did not keep the rules"),
            other_rules: all.metric("fleet_other_rules", "Nodes whose agent last reported other rules than the controller's HEALTH_RULES: not queried since a change, unable to keep them, without signals (HEALTH=off), or of release 0.2.0"),
            rules_invalid: all.metric("health_rules_invalid", "1 while the file HEALTH_RULES cannot be sent to agents"),
            holds: all.metric("fleet_unknown_held", "1 while so many agents do not answer that no condition of a Node is set to Unknown"),
        }
    }

    /// Counts a request to an agent.
    pub(crate) fn count_request(&self, result: &'static str) {
        self.requests.get_or_create(&Outcome { result }).inc();
    }

    pub(super) fn set(&self, census: FleetCensus) {
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let FleetCensus { nodes, problems, devices, oldest, sweep, other_rules } = census;
        self.nodes.clear();
        for (state, count) in nodes {
            self.nodes.get_or_create(&NodesInState { state: state.to_string() }).set(number(count));
        }
        self.problems.clear();
        for ((signal, severity), count) in problems {
            let labels = SignalProblem { signal, severity: severity.to_string() };
            self.problems.get_or_create(&labels).set(number(count));
        }
        self.devices.clear();
        for (reason, count) in devices {
            self.devices.get_or_create(&Problem { reason }).set(number(count));
        }
        self.oldest.set(oldest.as_secs_f64());
        self.sweep.set(sweep.as_secs_f64());
        self.other_rules.set(number(other_rules));
    }
}
