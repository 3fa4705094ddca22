//! Registers metrics and notes what was registered, so that docs/metrics.md is made from what is exported.

use std::fmt::{Debug, Write as _};
use std::hash::Hash;

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Metric, Registry};

use super::labels::Labelled;

/// What all names begin with.
const PREFIX: &str = "oke_node_agent";

/// A metric, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// As it is exported.
    pub name: String,
    /// Counter, gauge or histogram.
    pub kind: &'static str,
    /// The labels' names.
    pub labels: &'static [&'static str],
    /// What it counts.
    pub help: &'static str,
}

#[derive(Debug)]
pub(super) struct Book {
    pub(super) registry: Registry,
    pub(super) described: Vec<Described>,
}

impl Default for Book {
    fn default() -> Self {
        Self { registry: Registry::with_prefix(PREFIX), described: Vec::new() }
    }
}

impl Book {
    /// A metric without labels.
    pub(super) fn single(&mut self, name: &'static str, help: &'static str, metric: &(impl Metric + Clone)) {
        self.add(name, help, &[], metric);
    }

    /// A metric with labels.
    pub(super) fn family<L, M, C>(&mut self, name: &'static str, help: &'static str, metric: &Family<L, M, C>)
    where
        L: Labelled + Clone + Debug + Eq + Hash + EncodeLabelSet + Send + Sync + 'static,
        M: Debug + EncodeMetric + TypedMetric + Send + Sync + 'static,
        C: MetricConstructor<M> + Clone + Send + Sync + 'static,
        Family<L, M, C>: Metric,
    {
        self.add(name, help, L::NAMES, metric);
    }

    fn add(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        metric: &(impl Metric + Clone),
    ) {
        let (kind, end) = match metric.metric_type() {
            MetricType::Counter => ("counter", "_total"),
            MetricType::Histogram => ("histogram", ""),
            _ => ("gauge", ""),
        };
        self.described.push(Described { name: format!("{PREFIX}_{name}{end}"), kind, labels, help });
        self.registry.register(name, help, metric.clone());
    }
}

/// docs/metrics.md's table.
#[must_use]
pub fn markdown(described: &[Described]) -> String {
    let mut text = String::from("| metric | kind | labels | what |\n|---|---|---|---|\n");
    for Described { name, kind, labels, help } in described {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(text, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
    }
    text
}
