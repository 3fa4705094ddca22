//! The agent's Prometheus metrics. Counters grow where something happens; gauges are set at each scrape.

mod labels;

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use resident::metrics::{FloatGauge, Histograms, MetricDescription, MetricRegistry, result_word};
use telemetry::VerbRecord;
use tunables::{ItemState, NodeAnswer};

use crate::decide::usage::Usage;
use crate::facts::node_facts::NodeFacts;
use crate::facts::reconcile_report::{Cause, ReconcileReport};
use labels::{
    AttachmentState, ChangeKind, ConditionLabels, Decision, FaultyDeviceName, FollowUp, MetadataRequest, Outcome,
    PolicyChange, PolicyItemState, PoolState, ReconcileKind, SignalName, SignalResult, SourceName, VerbPhase,
};

/// A reconcile takes milliseconds; one that installs binaries takes a second.
const RECONCILE_SECONDS: [f64; 9] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];

/// An ADD takes about 2 ms, its phases a part of that; a slow one waits for the kernel's routing lock.
const VERB_SECONDS: [f64; 12] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0];

/// The most label sets of verbs: a plugin of another version may have other phases, but not without limit.
const VERB_SERIES: usize = 512;

/// The largest number of faulty devices that have a metric. A node has at most 8 GPUs and 18 ports of adapters, and modules of memory.
const DEVICE_SERIES: usize = 64;

/// What records of plugin runs say, and what became of the records.
struct PluginRunMetrics {
    verbs: Histograms<VerbPhase>,
    verb_series: Mutex<HashSet<VerbPhase>>,
    records_refused: Counter,
}

/// All metrics of the agent.
pub struct Metrics {
    registry: MetricRegistry,
    reconciles: Family<ReconcileKind, Counter>,
    reconcile_seconds: Histogram,
    changes: Family<ChangeKind, Counter>,
    metadata_requests: Family<MetadataRequest, Counter>,
    plugin_runs: PluginRunMetrics,
    follow_ups: Family<FollowUp, Counter>,
    connections_forgotten: Counter,
    attachments: Family<AttachmentState, FloatGauge>,
    decisions: Family<Decision, Counter>,
    ages: Family<SourceName, FloatGauge>,
    pools: Family<PoolState, FloatGauge>,
    conditions: Family<ConditionLabels, FloatGauge>,
    ready: Gauge,
    events: Family<Outcome, Counter>,
    vnic_reports: Family<Outcome, Counter>,
    repairs: AtomicU64,
    signals: Family<SignalResult, Gauge>,
    signal_values: Family<SignalName, FloatGauge>,
    faulty_devices: Family<FaultyDeviceName, Gauge>,
    policy_changes: Family<PolicyChange, Counter>,
    policy_items: Family<PolicyItemState, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut all = MetricRegistry::new("oke_node_agent", env!("CARGO_PKG_VERSION"));
        Self {
            reconciles: all.family("reconciles", "Reconciles, by cause and result"),
            reconcile_seconds: all.histogram(
                "reconcile_seconds",
                "Duration of a reconcile in seconds",
                RECONCILE_SECONDS,
            ),
            changes: all.family(
                "reconcile_changes",
                "Changes of the node, by kind and cause; with cause kernel, files or timer they are repairs",
            ),
            metadata_requests: all.family("metadata_requests", "Requests to the metadata service, by document and result"),
            plugin_runs: PluginRunMetrics::new(&mut all),
            follow_ups: all.family(
                "follow_up_addresses",
                "Addresses announced after ADD, or whose connections were removed after DEL, by result",
            ),
            connections_forgotten: all.metric(
                "connections_forgotten",
                "Tracked connections of freed addresses that were removed",
            ),
            attachments: all.family(
                "pod_attachments",
                "Interfaces of pods whose record can be read; tentative: their ADD has not finished",
            ),
            decisions: all.family(
                "pod_network_decisions",
                "Reconciles, by whether our pod network is to be installed, the signal that decided, and the result",
            ),
            ages: all.family("source_age_seconds", "Seconds since the last good answer of a source"),
            pools: all.family("pool_addresses", "Addresses for pods, by VNIC, family and state"),
            conditions: all.family("condition", "1 while the condition is raised"),
            ready: all.metric("ready", "1 while the agent is ready: new pods can start, or the node is full"),
            events: all.family(
                "kubernetes_events",
                "Kubernetes Events about the Node: written (ok), failed and retried (error), or dropped because the state \
                 ended before or too many were due (dropped)",
            ),
            vnic_reports: all.family(
                "vnic_reports",
                "Writes of `status.node` of this node's VnicAttachments: written (ok), or failed and retried (error)",
            ),
            repairs: AtomicU64::default(),
            signals: all.family("signal", "Health signals by result; 1 for the current result"),
            signal_values: all.family("signal_value", "Values of health signals, in the unit of signals.md"),
            faulty_devices: all.family("faulty_devices", "GPUs, RDMA ports and other devices with a problem, by signal and PCI address: 1 each, of at most 64"),
            policy_changes: all.family(
                "policy_changes",
                "Changes of kernel settings by node policies: set, set_back (after a change by another program), withdraw (not \
                 confirmed by the controller), or restore, by result",
            ),
            policy_items: all.family("policy_items", "Items of node policies on this node, by state"),
            registry: all,
        }
    }
}

impl PluginRunMetrics {
    fn new(all: &mut MetricRegistry) -> Self {
        Self {
            verbs: all.histograms(
                "cni_verb_seconds",
                "Duration of a plugin run in seconds, in total and by phase, by exit code",
                || Histogram::new(VERB_SECONDS),
            ),
            verb_series: Mutex::default(),
            records_refused: all.metric(
                "cni_records_refused",
                "Records of plugin runs that could not be read, or had too many different labels",
            ),
        }
    }
}

impl Metrics {
    /// All metrics, for their table in docs/.
    pub fn descriptions(&self) -> &[MetricDescription] {
        self.registry.descriptions()
    }

    pub(crate) fn reconciled(&self, report: &ReconcileReport) {
        let result = if report.conditions.is_empty() {
            "ok"
        } else if report.is_ready() {
            "degraded"
        } else {
            "blocked"
        };
        let cause = report.cause.as_str();
        self.reconciles.get_or_create(&ReconcileKind { cause, result }).inc();
        self.reconcile_seconds.observe(seconds(report.micros));
        for change in &report.changes {
            self.changes.get_or_create(&ChangeKind { noun: change.noun.clone(), cause }).inc();
        }
        if matches!(report.cause, Cause::Kernel | Cause::Timer | Cause::Files) {
            let repaired = report.changes.iter().filter(|change| change.noun != "pools").count();
            self.repairs.fetch_add(repaired as u64, Ordering::Relaxed);
        }
        if let Some(state) = &report.pod_network {
            let (install, decided_by) = (state.install.to_string(), state.decided_by.clone());
            self.decisions.get_or_create(&Decision { install, decided_by, status: state.status.clone() }).inc();
        }
    }

    /// How many objects were repaired since the start.
    pub(crate) fn repairs(&self) -> u64 {
        self.repairs.load(Ordering::Relaxed)
    }

    pub(crate) fn set_signals(&self, report: &health::Report) {
        self.signals.clear();
        self.signal_values.clear();
        self.faulty_devices.clear();
        let problems = report.signals.iter().filter(|state| state.verdict == health::Verdict::Problem);
        let devices = problems.flat_map(|state| state.devices.iter().map(|device| (&state.signal, device)));
        for (signal, device) in devices.take(DEVICE_SERIES) {
            let labels = FaultyDeviceName { signal: signal.clone(), device: device.address.clone() };
            self.faulty_devices.get_or_create(&labels).set(1);
        }
        for state in &report.signals {
            let signal = state.signal.clone();
            if let Some(value) = state.value {
                self.signal_values.get_or_create(&SignalName { signal: signal.clone() }).set(value);
            }
            self.signals.get_or_create(&SignalResult { signal, result: state.verdict.word() }).set(1);
        }
    }

    /// Counts a change of a node policy.
    pub(crate) fn policy_changed(&self, action: &'static str, succeeded: bool) {
        self.policy_changes.get_or_create(&PolicyChange { action, result: result_word(succeeded) }).inc();
    }

    /// The states of all items of node policies.
    pub(crate) fn set_policy_items(&self, answer: &NodeAnswer) {
        self.policy_items.clear();
        let set = |state, count: usize| {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.policy_items.get_or_create(&PolicyItemState { state }).set(count);
        };
        set("InSync", answer.in_sync as usize);
        for state in ItemState::ALL {
            set(state.as_str(), answer.items.iter().filter(|item| item.state == state).count());
        }
    }

    /// Counts a request to the metadata service.
    pub(crate) fn metadata_answered(&self, document: &'static str, answered: bool) {
        self.metadata_requests.get_or_create(&MetadataRequest { document, result: result_word(answered) }).inc();
    }

    pub(crate) fn verb(&self, record: &VerbRecord) {
        let total = ("total".into(), record.total_micros);
        for (phase, micros) in record.phases.iter().chain([&total]) {
            let labels = VerbPhase {
                plugin: record.plugin.clone(),
                verb: record.verb.clone(),
                phase: phase.to_string(),
                code: record.code,
            };
            let is_known = {
                let mut series = self.plugin_runs.verb_series.lock().unwrap_or_else(PoisonError::into_inner);
                series.contains(&labels) || (series.len() < VERB_SERIES && series.insert(labels.clone()))
            };
            if is_known {
                self.plugin_runs.verbs.get_or_create(&labels).observe(seconds(*micros));
            } else {
                self.record_refused();
            }
        }
    }

    /// Counts a record that could not be read.
    pub(crate) fn record_refused(&self) {
        self.plugin_runs.records_refused.inc();
    }

    /// Counts addresses of which the work after a verb is done or failed.
    pub(crate) fn followed_up(&self, what: &'static str, done: bool, addresses: usize) {
        self.follow_ups.get_or_create(&FollowUp { what, result: result_word(done) }).inc_by(addresses as u64);
    }

    pub(crate) fn connections_forgotten(&self, connections: usize) {
        self.connections_forgotten.inc_by(connections as u64);
    }

    /// Counts an attempt to write a Kubernetes Event.
    pub(crate) fn event_attempted(&self, written: bool) {
        self.events.get_or_create(&Outcome { result: result_word(written) }).inc();
    }

    pub(crate) fn vnic_reported(&self, written: bool) {
        let result = if written { "ok" } else { "error" };
        self.vnic_reports.get_or_create(&Outcome { result }).inc();
    }

    /// Counts transitions without an Event.
    pub(crate) fn events_dropped(&self, transitions: usize) {
        if transitions > 0 {
            self.events.get_or_create(&Outcome { result: "dropped" }).inc_by(transitions as u64);
        }
    }

    /// Sets the gauges and returns all metrics in Prometheus' text format. A gauge without a known value is absent: a zero
    /// would look like a value.
    pub(crate) fn text(&self, facts: &NodeFacts, report: Option<&ReconcileReport>, usage: Option<&Usage>) -> String {
        let now = Instant::now();
        let ages = [
            ("instance", facts.instance.age(now)),
            ("vnics", facts.vnics.age(now)),
            ("native-pod-network", facts.npn.age(now)),
        ];
        for (source, age) in ages {
            if let Some(age) = age {
                self.ages.get_or_create(&SourceName { source }).set(age.as_secs_f64());
            }
        }
        self.pools.clear();
        for pool in usage.iter().flat_map(|usage| &usage.pools) {
            for (state, count) in
                [("total", pool.total), ("in_use", pool.in_use), ("cooling", pool.cooling), ("free", pool.free)]
            {
                let (vnic, link) = (pool.vnic_id.to_string(), pool.link.to_string());
                let labels = PoolState { vnic, link, family: pool.family.to_string(), state };
                // Beyond 2^53 the value is rounded.
                self.pools.get_or_create(&labels).set(count as f64);
            }
        }
        self.attachments.clear();
        if let Some(attachments) = usage.map(|usage| usage.attachments) {
            for (state, count) in [("tentative", attachments.tentative), ("committed", attachments.committed)] {
                self.attachments.get_or_create(&AttachmentState { state }).set(count as f64);
            }
        }
        self.conditions.clear();
        for condition in report.iter().flat_map(|report| &report.conditions) {
            let subject = condition.subject.clone().unwrap_or_default();
            let (reason, blocking) = (condition.reason.to_string(), condition.blocks().to_string());
            self.conditions.get_or_create(&ConditionLabels { reason, subject, blocking }).set(1.0);
        }
        self.ready.set(i64::from(report.is_some_and(ReconcileReport::is_ready)));
        self.registry.text()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plugin_run_is_counted_in_total_and_by_phase() {
        let metrics = Metrics::default();
        let mut record = VerbRecord::begin("vcn-native", "0.1.0", "ADD");
        record.phases = vec![("ipam".into(), 300)];
        record.total_micros = 2000;
        record.code = 11;
        metrics.verb(&record);
        let text = metrics.text(&NodeFacts::default(), None, Some(&Usage::default()));
        for line in [
            r#"oke_node_agent_cni_verb_seconds_count{plugin="vcn-native",verb="ADD",phase="ipam",code="11"} 1"#,
            r#"oke_node_agent_cni_verb_seconds_sum{plugin="vcn-native",verb="ADD",phase="total",code="11"} 0.002"#,
            "oke_node_agent_ready 0",
            r#"oke_node_agent_build_info{version="#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn gauge_without_a_value_is_absent() {
        let (metrics, none) = (Metrics::default(), Usage::default());
        let text = |usage| metrics.text(&NodeFacts::default(), None, usage);
        assert!(text(Some(&none)).contains(r#"oke_node_agent_pod_attachments{state="committed"} 0"#));
        assert!(!text(None).contains("oke_node_agent_pod_attachments{"));
    }

    #[test]
    fn faulty_devices_are_counted_up_to_a_bound() {
        let metrics = Metrics::default();
        let devices: Vec<_> = (0..200).map(|number| json!({ "at": format!("0000:{number:02x}:00.0") })).collect();
        let state = json!({ "signal": "gpus_off_bus", "verdict": "problem", "unit": "count", "detail": "", "devices": devices,
            "sampledUnixMillis": 1, "sinceUnixMillis": 1, "everySeconds": 60 });
        metrics.set_signals(&serde_json::from_value(json!({ "signals": [state] })).unwrap());
        let text = || metrics.text(&NodeFacts::default(), None, Some(&Usage::default()));
        assert!(text().contains(r#"faulty_devices{signal="gpus_off_bus",device="0000:00:00.0"} 1"#));
        assert_eq!(text().matches("faulty_devices{").count(), DEVICE_SERIES);
        metrics.set_signals(&health::Report::default());
        assert_eq!(text().matches("faulty_devices{").count(), 0);
    }

    #[test]
    fn label_sets_of_records_are_bounded() {
        let metrics = Metrics::default();
        for number in 0..2000 {
            metrics.verb(&VerbRecord { verb: format!("V{number}"), ..VerbRecord::default() });
        }
        let text = metrics.text(&NodeFacts::default(), None, Some(&Usage::default()));
        assert_eq!(text.matches("cni_verb_seconds_count{").count(), VERB_SERIES);
        assert!(text.contains(&format!("cni_records_refused_total {}", 2000 - VERB_SERIES)));
    }
}
