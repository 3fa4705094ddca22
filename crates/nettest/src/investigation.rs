//! The rounds of one pair: the probe; if it fails, the probe again while the target's agent watches; then probes that each
//! change one thing. The caller sends the requests of a round at once, and hands each answer back.

use std::collections::VecDeque;

use crate::case::{AgentRequest, Case, Role};
use crate::diagnose::{diagnose, has_failed, is_misrouted};
use crate::probe::{Change, Evidence, Failure, ProbeKind, ProbeReport, Received, SendTask, Tally, Trial};
use crate::trials;
use crate::verdict::Verdict;

/// Connections that are tried when a probe of throughput finds none.
const CONNECTIONS: u8 = 3;

/// The investigation of one pair.
#[derive(Clone, Debug)]
pub struct Investigation {
    case: Case,
    stage: Stage,
    rounds: VecDeque<Vec<AgentRequest>>,
    evidence: Option<Evidence>,
    /// What the target's agent received in this round.
    received: Option<Received>,
}

/// What has been requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Nothing,
    Attempt,
    Again,
    Trials,
}

impl Investigation {
    /// Nothing was requested yet.
    pub const fn new(case: Case) -> Self {
        Self { case, stage: Stage::Nothing, rounds: VecDeque::new(), evidence: None, received: None }
    }

    /// The requests of the next round; none at the end.
    pub fn next_round(&mut self) -> Vec<AgentRequest> {
        while self.rounds.is_empty() && self.stage != Stage::Trials {
            self.plan();
        }
        self.rounds.pop_front().unwrap_or_default()
    }

    /// Takes an answer; `None` where the agent gave none.
    pub fn answer(&mut self, role: Role, report: Option<ProbeReport>) {
        let Some(mut report) = report else { return };
        if let (Role::Attempt, Some(received)) = (role, self.received) {
            self.case.judge(&mut report, received);
        }
        match (role, &mut self.evidence) {
            (Role::Reception, _) => self.received = report.received,
            (Role::Attempt, None) => {
                let evidence = self.case.evidence(report);
                self.evidence = Some(Evidence { received: self.received.take(), ..evidence });
            }
            (Role::Attempt, Some(evidence)) => {
                let again = Trial::new(Change::Again, result(&report));
                let is_measured = self.case.send.kind == ProbeKind::Throughput;
                // Taps and counters of both hosts must be of the same packets. Of two measurements the better one counts.
                if report.tally.fails() || is_measured {
                    evidence.attempt = report;
                    evidence.kind = self.case.send.kind;
                    evidence.received = self.received.take();
                }
                evidence.trials.push(again);
            }
            (Role::Arrival, Some(evidence)) => evidence.arrival = Some(report),
            (Role::Trial(change), Some(evidence)) => evidence.trials.push(Trial::new(change, result(&report))),
            (Role::Neighbour(number), Some(evidence)) => {
                let trial = Trial::new(Change::SubnetNeighbour, result(&report));
                evidence.trials.push(Trial { neighbour: Some(number), ..trial });
            }
            (Role::NeighbourArrival(number), Some(evidence)) if !report.taps.incomplete => {
                let of_neighbour = evidence.trials.iter_mut().filter(|trial| trial.neighbour == Some(number));
                of_neighbour.for_each(|trial| trial.arrived = Some(report.taps.inward.packets));
            }
            (Role::FromTarget, Some(evidence)) if !report.taps.incomplete => {
                let received = u16::from(report.taps.inward.packets > 0);
                let tally = Tally { sent: 1, received, ..Tally::default() };
                evidence.trials.push(Trial::new(Change::FromTarget, tally));
            }
            _ => {}
        }
    }

    /// What is known so far; `None` if the source's agent did not answer.
    pub const fn evidence(&self) -> Option<&Evidence> {
        self.evidence.as_ref()
    }

    /// The verdict on what is known so far.
    pub fn verdict(&self) -> Option<Verdict> {
        self.evidence.as_ref().map(diagnose)
    }

    fn plan(&mut self) {
        self.stage = match (self.stage, &self.evidence) {
            (Stage::Nothing, _) => {
                self.rounds.push_back(self.case.first());
                Stage::Attempt
            }
            (Stage::Attempt, Some(evidence)) if may_have_failed(evidence) => {
                let connected =
                    matches!(evidence.attempt.tally.failure, Some(Failure::Slow { .. } | Failure::Invalid(_)));
                let mut round = self.case.reception().into_iter().collect::<Vec<_>>();
                if self.case.send.kind == ProbeKind::Throughput && !connected {
                    // No data: the connection is what fails.
                    self.case.send =
                        SendTask { kind: ProbeKind::Tcp, mbits: None, count: CONNECTIONS, ..self.case.send.clone() };
                }
                round.extend(self.case.again(evidence));
                self.rounds.push_back(round);
                Stage::Again
            }
            (Stage::Again, Some(evidence)) => {
                // A probe that passes now needs no comparison.
                let passes = evidence.trial(Change::Again).is_some_and(|again| !again.fails());
                if !passes && has_failed(evidence) {
                    self.rounds.extend(trials::rounds(&self.case, evidence));
                }
                Stage::Trials
            }
            _ => Stage::Trials,
        };
    }
}

/// The result of a trial. A lookup has no packets: it passes, or is misrouted.
fn result(report: &ProbeReport) -> Tally {
    match (&report.route, report.tally.sent) {
        (Some(route), 0) => Tally { sent: 1, received: u16::from(!is_misrouted(route)), ..Tally::default() },
        _ => report.tally.clone(),
    }
}

/// A datagram that nothing answers may have arrived: only the target's agent can tell.
fn may_have_failed(evidence: &Evidence) -> bool {
    has_failed(evidence) || (evidence.kind == ProbeKind::Udp && evidence.attempt.tally.fails())
}
