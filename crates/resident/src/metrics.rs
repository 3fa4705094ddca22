//! Registers metrics and notes what was registered, so that the tables in docs/ are made from what is exported.

use std::fmt::{Debug, Write as _};
use std::hash::Hash;

use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Metric, Registry};

/// What a metric is broken down by; see [`labels!`](crate::labels).
pub trait Labelled {
    /// The labels' names.
    const NAMES: &'static [&'static str];
}

/// Declares sets of labels: `Verb { plugin: String, code: u32 }` is a struct that is [`Labelled`] and can be encoded.
#[macro_export]
macro_rules! labels {
    ($($name:ident { $($label:ident: $kind:ty),* })*) => {
        $(
            #[derive(Clone, Debug, PartialEq, Eq, Hash, prometheus_client::encoding::EncodeLabelSet)]
            pub(super) struct $name {
                $(pub(super) $label: $kind,)*
            }

            impl $crate::metrics::Labelled for $name {
                const NAMES: &'static [&'static str] = &[$(stringify!($label)),*];
            }
        )*
    };
}

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

/// What is exported, and what it is called.
#[derive(Debug)]
pub struct Book {
    prefix: &'static str,
    /// What is exported.
    pub registry: Registry,
    /// What it is called.
    pub described: Vec<Described>,
}

impl Book {
    /// An empty one; all names begin with `prefix`.
    #[must_use]
    pub fn new(prefix: &'static str) -> Self {
        Self { prefix, registry: Registry::with_prefix(prefix), described: Vec::new() }
    }

    /// A metric without labels.
    pub fn single(&mut self, name: &'static str, help: &'static str, metric: &(impl Metric + Clone)) {
        self.add(name, help, &[], metric);
    }

    /// A metric with labels.
    pub fn family<L, M, C>(&mut self, name: &'static str, help: &'static str, metric: &Family<L, M, C>)
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
        self.described.push(Described { name: format!("{}_{name}{end}", self.prefix), kind, labels, help });
        self.registry.register(name, help, metric.clone());
    }
}

/// A table for docs/.
#[must_use]
pub fn markdown(described: &[Described]) -> String {
    let mut text = String::from("| metric | kind | labels | what |\n|---|---|---|---|\n");
    for Described { name, kind, labels, help } in described {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(text, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
    }
    text
}
