//! What Prometheus is told. Counters grow where things happen; gauges are set when somebody scrapes.

mod labels;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use resident::metrics::{Book, Described};
use telemetry::VerbRecord;

use crate::decide::usage::Usage;
use crate::report::reconcile_report::Pass;
use crate::sources::node_facts::NodeFacts;
use labels::{
    Aftercare, Attachments, Build, ChangeKind, ConditionOf, Decided, PassKind, Pool, Question, Reload, Source, Told,
    Verb,
};

/// A pass takes milliseconds; one that installs binaries, a second.
const PASS_SECONDS: [f64; 9] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5];

/// An ADD takes about 2 ms, its phases a part of that; a slow one is caught by the kernel's routing lock.
const VERB_SECONDS: [f64; 12] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0];

/// The most label sets of verbs: a plugin of another version may invent phases, but not without end.
const VERB_SERIES: usize = 512;

type Seconds<L> = Family<L, Histogram, fn() -> Histogram>;
type Number<L> = Family<L, Gauge<f64, AtomicU64>>;

/// Everything that is counted.
pub struct Metrics {
    registry: Registry,
    described: Vec<Described>,
    configurations: Family<Reload, Counter>,
    passes: Family<PassKind, Counter>,
    pass_seconds: Histogram,
    changes: Family<ChangeKind, Counter>,
    questions: Family<Question, Counter>,
    verbs: Seconds<Verb>,
    verb_series: std::sync::Mutex<std::collections::HashSet<Verb>>,
    verb_records_refused: Counter,
    verb_records_late: Counter,
    verb_lines_dropped: Counter,
    aftercare: Family<Aftercare, Counter>,
    connections_forgotten: Counter,
    attachments: Number<Attachments>,
    decisions: Family<Decided, Counter>,
    ages: Number<Source>,
    pools: Number<Pool>,
    conditions: Number<ConditionOf>,
    ready: Gauge,
    events: Family<Told, Counter>,
    vnic_reports: Family<Told, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut book = Book::new("oke_node_agent");
        let build = Family::<Build, Gauge>::default();
        build.get_or_create(&Build { version: env!("CARGO_PKG_VERSION").to_owned() }).set(1);
        book.family("build_info", "The agent's version", &build);
        let metrics = Self {
            passes: Family::default(),
            pass_seconds: Histogram::new(PASS_SECONDS),
            changes: Family::default(),
            questions: Family::default(),
            verbs: Family::new_with_constructor(|| Histogram::new(VERB_SECONDS)),
            verb_series: std::sync::Mutex::default(),
            verb_records_refused: Counter::default(),
            verb_records_late: Counter::default(),
            verb_lines_dropped: Counter::default(),
            aftercare: Family::default(),
            connections_forgotten: Counter::default(),
            attachments: Family::default(),
            decisions: Family::default(),
            ages: Family::default(),
            pools: Family::default(),
            conditions: Family::default(),
            ready: Gauge::default(),
            events: Family::default(),
            vnic_reports: Family::default(),
            configurations: Family::default(),
            registry: Registry::default(),
            described: Vec::new(),
        };
        book.family("reconcile_passes", "Passes, by why they ran and how they ended", &metrics.passes);
        book.single("reconcile_seconds", "How long a pass took", &metrics.pass_seconds);
        book.family(
            "reconcile_changes",
            "Changes made, by what and why; of cause kernel, files or timer they are repairs",
            &metrics.changes,
        );
        book.family("metadata_questions", "Questions to the metadata service", &metrics.questions);
        book.family("cni_verb_seconds", "Runs of our CNI plugins, whole and by phase", &metrics.verbs);
        book.single(
            "cni_records_refused",
            "Records of plugin runs that could not be read or were of too many kinds",
            &metrics.verb_records_refused,
        );
        book.single(
            "cni_records_late",
            "Records of plugin runs that came by the file, because the agent was down or did not keep up",
            &metrics.verb_records_late,
        );
        book.single(
            "cni_lines_dropped",
            "Runs of plugins that were counted but not logged, because there were too many",
            &metrics.verb_lines_dropped,
        );
        book.family(
            "aftercare_addresses",
            "Addresses announced after ADD, or whose connections were forgotten after DEL, by result",
            &metrics.aftercare,
        );
        book.single(
            "connections_forgotten",
            "Tracked connections of freed addresses that were removed",
            &metrics.connections_forgotten,
        );
        book.family(
            "pod_attachments",
            "Pods' interfaces with addresses whose record can be read; of state tentative, their ADD has not finished",
            &metrics.attachments,
        );
        book.family(
            "pod_network_decisions",
            "Passes by whether our pod network belongs here, and the signal that decided",
            &metrics.decisions,
        );
        book.family("source_age_seconds", "Age of the last good answer", &metrics.ages);
        book.family("pool_addresses", "Addresses for pods, by VNIC, family and state", &metrics.pools);
        book.family("condition", "1 for what is not as it should be", &metrics.conditions);
        book.single("ready", "1 while the agent is ready: new pods can start, or the node is full", &metrics.ready);
        book.family(
            "configuration_readings",
            "Changes of the configuration file that were taken over (ok) or refused (error)",
            &metrics.configurations,
        );
        book.family(
            "kubernetes_events",
            "Events about the Node: written (ok), not written and tried again (error), never told, for they were over before \
             they could be or there were too many (dropped)",
            &metrics.events,
        );
        book.family(
            "vnic_reports",
            "Writes of `status.node` of this node's VnicAttachments: written (ok), not written and retried (error)",
            &metrics.vnic_reports,
        );
        let Book { registry, described, .. } = book;
        Self { registry, described, ..metrics }
    }
}

impl Metrics {
    /// Every metric there is.
    #[must_use]
    pub fn described(&self) -> &[Described] {
        &self.described
    }

    /// Counts a pass.
    pub fn passed(&self, pass: &Pass) {
        let result = if pass.conditions.is_empty() {
            "ok"
        } else if pass.is_ready() {
            "degraded"
        } else {
            "blocked"
        };
        let cause = pass.cause.word();
        self.passes.get_or_create(&PassKind { cause, result }).inc();
        self.pass_seconds.observe(seconds(pass.micros));
        for change in &pass.changes {
            self.changes.get_or_create(&ChangeKind { noun: change.noun.clone(), cause }).inc();
        }
        if let Some(state) = &pass.pod_network {
            let (install, decided_by) = (state.install.to_string(), state.decided_by.clone());
            self.decisions.get_or_create(&Decided { install, decided_by, status: state.status.clone() }).inc();
        }
    }

    /// Counts a question to the metadata service.
    pub fn metadata_answered(&self, document: &'static str, answered: bool) {
        let result = if answered { "ok" } else { "error" };
        self.questions.get_or_create(&Question { document, result }).inc();
    }

    /// Counts a run of a plugin.
    pub fn verb(&self, record: &VerbRecord) {
        let whole = ("total".into(), record.total_micros);
        for (phase, micros) in record.phases.iter().chain([&whole]) {
            let verb = Verb {
                plugin: record.plugin.clone(),
                verb: record.verb.clone(),
                phase: phase.to_string(),
                code: record.code,
            };
            let known = {
                let mut series = self.verb_series.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                series.contains(&verb) || (series.len() < VERB_SERIES && series.insert(verb.clone()))
            };
            if known {
                self.verbs.get_or_create(&verb).observe(seconds(*micros));
            } else {
                self.verb_record_refused();
            }
        }
    }

    /// Counts something that was no record of a plugin.
    pub fn verb_record_refused(&self) {
        self.verb_records_refused.inc();
    }

    /// Counts a record that came by the file.
    pub fn verb_record_late(&self) {
        self.verb_records_late.inc();
    }

    /// Counts a run that was not logged.
    pub fn verb_line_dropped(&self) {
        self.verb_lines_dropped.inc();
    }

    /// Counts what was done for addresses after a verb.
    pub fn aftercare(&self, what: &'static str, done: bool, addresses: usize) {
        let result = if done { "ok" } else { "error" };
        self.aftercare.get_or_create(&Aftercare { what, result }).inc_by(addresses as u64);
    }

    /// Counts connections that were removed.
    pub fn connections_forgotten(&self, connections: usize) {
        self.connections_forgotten.inc_by(connections as u64);
    }

    /// Counts a configuration that was read anew.
    pub fn configuration_read(&self, right: bool) {
        let result = if right { "ok" } else { "error" };
        self.configurations.get_or_create(&Reload { result }).inc();
    }

    /// Counts an event of Kubernetes.
    pub fn event_told(&self, written: bool) {
        let result = if written { "ok" } else { "error" };
        self.events.get_or_create(&Told { result }).inc();
    }

    /// Counts a report of a VNIC.
    pub fn vnic_reported(&self, written: bool) {
        let result = if written { "ok" } else { "error" };
        self.vnic_reports.get_or_create(&Told { result }).inc();
    }

    /// Counts changes that no event told of.
    pub fn events_dropped(&self, changes: usize) {
        if changes > 0 {
            self.events.get_or_create(&Told { result: "dropped" }).inc_by(changes as u64);
        }
    }

    /// Sets the gauges and writes everything in Prometheus' text format. What is not known is not told: a zero would be
    /// believed.
    #[must_use]
    pub fn text(&self, world: &NodeFacts, pass: Option<&Pass>, usage: Option<&Usage>) -> String {
        let now = Instant::now();
        let ages = [
            ("instance", world.instance.age(now)),
            ("vnics", world.vnics.age(now)),
            ("native-pod-network", world.npn.age(now)),
        ];
        for (source, age) in ages {
            if let Some(age) = age {
                self.ages.get_or_create(&Source { source }).set(age.as_secs_f64());
            }
        }
        self.pools.clear();
        for pool in usage.iter().flat_map(|usage| &usage.pools) {
            for (state, count) in
                [("total", pool.total), ("in_use", pool.in_use), ("cooling", pool.cooling), ("free", pool.free)]
            {
                let (vnic, link) = (pool.vnic_id.to_string(), pool.link.to_string());
                let labels = Pool { vnic, link, family: pool.family.to_string(), state };
                // Beyond 2^53 nobody counts.
                self.pools.get_or_create(&labels).set(count as f64);
            }
        }
        self.attachments.clear();
        if let Some(Usage { allocations, .. }) = usage {
            let tentative = allocations.iter().filter(|held| held.tentative).count();
            for (state, count) in [("tentative", tentative), ("committed", allocations.len() - tentative)] {
                self.attachments.get_or_create(&Attachments { state }).set(count as f64);
            }
        }
        self.conditions.clear();
        for condition in pass.iter().flat_map(|pass| &pass.conditions) {
            let subject = condition.subject.clone().unwrap_or_default();
            let labels =
                ConditionOf { reason: condition.reason.to_string(), subject, blocking: condition.blocks().to_string() };
            self.conditions.get_or_create(&labels).set(1.0);
        }
        self.ready.set(i64::from(pass.is_some_and(Pass::is_ready)));
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn seconds(micros: u64) -> f64 {
    std::time::Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_run_is_counted_whole_and_by_phase() {
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
    fn what_cannot_be_counted_is_not_told_and_what_was_told_before_is_not_repeated() {
        let (metrics, none) = (Metrics::default(), Usage::default());
        let text = |usage| metrics.text(&NodeFacts::default(), None, usage);
        assert!(text(Some(&none)).contains(r#"oke_node_agent_pod_attachments{state="committed"} 0"#));
        assert!(!text(None).contains("oke_node_agent_pod_attachments{"));
    }

    #[test]
    fn the_kinds_of_records_are_bounded() {
        let metrics = Metrics::default();
        for number in 0..2000 {
            metrics.verb(&VerbRecord { verb: format!("V{number}"), ..VerbRecord::default() });
        }
        let text = metrics.text(&NodeFacts::default(), None, Some(&Usage::default()));
        assert_eq!(text.matches("cni_verb_seconds_count{").count(), VERB_SERIES);
        assert!(text.contains(&format!("cni_records_refused_total {}", 2000 - VERB_SERIES)));
    }
}
