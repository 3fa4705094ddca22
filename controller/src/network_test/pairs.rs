//! Which pairs a NetworkTest has: from its spec, the Nodes and the agents. Pure.

mod shown;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::{NetworkTestSpec, PodSelection, TargetService, TestProbe, TestSource, TestTarget};
use ipnetwork::IpNetwork;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use nettest::probe::{Party, ProbeKind, ProbeTarget, SendTask, bounds};
use nettest::{Case, Compared};

use super::http_url::HttpUrl;
use super::pair_error::{MAX_PAIRS, PairError};
use super::pods::TestPod;
use super::send::send;
use crate::args::TestTargets;

/// Other nodes that `peers` stands for.
const PEERS: usize = 3;
/// Other nodes for comparison, near the source and far from it.
const NEAR: usize = 3;
const FAR: usize = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TestPair {
    pub case: Case,
    /// The source, for people.
    pub source: String,
    /// The target, for people.
    pub target: String,
    /// Whether probes start in the pod network of the source's node.
    pub from_pod: bool,
}

/// What pairs are selected from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    /// The labels of each Node.
    pub labels: BTreeMap<String, BTreeMap<String, String>>,
    /// The address of each Node with an agent.
    pub addresses: BTreeMap<String, IpAddr>,
    /// The addresses of each Node and of its VNICs.
    pub held: BTreeMap<String, Vec<IpAddr>>,
    /// The Pods of each selection in the spec.
    pub pods: Vec<(PodSelection, Vec<TestPod>)>,
    /// The targets that the configuration allows.
    pub allowed: TestTargets,
    /// The networks of the cluster's Services.
    pub services: Vec<IpNetwork>,
    /// The host of OCI's core services.
    pub oci_host: Option<String>,
}

/// A source after selection.
struct SelectedSource {
    node: String,
    /// The address, if it is not the kernel's choice.
    address: Option<IpAddr>,
    /// Whether it is one of several addresses of the node.
    is_one_of_all: bool,
    /// The pod for which a probe Pod on the node stands.
    pod: Option<TestPod>,
    /// Whether a probe Pod on the node sends.
    is_pod_network: bool,
}

/// A target after selection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SelectedTarget {
    /// At the address of the source's family without one.
    Node(String, Option<IpAddr>),
    Pod(TestPod, IpAddr),
    Address(IpAddr),
    Service(TargetService),
    Host(String),
    Url(String),
}

/// All pairs, in the order of the spec.
pub(super) fn pairs(spec: &NetworkTestSpec, nodes: &Nodes) -> Result<Vec<TestPair>, PairError> {
    if nodes.allowed == TestTargets::None {
        return Err(PairError::Off);
    }
    let mut found = Vec::new();
    let targets = spec.targets.iter().map(|target| nodes.targets(spec, target)).collect::<Result<Vec<_>, _>>()?;
    let targets: BTreeSet<SelectedTarget> = targets.into_iter().flatten().collect();
    let measures = spec.probes.iter().any(|probe| probe.kind == ProbeKind::Throughput);
    let has_agent = |target: &&SelectedTarget| {
        matches!(target, SelectedTarget::Node(..) | SelectedTarget::Service(TargetService::Peers))
    };
    if let Some(other) = targets.iter().find(|target| measures && !has_agent(target)) {
        return Err(PairError::Throughput(other.to_string()));
    }
    for source in &spec.sources {
        for from in nodes.sources(source)? {
            if measures && from.is_pod_network {
                return Err(PairError::Throughput(from.to_string()));
            }
            for target in targets.iter().flat_map(|target| nodes.of_peers(&from.node, target)) {
                for probe in &spec.probes {
                    let pair = nodes.pair(&from, &target, probe, found.len());
                    found.extend(pair);
                }
                if found.len() > MAX_PAIRS {
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

    fn sources(&self, source: &TestSource) -> Result<Vec<SelectedSource>, PairError> {
        if let Some(pods) = &source.pods {
            return Ok(self
                .pods_of(pods)
                .map(|pod| SelectedSource {
                    node: pod.node.clone(),
                    address: None,
                    is_one_of_all: false,
                    pod: Some(pod),
                    is_pod_network: true,
                })
                .collect());
        }
        let nodes = match (&source.node, &source.node_selector) {
            (Some(node), _) => vec![node.clone()],
            (None, Some(selector)) => self.selected(selector)?,
            (None, None) => Vec::new(),
        };
        // From another address, packets could claim to be of any program.
        if let (Some(node), Some(address)) = (&source.node, source.address)
            && !self.known(node).contains(&address)
        {
            return Err(PairError::ForeignSource(node.clone(), address));
        }
        let addresses = |node: &str| match source.all_addresses {
            true => self.known(node).into_iter().map(Some).collect(),
            false => vec![source.address],
        };
        let of = |node: String| addresses(&node).into_iter().map(move |address| (node.clone(), address));
        let selected = nodes.into_iter().flat_map(of);
        let (is_one_of_all, is_pod_network) = (source.all_addresses, source.pod_network);
        let selected =
            selected.map(|(node, address)| SelectedSource { node, address, is_one_of_all, pod: None, is_pod_network });
        Ok(selected.collect())
    }

    /// The known addresses of a node, the one of its agent first.
    fn known(&self, node: &str) -> Vec<IpAddr> {
        let mut known: Vec<IpAddr> = self.addresses.get(node).copied().into_iter().collect();
        for address in self.held.get(node).into_iter().flatten() {
            if !known.contains(address) {
                known.push(*address);
            }
        }
        known
    }

    /// The first known address of a node that is of the same family as another address.
    fn of_family(&self, node: &str, like: Option<IpAddr>) -> Option<IpAddr> {
        self.known(node).into_iter().find(|address| is_family(like, *address))
    }

    fn targets(&self, spec: &NetworkTestSpec, target: &TestTarget) -> Result<Vec<SelectedTarget>, PairError> {
        let external = |what: &dyn std::fmt::Display| {
            if spec.external_targets && self.allowed == TestTargets::Any {
                Ok(())
            } else {
                Err(PairError::External(what.to_string()))
            }
        };
        if let Some(address) = target.address.filter(|address| bounds::allowed(*address).is_err()) {
            return Err(PairError::Forbidden(address));
        }
        if let Some(node) = &target.node {
            if let Some(address) = target.address.filter(|address| !self.known(node).contains(address)) {
                // A VNIC that another program attached.
                external(&address).map_err(|_| PairError::Foreign(node.clone(), address))?;
            }
            return Ok(vec![SelectedTarget::Node(node.clone(), target.address)]);
        }
        if let Some(selector) = &target.node_selector {
            return Ok(self.selected(selector)?.into_iter().map(|node| SelectedTarget::Node(node, None)).collect());
        }
        if let Some(pods) = &target.pods {
            let of = |pod: TestPod| pod.addresses.clone().into_iter().map(move |address| (pod.clone(), address));
            return Ok(self
                .pods_of(pods)
                .flat_map(of)
                .map(|(pod, address)| SelectedTarget::Pod(pod, address))
                .collect());
        }
        if let Some(address) = target.address {
            let mut names = self.held.keys().chain(self.addresses.keys());
            return match names.find(|node| self.known(node).contains(&address)) {
                Some(node) => Ok(vec![SelectedTarget::Node(node.clone(), Some(address))]),
                None if self.services.iter().any(|network| network.contains(address)) => {
                    Ok(vec![SelectedTarget::Address(address)])
                }
                None => external(&address).map(|()| vec![SelectedTarget::Address(address)]),
            };
        }
        if let Some(url) = &target.url {
            let read = HttpUrl::read(url).ok_or_else(|| PairError::Url(url.clone()))?;
            return match read.host {
                ProbeTarget::Address(address) if bounds::allowed(address).is_err() => {
                    Err(PairError::Forbidden(address))
                }
                _ => external(url).map(|()| vec![SelectedTarget::Url(url.clone())]),
            };
        }
        if let Some(host) = &target.host {
            return external(host).map(|()| vec![SelectedTarget::Host(host.clone())]);
        }
        Ok(target.service.map(SelectedTarget::Service).into_iter().collect())
    }

    fn pods_of(&self, selection: &PodSelection) -> impl Iterator<Item = TestPod> {
        self.pods.iter().filter(move |(of, _)| of == selection).flat_map(|(_, pods)| pods.clone())
    }

    /// Peers are the next nodes by name, so that all nodes are a target of some.
    fn of_peers(&self, source: &str, target: &SelectedTarget) -> Vec<SelectedTarget> {
        if *target != SelectedTarget::Service(TargetService::Peers) {
            return vec![target.clone()];
        }
        let after = self.addresses.keys().filter(|name| name.as_str() > source);
        let before = self.addresses.keys().filter(|name| name.as_str() < source);
        after.chain(before).take(PEERS).map(|node| SelectedTarget::Node(node.clone(), None)).collect()
    }

    /// A pair with one probe; none if the probe does not fit the target, or the target is the source.
    fn pair(
        &self,
        from: &SelectedSource,
        target: &SelectedTarget,
        probe: &TestProbe,
        number: usize,
    ) -> Option<TestPair> {
        let SelectedSource { node, address: requested, is_one_of_all, pod, is_pod_network } = from;
        let (party, to, service) = match target {
            SelectedTarget::Node(name, _) if name == node => return None,
            SelectedTarget::Pod(target, _) if pod.as_ref() == Some(target) => return None,
            SelectedTarget::Node(name, address) => {
                let of_agent = *self.addresses.get(name)?;
                let address = address.or_else(|| self.of_family(name, *requested)).unwrap_or(of_agent);
                let party = Party { node: Some(name.clone()), address: Some(address) };
                (party, ProbeTarget::Address(address), None)
            }
            SelectedTarget::Pod(_, address) => {
                let senders = pod.as_ref().map_or_else(|| self.known(node), |pod| pod.addresses.clone());
                if !senders.iter().any(|sender| is_family(Some(*address), *sender)) {
                    return None;
                }
                (Party { node: None, address: Some(*address) }, ProbeTarget::Address(*address), None)
            }
            SelectedTarget::Address(to) => (Party { node: None, address: Some(*to) }, ProbeTarget::Address(*to), None),
            SelectedTarget::Host(host) => (Party::default(), ProbeTarget::Host(host.clone()), None),
            SelectedTarget::Url(url) => (Party::default(), HttpUrl::read(url)?.host, None),
            SelectedTarget::Service(TargetService::OciServices) => {
                (Party::default(), ProbeTarget::Host(self.oci_host.clone()?), Some(TargetService::OciServices))
            }
            SelectedTarget::Service(service) => (Party::default(), ProbeTarget::Service(*service), Some(*service)),
        };
        // Of all addresses, those of the agent's family test names and services.
        let family = party.address.or_else(|| self.addresses.get(node).copied().filter(|_| *is_one_of_all));
        if requested.is_some_and(|requested| !is_family(family, requested)) {
            return None;
        }
        // A probe Pod's address is not known before it runs.
        let address = requested.or_else(|| self.of_family(node, family)).filter(|_| !is_pod_network);
        let mut send = send(probe, to, *requested, number);
        if let SelectedTarget::Url(url) = target {
            let HttpUrl { kind, port, path, .. } = HttpUrl::read(url)?;
            send = SendTask { kind, port, path: Some(path), ..send };
        }
        let case = Case {
            source: Party { node: Some(node.clone()), address },
            // Each probe Pod has another address, so no agent can watch for it.
            target_has_agent: party.node.is_some() && !is_pod_network,
            service,
            send,
            others: self.others(node, address, &party),
            target: party,
        };
        Some(TestPair { case, source: from.to_string(), target: target.to_string(), from_pod: *is_pod_network })
    }

    /// A few other nodes: some whose address is most like the source's, some whose is least.
    fn others(&self, source: &str, address: Option<IpAddr>, target: &Party) -> Vec<Compared> {
        let usable = self.addresses.iter().filter(|(name, _)| *name != source && Some(*name) != target.node.as_ref());
        // A node without the target's family would fail for another reason.
        let mut sorted: Vec<_> = usable.filter(|(name, _)| self.of_family(name, target.address).is_some()).collect();
        let common = |name: &str| Some(common_bits(address?, self.of_family(name, address)?));
        sorted.sort_by_key(|(name, _)| std::cmp::Reverse(common(name)));
        let far = sorted.len().saturating_sub(FAR).max(NEAR);
        let chosen = sorted.iter().enumerate().filter(|(at, _)| *at < NEAR || *at >= far);
        chosen.map(|(_, (name, _))| Compared { node: (*name).clone(), addresses: self.known(name) }).collect()
    }
}

/// Whether an address is of the same family as another one, if there is one.
fn is_family(like: Option<IpAddr>, address: IpAddr) -> bool {
    like.is_none_or(|like| like.is_ipv4() == address.is_ipv4())
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
