//! One pair: sends the rounds of its investigation to the agents.

use std::sync::Arc;
use std::time::Duration;

use api::PairVerdict;
use futures::future::join_all;
use nettest::probe::{Evidence, ProbeReport, Task};
use nettest::{AgentRequest, Investigation, Role, Verdict};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::agents::{AgentCalls, AgentError};
use super::pairs::TestPair;

/// More than the agent's own bound of a task, for the way there and back.
const LONGER: Duration = Duration::from_secs(10);
/// How often the probe itself is requested from a busy agent, and the wait in between.
const ATTEMPTS: u32 = 30;
const BUSY: Duration = Duration::from_secs(1);
/// The wait for a kubelet that has not mounted the controller's key yet.
const UNTRUSTED: Duration = Duration::from_secs(5);
/// Two measurements of throughput at once would measure each other, and this is the most data that tests send in the cluster.
static MEASUREMENT: Semaphore = Semaphore::const_new(1);

#[derive(Clone, Debug)]
pub(crate) enum PairResult {
    /// The pair, the evidence and its verdict.
    Verdict {
        tested: Box<(TestPair, Evidence, Verdict)>,
        /// The target's node, if its agent could not be reached.
        silent_target: Option<String>,
    },
    /// The source's agent did not answer.
    Unknown(Box<PairVerdict>),
}

/// The times of one request: when it was sent, and when its answer came.
#[derive(Clone, Copy, Debug)]
struct Times {
    sent: Instant,
    answered: Instant,
}

type Answer = (Result<ProbeReport, AgentError>, Times);

pub(crate) async fn investigate(agents: Arc<impl AgentCalls>, pair: TestPair) -> PairResult {
    let mut investigation = Investigation::new(pair.case.clone());
    let mut failure = None;
    loop {
        let round = investigation.next_round();
        if round.is_empty() {
            break;
        }
        let answers = all(&*agents, &pair, &round).await;
        let watched = watched_all(&round, &answers);
        let received = received(&round, &answers);
        for (request, (answer, _)) in round.iter().zip(answers) {
            if let Err(error) = &answer {
                failure.get_or_insert((request.node.clone(), error.clone()));
            }
            let counts = match request.role {
                Role::Arrival => watched,
                Role::Attempt => received,
                _ => true,
            };
            investigation.answer(request.role, answer.ok().filter(|_| counts));
        }
    }
    match (investigation.evidence(), investigation.verdict()) {
        (Some(evidence), _) if has_sent_nothing(evidence) => PairResult::Unknown(Box::new(nothing_sent(&pair))),
        (Some(evidence), Some(verdict)) => {
            let target = pair.case.target.node.clone();
            let is_silent = failure.is_some_and(|(node, error)| {
                Some(&node) == target.as_ref() && matches!(error, AgentError::Unreachable(_))
            });
            let silent_target = target.filter(|_| is_silent);
            PairResult::Verdict { tested: Box::new((pair, evidence.clone(), verdict)), silent_target }
        }
        _ => PairResult::Unknown(Box::new(unknown(&pair, failure))),
    }
}

/// Sends the requests of a round. The whole round is sent again if an agent does not know this controller's key yet, or if one of two
/// that measure throughput is busy. Requests of one round belong to the same time.
async fn all(agents: &impl AgentCalls, pair: &TestPair, round: &[AgentRequest]) -> Vec<Answer> {
    let is_measured = round.iter().any(|request| request.role == Role::Reception);
    let _alone = if is_measured { MEASUREMENT.acquire().await.ok() } else { None };
    let mut attempt = 1;
    loop {
        let answers = join_all(round.iter().map(|request| one(agents, pair, request, round.len() == 1))).await;
        let waits = answers.iter().filter_map(|(answer, _)| match answer {
            Err(AgentError::Busy) if is_measured => Some(BUSY),
            Err(AgentError::Untrusted(_)) => Some(UNTRUSTED),
            _ => None,
        });
        let Some(wait) = waits.max().filter(|_| attempt < ATTEMPTS) else { return answers };
        attempt += 1;
        sleep(wait).await;
    }
}

/// Sends one request. It is sent again to a busy agent, unless the other requests of the round belong to the same time.
async fn one(agents: &impl AgentCalls, pair: &TestPair, request: &AgentRequest, alone: bool) -> Answer {
    // No target of such a pair is probed from the source's own node.
    let from_pod = pair.from_pod && pair.case.source.node.as_ref() == Some(&request.node);
    sleep(Duration::from_millis(request.after_ms.into())).await;
    let limit = longest(&request.probe.task) + LONGER;
    let mut attempt = 1;
    loop {
        let sent = Instant::now();
        let answer = match from_pod {
            true => agents.probe_from_pod(&request.node, &request.probe).await,
            false => agents.probe(&request.node, &request.probe, limit).await,
        };
        if answer != Err(AgentError::Busy) || !alone || attempt == ATTEMPTS {
            return (answer, Times { sent, answered: Instant::now() });
        }
        attempt += 1;
        sleep(BUSY).await;
    }
}

/// Whether the target's agent watched while all of the probe's packets were sent and answered. A watch that began late, or ended
/// early, shows nothing: the packets would seem lost.
fn watched_all(round: &[AgentRequest], answers: &[Answer]) -> bool {
    let of = |role| round.iter().zip(answers).find(|(request, _)| request.role == role);
    let (Some((watch, (Ok(_), watched))), Some((_, (Ok(_), sent)))) = (of(Role::Arrival), of(Role::Attempt)) else {
        return false;
    };
    let lasted = longest(&watch.probe.task);
    let began_at_latest = watched.answered.checked_sub(lasted);
    let ended_at_earliest = watched.sent + lasted;
    began_at_latest.is_some_and(|began| began <= sent.sent) && ended_at_earliest >= sent.answered
}

fn longest(task: &Task) -> Duration {
    match task {
        Task::Send(send) => Duration::from_millis(send.longest_ms().into()),
        Task::Watch(watch) => Duration::from_millis(watch.for_ms.into()),
        Task::Receive(receive) => Duration::from_millis(receive.for_ms.into()),
        Task::Open(_) => Duration::ZERO,
    }
}

/// Whether the target's agent, if it was to receive, listened before the probe ended.
fn received(round: &[AgentRequest], answers: &[Answer]) -> bool {
    let of = |role| round.iter().zip(answers).find(|(request, _)| request.role == role).map(|(_, answer)| answer);
    match (of(Role::Reception), of(Role::Attempt)) {
        (Some((Ok(report), times)), Some((_, sent))) => {
            let listened = Duration::from_millis(report.received.unwrap_or_default().listened_ms.into());
            times.answered.checked_sub(listened).is_some_and(|began| began < sent.answered)
        }
        (reception, _) => reception.is_none(),
    }
}

/// Whether a probe that has packets was not sent: then nothing is known, whatever the report says.
fn has_sent_nothing(evidence: &Evidence) -> bool {
    nettest::probe::Transport::of(evidence.kind).is_some() && evidence.attempt.tally.sent == 0
}

fn nothing_sent(pair: &TestPair) -> PairVerdict {
    let node = pair.case.source.node.clone().unwrap_or_default();
    verdict(
        pair,
        "NothingSent",
        format!("{node}: the report has no sent probe"),
        "Read the agent's log on that node, and update the agent if it is older than the controller.",
    )
}

fn unknown(pair: &TestPair, failure: Option<(String, AgentError)>) -> PairVerdict {
    let (cause, fix) = match failure.as_ref().map(|(_, error)| error) {
        _ if pair.from_pod => {
            ("ProbePodFailed", "Check the probe Pods: kubectl -n oke-node-manager-probes get pods,events.")
        }
        None => (
            "AgentLate",
            "Run the test again when the target's node is less busy: its agent began to receive too late.",
        ),
        Some(AgentError::Busy) => {
            ("AgentBusy", "Run the test again later, or with a lower concurrency: other tests use the agent.")
        }
        Some(AgentError::Refused(_)) => {
            ("AgentRefused", "Correct the test, free the port, or update that agent, as the agent's reason says.")
        }
        Some(AgentError::Missing(_)) => (
            "AgentMissing",
            "Start the agent on that node: `kubectl -n oke-node-manager describe daemonset -l app.kubernetes.io/name=oke-node-agent` says why it does not run.",
        ),
        Some(AgentError::Untrusted(_)) => {
            ("AgentUnreachable", "Check the agent's Pod on that node: kubectl -n oke-node-manager get pods -o wide.")
        }
        Some(AgentError::Unreachable(_)) => (
            "AgentUnreachable",
            "Check that the agent's Pod runs on that node, and that firewall, security lists and groups let the controller's nodes reach TCP port 9810 (CHANNEL_PORT).",
        ),
    };
    let failure = failure.map(|(node, error)| format!("{node}: {error}"));
    verdict(pair, cause, failure.unwrap_or_default(), fix)
}

/// A pair of which nothing is known.
fn verdict(pair: &TestPair, cause: &str, failure: String, fix: &str) -> PairVerdict {
    PairVerdict {
        source: pair.source.clone(),
        target: pair.target.clone(),
        probe: pair.case.send.kind.with_port(pair.case.send.port),
        label: "Unknown".to_owned(),
        cause: cause.to_owned(),
        failure,
        last_seen: "Unknown".to_owned(),
        before: String::new(),
        after: String::new(),
        fix: fix.to_owned(),
    }
    .bounded()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use nettest::probe::{Failure, Flow, ProbeRequest, Received, Tally, Transport, WatchTask};
    use serde_json::json;

    use super::super::pairs::{Nodes, pairs};
    use super::*;

    /// An agent that answers with a tally.
    struct Agent(Tally);

    impl AgentCalls for Agent {
        fn address(&self, _: &str) -> Option<IpAddr> {
            None
        }

        async fn probe(&self, _: &str, _: &ProbeRequest, _: Duration) -> Result<ProbeReport, AgentError> {
            Ok(ProbeReport { tally: self.0.clone(), ..ProbeReport::default() })
        }

        async fn probe_from_pod(&self, _: &str, _: &ProbeRequest) -> Result<ProbeReport, AgentError> {
            Err(AgentError::Busy)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn report_that_sent_nothing_leaves_the_pair_unknown() {
        let unresolved = Some(Failure::Unresolved("a: no address".to_owned()));
        for failure in [None, Some(Failure::Refused), unresolved] {
            for kind in ["ICMP", "HTTP", "DNS", "Route"] {
                let spec = json!({ "sources": [{ "node": "a" }], "targets": [{ "service": "imds" }],
                    "probes": [{ "type": kind }] });
                let spec = serde_json::from_value(spec).unwrap();
                let pair = pairs(&spec, &Nodes::default()).unwrap().remove(0);
                let tally = Tally { sent: 0, received: 9, failure: failure.clone(), micros: vec![1] };
                let found = investigate(Arc::new(Agent(tally)), pair).await;
                let cause = match &found {
                    PairResult::Unknown(pair) => Some((pair.label.as_str(), pair.cause.as_str())),
                    PairResult::Verdict { .. } => None,
                };
                // A lookup has no packets.
                let expected = (kind != "Route").then_some(("Unknown", "NothingSent"));
                assert_eq!(cause, expected, "{kind} {failure:?}");
            }
        }
    }

    fn watch_request(role: Role) -> AgentRequest {
        let address = "10.0.0.2".parse().unwrap();
        let flow = Flow { protocol: Transport::Tcp, source: address, target: address, source_port: 1, port: 1 };
        let probe = ProbeRequest::new(Task::Watch(WatchTask { flow, for_ms: 5_000 }));
        AgentRequest { node: "a".to_owned(), probe, after_ms: 0, role }
    }

    #[test]
    fn watch_and_reception_count_only_if_they_cover_the_probe() {
        let start = Instant::now() + Duration::from_secs(60);
        let at = |millis: u64| start + Duration::from_millis(millis);
        let times = |(sent, answered)| Times { sent: at(sent), answered: at(answered) };
        let round = [watch_request(Role::Arrival), watch_request(Role::Attempt)];
        for (watch, attempt, covers) in [
            ((0, 5_100), (400, 3_000), true),
            // It began up to 500 ms after it was sent: after the probe.
            ((0, 5_500), (400, 3_000), false),
            // The probe's answer came after the earliest end.
            ((0, 5_100), (400, 5_200), false),
        ] {
            let answers = [(Ok(ProbeReport::default()), times(watch)), (Ok(ProbeReport::default()), times(attempt))];
            assert_eq!(watched_all(&round, &answers), covers, "{watch:?} {attempt:?}");
        }
        let listened = |listened_ms| {
            let received = Received { listened_ms, ..Received::default() };
            ProbeReport { received: Some(received), ..ProbeReport::default() }
        };
        let round = [watch_request(Role::Reception), watch_request(Role::Attempt)];
        for (listened_ms, counts) in [(2_600, true), (100, false)] {
            let answers =
                [(Ok(listened(listened_ms)), times((0, 3_000))), (Ok(ProbeReport::default()), times((400, 2_800)))];
            assert_eq!(received(&round, &answers), counts, "{listened_ms}");
        }
        let round = [watch_request(Role::Arrival), watch_request(Role::Attempt)];
        let failed = [(Err(AgentError::Busy), times((0, 10))), (Ok(ProbeReport::default()), times((400, 900)))];
        assert!(!watched_all(&round, &failed));
    }
}
