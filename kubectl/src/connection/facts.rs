//! Findings of the objects alone, without a packet. Pure.

mod denials;
mod services;

use k8s_openapi::api::core::v1::{Pod, ServicePort};
use serde::Serialize;
use vcn::words;

use super::backends::Backend;
use super::objects::{Objects, is_in_host_network, node_of, why_not_ready};
use super::policies::Port;
use crate::ends::{ObjectName, Source, Target};

/// The largest number of objects that a message names.
const NAMED: usize = 3;

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Weight {
    /// It keeps the connection from working: no probe is needed.
    Proven,
    /// It keeps the connection from working if it applies; probes may show that it does not.
    Likely,
    /// No cause by itself.
    Note,
}

words!(Weight: Proven, Likely, Note);

/// A finding of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Fact {
    /// There is no such Service.
    NoService,
    /// There is no such Pod, as source or target.
    NoPod,
    /// The Pod does not run, or has no address.
    PodNotRunning,
    /// The Service has no such port.
    NoServicePort,
    /// The Service is an alias of a name.
    ExternalName,
    /// The Service has neither a selector nor an EndpointSlice, or no controller fills one.
    NoEndpointSlice,
    /// The selector selects no Pod.
    SelectorWithoutPods,
    /// There are endpoints, and none is ready.
    NoReadyEndpoint,
    /// Some endpoints are not ready.
    EndpointNotReady,
    /// No container has the port that the Service leads to.
    NoTargetPort,
    /// A traffic policy `Local`, and no ready endpoint on the node.
    NoLocalEndpoint,
    /// The LoadBalancer has no address yet.
    NoLoadBalancer,
    /// A NetworkPolicy selects source or target, and none allows the connection.
    NetworkPolicy,
    /// The same for the source's questions to the cluster's DNS.
    DnsPolicy,
    /// A kind of policy that is not judged.
    OtherPolicy,
    /// Something that could not be read.
    Unread,
}

words!(
    Fact: NoService, NoPod, PodNotRunning, NoServicePort, ExternalName, NoEndpointSlice, SelectorWithoutPods, NoReadyEndpoint,
    EndpointNotReady, NoTargetPort, NoLocalEndpoint, NoLoadBalancer, NetworkPolicy, DnsPolicy, OtherPolicy, Unread,
);

impl Fact {
    /// What it means, and how sure it is, for documents.
    #[cfg(test)]
    pub(crate) const fn meaning(self) -> (&'static str, &'static str) {
        match self {
            Self::NoService => ("Proven", "there is no such Service"),
            Self::NoPod => ("Proven", "there is no such Pod, as source or target"),
            Self::PodNotRunning => ("Proven", "the Pod does not run, or has no address; with the reason of its status"),
            Self::NoServicePort => ("Proven", "the Service has no such port; its ports are listed"),
            Self::ExternalName => ("Note", "the Service is an alias of a name, which has no endpoint: test the name"),
            Self::NoEndpointSlice => {
                ("Proven", "no EndpointSlice has an endpoint: no selector, or nothing writes the slices")
            }
            Self::SelectorWithoutPods => ("Proven", "the selector selects no Pod"),
            Self::NoReadyEndpoint => {
                ("Proven", "there are endpoints or Pods, and none is ready; with the reason of each")
            }
            Self::EndpointNotReady => ("Note", "some endpoints are not ready"),
            Self::NoTargetPort => {
                ("Proven, Likely", "no container has the named targetPort (Proven), or declares the number (Likely)")
            }
            Self::NoLocalEndpoint => (
                "Proven, Note",
                "a traffic policy is Local and no ready endpoint is on the source's node: internal (Proven), external (Note)",
            ),
            Self::NoLoadBalancer => ("Note", "the LoadBalancer has no address yet"),
            Self::NetworkPolicy => {
                ("Likely", "`denies: NetworkPolicy ns/name`: policies select an end, and none allows the traffic")
            }
            Self::DnsPolicy => ("Likely", "the same for the source's questions to the cluster's DNS"),
            Self::OtherPolicy => ("Note", "a kind of policy of another program that has objects; it is not judged"),
            Self::Unread => ("Note", "something that could not be read, and why"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    pub label: Weight,
    pub cause: Fact,
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub next_step: String,
}

/// What is known before the first probe.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The surest first, each once.
    pub findings: Vec<Finding>,
    pub node: Option<String>,
    /// The Service's chosen port.
    pub port: Option<ServicePort>,
    /// Its ready endpoints that have the port.
    pub backends: Vec<Backend>,
    /// The policies that select source or target: a probe Pod has other labels.
    pub policies: Vec<String>,
}

impl Facts {
    /// Whether the cause is proven, so that no probe is needed.
    pub(crate) fn are_enough(&self) -> bool {
        self.findings.iter().any(|finding| finding.label == Weight::Proven || finding.cause == Fact::ExternalName)
    }

    fn add(&mut self, label: Weight, cause: Fact, message: String, next_step: String) {
        self.findings.push(Finding { label, cause, message, next_step });
    }
}

/// What the objects show about a connection; `port` is that of a target without a Service.
pub(crate) fn facts(from: &Source, to: &Target, port: Option<&Port>, objects: &Objects) -> Facts {
    let mut found = Facts::default();
    found.source(from, objects);
    match to {
        Target::Service { name, port } => match &objects.service {
            Some(service) => found.service(name, service, port.as_deref(), objects),
            None => {
                let next = format!("Correct the name: kubectl -n {} get services", name.namespace);
                found.add(Weight::Proven, Fact::NoService, format!("there is no Service {name}"), next);
            }
        },
        Target::Pod(name) => found.pod(name, objects.target.as_ref(), "target"),
        Target::Other(_) => {}
    }
    if !found.are_enough() {
        found.policies(to, port, objects);
    }
    for other in &objects.other_policies {
        let has = other.has_objects.map_or("it is not known whether any exists", |_| "some exist");
        found.add(Weight::Note, Fact::OtherPolicy, format!("{}: {has}; not judged here", other.kind), String::new());
    }
    for unread in &objects.unread {
        found.add(Weight::Note, Fact::Unread, unread.clone(), String::new());
    }
    found.findings.sort();
    found.findings.dedup();
    found
}

impl Facts {
    fn source(&mut self, from: &Source, objects: &Objects) {
        match from {
            Source::Node(node) => self.node = Some(node.split('/').next().unwrap_or_default().to_owned()),
            Source::Pod(name) => {
                self.pod(name, objects.source.as_ref(), "source");
                self.node = objects.source.as_ref().and_then(node_of).map(str::to_owned);
            }
        }
    }

    /// A Pod that is an end by its name.
    fn pod(&mut self, name: &ObjectName, pod: Option<&Pod>, end: &str) {
        let Some(pod) = pod else {
            let next = format!("Correct the name: kubectl -n {} get pods", name.namespace);
            return self.add(Weight::Proven, Fact::NoPod, format!("there is no Pod {name}, the {end}"), next);
        };
        let status = pod.status.as_ref();
        let is_running = status.and_then(|status| status.phase.as_deref()) == Some("Running");
        let has_address = status.is_some_and(|status| status.pod_ips.iter().flatten().next().is_some());
        if !is_running || !has_address {
            let why = why_not_ready(pod).unwrap_or_else(|| "it has no address".to_owned());
            let next = format!("kubectl -n {} describe pod {}", name.namespace, name.name);
            self.add(Weight::Proven, Fact::PodNotRunning, format!("Pod {name}, the {end}, does not run: {why}"), next);
        }
    }
}

/// Whether the source's own labels matter: it is a Pod with a network of its own.
pub(crate) fn is_pod_network(objects: &Objects) -> bool {
    objects.source.as_ref().is_some_and(|pod| !is_in_host_network(pod))
}
