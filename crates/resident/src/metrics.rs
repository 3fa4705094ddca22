//! A registry of metrics that also describes them, so that the tables in docs/ are generated from it.

use std::fmt::Write as _;
use std::hash::Hash;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

/// The labels of a metric; see [`labels!`](crate::labels).
pub trait LabelNames: Clone + Eq + Hash {
    /// The names of the labels, in the order of the values.
    const NAMES: &'static [&'static str];
}

/// Declares sets of labels: `Verb { plugin: String, code: u32 }` is a struct that is [`LabelNames`] and can be encoded.
#[macro_export]
macro_rules! labels {
    ($($name:ident { $($label:ident: $kind:ty),* })*) => {
        $(
            #[derive(Clone, Debug, PartialEq, Eq, Hash, prometheus_client::encoding::EncodeLabelSet)]
            pub(super) struct $name {
                $(pub(super) $label: $kind,)*
            }

            impl $crate::metrics::LabelNames for $name {
                const NAMES: &'static [&'static str] = &[$(stringify!($label)),*];
            }
        )*
    };
}

/// A row of the table in docs/.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricDescription {
    /// The name that is exported.
    pub name: String,
    /// Counter, gauge or histogram.
    pub kind: &'static str,
    /// The names of the labels.
    pub labels: &'static [&'static str],
    /// What it counts, with its unit.
    pub help: &'static str,
}

/// A gauge that is not an integer.
pub type FloatGauge = Gauge<f64, AtomicU64>;

/// A histogram for each set of labels.
pub type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics of a program, each created and described by one call.
#[derive(Debug)]
pub struct MetricRegistry {
    prefix: &'static str,
    registry: Registry,
    descriptions: Vec<MetricDescription>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

impl LabelNames for BuildLabels {
    const NAMES: &'static [&'static str] = &["version"];
}

impl MetricRegistry {
    /// A registry with nothing but the program's version; `prefix` begins every name.
    pub fn new(prefix: &'static str, version: &'static str) -> Self {
        let mut registry = Self { prefix, registry: Registry::with_prefix(prefix), descriptions: Vec::new() };
        let build: Family<BuildLabels, Gauge> = registry.family("build_info", "The program's version; always 1");
        build.get_or_create(&BuildLabels { version }).set(1);
        registry
    }

    /// A counter or gauge without labels.
    pub fn metric<M: Metric + Clone + Default>(&mut self, name: &'static str, help: &'static str) -> M {
        self.add(name, help, &[], M::default())
    }

    /// Counters or gauges by label.
    pub fn family<L: LabelNames, M: Default>(&mut self, name: &'static str, help: &'static str) -> Family<L, M>
    where
        Family<L, M>: Metric,
    {
        self.add(name, help, L::NAMES, Family::default())
    }

    /// A histogram without labels; `bounds` are the upper bounds of its buckets.
    pub fn histogram(
        &mut self,
        name: &'static str,
        help: &'static str,
        bounds: impl IntoIterator<Item = f64>,
    ) -> Histogram {
        self.add(name, help, &[], Histogram::new(bounds))
    }

    /// Registers a histogram for each set of labels.
    pub fn histograms<L: LabelNames>(
        &mut self,
        name: &'static str,
        help: &'static str,
        histogram: fn() -> Histogram,
    ) -> Histograms<L>
    where
        Histograms<L>: Metric,
    {
        self.add(name, help, L::NAMES, Family::new_with_constructor(histogram))
    }

    /// The descriptions of all registered metrics.
    pub fn descriptions(&self) -> &[MetricDescription] {
        &self.descriptions
    }

    /// All metrics in Prometheus' text format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn add<M: Metric + Clone>(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        metric: M,
    ) -> M {
        let (kind, end) = match metric.metric_type() {
            MetricType::Counter => ("counter", "_total"),
            MetricType::Histogram => ("histogram", ""),
            _ => ("gauge", ""),
        };
        let exported = format!("{}_{name}{end}", self.prefix);
        self.descriptions.push(MetricDescription { name: exported, kind, labels, help });
        self.registry.register(name, help, metric.clone());
        metric
    }
}

/// `ok` or `error`, the usual values of the label `result`.
pub const fn result_word(succeeded: bool) -> &'static str {
    if succeeded { "ok" } else { "error" }
}

/// A table for docs/. `action` is what to do about a metric, by its name.
pub fn markdown(descriptions: &[MetricDescription], action: impl Fn(&str) -> String) -> String {
    let mut text = String::from("| metric | type | labels | meaning | alert |\n|---|---|---|---|---|\n");
    for MetricDescription { name, kind, labels, help } in descriptions {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(text, "| `{name}` | {kind} | {} | {help} | {} |", labels.join(", "), action(name));
    }
    text
}
