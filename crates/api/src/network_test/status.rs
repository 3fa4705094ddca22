//! The status of a NetworkTest: counts, and the worst pairs with their verdicts; at most 8 KB.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::cut;
use crate::schema;

/// The most bytes of a status as JSON.
pub const STATUS_MAX: usize = 8192;
/// The most pairs in a status.
pub const MAX_WORST_PAIRS: usize = 20;

/// What the last run found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct NetworkTestStatus {
    /// The state of the last run.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    pub state: Option<TestState>,
    /// Why the test waits, was refused or not finished, or that certificates were not verified; absent otherwise.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<256>")]
    pub message: String,
    /// When the run started.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub started_at: Option<Time>,
    /// When it finished.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub finished_at: Option<Time>,
    /// Pairs and packets in numbers.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    pub counts: Option<TestCounts>,
    /// Round-trip times of all answered probes.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    pub latency: Option<TestLatency>,
    /// What paths carried, of the probe Throughput.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "Option::is_none")]
    pub throughput: Option<TestThroughput>,
    /// The worst verdict, from best to worst: Reachable, Unknown, OneOf, Likely or Proven with its causes.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<160>")]
    pub worst_verdict: String,
    /// The path of a test with one pair, as far as its hosts report it: addresses with their links, and the next hop.
    #[serde(default, deserialize_with = "crate::lenient", skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<192>")]
    pub path: String,
    /// Up to 20 failed pairs, fewer if the status would exceed 8 KB.
    #[serde(default, deserialize_with = "crate::lenient_list", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "atomic"))]
    pub worst: Vec<PairVerdict>,
}

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TestState {
    /// There is no pair yet; the message says why. The controller retries until the deadline.
    Waiting,
    /// Probes are being sent.
    Running,
    /// All pairs were tested.
    Finished,
    /// The deadline came first.
    TimedOut,
    /// The test was not run; the message says why.
    Refused,
}

/// Numbers of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TestCounts {
    /// Pairs of source, target and probe.
    #[schemars(schema_with = "schema::count")]
    pub pairs: u32,
    /// Of those, tested so far.
    #[schemars(schema_with = "schema::count")]
    pub tested: u32,
    /// Of those, failed.
    #[schemars(schema_with = "schema::count")]
    pub failed: u32,
    /// Of those, without an answer from the source's agent.
    #[schemars(schema_with = "schema::count")]
    pub unknown: u32,
    /// Packets or requests sent.
    #[schemars(schema_with = "schema::count")]
    pub sent: u32,
    /// Of those, not answered.
    #[schemars(schema_with = "schema::count")]
    pub lost: u32,
}

/// Percentiles of the round-trip times, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TestLatency {
    /// The median.
    #[schemars(schema_with = "schema::count")]
    pub p50_micros: u32,
    /// 90 of 100 are faster.
    #[schemars(schema_with = "schema::count")]
    pub p90_micros: u32,
    /// 99 of 100 are faster.
    #[schemars(schema_with = "schema::count")]
    pub p99_micros: u32,
}

/// Megabits per second that paths carried. A probe sends no more than was requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct TestThroughput {
    /// Of the slowest pair.
    #[schemars(schema_with = "schema::count")]
    pub least_megabits_per_second: u32,
    /// The median of the pairs.
    #[schemars(schema_with = "schema::count")]
    pub median_megabits_per_second: u32,
}

/// A failed pair and its cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PairVerdict {
    /// The source's node.
    #[schemars(schema_with = "schema::text::<64>")]
    pub source: String,
    /// The target.
    #[schemars(schema_with = "schema::text::<64>")]
    pub target: String,
    /// The probe, such as TCP/443.
    #[schemars(schema_with = "schema::text::<24>")]
    pub probe: String,
    /// Proven, Likely, OneOf (several causes are left) or Unknown (the source's agent did not answer).
    #[schemars(schema_with = "schema::text::<16>")]
    pub label: String,
    /// The cause, or the causes that are left: docs/network-tests.md.
    #[schemars(schema_with = "schema::text::<96>")]
    pub cause: String,
    /// What failed, such as "5 of 5 lost, no answer".
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<128>")]
    pub failure: String,
    /// The last place that saw the packets: SourceRoute, SourceOut, TargetIn, TargetOut, SourceIn or Unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<16>")]
    pub last_seen: String,
    /// What the hosts showed before the probe; absent if no counter rose and no table is full.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<128>")]
    pub before: String,
    /// What they showed after it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<128>")]
    pub after: String,
    /// What to change, or what would separate the causes that are left.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(schema_with = "schema::text::<160>")]
    pub fix: String,
}

impl PairVerdict {
    /// The same with each text cut to its bound.
    #[must_use]
    pub fn bounded(self) -> Self {
        Self {
            source: cut(&self.source, 64),
            target: cut(&self.target, 64),
            probe: cut(&self.probe, 24),
            label: cut(&self.label, 16),
            cause: cut(&self.cause, 96),
            failure: cut(&self.failure, 128),
            last_seen: cut(&self.last_seen, 16),
            before: cut(&self.before, 128),
            after: cut(&self.after, 128),
            fix: cut(&self.fix, 160),
        }
    }
}

impl NetworkTestStatus {
    /// The same within its bounds: texts are cut, and pairs at the end of the list are left out until it takes 8 KB.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.message = cut(&self.message, 256);
        self.worst_verdict = cut(&self.worst_verdict, 160);
        self.path = cut(&self.path, 192);
        self.worst.truncate(MAX_WORST_PAIRS);
        self.worst = self.worst.into_iter().map(PairVerdict::bounded).collect();
        while self.stored() > STATUS_MAX && self.worst.pop().is_some() {}
        self
    }

    /// How many bytes it takes as JSON. The API server writes some characters longer ([`crate::condition::stored`]).
    fn stored(&self) -> usize {
        let text = serde_json::to_string(self).unwrap_or_default();
        let longer = text.chars().filter(|char| matches!(char, '<' | '>' | '&' | '\u{2028}' | '\u{2029}')).count();
        text.len() + 5 * longer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(text: &str) -> PairVerdict {
        let long = || text.repeat(300);
        PairVerdict {
            source: long(),
            target: long(),
            probe: long(),
            label: long(),
            cause: long(),
            failure: long(),
            last_seen: long(),
            before: long(),
            after: long(),
            fix: long(),
        }
    }

    #[test]
    fn status_takes_at_most_8_kb() {
        for text in ["x", "<", "é", "\""] {
            let status = NetworkTestStatus {
                message: text.repeat(1000),
                worst_verdict: text.repeat(1000),
                worst: vec![pair(text); 40],
                ..NetworkTestStatus::default()
            };
            let bounded = status.bounded();
            assert!(bounded.stored() <= STATUS_MAX, "{text}: {}", bounded.stored());
            assert!((8..=MAX_WORST_PAIRS).contains(&bounded.worst.len()), "{text}: {}", bounded.worst.len());
        }
    }

    #[test]
    fn agents_words_in_a_status_are_printable() {
        let status = NetworkTestStatus {
            message: "\u{1b}[2J".to_owned(),
            path: "a\u{feff}b".to_owned(),
            worst: vec![pair("\n\u{200b}")],
            ..NetworkTestStatus::default()
        };
        let bounded = status.bounded();
        assert_eq!((bounded.message.as_str(), bounded.path.as_str()), (r"\u{1b}[2J", r"a\u{feff}b"));
        let PairVerdict { source, label, fix, .. } = &bounded.worst[0];
        for text in [source, label, fix] {
            assert!(text.starts_with(r"\n\u{200b}") && vcn::printable(text) == text.as_str(), "{text}");
        }
    }

    #[test]
    fn usual_verdicts_of_twenty_pairs_fit() {
        let usual = PairVerdict {
            source: "10.0.10.123".to_owned(),
            target: "10.0.20.45".to_owned(),
            probe: "TCP/10250".to_owned(),
            label: "Likely".to_owned(),
            cause: "SecurityList".to_owned(),
            failure: "5 of 5 lost, no answer".to_owned(),
            last_seen: "SourceOut".to_owned(),
            before: "source: rp_filter drops 12".to_owned(),
            after: "source: rp_filter drops 13".to_owned(),
            fix: "Allow the port in the security list of the target's subnet: ingress from the source's subnet."
                .to_owned(),
        };
        let status = NetworkTestStatus { worst: vec![usual; 20], ..NetworkTestStatus::default() };
        assert_eq!(status.bounded().worst.len(), MAX_WORST_PAIRS);
    }
}
