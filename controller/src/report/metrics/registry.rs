//! How our metrics are called, what is said of each, and between which bounds durations are counted. docs/controller.md is made
//! from it.

use std::sync::{Mutex, OnceLock};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use resident::metrics::Book;

use super::labels::Build;
use super::{Metrics, Number};

/// A call takes 0.05 to 5 s.
const CALL_SECONDS: [f64; 9] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 20.0];
/// A VNIC takes 5 to 60 s, unless something is in its way.
const ATTACH_SECONDS: [f64; 9] = [2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 1800.0];
/// A look at an instance is a handful of calls.
const PASS_SECONDS: [f64; 8] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0];

impl Default for Metrics {
    fn default() -> Self {
        let mut book = Book::new("oke_node_controller");
        let build = Family::<Build, Gauge>::default();
        build.get_or_create(&Build { version: env!("CARGO_PKG_VERSION").to_owned() }).set(1);
        book.family("build_info", "The controller's version", &build);
        let metrics = Self {
            leads: Gauge::default(),
            connected: Gauge::default(),
            watches: Family::default(),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(|| Histogram::new(CALL_SECONDS)),
            budget: Number::default(),
            paused: Number::default(),
            queue: Family::default(),
            queue_waited: Number::default(),
            objects: Family::default(),
            attach_seconds: Histogram::new(ATTACH_SECONDS),
            detached_behind: Counter::default(),
            forgotten: Counter::default(),
            undone: Family::default(),
            passes: Family::default(),
            pass_seconds: Histogram::new(PASS_SECONDS),
            steps: Family::default(),
            writes: Family::default(),
            refusals: Counter::default(),
            unclaimed: Gauge::default(),
            unlisted: Gauge::default(),
            abandoned: Gauge::default(),
            looks: Counter::default(),
            look_seconds: Histogram::new(PASS_SECONDS),
            profile_nodes: Family::default(),
            node_problems: Family::default(),
            events_lost: Counter::default(),
            configurations: Family::default(),
            now: OnceLock::new(),
            scrape: Mutex::default(),
            registry: Registry::default(),
            described: Vec::new(),
        };
        book.single("leads", "1 if this replica is the leader", &metrics.leads);
        book.single(
            "oci_client",
            "1 if the OCI client is set up; without it the replica does not ask for the lease",
            &metrics.connected,
        );
        book.family(
            "watch_behind_seconds",
            "Seconds for which a watch of the leader has been behind the API server: first list incomplete, or failing",
            &metrics.watches,
        );
        book.family(
            "oci_calls",
            "Attempts at calls of the OCI API, by operation and HTTP status (none: no answer; not sent: unsent, the budget had no \
             room, and login, nobody could log in)",
            &metrics.calls,
        );
        book.family(
            "oci_call_seconds",
            "Duration of an attempt in seconds, without waiting for the budget",
            &metrics.call_seconds,
        );
        book.single("oci_budget", "Requests per second that the controller currently allows itself", &metrics.budget);
        book.single("oci_paused_seconds", "Seconds until the next request to the OCI API is allowed", &metrics.paused);
        book.family(
            "queue_instances",
            "Instances in the queue; due: no free worker yet, or a retry that is queued",
            &metrics.queue,
        );
        book.single(
            "queue_waited_seconds",
            "Seconds that the longest waiting instance has been due",
            &metrics.queue_waited,
        );
        book.family("attachments", "VnicAttachments, by their condition Ready and its reason", &metrics.objects);
        book.single(
            "attach_seconds",
            "Seconds from the request to attach a VNIC until it was seen attached",
            &metrics.attach_seconds,
        );
        book.single(
            "detached_out_of_band",
            "VNICs that were detached outside the controller, and are attached again",
            &metrics.detached_behind,
        );
        book.family("undone", "Attaches and detaches that OCI accepted and did not carry out", &metrics.undone);
        book.single(
            "forgotten_instances",
            "VnicAttachments whose instance counts as terminated: OCI answered 404 for a day",
            &metrics.forgotten,
        );
        book.family("passes", "Reconciles of an instance, by result", &metrics.passes);
        book.single("pass_seconds", "Duration of a reconcile in seconds", &metrics.pass_seconds);
        book.family("steps", "Steps applied in OCI, by kind and result", &metrics.steps);
        book.family("kubernetes_writes", "Writes to the Kubernetes API, by kind and result", &metrics.writes);
        book.single(
            "kubernetes_refusals",
            "Requests that the Kubernetes API had no time for (429, 503, 504), each attempt: they are made again; the lease's, the events' \
             and the one for the cluster's name are not among them",
            &metrics.refusals,
        );
        book.single(
            "abandoned_attachments",
            "VnicAttachments created from a VnicProfile that no longer exists: they stay unchanged",
            &metrics.abandoned,
        );
        book.single(
            "unclaimed_vnics",
            "VNICs with this cluster's tags whose VnicAttachment is not there or has another, in compartments that have some",
            &metrics.unclaimed,
        );
        book.single(
            "unlisted_compartments",
            "Compartments that could not be listed last time: missing or orphaned VNICs there go unnoticed",
            &metrics.unlisted,
        );
        book.single("profile_looks", "Reconciles of all VnicProfiles", &metrics.looks);
        book.single(
            "profile_look_seconds",
            "Duration of planning for all VnicProfiles in seconds",
            &metrics.look_seconds,
        );
        book.family(
            "profile_nodes",
            "Nodes of a VnicProfile: all (matched), and of those with all VNICs attached or ready, or with something to see to \
             (failed)",
            &metrics.profile_nodes,
        );
        book.family(
            "node_problems",
            "Problems with Nodes' requests for VNICs, by the reason of their events",
            &metrics.node_problems,
        );
        book.single(
            "events_lost",
            "Events that were dropped: queue full, or refused by the API server",
            &metrics.events_lost,
        );
        book.family(
            "configuration_readings",
            "Changes of the configuration file, adopted (ok) or invalid (error)",
            &metrics.configurations,
        );
        let Book { registry, described, .. } = book;
        Self { registry, described, ..metrics }
    }
}
