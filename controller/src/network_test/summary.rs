//! From pairs to a status: counts, percentiles, the worst pairs. Pure.

use std::cmp::Reverse;

use api::{MAX_WORST_PAIRS, NetworkTestStatus, PairVerdict, TestCounts, TestLatency, TestState, TestThroughput};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nettest::probe::ProbeKind;
use nettest::{Label, path};

use super::pair::PairResult;

/// The most round-trip times that are kept for percentiles; later ones are left out.
const MAX_TIMES: usize = 20_000;

/// A passing probe does not prove that the certificate is valid.
const UNVERIFIED: &str = "HTTPS: certificates were not verified";

/// What was found so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    counts: TestCounts,
    micros: Vec<u32>,
    mbits: Vec<u32>,
    worst: Vec<(Option<Label>, u16, PairVerdict)>,
    headline: Option<(Label, String)>,
    path: String,
    used_tls: bool,
    /// The first target whose agent could not be reached.
    silent_target: Option<String>,
}

impl Summary {
    /// Nothing was tested yet.
    pub(super) fn new(pairs: usize) -> Self {
        let pairs = u32::try_from(pairs).unwrap_or(u32::MAX);
        Self { counts: TestCounts { pairs, ..TestCounts::default() }, ..Self::default() }
    }

    pub(crate) fn add(&mut self, found: PairResult) {
        self.counts.tested += 1;
        let (pair, evidence, verdict) = match found {
            PairResult::Unknown(pair) => {
                self.counts.unknown += 1;
                self.keep(None, 0, *pair);
                return;
            }
            PairResult::Verdict { tested, silent_target } => {
                self.silent_target = self.silent_target.take().or(silent_target);
                *tested
            }
        };
        if self.counts.pairs == 1 {
            self.path = path(&evidence);
        }
        self.used_tls |= evidence.kind == ProbeKind::Https;
        let tally = &evidence.attempt.tally;
        // Throughput loses data without losing probes.
        if evidence.kind != ProbeKind::Throughput {
            self.counts.sent += u32::from(tally.sent);
            self.counts.lost += u32::from(tally.lost());
        }
        let room = MAX_TIMES.saturating_sub(self.micros.len());
        self.micros.extend(tally.micros.iter().take(room));
        if pair.case.send.mbits.is_some() {
            self.mbits.push(evidence.received.map_or(0, |received| received.mbits()));
        }
        if verdict.label == Label::Reachable {
            return;
        }
        self.counts.failed += 1;
        if self.headline.as_ref().is_none_or(|(label, _)| *label < verdict.label) {
            self.headline = Some((verdict.label, verdict.headline()));
        }
        let shown = PairVerdict { source: pair.source, target: pair.target, ..verdict.for_status(&evidence) };
        self.keep(Some(verdict.label), tally.lost(), shown.bounded());
    }

    fn keep(&mut self, label: Option<Label>, lost: u16, pair: PairVerdict) {
        self.worst.push((label, lost, pair));
        // The surest verdicts first, then those that lost most; unknown ones last.
        self.worst.sort_by_key(|(label, lost, _)| Reverse((*label, *lost)));
        self.worst.truncate(MAX_WORST_PAIRS);
    }

    /// As a status, within its bounds.
    pub(super) fn status(&self, state: TestState, started: Time, finished: Option<Time>) -> NetworkTestStatus {
        let (tested, pairs) = (self.counts.tested, self.counts.pairs);
        let mut messages = Vec::new();
        if state == TestState::TimedOut {
            messages.push(format!("the deadline came after {tested} of {pairs} pairs: raise deadlineSeconds"));
        }
        messages.extend(self.used_tls.then(|| UNVERIFIED.to_owned()));
        messages.extend(self.silent_target.as_ref().map(|node| {
            format!(
                "the controller does not reach the agent of {node}: check that its Pod runs, and that firewall, security lists and \
                 groups admit TCP port 9810 (CHANNEL_PORT)"
            )
        }));
        let worst_verdict = match (&self.headline, tested) {
            (Some((_, headline)), _) => headline.clone(),
            (None, 0) => String::new(),
            // What was not tested may fail.
            (None, _) if self.counts.unknown > 0 || state == TestState::TimedOut => "Unknown".to_owned(),
            (None, _) => Label::Reachable.as_str().to_owned(),
        };
        NetworkTestStatus {
            state: Some(state),
            message: messages.join("; "),
            started_at: Some(started),
            finished_at: finished,
            counts: Some(self.counts),
            latency: self.latency(),
            throughput: self.throughput(),
            worst_verdict,
            path: self.path.clone(),
            worst: self.worst.iter().map(|(_, _, pair)| pair.clone()).collect(),
        }
        .bounded()
    }

    fn throughput(&self) -> Option<TestThroughput> {
        let mut sorted = self.mbits.clone();
        sorted.sort_unstable();
        let (least, median) = (*sorted.first()?, *sorted.get(sorted.len() / 2)?);
        Some(TestThroughput { least_megabits_per_second: least, median_megabits_per_second: median })
    }

    fn latency(&self) -> Option<TestLatency> {
        let mut sorted = self.micros.clone();
        sorted.sort_unstable();
        let percentile =
            |percent: usize| sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)));
        Some(TestLatency { p50_micros: *percentile(50)?, p90_micros: *percentile(90)?, p99_micros: *percentile(99)? })
    }
}

#[cfg(test)]
mod tests {
    use nettest::probe::{Evidence, Failure, Party, ProbeReport, Tally};
    use serde_json::json;

    use super::*;
    use crate::network_test::pairs::{Nodes, pairs};

    /// A pair whose probes took so long; none were answered without times.
    fn tested(micros: Vec<u32>) -> PairResult {
        let spec =
            json!({ "sources": [{ "node": "a" }], "targets": [{ "service": "imds" }], "probes": [{ "type": "ICMP" }] });
        let pair = pairs(&serde_json::from_value(spec).unwrap(), &Nodes::default()).unwrap().remove(0);
        let received = u16::try_from(micros.len()).unwrap();
        let failure = (received == 0).then_some(Failure::Refused);
        let tally = Tally { sent: received.max(5), received, failure, micros };
        let evidence = Evidence {
            kind: ProbeKind::Icmp,
            port: 0,
            source_requested: false,
            source: Party::default(),
            target: Party::default(),
            service: None,
            attempt: ProbeReport { tally, ..ProbeReport::default() },
            received: None,
            arrival: None,
            trials: Vec::new(),
        };
        let verdict = nettest::diagnose(&evidence);
        PairResult::Verdict { tested: Box::new((pair, evidence, verdict)), silent_target: None }
    }

    fn status(found: Vec<PairResult>) -> NetworkTestStatus {
        let mut summary = Summary::new(found.len());
        found.into_iter().for_each(|found| summary.add(found));
        summary.status(TestState::Finished, Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH), None)
    }

    #[test]
    fn unknown_is_worse_than_reachable_and_better_than_failed() {
        let unknown = || PairResult::Unknown(Box::default());
        let (passed, failed) = (|| tested(vec![300; 5]), || tested(Vec::new()));
        let worst = |found| status(found).worst_verdict;
        assert_eq!(worst(vec![passed()]), "Reachable");
        assert_eq!(worst(vec![unknown(), passed(), passed()]), "Unknown");
        assert_eq!(worst(vec![passed(), unknown(), failed()]), "Proven: PortClosed");
        assert_eq!(worst(Vec::new()), "");
    }

    #[test]
    fn target_without_a_reachable_agent_is_named() {
        let silent = match tested(vec![300; 5]) {
            PairResult::Verdict { tested, .. } => {
                PairResult::Verdict { tested, silent_target: Some("10.0.20.3".to_owned()) }
            }
            unknown @ PairResult::Unknown(_) => unknown,
        };
        let message = status(vec![tested(vec![300; 5]), silent]).message;
        assert!(
            message.contains("agent of 10.0.20.3") && message.contains("9810") && message.ends_with("(CHANNEL_PORT)"),
            "{message}"
        );
    }

    #[test]
    fn percentiles_are_of_the_times_of_all_pairs() {
        let latency = |found| status(found).latency;
        let times = |times: std::ops::RangeInclusive<u32>| tested(times.rev().collect());
        let of = |p50_micros, p90_micros, p99_micros| Some(TestLatency { p50_micros, p90_micros, p99_micros });
        // 90 of 100 are faster than the 91st.
        assert_eq!(latency(vec![times(51..=100), times(1..=50)]), of(51, 91, 100));
        assert_eq!(latency(vec![times(7..=7)]), of(7, 7, 7));
        assert_eq!(latency(vec![tested(Vec::new())]), None);
    }
}
