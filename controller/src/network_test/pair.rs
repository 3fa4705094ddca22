//! One pair: sends the rounds of its investigation to the agents.

use std::sync::Arc;
use std::time::Duration;

use api::PairVerdict;
use api::probe::{Evidence, ProbeReport, Task};
use futures::future::join_all;
use nettest::{Ask, Investigation, Role, Verdict};
use tokio::time::{Instant, sleep};

use super::agents::{AgentCalls, AskError};
use super::pairs::TestPair;

/// More than the agent's own bound of a task, for the way there and back.
const LONGER: Duration = Duration::from_secs(10);
/// How often a busy agent is asked for the probe itself, and the wait in between.
const ATTEMPTS: u32 = 30;
const BUSY: Duration = Duration::from_secs(1);

/// What was found out about a pair.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// The evidence and its verdict.
    Verdict(Box<(Evidence, Verdict)>),
    /// The source's agent did not answer.
    Unknown(Box<PairVerdict>),
}

/// The times of one ask: when it was sent, and when its answer came.
#[derive(Clone, Copy, Debug)]
struct Times {
    sent: Instant,
    answered: Instant,
}

type Answer = (Result<ProbeReport, AskError>, Times);

/// Investigates a pair.
pub(crate) async fn investigate(agents: Arc<impl AgentCalls>, pair: TestPair) -> Found {
    let mut investigation = Investigation::new(pair.case.clone());
    let mut failure = String::new();
    loop {
        let round = investigation.next_round();
        if round.is_empty() {
            break;
        }
        let answers = join_all(round.iter().map(|ask| one(&*agents, ask, round.len() == 1))).await;
        let watched = watched_all(&round, &answers);
        for (ask, (answer, _)) in round.iter().zip(answers) {
            if let Err(error) = &answer {
                failure = format!("{}: {error}", ask.node);
            }
            let counts = ask.role != Role::Arrival || watched;
            investigation.answer(ask.role, answer.ok().filter(|_| counts));
        }
    }
    match (investigation.evidence(), investigation.verdict()) {
        (Some(evidence), Some(verdict)) => Found::Verdict(Box::new((evidence.clone(), verdict))),
        _ => Found::Unknown(Box::new(unknown(&pair, failure))),
    }
}

/// Sends one ask. A busy agent is asked again, unless the other asks of the round belong to the same time.
async fn one(agents: &impl AgentCalls, ask: &Ask, alone: bool) -> Answer {
    sleep(Duration::from_millis(ask.after_ms.into())).await;
    let limit = longest(&ask.request.task) + LONGER;
    let mut attempt = 1;
    loop {
        let sent = Instant::now();
        let answer = agents.ask(&ask.node, &ask.request, limit).await;
        if answer != Err(AskError::Busy) || !alone || attempt == ATTEMPTS {
            return (answer, Times { sent, answered: Instant::now() });
        }
        attempt += 1;
        sleep(BUSY).await;
    }
}

/// Whether the target's agent watched while all of the probe's packets were sent and answered: a watch that began late, or ended
/// early, shows nothing, and would look like packets that did not arrive.
fn watched_all(round: &[Ask], answers: &[Answer]) -> bool {
    let of = |role| round.iter().zip(answers).find(|(ask, _)| ask.role == role);
    let (Some((watch, (Ok(_), watched))), Some((_, (Ok(_), sent)))) = (of(Role::Arrival), of(Role::Attempt)) else {
        return false;
    };
    let lasted = longest(&watch.request.task);
    let began_at_latest = watched.answered.checked_sub(lasted);
    let ended_at_earliest = watched.sent + lasted;
    began_at_latest.is_some_and(|began| began <= sent.sent) && ended_at_earliest >= sent.answered
}

fn longest(task: &Task) -> Duration {
    match task {
        Task::Send(send) => Duration::from_millis(send.longest_ms().into()),
        Task::Watch(watch) => Duration::from_millis(watch.for_ms.into()),
        Task::Open(_) => Duration::ZERO,
    }
}

fn unknown(pair: &TestPair, failure: String) -> PairVerdict {
    PairVerdict {
        source: pair.case.source.node.clone().unwrap_or_default(),
        target: pair.target.clone(),
        probe: pair.case.send.kind.as_str().to_owned(),
        label: "Unknown".to_owned(),
        cause: "AgentUnreachable".to_owned(),
        last_seen: "Unknown".to_owned(),
        before: failure,
        after: String::new(),
        fix: "Check the agent's Pod on the source's node: kubectl -n oke-node-manager get pods -o wide.".to_owned(),
    }
    .bounded()
}

#[cfg(test)]
mod tests {
    use api::probe::{Flow, ProbeRequest, Transport, WatchTask};

    use super::*;

    fn ask(role: Role) -> Ask {
        let address = "10.0.0.2".parse().unwrap();
        let flow = Flow { protocol: Transport::Tcp, source: address, target: address, source_port: 1, port: 1 };
        let request = ProbeRequest::new(Task::Watch(WatchTask { flow, for_ms: 5_000 }));
        Ask { node: "a".to_owned(), request, after_ms: 0, role }
    }

    #[test]
    fn watch_counts_only_if_it_covers_the_probe() {
        let start = Instant::now() + Duration::from_secs(60);
        let at = |millis: u64| start + Duration::from_millis(millis);
        let times = |(sent, answered)| Times { sent: at(sent), answered: at(answered) };
        let round = [ask(Role::Arrival), ask(Role::Attempt)];
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
        let failed = [(Err(AskError::Busy), times((0, 10))), (Ok(ProbeReport::default()), times((400, 900)))];
        assert!(!watched_all(&round, &failed));
    }
}
