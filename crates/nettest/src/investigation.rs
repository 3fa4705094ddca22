//! The rounds of one pair: the probe; if it fails, the probe again while the target's agent watches; then probes that each
//! change one thing. The caller sends the asks of a round at once, and hands each answer back.

use std::collections::VecDeque;
use std::net::IpAddr;

use api::TargetService;
use api::probe::{
    Change, Evidence, Flow, Party, ProbeKind, ProbeReport, ProbeRequest, ProbeTarget, SendTask, Task, Trial, WatchTask,
};

use crate::diagnose::{diagnose, has_failed};
use crate::trials;
use crate::verdict::{Label, Verdict};

/// How much later the probe is sent than the target's agent begins to watch.
const WATCH_FIRST_MS: u16 = 400;
/// How much longer it watches than the probe may take.
const WATCH_LONGER_MS: u32 = 1_500;

/// A pair to test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The source, which has an agent.
    pub source: Party,
    /// The target.
    pub target: Party,
    /// Whether the target is a node with an agent that can watch.
    pub target_has_agent: bool,
    /// The service, where the target is one.
    pub service: Option<TargetService>,
    /// What the source's agent is to send.
    pub send: SendTask,
    /// A few other nodes with agents, for comparison.
    pub others: Vec<Party>,
}

/// A request to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The agent's Node.
    pub node: String,
    /// The request.
    pub request: ProbeRequest,
    /// How long to wait before it is sent, in milliseconds.
    pub after_ms: u16,
    /// What the answer is for.
    pub role: Role,
}

/// What an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The probe itself.
    Attempt,
    /// The same packets on the target's host.
    Arrival,
    /// The probe with one thing changed.
    Trial(Change),
    /// Preparation of the next ask.
    Preparation,
}

/// The investigation of one pair.
#[derive(Clone, Debug)]
pub struct Investigation {
    case: Case,
    stage: Stage,
    rounds: VecDeque<Vec<Ask>>,
    evidence: Option<Evidence>,
}

/// What has been asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Nothing,
    Attempt,
    Again,
    Trials,
}

impl Investigation {
    /// Nothing was asked yet.
    #[must_use]
    pub const fn new(case: Case) -> Self {
        Self { case, stage: Stage::Nothing, rounds: VecDeque::new(), evidence: None }
    }

    /// The asks of the next round; none at the end.
    pub fn next_round(&mut self) -> Vec<Ask> {
        while self.rounds.is_empty() && self.stage != Stage::Trials {
            self.plan();
        }
        self.rounds.pop_front().unwrap_or_default()
    }

    /// Takes an answer; `None` where the agent gave none.
    pub fn answer(&mut self, role: Role, report: Option<ProbeReport>) {
        let Some(report) = report else { return };
        match (role, &mut self.evidence) {
            (Role::Attempt, None) => self.evidence = Some(self.case.evidence(report)),
            (Role::Attempt, Some(evidence)) => {
                let again = Trial { change: Change::Again, tally: report.tally.clone() };
                // Taps and counters of both hosts must be of the same packets.
                if report.tally.fails() {
                    evidence.attempt = report;
                }
                evidence.trials.push(again);
            }
            (Role::Arrival, Some(evidence)) => evidence.arrival = Some(report),
            (Role::Trial(change), Some(evidence)) => {
                evidence.trials.push(Trial { change, tally: report.tally });
            }
            (Role::Arrival | Role::Trial(_), None) | (Role::Preparation, _) => {}
        }
    }

    /// What is known so far; `None` if the source's agent did not answer.
    #[must_use]
    pub const fn evidence(&self) -> Option<&Evidence> {
        self.evidence.as_ref()
    }

    /// The verdict on what is known so far.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        self.evidence.as_ref().map(diagnose)
    }

    fn plan(&mut self) {
        self.stage = match (self.stage, &self.evidence) {
            (Stage::Nothing, _) => {
                self.rounds.push_back(vec![self.case.attempt(0)]);
                Stage::Attempt
            }
            (Stage::Attempt, Some(evidence)) if may_have_failed(evidence) => {
                self.rounds.push_back(self.case.again(evidence));
                Stage::Again
            }
            (Stage::Again, Some(evidence)) => {
                // A host that shows the cause itself needs no comparison, nor does a probe that passes now.
                let passes = evidence.trial(Change::Again).is_some_and(|again| !again.fails());
                if diagnose(evidence).label != Label::Proven && !passes && has_failed(evidence) {
                    self.rounds.extend(trials::rounds(&self.case, evidence));
                }
                Stage::Trials
            }
            _ => Stage::Trials,
        };
    }
}

/// A datagram that nothing answers may have arrived: only the target's agent can tell.
fn may_have_failed(evidence: &Evidence) -> bool {
    has_failed(evidence) || (evidence.kind == ProbeKind::Udp && evidence.attempt.tally.fails())
}

impl Case {
    fn evidence(&self, attempt: ProbeReport) -> Evidence {
        let mut source = self.source.clone();
        source.address = attempt.source.or(source.address);
        let mut target = self.target.clone();
        target.address = target.address.or(attempt.target);
        Evidence {
            kind: self.send.kind,
            port: self.send.port,
            source_requested: self.send.source.is_some(),
            source,
            target,
            service: self.service,
            attempt,
            arrival: None,
            trials: Vec::new(),
        }
    }

    fn attempt(&self, after_ms: u16) -> Ask {
        self.ask(&self.source, Task::Send(self.send.clone()), Role::Attempt).after(after_ms)
    }

    /// The same probe again while the target's agent watches, if it has one.
    fn again(&self, evidence: &Evidence) -> Vec<Ask> {
        let watch = self.flow(evidence).filter(|_| self.target_has_agent).map(|flow| {
            let for_ms = self.send.longest_ms() + u32::from(WATCH_FIRST_MS) + WATCH_LONGER_MS;
            let for_ms = u16::try_from(for_ms.min(api::probe::bounds::TASK_MAX_MS)).unwrap_or(u16::MAX);
            self.ask(&self.target, Task::Watch(WatchTask { flow, for_ms }), Role::Arrival)
        });
        let after_ms = if watch.is_some() { WATCH_FIRST_MS } else { 0 };
        watch.into_iter().chain([self.attempt(after_ms)]).collect()
    }

    /// The flow of the probe's packets, once both addresses are known.
    pub(crate) fn flow(&self, evidence: &Evidence) -> Option<Flow> {
        let target: IpAddr = evidence.attempt.target.or(evidence.target.address)?;
        Some(Flow {
            protocol: self.send.kind.transport()?,
            source: evidence.attempt.source?,
            target,
            source_port: self.send.source_port,
            port: self.send.port,
        })
    }

    pub(crate) fn ask(&self, party: &Party, task: Task, role: Role) -> Ask {
        Ask { node: party.node.clone().unwrap_or_default(), request: ProbeRequest::new(task), after_ms: 0, role }
    }

    /// The same task for another source, whose kernel chooses the address and the port.
    pub(crate) fn sent_elsewhere(&self) -> SendTask {
        SendTask { source: None, source_port: 0, ..self.send.clone() }
    }

    /// An echo request from one party to another's address.
    pub(crate) fn echo(&self, target: IpAddr) -> SendTask {
        SendTask {
            kind: ProbeKind::Icmp,
            target: ProbeTarget::Address(target),
            port: 0,
            size: 0,
            source_port: 0,
            name: None,
            path: None,
            over_tcp: false,
            count: self.send.count.min(5),
            ..self.send.clone()
        }
    }
}

impl Ask {
    const fn after(mut self, milliseconds: u16) -> Self {
        self.after_ms = milliseconds;
        self
    }
}
