//! From pairs to a status: counts, percentiles, the worst pairs. Pure.

use std::cmp::Reverse;

use api::probe::ProbeKind;
use api::{MOST_WORST_PAIRS, NetworkTestStatus, PairVerdict, TestCounts, TestLatency, TestState, TestThroughput};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use nettest::Label;

use super::pair::Found;

/// The most round-trip times that are kept for percentiles; later ones are left out.
const MOST_TIMES: usize = 20_000;

/// A passing probe is no proof of a valid certificate.
const UNVERIFIED: &str = "HTTPS: certificates were not verified";

/// What was found so far.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    counts: TestCounts,
    micros: Vec<u32>,
    mbits: Vec<u32>,
    worst: Vec<(Option<Label>, u16, PairVerdict)>,
    headline: Option<(Label, String)>,
    used_tls: bool,
}

impl Summary {
    /// Nothing was tested yet.
    #[must_use]
    pub fn new(pairs: usize) -> Self {
        let pairs = u32::try_from(pairs).unwrap_or(u32::MAX);
        Self { counts: TestCounts { pairs, ..TestCounts::default() }, ..Self::default() }
    }

    /// Adds a pair.
    pub(crate) fn add(&mut self, found: Found) {
        self.counts.tested += 1;
        let (pair, evidence, verdict) = match found {
            Found::Unknown(pair) => {
                self.counts.unknown += 1;
                self.keep((None, 0, *pair));
                return;
            }
            Found::Verdict(found) => *found,
        };
        self.used_tls |= evidence.kind == ProbeKind::Https;
        let tally = &evidence.attempt.tally;
        // Throughput loses data without losing probes.
        if evidence.kind != ProbeKind::Throughput {
            self.counts.sent += u32::from(tally.sent);
            self.counts.lost += u32::from(tally.lost());
        }
        let room = MOST_TIMES.saturating_sub(self.micros.len());
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
        self.keep((Some(verdict.label), tally.lost(), shown.bounded()));
    }

    fn keep(&mut self, pair: (Option<Label>, u16, PairVerdict)) {
        self.worst.push(pair);
        // The surest verdicts first, then those that lost most; unknown ones last.
        self.worst.sort_by_key(|(label, lost, _)| Reverse((*label, *lost)));
        self.worst.truncate(MOST_WORST_PAIRS);
    }

    /// As a status, within its bounds.
    #[must_use]
    pub fn status(&self, state: TestState, started: Time, finished: Option<Time>) -> NetworkTestStatus {
        let (tested, pairs) = (self.counts.tested, self.counts.pairs);
        let mut messages = Vec::new();
        if state == TestState::TimedOut {
            messages.push(format!("the deadline came after {tested} of {pairs} pairs: raise deadlineSeconds"));
        }
        messages.extend(self.used_tls.then(|| UNVERIFIED.to_owned()));
        let worst_verdict = match (&self.headline, tested, self.counts.unknown) {
            (Some((_, headline)), ..) => headline.clone(),
            (None, 0, _) => String::new(),
            // What was not tested may fail.
            (None, tested, unknown) if tested == unknown || state == TestState::TimedOut => "Unknown".to_owned(),
            (None, ..) => Label::Reachable.as_str().to_owned(),
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
