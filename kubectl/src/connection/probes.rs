//! The probes of a connection, as NetworkTests, and their results. What is sent is planned by a pure function.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::{NetworkTest, NetworkTestStatus, PairVerdict, TestState};
use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use serde_json::{Value, json};

use super::backends::{Backend, protocol_of};
use super::conclusion::{Outcome, ProbeResult, ProbeSource, ProbeTarget};
use super::facts::{Facts, is_pod_network};
use super::objects::{Objects, is_in_host_network, name_of, node_of};
use crate::args::nettest::NetTestArgs;
use crate::cluster::Cluster;
use crate::ends::{ObjectName, Source, Target};
use crate::failure::words;
use crate::probe_spec::{at_node, described, object};
use crate::test_runs;

/// The most endpoints that are probed: the targets of a NetworkTest.
const ENDPOINTS_PROBED: usize = 8;
/// The domain of most clusters.
const DOMAIN: &str = "svc.cluster.local";

/// What is sent, and why something is not.
#[derive(Debug, Default)]
pub(crate) struct ProbePlan {
    runs: Vec<ProbeRun>,
    not_probed: Vec<String>,
}

/// One NetworkTest: probes of one kind.
#[derive(Debug)]
struct ProbeRun {
    target: ProbeTarget,
    test: NetworkTest,
    sources: Vec<RunSource>,
    targets: Vec<RunTarget>,
    /// Silence proves nothing: UDP.
    is_silence_open: bool,
}

#[derive(Clone, Debug)]
struct RunSource {
    source: ProbeSource,
    /// As the status names it.
    status: String,
    object: Value,
}

#[derive(Clone, Debug)]
struct RunTarget {
    shown: String,
    /// As the status names it; any if absent.
    status: Option<String>,
    object: Value,
}

pub(crate) fn plan(args: &NetTestArgs, from: &Source, to: &Target, facts: &Facts, objects: &Objects) -> ProbePlan {
    let sources = Sources::of(from, facts, objects);
    let mut planner = Planner { args, sources, facts, objects, plan: ProbePlan::default() };
    match to {
        Target::Service { name, .. } => planner.service(name),
        Target::Pod(name) => planner.pod(name),
        Target::Other(_) => planner.other(),
    }
    planner.plan
}

struct Sources {
    node: String,
    /// As typed, with an address of the node.
    node_object: Value,
    node_status: String,
    /// Whether a probe Pod sends as well.
    has_pod: bool,
    addresses: Vec<IpAddr>,
}

impl Sources {
    fn of(from: &Source, facts: &Facts, objects: &Objects) -> Self {
        let node = facts.node.clone().unwrap_or_default();
        let typed = match from {
            Source::Node(typed) => typed.clone(),
            Source::Pod(_) => node.clone(),
        };
        let node_addresses = objects.node.iter().filter_map(|node| node.status.as_ref());
        let of_node = node_addresses.flat_map(|status| status.addresses.iter().flatten());
        let of_pod = objects.source.iter().filter_map(|pod| pod.status.as_ref());
        let of_pod = of_pod.flat_map(|status| status.pod_ips.iter().flatten().map(|held| held.ip.clone()));
        let addresses: Vec<String> = match from {
            Source::Node(typed) if typed.contains('/') => typed.split('/').skip(1).map(str::to_owned).collect(),
            Source::Node(_) => {
                of_node.filter(|held| held.type_ == "InternalIP").map(|held| held.address.clone()).collect()
            }
            Source::Pod(_) => of_pod.collect(),
        };
        Self {
            node_object: at_node(&typed),
            node_status: typed,
            node,
            has_pod: is_pod_network(objects),
            addresses: addresses.iter().filter_map(|address| address.parse().ok()).collect(),
        }
    }

    fn of_families(&self, addresses: Vec<IpAddr>) -> Vec<IpAddr> {
        addresses.into_iter().filter(|address| self.has_family(*address)).collect()
    }

    fn has_family(&self, address: IpAddr) -> bool {
        self.addresses.is_empty() || self.addresses.iter().any(|held| held.is_ipv4() == address.is_ipv4())
    }

    /// What comes from outside the cluster is not probed from a Pod.
    fn all(&self, target: ProbeTarget) -> Vec<RunSource> {
        let is_outside = matches!(target, ProbeTarget::NodePort | ProbeTarget::LoadBalancer);
        let node =
            RunSource { source: ProbeSource::Node, status: self.node_status.clone(), object: self.node_object.clone() };
        let pod = (self.has_pod && !is_outside).then(|| RunSource {
            source: ProbeSource::Pod,
            status: format!("pod network of {}", self.node),
            object: json!({ "node": self.node, "podNetwork": true }),
        });
        [Some(node), pod].into_iter().flatten().collect()
    }
}

/// Collects the probes of a connection.
struct Planner<'a> {
    args: &'a NetTestArgs,
    sources: Sources,
    facts: &'a Facts,
    objects: &'a Objects,
    plan: ProbePlan,
}

impl Planner<'_> {
    fn run(&mut self, target: ProbeTarget, mut targets: Vec<RunTarget>, probe: &Value, external: bool) {
        // The controller leaves such a pair out.
        for own in targets.extract_if(.., |target| text(&target.object, "node") == Some(&self.sources.node)) {
            self.plan.not_probed.push(format!("{}: it has the address of the source's node", own.shown));
        }
        if targets.is_empty() {
            return;
        }
        let sources = self.sources.all(target);
        let from: Vec<&Value> = sources.iter().map(|source| &source.object).collect();
        let to: Vec<&Value> = targets.iter().map(|target| &target.object).collect();
        match described(&json!(from), &json!(to), probe, external) {
            Ok(test) => {
                let is_silence_open = text(probe, "type") == Some("UDP");
                self.plan.runs.push(ProbeRun { target, test, sources, targets, is_silence_open });
            }
            Err(error) => self.plan.not_probed.push(words(&error)),
        }
    }

    fn pod(&mut self, name: &ObjectName) {
        let probe = match self.args.port {
            Some(port) => json!({ "type": if self.args.udp { "UDP" } else { "TCP" }, "port": port }),
            None if self.args.mtu => json!({ "type": "PathMTU" }),
            None => json!({ "type": "ICMP" }),
        };
        let target = self.objects.target.as_ref().map(|pod| of_pod(name, pod));
        self.run(ProbeTarget::Endpoint, target.into_iter().collect(), &probe, false);
    }

    /// As between nodes, from the source's node.
    fn other(&mut self) {
        let args = NetTestArgs { from: self.sources.node.clone(), ..self.args.clone() };
        match object(&args) {
            Ok(test) => {
                let spec = serde_json::to_value(&test.spec).unwrap_or_default();
                let object = spec.pointer("/targets/0").cloned().unwrap_or_default();
                let probe = spec.pointer("/probes/0").cloned().unwrap_or_default();
                let target = RunTarget { shown: args.to.clone(), status: None, object };
                self.run(ProbeTarget::Endpoint, vec![target], &probe, args.external);
            }
            Err(error) => self.plan.not_probed.push(words(&error)),
        }
    }

    fn service(&mut self, name: &ObjectName) {
        let (Some(service), Some(port)) = (&self.objects.service, &self.facts.port) else { return };
        let protocol = protocol_of(port);
        if !matches!(protocol, "TCP" | "UDP") {
            return self.plan.not_probed.push(format!("{protocol}: only TCP and UDP are probed"));
        }
        let probe = |number: i64| json!({ "type": protocol, "port": number });
        // One that is refused, because it is in none of the Services' known networks, takes no other with it.
        for address in self.sources.of_families(addresses(service)) {
            self.run(ProbeTarget::Service, vec![of_address(address)], &probe(port.port.into()), false);
        }
        for (number, backends) in by_port(&self.facts.backends, &self.sources) {
            let (pods, others): (Vec<RunTarget>, Vec<RunTarget>) = backends
                .iter()
                .map(|one| of_backend(one, self.objects))
                .partition(|target| text(&target.object, "address").is_none());
            // One by one: the number of pairs of several Pods does not show which of them had none.
            for pod in pods {
                self.run(ProbeTarget::Endpoint, vec![pod], &probe(number.into()), false);
            }
            // The controller knows only addresses of Pods; the others need --external.
            self.run(ProbeTarget::Endpoint, others, &probe(number.into()), self.args.external);
        }
        self.outside(service, port);
        self.dns(name);
    }

    /// The NodePort of another node, and the LoadBalancer.
    fn outside(&mut self, service: &Service, port: &ServicePort) {
        let node =
            self.facts.backends.iter().filter_map(|one| one.node.as_ref()).find(|node| **node != self.sources.node);
        if let (Some(number), Some(node)) = (port.node_port, node) {
            let target = RunTarget { shown: node.clone(), status: Some(node.clone()), object: json!({ "node": node }) };
            let probe = json!({ "type": protocol_of(port), "port": number });
            self.run(ProbeTarget::NodePort, vec![target], &probe, false);
        }
        let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let ingress = balancer.iter().flat_map(|balancer| balancer.ingress.iter().flatten());
        let addresses = ingress.filter_map(|one| one.ip.as_ref()?.parse().ok()).collect();
        let Some(address) = self.sources.of_families(addresses).into_iter().next() else { return };
        if self.args.external {
            let probe = json!({ "type": protocol_of(port), "port": port.port });
            self.run(ProbeTarget::LoadBalancer, vec![of_address(address)], &probe, true);
        } else {
            self.plan.not_probed.push(format!("the LoadBalancer's address {address}: it needs --external"));
        }
    }

    /// The Service's name, at the cluster's DNS.
    fn dns(&mut self, name: &ObjectName) {
        let Some(dns) = &self.objects.dns else { return };
        let Some(address) = self.sources.of_families(addresses(dns)).into_iter().next() else { return };
        let name = format!("{}.{}.{DOMAIN}", name.name, name.namespace);
        let target = RunTarget { shown: name.clone(), ..of_address(address) };
        self.run(ProbeTarget::Dns, vec![target], &json!({ "type": "DNS", "name": name }), false);
    }
}

fn text<'v>(object: &'v Value, field: &str) -> Option<&'v str> {
    object.get(field)?.as_str()
}

/// The Service's addresses in the cluster.
fn addresses(service: &Service) -> Vec<IpAddr> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let all = spec.cluster_ips.clone().unwrap_or_else(|| spec.cluster_ip.clone().into_iter().collect());
    all.iter().filter_map(|address| address.parse().ok()).collect()
}

/// The first endpoints that the source has the family of, by their port.
fn by_port<'b>(backends: &'b [Backend], sources: &Sources) -> BTreeMap<u16, Vec<&'b Backend>> {
    let mut found: BTreeMap<u16, Vec<&Backend>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for backend in backends.iter().filter(|one| sources.has_family(one.address)) {
        if let Some(port) = backend.port
            && seen.len() < ENDPOINTS_PROBED
            && seen.insert(backend.to_string())
        {
            found.entry(port).or_default().push(backend);
        }
    }
    found
}

fn of_address(address: IpAddr) -> RunTarget {
    let text = address.to_string();
    RunTarget { shown: text.clone(), status: Some(text), object: json!({ "address": address }) }
}

fn of_backend(backend: &Backend, objects: &Objects) -> RunTarget {
    let Some(name) = &backend.pod else { return of_address(backend.address) };
    let pod = objects.selected.iter().flatten().find(|pod| name_of(pod) == *name);
    match pod {
        Some(pod) if has_address(pod, backend.address) => of_pod(name, pod),
        // The Pods could not be read: the name is all there is.
        None if objects.selected.is_none() => by_name(name),
        // A slice may name any Pod; what counts is the address that it has.
        _ => of_address(backend.address),
    }
}

fn has_address(pod: &Pod, address: IpAddr) -> bool {
    let held = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
    held.filter_map(|held| held.ip.parse().ok()).any(|held: IpAddr| held == address)
}

/// A Pod of the host's network has its node's address.
fn of_pod(name: &ObjectName, pod: &Pod) -> RunTarget {
    match node_of(pod).filter(|_| is_in_host_network(pod)) {
        Some(node) => {
            RunTarget { shown: name.to_string(), status: Some(node.to_owned()), object: json!({ "node": node }) }
        }
        None => by_name(name),
    }
}

fn by_name(name: &ObjectName) -> RunTarget {
    let object = json!({ "pods": { "namespace": name.namespace, "name": name.name } });
    RunTarget { shown: name.to_string(), status: Some(name.to_string()), object }
}

/// Sends them. Returns the results, and what was not probed and why.
///
/// # Errors
/// When the command was interrupted, or a test could not be read or deleted.
pub(crate) async fn run(cluster: &Cluster, plan: &ProbePlan) -> anyhow::Result<(Vec<ProbeResult>, Vec<String>)> {
    let mut not_probed = plan.not_probed.clone();
    let tests = plan.runs.iter().map(|run| run.test.clone()).collect();
    let mut results = Vec::new();
    for (run, status) in plan.runs.iter().zip(test_runs::run(cluster, tests).await?) {
        match status {
            Ok(status) if status.state == Some(TestState::Refused) => {
                not_probed.push(format!("{}: {}", run.target, status.message));
            }
            Ok(status) => results.extend(run.results(&status)),
            Err(error) => not_probed.push(format!("{}: {}", run.target, words(&error))),
        }
    }
    not_probed.dedup();
    Ok((results, not_probed))
}

impl ProbeRun {
    fn results(&self, status: &NetworkTestStatus) -> Vec<ProbeResult> {
        let counts = status.counts.unwrap_or_default();
        let listed = u32::try_from(status.worst.len()).unwrap_or(u32::MAX);
        // A pair that is not listed passed, unless some were left out or not tested.
        let expected = u32::try_from(self.sources.len() * self.targets.len()).unwrap_or(u32::MAX);
        let is_complete = counts.tested == counts.pairs
            && counts.pairs >= expected
            && counts.failed.saturating_add(counts.unknown) <= listed;
        let pairs = self.sources.iter().flat_map(|source| self.targets.iter().map(move |target| (source, target)));
        pairs.map(|(source, target)| self.result(source, target, status, is_complete)).collect()
    }

    fn result(
        &self,
        source: &RunSource,
        target: &RunTarget,
        status: &NetworkTestStatus,
        is_complete: bool,
    ) -> ProbeResult {
        let is_it = |pair: &&PairVerdict| {
            let is_target = target.status.as_ref().is_none_or(|status| {
                pair.target == *status
                    || pair.target.strip_prefix(status.as_str()).is_some_and(|rest| rest.starts_with('/'))
            });
            is_target && pair.source == source.status
        };
        let found = status.worst.iter().find(is_it);
        let outcome = match found {
            None if is_complete => Outcome::Passes,
            None => Outcome::Unknown,
            Some(pair) if pair.label == "Unknown" => Outcome::Unknown,
            Some(pair) if self.is_silence_open && pair.failure.contains("no answer") => Outcome::Unknown,
            Some(_) => Outcome::Fails,
        };
        let detail = match found {
            Some(pair) if outcome == Outcome::Unknown && pair.label != "Unknown" => {
                format!("{}; a server of UDP need not answer", pair.failure)
            }
            Some(pair) => pair.failure.clone(),
            None if outcome == Outcome::Unknown => status.message.clone(),
            None => String::new(),
        };
        let verdict = found.filter(|_| outcome == Outcome::Fails && self.target == ProbeTarget::Endpoint);
        ProbeResult {
            target: self.target,
            source: source.source,
            to: target.shown.clone(),
            outcome,
            detail,
            verdict: verdict.map(|pair| format!("{}: {}", pair.label, pair.cause)).unwrap_or_default(),
            next_step: found.map(|pair| pair.fix.clone()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
