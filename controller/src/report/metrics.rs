//! The controller's Prometheus metrics. Counters grow where something happens; gauges of the objects are set at each scrape.

mod fleet;
mod labels;
mod policies;
mod tasks;

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use api::ProfileSummary;
use oci::{Attempt, BudgetState, Kind, Observer};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use resident::metrics::{FloatGauge, Histograms, MetricDescription, MetricRegistry, result_word};

use crate::work::Depth;
pub(crate) use fleet::{FleetCensus, FleetMetrics};
use labels::{Call, Object, OfOperation, Outcome, Problem, ProfileNodes, Queue, Step, Watched};
pub(crate) use policies::{PolicyCensus, PolicyMetrics};
pub(crate) use tasks::TaskMetrics;

/// A call takes 0.05 to 5 s.
const CALL_SECONDS: [f64; 9] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 20.0];
/// A VNIC takes 5 to 60 s, unless something is in its way.
const ATTACH_SECONDS: [f64; 9] = [2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 1800.0];
/// A reconcile of an instance makes a handful of calls.
const RECONCILE_SECONDS: [f64; 8] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0];

/// How many objects there are, by readiness (`True`, `False`, `Unknown`) and reason.
pub(crate) type Census = BTreeMap<(String, String), u64>;

/// Values that are read at each scrape.
pub(crate) struct Snapshot {
    pub depth: Depth,
    pub census: Census,
    pub budget: BudgetState,
    /// For how long each watch has been behind.
    pub watches: Vec<(&'static str, Duration)>,
    pub fleet: FleetCensus,
}

/// All metrics of the controller.
pub struct Metrics {
    registry: MetricRegistry,
    pub(crate) leads: Gauge,
    pub(crate) connected: Gauge,
    watches: Family<Watched, FloatGauge>,
    calls: Family<Call, Counter>,
    call_seconds: Histograms<OfOperation>,
    budget: FloatGauge,
    paused: FloatGauge,
    queue: Family<Queue, Gauge>,
    queue_waited: FloatGauge,
    objects: Family<Object, Gauge>,
    pub(crate) attach_seconds: Histogram,
    pub(crate) detached_behind: Counter,
    undone: Family<labels::Kind, Counter>,
    reconciles: Family<Outcome, Counter>,
    reconcile_seconds: Histogram,
    steps: Family<Step, Counter>,
    writes: Family<Step, Counter>,
    pub(crate) refusals: Counter,
    unclaimed: Gauge,
    unlisted: Gauge,
    abandoned: Gauge,
    /// Reconciles of all VnicProfiles.
    pub profile_reconciles: Counter,
    profile_reconcile_seconds: Histogram,
    profile_nodes: Family<ProfileNodes, Gauge>,
    node_problems: Family<Problem, Gauge>,
    pub(crate) events_lost: Counter,
    pub(crate) configuration_invalid: Gauge,
    pub(crate) fleet: FleetMetrics,
    pub(crate) policies: PolicyMetrics,
    pub(crate) tasks: TaskMetrics,
    now: OnceLock<Box<dyn Fn() -> Snapshot + Send + Sync>>,
    /// A scrape clears and sets what another one reads.
    scrape: Mutex<()>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut all = MetricRegistry::new("oke_node_controller", env!("CARGO_PKG_VERSION"));
        Self {
            leads: all.metric("leads", "1 if this replica is the leader"),
            connected: all.metric("oci_client", "1 if the OCI client is set up; without it the replica does not request the Lease"),
            watches: all.family("watch_behind_seconds", "Seconds for which a watch of the leader has been behind the API server: first list incomplete, failing, or silent"),
            calls: all.family("oci_calls", "Attempts at calls of the OCI API, by operation and HTTP status (none: no answer; not sent: unsent, because the budget was used up, \
             and login, because the login failed)"),
            call_seconds: all.histograms("oci_call_seconds", "Duration of an attempt in seconds, without waiting for the budget", || Histogram::new(CALL_SECONDS)),
            budget: all.metric("oci_budget", "Requests per second that the controller currently allows itself"),
            paused: all.metric("oci_paused_seconds", "Seconds until the next request to the OCI API is allowed"),
            queue: all.family("queue_instances", "Instances in the queue; due: no free worker yet, or a retry that is queued"),
            queue_waited: all.metric("queue_waited_seconds", "Seconds that the longest waiting instance has been due"),
            objects: all.family("attachments", "VnicAttachments, by their condition Ready and its reason"),
            attach_seconds: all.histogram("attach_seconds", "Seconds from the request to attach a VNIC until it was seen attached", ATTACH_SECONDS),
            detached_behind: all.metric("detached_out_of_band", "VNICs that were detached outside the controller, and are attached again"),
            undone: all.family("undone", "Attaches and detaches that OCI accepted and did not carry out"),
            reconciles: all.family("reconciles", "Reconciles of an instance, by result"),
            reconcile_seconds: all.histogram("reconcile_seconds", "Duration of a reconcile in seconds", RECONCILE_SECONDS),
            steps: all.family("steps", "Steps applied in OCI, by kind and result"),
            writes: all.family("kubernetes_writes", "Writes to the Kubernetes API, by kind and result"),
            refusals: all.metric("kubernetes_refusals", "Attempts that the Kubernetes API had no time for (429, 503, 504), and that are retried; without those for the Lease, \
             Events and the cluster's name"),
            abandoned: all.metric("abandoned_attachments", "VnicAttachments created from a VnicProfile that no longer exists: they stay unchanged"),
            unclaimed: all.metric("unclaimed_vnics", "Orphaned VNICs: with this cluster's tags, and without a VnicAttachment or in addition to its VNIC"),
            unlisted: all.metric("unlisted_compartments", "Compartments that could not be listed last time: missing or orphaned VNICs there go unnoticed"),
            profile_reconciles: all.metric("profile_reconciles", "Reconciles of all VnicProfiles"),
            profile_reconcile_seconds: all.histogram("profile_reconcile_seconds", "Duration of planning for all VnicProfiles in seconds", RECONCILE_SECONDS),
            profile_nodes: all.family("profile_nodes", "Nodes of a VnicProfile: all (matched), with all VNICs attached or ready, or with a problem (failed)"),
            node_problems: all.family("node_problems", "Problems with Nodes' requests for VNICs, by the reason of their events"),
            events_lost: all.metric("events_lost", "Events that were dropped: queue full, or refused by the API server"),
            configuration_invalid: all.metric(
                "configuration_invalid",
                "1 while the configuration file is invalid and the last valid configuration is used",
            ),
            fleet: FleetMetrics::new(&mut all),
            policies: PolicyMetrics::new(&mut all),
            tasks: TaskMetrics::new(&mut all),
            now: OnceLock::new(),
            scrape: Mutex::default(),
            registry: all,
        }
    }
}

impl Metrics {
    /// All metrics, for their table in docs/.
    pub fn descriptions(&self) -> &[MetricDescription] {
        self.registry.descriptions()
    }

    /// The source of the values at a scrape. The first one stays.
    pub(crate) fn set_source(&self, now: impl Fn() -> Snapshot + Send + Sync + 'static) {
        let _ = self.now.set(Box::new(now));
    }

    /// Counts a reconcile of an instance.
    pub fn reconciled(&self, result: &'static str, took: Duration) {
        self.reconciles.get_or_create(&Outcome { result }).inc();
        self.reconcile_seconds.observe(took.as_secs_f64());
    }

    /// Counts a step in OCI.
    pub fn stepped(&self, kind: &'static str, done: bool) {
        self.steps.get_or_create(&Step { kind, result: result_word(done) }).inc();
    }

    /// Counts a write to the API server, including Events.
    pub fn wrote(&self, kind: &'static str, done: bool) {
        self.writes.get_or_create(&Step { kind, result: result_word(done) }).inc();
    }

    /// Counts an attach or detach that OCI accepted and did not carry out.
    pub fn undone(&self, kind: &'static str) {
        self.undone.get_or_create(&labels::Kind { kind }).inc();
    }

    /// Sets the number of orphaned VNICs.
    pub fn unclaimed(&self, count: usize) {
        self.unclaimed.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the number of compartments that could not be listed.
    pub fn unlisted(&self, count: usize) {
        self.unlisted.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the number of VnicAttachments whose VnicProfile is missing.
    pub fn abandoned(&self, count: usize) {
        self.abandoned.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Records a reconcile of the VnicProfiles: the progress of each profile's nodes, and the problems of nodes by reason.
    pub fn profiles_reconciled<'a>(
        &self,
        profiles: impl Iterator<Item = (&'a str, ProfileSummary)>,
        problems: impl Iterator<Item = &'static str>,
        took: Duration,
    ) {
        self.profile_reconciles.inc();
        self.profile_reconcile_seconds.observe(took.as_secs_f64());
        // A deleted profile must not stay in the metrics.
        let _one = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        self.profile_nodes.clear();
        for (profile, ProfileSummary { matched, attached, ready, failed }) in profiles {
            for (state, count) in [("matched", matched), ("attached", attached), ("ready", ready), ("failed", failed)] {
                let labels = ProfileNodes { profile: profile.to_owned(), state };
                self.profile_nodes.get_or_create(&labels).set(count.into());
            }
        }
        self.node_problems.clear();
        for reason in problems {
            self.node_problems.get_or_create(&Problem { reason }).inc();
        }
    }

    /// Sets the gauges and writes everything in Prometheus' text format.
    pub fn text(&self) -> String {
        let _one = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Snapshot { depth, census, budget, watches, fleet }) = self.now.get().map(|now| now()) {
            let Depth { due, working, later, failing, waited } = depth;
            for (state, count) in [("due", due), ("working", working), ("later", later), ("failing", failing)] {
                self.queue.get_or_create(&Queue { state }).set(i64::try_from(count).unwrap_or(i64::MAX));
            }
            self.queue_waited.set(waited.as_secs_f64());
            self.budget.set(budget.rate);
            self.paused.set(budget.paused.as_secs_f64());
            for (watch, behind) in watches {
                self.watches.get_or_create(&Watched { watch }).set(behind.as_secs_f64());
            }
            self.fleet.set(fleet);
            self.objects.clear();
            for ((ready, reason), count) in census {
                self.objects.get_or_create(&Object { ready, reason }).set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
        self.registry.text()
    }
}

impl Observer for Metrics {
    fn attempted(&self, attempt: Attempt) {
        let Attempt { operation, status, failure, took } = attempt;
        let status = match (status, failure) {
            (Some(status), _) => status.to_string(),
            (None, None) => "200".to_owned(),
            (None, Some(Kind::Login)) => "login".to_owned(),
            (None, Some(Kind::Throttled)) => "unsent".to_owned(),
            (None, Some(_)) => "none".to_owned(),
        };
        let sent = !matches!(status.as_str(), "login" | "unsent");
        self.calls.get_or_create(&Call { operation, status }).inc();
        if sent {
            self.call_seconds.get_or_create(&OfOperation { operation }).observe(took.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deleted_profile_leaves_the_metrics() {
        let metrics = Metrics::default();
        let sum = ProfileSummary { matched: 3, attached: 2, ready: 1, failed: 0 };
        metrics.profiles_reconciled(
            [("gone", sum), ("here", sum)].into_iter(),
            ["UnknownVnicProfile"; 2].into_iter(),
            Duration::ZERO,
        );
        let line = r#"oke_node_controller_node_problems{reason="UnknownVnicProfile"} 2"#;
        assert!(metrics.text().contains(line), "{}", metrics.text());
        metrics.profiles_reconciled([("here", sum)].into_iter(), std::iter::empty(), Duration::ZERO);
        let text = metrics.text();
        assert!(text.contains(r#"oke_node_controller_profile_nodes{profile="here",state="ready"} 1"#), "{text}");
        assert!(!text.contains("gone") && !text.contains("UnknownVnicProfile"), "{text}");
    }

    #[test]
    fn calls_and_objects_are_counted() {
        let metrics = Metrics::default();
        let attempt =
            Attempt { operation: "AttachVnic", status: Some(429), failure: None, took: Duration::from_millis(30) };
        metrics.attempted(attempt);
        for failure in [Kind::Unavailable, Kind::Throttled, Kind::Login] {
            metrics.attempted(Attempt { status: None, failure: Some(failure), ..attempt });
        }
        metrics.set_source(|| Snapshot {
            depth: Depth { due: 3, waited: Duration::from_secs(2), ..Depth::default() },
            census: Census::from([(("False".to_owned(), "SubnetFull".to_owned()), 7)]),
            budget: BudgetState { rate: 20.0, usual: 20.0, paused: Duration::ZERO },
            watches: vec![("Nodes", Duration::from_secs(9))],
            fleet: FleetCensus::default(),
        });
        let text = metrics.text();
        for line in [
            r#"oke_node_controller_oci_calls_total{operation="AttachVnic",status="429"} 1"#,
            r#"oke_node_controller_oci_calls_total{operation="AttachVnic",status="none"} 1"#,
            r#"oke_node_controller_oci_calls_total{operation="AttachVnic",status="unsent"} 1"#,
            r#"oke_node_controller_oci_calls_total{operation="AttachVnic",status="login"} 1"#,
            r#"oke_node_controller_oci_call_seconds_count{operation="AttachVnic"} 2"#,
            r#"oke_node_controller_queue_instances{state="due"} 3"#,
            "oke_node_controller_queue_waited_seconds 2.0",
            r#"oke_node_controller_watch_behind_seconds{watch="Nodes"} 9.0"#,
            r#"oke_node_controller_attachments{ready="False",reason="SubnetFull"} 7"#,
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
