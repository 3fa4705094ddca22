//! The answer from facts and probes together. Pure.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use vcn::words;

use super::facts::{Fact, Facts, Weight};

/// What a probe is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ProbeTarget {
    /// The Service's address: kube-proxy's path.
    Service,
    /// An endpoint, or the target itself.
    Endpoint,
    /// A NodePort of another node.
    NodePort,
    /// The address of a LoadBalancer.
    LoadBalancer,
    /// The Service's name, at the cluster's DNS.
    Dns,
}

words!(ProbeTarget: Service = "service", Endpoint = "endpoint", NodePort = "node port", LoadBalancer = "load balancer", Dns = "name");

/// Where a probe starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ProbeSource {
    Node,
    /// A probe Pod on the node.
    Pod,
}

/// The outcome of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Outcome {
    Passes,
    Fails,
    Unknown,
}

words!(Outcome: Passes = "passes", Fails = "fails", Unknown = "not known");

/// One probe and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ProbeResult {
    pub target: ProbeTarget,
    pub source: ProbeSource,
    /// The target, for people.
    pub to: String,
    pub outcome: Outcome,
    /// The failure, or why nothing is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// The controller's verdict on the failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub verdict: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub next_step: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Label {
    Reachable,
    Proven,
    Likely,
    OneOf,
    Undecided,
}

words!(Label: Reachable, Proven, Likely, OneOf, Undecided);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Conclusion {
    pub label: Label,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cause: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next_step: String,
}

impl Conclusion {
    fn of(label: Label, cause: &str, message: String, next_step: String) -> Self {
        Self { label, cause: cause.to_owned(), message, next_step }
    }

    fn undecided(message: impl Into<String>) -> Self {
        Self::of(Label::Undecided, "", message.into(), String::new())
    }
}

/// The results of one kind of probe from one place.
struct Group<'r>(Vec<&'r ProbeResult>);

impl<'r> Group<'r> {
    fn of(results: &'r [ProbeResult], target: ProbeTarget, source: ProbeSource) -> Self {
        Self(results.iter().filter(|one| one.target == target && one.source == source).collect())
    }

    fn failed(&self) -> Vec<&'r ProbeResult> {
        self.0.iter().copied().filter(|one| one.outcome == Outcome::Fails).collect()
    }

    fn all(&self, outcome: Outcome) -> bool {
        !self.0.is_empty() && self.0.iter().all(|one| one.outcome == outcome)
    }

    fn any(&self, outcome: Outcome) -> bool {
        self.0.iter().any(|one| one.outcome == outcome)
    }
}

/// The answer. The findings that probes refute are removed from the facts.
pub(crate) fn conclude(facts: &mut Facts, results: &[ProbeResult]) -> Conclusion {
    let of_node = Group::of(results, ProbeTarget::Endpoint, ProbeSource::Node);
    if of_node.any(Outcome::Passes) {
        // A port works without being declared.
        facts.findings.retain(|one| one.cause != Fact::NoTargetPort || one.label != Weight::Likely);
    }
    let finding = |label| facts.findings.iter().find(move |one| one.label == label);
    if let Some(proven) = finding(Weight::Proven) {
        return Conclusion::of(Label::Proven, proven.cause.as_str(), String::new(), String::new());
    }
    if facts.findings.iter().any(|one| one.cause == Fact::ExternalName) {
        return Conclusion::of(Label::Undecided, Fact::ExternalName.as_str(), String::new(), String::new());
    }
    let probed = of_probes(facts, results);
    match finding(Weight::Likely) {
        // A cause that probes show precedes one that they cannot see.
        Some(likely) if !matches!(probed.label, Label::Proven | Label::Likely) => {
            Conclusion::of(Label::Likely, likely.cause.as_str(), String::new(), String::new())
        }
        _ => probed,
    }
}

fn of_probes(facts: &Facts, results: &[ProbeResult]) -> Conclusion {
    if results.is_empty() {
        return Conclusion::undecided("no probe was sent");
    }
    let node = seen_from(facts, results, ProbeSource::Node);
    if let Some(found) = node.filter(|found| found.label != Label::Undecided || facts.policies.is_empty()) {
        return found;
    }
    if let Some(found) = seen_from(facts, results, ProbeSource::Pod) {
        return found;
    }
    if let Some(found) = seen_from(facts, results, ProbeSource::Node) {
        return found;
    }
    for source in [ProbeSource::Pod, ProbeSource::Node] {
        let name = Group::of(results, ProbeTarget::Dns, source);
        if let Some(failed) = name.failed().first() {
            return with_policies(facts, source, failed, || {
                Conclusion::of(
                    Label::Likely,
                    "Dns",
                    format!("the addresses answer, and the cluster's DNS does not: {}", failed.detail),
                    "kubectl -n kube-system get pods -l k8s-app=kube-dns -o wide; kubectl -n kube-system logs -l k8s-app=kube-dns"
                        .to_owned(),
                )
            });
        }
    }
    let unknown: Vec<&ProbeResult> = results.iter().filter(|one| one.outcome == Outcome::Unknown).collect();
    let has_passed = results.iter().any(|one| one.target != ProbeTarget::Dns && one.outcome == Outcome::Passes);
    match unknown.first() {
        Some(first) if !has_passed => Conclusion::undecided(format!("{} {}: {}", first.target, first.to, first.detail)),
        _ => Conclusion::of(Label::Reachable, "", String::new(), String::new()),
    }
}

/// The cause that probes from one place show; none if all probes from there pass, or are not known.
fn seen_from(facts: &Facts, results: &[ProbeResult], source: ProbeSource) -> Option<Conclusion> {
    let [service, endpoints] =
        [ProbeTarget::Service, ProbeTarget::Endpoint].map(|target| Group::of(results, target, source));
    let place = if source == ProbeSource::Node { "the node" } else { "pods of the node" };
    let failed = endpoints.failed();
    match (service.failed().first().copied(), failed.first().copied()) {
        (Some(first), None) if endpoints.all(Outcome::Passes) => Some(kube_proxy(facts, place, first)),
        (Some(first), None) => {
            let message = format!(
                "the Service's address fails from {place} ({}); not every endpoint could be probed",
                first.detail
            );
            Some(Conclusion::of(Label::OneOf, "KubeProxy or Endpoint", message, proxy_step(facts)))
        }
        (Some(first), Some(endpoint)) if !endpoints.all(Outcome::Fails) && !is_part(&first.detail) => {
            let message = format!(
                "the Service's address fails from {place} ({}); some endpoints answer directly, others do not",
                first.detail
            );
            Some(Conclusion::of(Label::OneOf, "KubeProxy or Endpoint", message, endpoint.next_step.clone()))
        }
        (_, Some(endpoint)) => Some(with_policies(facts, source, endpoint, || of_endpoints(facts, results, source))),
        (None, None) => from_outside(facts, results, source),
    }
}

/// Whether some of the probes were answered, for example because an address leads to several endpoints.
fn is_part(detail: &str) -> bool {
    let mut words = detail.split(' ');
    let [lost, _, sent] = [words.next(), words.next(), words.next()];
    lost.and_then(|lost| lost.parse::<u32>().ok()) < sent.and_then(|sent| sent.parse().ok())
}

/// Endpoints that do not answer from one place.
fn of_endpoints(facts: &Facts, results: &[ProbeResult], source: ProbeSource) -> Conclusion {
    let group = |target, source| Group::of(results, target, source);
    let failed = group(ProbeTarget::Endpoint, source).failed();
    let names: BTreeSet<&str> = failed.iter().map(|one| one.to.as_str()).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    let verb = if failed.len() == 1 { "does" } else { "do" };
    let of_node = group(ProbeTarget::Endpoint, ProbeSource::Node);
    let first = failed.first().copied().cloned();
    let detail = first.as_ref().map(|first| first.detail.clone()).unwrap_or_default();
    if source == ProbeSource::Pod && of_node.all(Outcome::Passes) {
        let message = format!("the node reaches {names}, and its pods do not: {detail}");
        let next = format!("kubectl oke-node node {}", facts.node.as_deref().unwrap_or("NODE"));
        Conclusion::of(Label::Likely, "PodNetwork", message, next)
    } else {
        let place = if source == ProbeSource::Node { "the node" } else { "pods of the node" };
        let verdict = first.as_ref().map(|first| first.verdict.as_str()).filter(|verdict| !verdict.is_empty());
        let verdict = verdict.map(|verdict| format!(" ({verdict})")).unwrap_or_default();
        let through = match group(ProbeTarget::Service, source).any(Outcome::Passes) {
            true => "; the Service answers through other endpoints",
            false => "",
        };
        let message = format!("from {place}, {names} {verb} not answer directly: {detail}{verdict}{through}");
        Conclusion::of(Label::Likely, "Endpoint", message, first.map(|first| first.next_step).unwrap_or_default())
    }
}

/// A Service that answers inside the cluster only.
fn from_outside(facts: &Facts, results: &[ProbeResult], source: ProbeSource) -> Option<Conclusion> {
    let [node_ports, balancers] =
        [ProbeTarget::NodePort, ProbeTarget::LoadBalancer].map(|target| Group::of(results, target, source));
    let first = node_ports.failed().into_iter().chain(balancers.failed()).next()?;
    let (cause, next) = match first.target {
        ProbeTarget::NodePort => (
            "NodePort",
            "Allow the NodePort in security lists, groups and the node's firewall; look at externalTrafficPolicy.",
        ),
        _ => (
            "LoadBalancer",
            "Check the load balancer's backends and listener in OCI, and the security rules of its subnet.",
        ),
    };
    let message = format!(
        "the Service answers inside the cluster, and its {} at {} does not: {}",
        first.target, first.to, first.detail
    );
    Some(with_policies(facts, source, first, || Conclusion::of(Label::Likely, cause, message, next.to_owned())))
}

/// A failure that a policy explains as well: the probe's labels are not those of the Pod.
fn with_policies(
    facts: &Facts,
    source: ProbeSource,
    failed: &ProbeResult,
    otherwise: impl FnOnce() -> Conclusion,
) -> Conclusion {
    if facts.policies.is_empty() {
        return otherwise();
    }
    let what = if source == ProbeSource::Pod { "a probe Pod has other labels" } else { "the node is not a Pod" };
    let message = format!(
        "{} {} fails ({}), and NetworkPolicy {} selects an end: {what}, so the policy can be the cause of this failure alone",
        failed.target,
        failed.to,
        failed.detail,
        facts.policies.join(", ")
    );
    Conclusion::of(Label::Undecided, Fact::NetworkPolicy.as_str(), message, failed.next_step.clone())
}

fn kube_proxy(facts: &Facts, place: &str, failed: &ProbeResult) -> Conclusion {
    let message = format!(
        "from {place}, every probed endpoint answers directly, and the Service's address {} does not: {}",
        failed.to, failed.detail
    );
    Conclusion::of(Label::Likely, "KubeProxy", message, proxy_step(facts))
}

fn proxy_step(facts: &Facts) -> String {
    let node = facts.node.as_deref().unwrap_or("NODE");
    format!(
        "Check kube-proxy, or what replaces it, on {node}: kubectl -n kube-system get pods -o wide --field-selector spec.nodeName={node}; \
         its log; `iptables-save` or `nft list table ip kube-proxy` there"
    )
}
