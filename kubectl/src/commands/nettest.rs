//! `nettest`: tests one pair by a NetworkTest that exists as long as the command, and shows the path and the verdict.

use anyhow::Context as _;
use api::{NetworkTest, NetworkTestStatus, PairVerdict, TestState};
use command::page::Page;
use nettest::{Cause, Label};
use serde::Serialize;

use crate::answer::{Answer, Exit, Style};
use crate::args::nettest::NetTestArgs;
use crate::cluster::Cluster;
use crate::test_runs;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PairResult {
    pub from: String,
    pub to: String,
    /// What the controller wrote.
    pub status: NetworkTestStatus,
}

pub(crate) async fn run(cluster: &Cluster, args: &NetTestArgs, test: NetworkTest) -> anyhow::Result<PairResult> {
    let mut statuses = test_runs::run(cluster, vec![test]).await?;
    let status = statuses.pop().context("no result")??;
    Ok(PairResult { from: args.from.clone(), to: args.to.clone(), status })
}

/// The exit status of a failure: the API server refuses a target or a number that no test may have as invalid.
pub(crate) fn exit_of(error: &anyhow::Error) -> Exit {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) if status.code == 422 => Exit::Usage,
        _ => Exit::Undecided,
    }
}

impl Answer for PairResult {
    fn exit(&self) -> Exit {
        let pair = self.status.worst.first();
        let counts = self.status.counts.unwrap_or_default();
        let all_lost = counts.sent > 0 && counts.lost == counts.sent;
        match (self.status.state, pair.map(|pair| pair.label.as_str())) {
            (Some(TestState::Refused), _) => Exit::Usage,
            (_, Some("Proven" | "Likely")) => Exit::Problem,
            // Which cause it is, is open; that nothing passes, is not.
            (_, Some("OneOf")) if all_lost => Exit::Problem,
            (Some(TestState::Finished), None) => Exit::Fine,
            _ => Exit::Undecided,
        }
    }

    fn show(&self, page: &mut Page, _: Style) {
        let Self { from, to, status } = self;
        let verdict = if status.worst_verdict.is_empty() { "no verdict" } else { &status.worst_verdict };
        page.line(format_args!("{from} → {to}: {verdict}"));
        if !status.message.is_empty() {
            page.line(format_args!("{}", status.message));
        }
        if let Some(counts) = status.counts.filter(|counts| counts.sent > 0) {
            let latency = status.latency.map_or(String::new(), |latency| {
                format!(", round trip {} µs (median), {} µs (99 of 100)", latency.p50_micros, latency.p99_micros)
            });
            page.line(format_args!("{} of {} lost{latency}", counts.lost, counts.sent));
        }
        if let Some(carried) = status.throughput {
            page.line(format_args!("{} Mbit/s carried", carried.least_megabits_per_second));
        }
        let pair = status.worst.first().cloned().unwrap_or_default();
        let PairVerdict { probe, failure, last_seen, before, after, fix, .. } = &pair;
        let next = steps(&status.worst_verdict).unwrap_or_else(|| fix.clone());
        let lines = [
            ("path", &status.path),
            ("probe", probe),
            ("failure", failure),
            ("last seen", last_seen),
            ("before", before),
            ("after", after),
            ("next", &next),
        ];
        for (name, text) in lines.into_iter().filter(|(_, text)| !text.is_empty()) {
            page.line(format_args!("  {name}: {text}"));
        }
    }
}

/// All next steps of a verdict such as `OneOf: SecurityList or SecurityGroup`: a status may have room for the first ones only.
fn steps(verdict: &str) -> Option<String> {
    let (label, causes) = verdict.split_once(": ")?;
    let label = Label::from_word(label)?;
    let (between, joined) = if label == Label::OneOf { (" or ", "; ") } else { (" and ", " ") };
    let causes: Option<Vec<Cause>> = causes.split(between).map(Cause::from_word).collect();
    Some(nettest::steps(label, &causes?).join(joined)).filter(|steps| !steps.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::TestCounts;

    #[test]
    fn next_steps_of_a_verdict_are_whole() {
        let all = "OneOf: SecurityList or SecurityGroup or RouteTable or Gateway or TargetDown or HostFirewall";
        let steps = |verdict: &str| super::steps(verdict).unwrap_or_default();
        assert!(steps(all).contains("nft list ruleset") && steps(all).matches("Check ").count() == 6, "{}", steps(all));
        assert!(steps("Proven: PathMtu and HostFirewall").contains("Set the MTU"));
        assert_eq!([steps("Reachable"), steps("OneOf: no cause fits"), steps("Likely: OfALaterVersion")], ["", "", ""]);
    }

    #[test]
    fn exit_status_tells_reachable_not_misuse_and_undecided() {
        let result = |state, label: Option<&str>, lost| {
            let pair = |label: &str| PairVerdict { label: label.to_owned(), ..PairVerdict::default() };
            let worst = label.map(pair).into_iter().collect();
            let counts = Some(TestCounts { sent: 5, lost, ..TestCounts::default() });
            let status = NetworkTestStatus { state: Some(state), worst, counts, ..NetworkTestStatus::default() };
            PairResult { from: String::new(), to: String::new(), status }.exit()
        };
        assert_eq!(result(TestState::Finished, None, 0), Exit::Fine);
        for (label, lost) in [("Proven", 5), ("Likely", 3), ("OneOf", 5)] {
            assert_eq!(result(TestState::Finished, Some(label), lost), Exit::Problem);
        }
        assert_eq!(result(TestState::Refused, None, 0), Exit::Usage);
        for (label, lost) in [("OneOf", 3), ("Unknown", 0)] {
            assert_eq!(result(TestState::Finished, Some(label), lost), Exit::Undecided);
        }
        assert_eq!(result(TestState::TimedOut, None, 0), Exit::Undecided);
    }
}
