//! What NetworkPolicies deny, and which of them select an end.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::{Fact, Facts, NAMED, Weight};
use crate::connection::backends::{Backend, protocol_of};
use crate::connection::objects::{Objects, name_of, node_of};
use crate::connection::policies::{Direction, Party, Port, denying, selecting};
use crate::ends::{ObjectName, Target};

/// The port of the cluster's DNS.
const DNS_PORT: u16 = 53;

impl Facts {
    /// What policies deny; which ones select an end.
    pub(super) fn policies(&mut self, to: &Target, port: Option<&Port>, objects: &Objects) {
        let source = match &objects.source {
            Some(pod) => Party::of_pod(pod, &objects.namespaces),
            None => Party { addresses: node_addresses(objects), ..Party::default() },
        };
        let targets = self.targets(to, port, objects);
        let mut selecting_any = BTreeSet::new();
        let mut denied: Vec<(BTreeSet<String>, String)> = Vec::new();
        for target in &targets {
            // A node always reaches its own Pods.
            let is_of_node = source.pod.is_none() && target.node.is_some() && target.node == self.node;
            let of = |direction, subject: &Party<'_>, peer: &Party<'_>| {
                let selected = selecting(direction, subject, &objects.policies);
                let denying = match &target.port {
                    Some(port) => denying(direction, subject, peer, port, &objects.policies),
                    None => Vec::new(),
                };
                [selected, denying].map(|policies| policies.into_iter().map(policy_name).collect::<BTreeSet<_>>())
            };
            let [egress, egress_denies] = of(Direction::Egress, &source, &target.party);
            let [ingress, ingress_denies] = of(Direction::Ingress, &target.party, &source);
            selecting_any.extend(egress.into_iter().chain(ingress));
            let denies: BTreeSet<String> =
                egress_denies.into_iter().chain(ingress_denies.into_iter().filter(|_| !is_of_node)).collect();
            if !denies.is_empty() {
                denied.push((denies, target.name.clone()));
            }
        }
        self.policies = selecting_any.into_iter().collect();
        self.denied(&denied, targets.len());
        if matches!(to, Target::Service { .. }) {
            self.dns(&source, objects);
        }
    }

    fn denied(&mut self, denied: &[(BTreeSet<String>, String)], targets: usize) {
        if denied.is_empty() {
            return;
        }
        let policies: BTreeSet<&str> =
            denied.iter().flat_map(|(denies, _)| denies.iter().map(String::as_str)).collect();
        let policies = policies.into_iter().collect::<Vec<_>>().join(", ");
        let which = match (denied, targets) {
            ([(_, only)], 1) => format!("to {only}"),
            _ if denied.len() == targets => "to all endpoints".to_owned(),
            _ => {
                let named: Vec<&str> = denied.iter().take(NAMED).map(|(_, name)| name.as_str()).collect();
                format!("to {} of {targets} endpoints: {}", denied.len(), named.join(", "))
            }
        };
        let message =
            format!("denies: NetworkPolicy {policies} ({which}): it selects an end, and none allows this traffic");
        let next = "Allow the traffic in one of them, if the cluster's network enforces NetworkPolicies.".to_owned();
        self.add(Weight::Likely, Fact::NetworkPolicy, message, next);
    }

    /// Whether the source may query the cluster's DNS.
    fn dns(&mut self, source: &Party<'_>, objects: &Objects) {
        let port = Port { protocol: "UDP".to_owned(), number: DNS_PORT };
        let of = |pod: &Pod| {
            let server = Party::of_pod(pod, &objects.namespaces);
            let denies = denying(Direction::Egress, source, &server, &port, &objects.policies);
            denies.into_iter().map(policy_name).collect::<BTreeSet<_>>()
        };
        let denied: Vec<BTreeSet<String>> = objects.dns_pods.iter().map(of).collect();
        if denied.is_empty() || denied.iter().any(BTreeSet::is_empty) {
            return;
        }
        let policies: BTreeSet<String> = denied.into_iter().flatten().collect();
        let policies = policies.into_iter().collect::<Vec<_>>().join(", ");
        let message = format!(
            "denies DNS: NetworkPolicy {policies}: it selects the source, and none allows UDP/53 to the cluster's DNS"
        );
        let next = "Allow egress to the Pods of kube-dns on UDP and TCP port 53.".to_owned();
        self.add(Weight::Likely, Fact::DnsPolicy, message, next);
    }

    fn targets<'o>(&self, to: &Target, port: Option<&Port>, objects: &'o Objects) -> Vec<PolicyTarget<'o>> {
        let of_pod = |pod: &'o Pod, port: Option<Port>| PolicyTarget {
            name: name_of(pod).to_string(),
            node: node_of(pod).map(str::to_owned),
            party: Party::of_pod(pod, &objects.namespaces),
            port,
        };
        match (to, &self.port) {
            (Target::Pod(_), _) => objects.target.iter().map(|pod| of_pod(pod, port.cloned())).collect(),
            (Target::Service { .. }, Some(service_port)) => {
                let protocol = protocol_of(service_port).to_owned();
                let port = |backend: &Backend| Some(Port { protocol: protocol.clone(), number: backend.port? });
                let pod = |name: &ObjectName| objects.selected.iter().flatten().find(|pod| name_of(pod) == *name);
                let of = |backend: &Backend| match backend.pod.as_ref().and_then(pod) {
                    Some(pod) => of_pod(pod, port(backend)),
                    None => PolicyTarget {
                        name: backend.to_string(),
                        node: backend.node.clone(),
                        party: Party { addresses: vec![backend.address], ..Party::default() },
                        port: port(backend),
                    },
                };
                let mut seen = BTreeSet::new();
                self.backends.iter().filter(|one| seen.insert(one.to_string())).map(of).collect()
            }
            (Target::Other(text), _) => {
                let address = text.rsplit('/').next().and_then(|address| address.parse::<IpAddr>().ok());
                let party = Party { addresses: address.into_iter().collect(), ..Party::default() };
                vec![PolicyTarget { name: text.clone(), node: None, party, port: port.cloned() }]
            }
            (Target::Service { .. }, None) => Vec::new(),
        }
    }
}

/// An end that policies are judged for.
struct PolicyTarget<'o> {
    name: String,
    node: Option<String>,
    party: Party<'o>,
    port: Option<Port>,
}

fn node_addresses(objects: &Objects) -> Vec<IpAddr> {
    let status = objects.node.as_ref().and_then(|node| node.status.as_ref());
    let held = status.iter().flat_map(|status| status.addresses.iter().flatten());
    held.filter(|held| held.type_ == "InternalIP").filter_map(|held| held.address.parse().ok()).collect()
}

fn policy_name(policy: &NetworkPolicy) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", text(&policy.metadata.namespace), text(&policy.metadata.name))
}
