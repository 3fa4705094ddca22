//! A pair to test, and the requests to agents that its probes consist of.

use std::net::IpAddr;

use api::TargetService;

use crate::diagnose::shares_subnet;
use crate::probe::{
    Change, Evidence, Failure, Flow, Party, ProbeKind, ProbeReport, ProbeRequest, ProbeTarget, ReceiveTask, Received,
    SendTask, Tally, Task, Transport, WatchTask,
};

/// How much later the probe is sent than the target's agent begins to watch.
const WATCH_FIRST_MS: u16 = 400;
/// How much longer it watches than the probe may take.
const WATCH_LONGER_MS: u32 = 1_500;

/// A pair to test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The source, which has an agent.
    pub source: Party,
    /// The target of the probes.
    pub target: Party,
    /// Whether the target is a node with an agent that can watch.
    pub target_has_agent: bool,
    /// The service, where the target is one.
    pub service: Option<TargetService>,
    /// What the source's agent is to send.
    pub send: SendTask,
    /// A few other nodes with agents, for comparison: neither the source nor the target.
    pub others: Vec<Compared>,
}

/// A node for comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// The name of the Node.
    pub node: String,
    /// Its addresses, that of its agent first.
    pub addresses: Vec<IpAddr>,
}

/// A request to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRequest {
    /// The name of the agent's Node.
    pub node: String,
    /// The request that is sent.
    pub probe: ProbeRequest,
    /// How long to wait before it is sent, in milliseconds.
    pub after_ms: u16,
    /// What the answer is for.
    pub role: Role,
}

/// What an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The first result of the probe.
    Attempt,
    /// The same packets on the target's host.
    Arrival,
    /// The probe with one thing changed.
    Trial(Change),
    /// The probe from a neighbour of the source, of several.
    Neighbour(u8),
    /// The neighbour's packets, which are sent at the same time, on the target's host.
    NeighbourArrival(u8),
    /// A packet of the target, on the source's host.
    FromTarget,
    /// Preparation of the next request.
    Preparation,
    /// The data of the probe, on the target's host: without it the probe shows nothing.
    Reception,
}

impl Case {
    pub(crate) fn evidence(&self, attempt: ProbeReport) -> Evidence {
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
            received: None,
            arrival: None,
            trials: Vec::new(),
        }
    }

    fn attempt(&self, after_ms: u16) -> AgentRequest {
        let is_measured = self.send.kind == ProbeKind::Throughput;
        let source = if is_measured { self.sender() } else { self.send.source };
        let send = SendTask { source, ..self.send.clone() };
        self.request(self.source.node.as_deref(), Task::Send(send), Role::Attempt).after(after_ms)
    }

    /// Compares what arrived with what was to be sent.
    pub(crate) fn judge(&self, report: &mut ProbeReport, received: Received) {
        let Some(of) = self.send.mbits.filter(|_| self.send.kind == ProbeKind::Throughput) else { return };
        let source = self.sender();
        let failure = match &report.tally.failure {
            None if received.is_enough(of) => return,
            None => Failure::Slow { mbits: received.mbits(), of },
            // The receiver closed the connection of an address that it does not expect.
            Some(Failure::Invalid(_)) if received.from.is_some() && received.from != source => {
                let [from, source] =
                    [received.from, source].map(|address| address.map_or_else(String::new, |it| it.to_string()));
                Failure::Invalid(format!(
                    "the target saw the source {from}, not {source}: its address is translated on the way"
                ))
            }
            Some(_) => return,
        };
        report.tally = Tally { failure: Some(failure), received: 0, ..report.tally.clone() };
    }

    /// The address from which data is sent: the one that the receiver accepts.
    fn sender(&self) -> Option<IpAddr> {
        self.send.source.or(self.source.address)
    }

    /// The probe, and what receives its data.
    pub(crate) fn first(&self) -> Vec<AgentRequest> {
        match self.reception() {
            Some(reception) => vec![reception, self.attempt(WATCH_FIRST_MS)],
            None => vec![self.attempt(0)],
        }
    }

    /// A receiver on the target's host, of a probe of throughput.
    pub(crate) fn reception(&self) -> Option<AgentRequest> {
        let is_measured = self.send.kind == ProbeKind::Throughput;
        let (address, from) = (self.target.address?, self.sender()?);
        let receive = ReceiveTask { address, port: self.send.port, from, for_ms: watch_ms(self.send.longest_ms()) };
        is_measured.then(|| self.request(self.target.node.as_deref(), Task::Receive(receive), Role::Reception))
    }

    /// The same probe again while the target's agent watches, if it has one.
    pub(crate) fn again(&self, evidence: &Evidence) -> Vec<AgentRequest> {
        if self.send.kind == ProbeKind::Throughput {
            return vec![self.attempt(WATCH_FIRST_MS)];
        }
        let flow = self.flow(evidence).filter(|_| self.target_has_agent);
        let watch = flow.map(|flow| self.watch(&self.target, flow, self.send.longest_ms(), Role::Arrival));
        let after_ms = if watch.is_some() { WATCH_FIRST_MS } else { 0 };
        watch.into_iter().chain([self.attempt(after_ms)]).collect()
    }

    /// A watch of a flow whose packets take so long, and are sent [`WATCH_FIRST_MS`] later.
    pub(crate) fn watch(&self, party: &Party, flow: Flow, longest_ms: u32, role: Role) -> AgentRequest {
        self.request(party.node.as_deref(), Task::Watch(WatchTask { flow, for_ms: watch_ms(longest_ms) }), role)
    }

    /// The flow of the probe's packets, once both addresses are known.
    pub(crate) fn flow(&self, evidence: &Evidence) -> Option<Flow> {
        let target: IpAddr = evidence.attempt.target.or(evidence.target.address)?;
        Some(Flow {
            protocol: Transport::of(self.send.kind)?,
            source: evidence.attempt.source?,
            target,
            source_port: self.send.source_port,
            port: self.send.port,
        })
    }

    /// A task for the agent of a node.
    pub(crate) fn request(&self, node: Option<&str>, task: Task, role: Role) -> AgentRequest {
        AgentRequest { node: node.unwrap_or_default().to_owned(), probe: ProbeRequest::new(task), after_ms: 0, role }
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
            mbits: None,
            count: self.send.count.min(5),
            ..self.send.clone()
        }
    }
}

/// How long the other host watches or receives while a probe takes so long, and is sent [`WATCH_FIRST_MS`] later.
fn watch_ms(longest_ms: u32) -> u16 {
    let for_ms = longest_ms + u32::from(WATCH_FIRST_MS) + WATCH_LONGER_MS;
    u16::try_from(for_ms.min(crate::probe::bounds::TASK_MAX_MS)).unwrap_or(u16::MAX)
}

impl Compared {
    /// The first address of the family of another one; any if that is not known.
    pub(crate) fn of_family(&self, like: Option<IpAddr>) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|address| like.is_none_or(|like| like.is_ipv4() == address.is_ipv4()))
    }

    /// Whether it is in a subnet that a host reports of the pair's link. `None` if the host reports none of its families.
    pub(crate) fn shares_subnet(&self, report: &ProbeReport) -> Option<bool> {
        self.addresses.iter().find_map(|address| shares_subnet(report, *address))
    }
}

impl AgentRequest {
    /// The change of a trial, where it is one.
    pub(crate) const fn change(&self) -> Option<Change> {
        match self.role {
            Role::Trial(change) => Some(change),
            Role::Neighbour(_) => Some(Change::SubnetNeighbour),
            _ => None,
        }
    }

    /// Sent while another host watches.
    pub(crate) const fn watched(self) -> Self {
        self.after(WATCH_FIRST_MS)
    }

    const fn after(mut self, milliseconds: u16) -> Self {
        self.after_ms = milliseconds;
        self
    }
}
