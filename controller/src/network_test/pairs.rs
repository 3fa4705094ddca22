//! Which pairs a NetworkTest has: from its spec, the Nodes and the agents. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::probe::{Party, ProbeKind, ProbeTarget, SendTask, bounds};
use api::{NetworkTestSpec, TargetService, TestProbe, TestSource, TestTarget};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use nettest::Case;
use thiserror::Error;

/// The most pairs of one run.
pub(crate) const MOST_PAIRS: usize = 2_000;
/// Other nodes that `peers` stands for.
const PEERS: usize = 3;
/// Other nodes for comparison: half of them near the source, half far from it.
const COMPARED: usize = 4;

const COUNT: u8 = 5;
const RATE: u8 = 20;
const TIMEOUT_MS: u32 = 1_000;
/// The most connections of a probe, which are made one after the other.
const CONNECTIONS: u8 = 20;
/// The longest time from the first packet to the last.
const SENDING_MS: u16 = 5_000;
/// The first of the probes' ports, above those of servers, and how many there are.
const FIRST_PORT: u16 = 20_000;
const PORTS: u16 = 20_000;

/// A pair to test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestPair {
    /// The case.
    pub case: Case,
    /// The target, for people.
    pub target: String,
}

/// Why a test has no pairs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PairError {
    /// A target outside the cluster.
    #[error("the target {0} is no node's address: set externalTargets, and NETWORK_TEST_TARGETS=any on the controller")]
    External(String),
    /// An address that is never probed.
    #[error("the target {0} is never probed")]
    Forbidden(IpAddr),
    /// A selector that is not valid.
    #[error("a nodeSelector is not valid: {0}")]
    Selector(String),
    /// Nothing to test.
    #[error("no pair: the selected nodes have no agent that can be asked, or source and target are the same node")]
    None,
    /// Too much to test.
    #[error("{0} pairs are more than {MOST_PAIRS}: select fewer nodes, or the service peers as the target")]
    TooMany(usize),
}

/// What pairs are selected from.
#[derive(Clone, Debug, Default)]
pub struct Nodes {
    /// The labels of each Node.
    pub labels: BTreeMap<String, BTreeMap<String, String>>,
    /// The address of each Node with an agent.
    pub addresses: BTreeMap<String, IpAddr>,
    /// Whether the configuration allows targets outside the cluster.
    pub external_allowed: bool,
    /// The host of OCI's core services.
    pub oci_host: Option<String>,
}

/// A target after selection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Selected {
    Node(String),
    Address(IpAddr),
    Service(TargetService),
    Host(String),
}

/// All pairs, in the order of the spec.
///
/// # Errors
/// When a target is not allowed, or there are no pairs or too many.
pub fn pairs(spec: &NetworkTestSpec, nodes: &Nodes) -> Result<Vec<TestPair>, PairError> {
    let mut found = Vec::new();
    let targets = spec.targets.iter().map(|target| nodes.targets(spec, target)).collect::<Result<Vec<_>, _>>()?;
    let targets: BTreeSet<Selected> = targets.into_iter().flatten().collect();
    for source in &spec.sources {
        for node in nodes.sources(source)? {
            for target in targets.iter().flat_map(|target| nodes.of_peers(&node, target)) {
                for probe in &spec.probes {
                    let pair = nodes.pair((&node, source), &target, (probe, found.len()));
                    found.extend(pair);
                }
                if found.len() > MOST_PAIRS {
                    return Err(PairError::TooMany(found.len()));
                }
            }
        }
    }
    if found.is_empty() { Err(PairError::None) } else { Ok(found) }
}

impl Nodes {
    fn selected(&self, selector: &LabelSelector) -> Result<Vec<String>, PairError> {
        let selector = Selector::try_from(selector.clone()).map_err(|error| PairError::Selector(error.to_string()))?;
        let fits = self.labels.iter().filter(|(_, labels)| selector.matches(labels));
        // A node without an agent neither sends nor watches.
        Ok(fits.map(|(name, _)| name.clone()).filter(|name| self.addresses.contains_key(name)).collect())
    }

    fn sources(&self, source: &TestSource) -> Result<Vec<String>, PairError> {
        match (&source.node, &source.node_selector) {
            (Some(node), _) => Ok(vec![node.clone()]),
            (None, Some(selector)) => self.selected(selector),
            (None, None) => Ok(Vec::new()),
        }
    }

    fn targets(&self, spec: &NetworkTestSpec, target: &TestTarget) -> Result<Vec<Selected>, PairError> {
        let external = |what: &dyn std::fmt::Display| {
            if spec.external_targets && self.external_allowed {
                Ok(())
            } else {
                Err(PairError::External(what.to_string()))
            }
        };
        if let Some(node) = &target.node {
            return Ok(vec![Selected::Node(node.clone())]);
        }
        if let Some(selector) = &target.node_selector {
            return Ok(self.selected(selector)?.into_iter().map(Selected::Node).collect());
        }
        if let Some(address) = target.address {
            if bounds::allowed(address).is_err() {
                return Err(PairError::Forbidden(address));
            }
            let node = self.addresses.iter().find(|(_, held)| **held == address);
            return match node {
                Some((node, _)) => Ok(vec![Selected::Node(node.clone())]),
                None => external(&address).map(|()| vec![Selected::Address(address)]),
            };
        }
        if let Some(host) = &target.host {
            return external(host).map(|()| vec![Selected::Host(host.clone())]);
        }
        Ok(target.service.map(Selected::Service).into_iter().collect())
    }

    /// Peers are the next nodes by name, so that all nodes are a target of some.
    fn of_peers(&self, source: &str, target: &Selected) -> Vec<Selected> {
        if *target != Selected::Service(TargetService::Peers) {
            return vec![target.clone()];
        }
        let after = self.addresses.keys().filter(|name| name.as_str() > source);
        let before = self.addresses.keys().filter(|name| name.as_str() < source);
        after.chain(before).take(PEERS).cloned().map(Selected::Node).collect()
    }

    /// A pair with one probe; none if the probe does not fit the target, or the target is the source.
    fn pair(
        &self,
        (node, source): (&str, &TestSource),
        target: &Selected,
        (probe, number): (&TestProbe, usize),
    ) -> Option<TestPair> {
        let address = self.addresses.get(node).copied();
        let (party, to, service) = match target {
            Selected::Node(name) if name == node => return None,
            Selected::Node(name) => {
                let address = *self.addresses.get(name)?;
                let party = Party { node: Some(name.clone()), address: Some(address) };
                (party, ProbeTarget::Address(address), None)
            }
            Selected::Address(to) => (Party { node: None, address: Some(*to) }, ProbeTarget::Address(*to), None),
            Selected::Host(host) => (Party::default(), ProbeTarget::Host(host.clone()), None),
            Selected::Service(TargetService::OciServices) => {
                (Party::default(), ProbeTarget::Host(self.oci_host.clone()?), Some(TargetService::OciServices))
            }
            Selected::Service(service) => (Party::default(), ProbeTarget::Service(*service), Some(*service)),
        };
        let case = Case {
            source: Party { node: Some(node.to_owned()), address },
            target_has_agent: party.node.is_some(),
            service,
            send: send(probe, to, (source.address, number)),
            others: self.others(node, address, &party),
            target: party,
        };
        Some(TestPair { case, target: target.to_string() })
    }

    /// A few other nodes: some whose address is most like the source's, some whose is least.
    fn others(&self, source: &str, address: Option<IpAddr>, target: &Party) -> Vec<Party> {
        let usable = self.addresses.iter().filter(|(name, _)| *name != source && Some(*name) != target.node.as_ref());
        let mut sorted: Vec<_> = usable.collect();
        sorted.sort_by_key(|(_, other)| std::cmp::Reverse(address.map_or(0, |address| common_bits(address, **other))));
        let far = sorted.len().saturating_sub(COMPARED / 2).max(COMPARED / 2);
        let chosen = sorted.iter().enumerate().filter(|(at, _)| *at < COMPARED / 2 || *at >= far);
        chosen.map(|(_, (name, address))| Party { node: Some((*name).clone()), address: Some(**address) }).collect()
    }
}

impl std::fmt::Display for Selected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
            Self::Host(host) => f.write_str(host),
            Self::Service(service) => f.write_str(match service {
                TargetService::Gateway => "gateway",
                TargetService::Imds => "imds",
                TargetService::Dns => "dns",
                TargetService::ApiServer => "apiserver",
                TargetService::OciServices => "oci-services",
                TargetService::Peers => "peers",
            }),
        }
    }
}

/// What the source's agent sends: within the bounds that the agent has, too.
fn send(probe: &TestProbe, target: ProbeTarget, (source, number): (Option<IpAddr>, usize)) -> SendTask {
    // The API server enforces these bounds; an object from before them must not exceed the agent's.
    let connects = matches!(probe.kind, ProbeKind::Tcp | ProbeKind::Http);
    let most = if connects { CONNECTIONS } else { bounds::COUNT_MAX };
    let count = probe.count.unwrap_or(COUNT).clamp(1, most);
    let slowest = SENDING_MS / u16::from(count);
    let interval_ms = (1_000 / u16::from(probe.rate.unwrap_or(RATE).max(1))).clamp(bounds::INTERVAL_MIN_MS, slowest);
    let waits = if connects { u32::from(count) } else { 1 };
    // Half of the longest task, so that the target's agent can watch all of it.
    let left = (bounds::TASK_MAX_MS / 2).saturating_sub(u32::from(SENDING_MS));
    let timeout_ms = u16::try_from((left / waits).min(TIMEOUT_MS)).unwrap_or(1);
    let source_port = FIRST_PORT + u16::try_from(number % usize::from(PORTS)).unwrap_or(0);
    SendTask {
        kind: probe.kind,
        source,
        target,
        port: probe.port.unwrap_or(if probe.kind == ProbeKind::Http { 80 } else { 0 }),
        source_port,
        count,
        interval_ms,
        timeout_ms: timeout_ms.max(1),
        size: 0,
        force_link: false,
        name: probe.name.clone(),
        path: probe.path.clone(),
        over_tcp: false,
    }
}

fn common_bits(one: IpAddr, other: IpAddr) -> u32 {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (u32::from(one) ^ u32::from(other)).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (u128::from(one) ^ u128::from(other)).leading_zeros(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
