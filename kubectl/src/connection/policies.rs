//! NetworkPolicies of `networking.k8s.io/v1`: which of them select an end of a connection, and whether one allows it. A policy that
//! cannot be judged, because of a selector or a namespace that cannot be read, counts as one that allows.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::{Selector, SelectorExt as _};

use super::objects::{is_in_host_network, name_of};

/// The label with which every namespace carries its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// One end of a connection, as policies see it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Party<'a> {
    /// A Pod with an own network; otherwise it is known by its addresses only.
    pub pod: Option<&'a Pod>,
    pub addresses: Vec<IpAddr>,
    /// The labels of the Pod's namespace; not known if absent.
    pub namespace_labels: Option<&'a BTreeMap<String, String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Ingress,
    Egress,
}

/// What is connected to: on the target's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    /// TCP, UDP or SCTP.
    pub protocol: String,
    pub number: u16,
}

impl<'a> Party<'a> {
    /// A Pod, with the labels of its namespace.
    pub(crate) fn of_pod(pod: &'a Pod, namespaces: &'a BTreeMap<String, BTreeMap<String, String>>) -> Self {
        let held = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
        Self {
            pod: Some(pod).filter(|pod| !is_in_host_network(pod)),
            addresses: held.filter_map(|held| held.ip.parse().ok()).collect(),
            namespace_labels: namespaces.get(&name_of(pod).namespace),
        }
    }
}

/// The policies that select the subject in this direction.
pub(crate) fn selecting<'p>(
    direction: Direction,
    subject: &Party<'_>,
    policies: &'p [NetworkPolicy],
) -> Vec<&'p NetworkPolicy> {
    let Some(pod) = subject.pod else { return Vec::new() };
    let namespace = &pod.metadata.namespace;
    let selects = |policy: &&NetworkPolicy| {
        let Some(spec) = &policy.spec else { return false };
        let is_egress = match spec.policy_types.as_deref() {
            Some(types) if !types.is_empty() => types.iter().any(|one| one == "Egress"),
            _ => spec.egress.is_some(),
        };
        let is_ingress =
            spec.policy_types.as_ref().is_none_or(|types| types.is_empty() || types.iter().any(|one| one == "Ingress"));
        let is_of = if direction == Direction::Ingress { is_ingress } else { is_egress };
        is_of && policy.metadata.namespace == *namespace && fits(spec.pod_selector.as_ref(), labels(pod)) == Some(true)
    };
    policies.iter().filter(selects).collect()
}

/// The policies that select the subject, if none of them allows the connection; `target` is the end with the port.
pub(crate) fn denying<'p>(
    direction: Direction,
    subject: &Party<'_>,
    peer: &Party<'_>,
    port: &Port,
    policies: &'p [NetworkPolicy],
) -> Vec<&'p NetworkPolicy> {
    let selecting = selecting(direction, subject, policies);
    let target = if direction == Direction::Ingress { subject } else { peer };
    let allows = |policy: &&NetworkPolicy| {
        let Some(spec) = &policy.spec else { return true };
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        let rule = |peers: Option<&Vec<NetworkPolicyPeer>>, ports: Option<&Vec<NetworkPolicyPort>>| {
            let is_peer =
                peers.is_none_or(|peers| peers.is_empty() || peers.iter().any(|one| admits(one, peer, namespace)));
            let is_port =
                ports.is_none_or(|ports| ports.is_empty() || ports.iter().any(|one| covers(one, port, target)));
            is_peer && is_port
        };
        match direction {
            Direction::Ingress => spec.ingress.iter().flatten().any(|one| rule(one.from.as_ref(), one.ports.as_ref())),
            Direction::Egress => spec.egress.iter().flatten().any(|one| rule(one.to.as_ref(), one.ports.as_ref())),
        }
    };
    if selecting.iter().any(allows) { Vec::new() } else { selecting }
}

fn admits(peer: &NetworkPolicyPeer, party: &Party<'_>, namespace: &str) -> bool {
    if let Some(block) = &peer.ip_block {
        return party.addresses.is_empty() || party.addresses.iter().any(|address| is_in(block, *address));
    }
    let Some(pod) = party.pod else { return false };
    let is_of_namespace = match &peer.namespace_selector {
        None => pod.metadata.namespace.as_deref() == Some(namespace),
        Some(selector) => namespace_fits(selector, pod, party.namespace_labels),
    };
    is_of_namespace
        && peer.pod_selector.as_ref().is_none_or(|selector| fits(Some(selector), labels(pod)) != Some(false))
}

fn namespace_fits(selector: &LabelSelector, pod: &Pod, known: Option<&BTreeMap<String, String>>) -> bool {
    let Some(known) = known else { return true };
    let mut all = known.clone();
    all.insert(NAMESPACE_NAME.to_owned(), pod.metadata.namespace.clone().unwrap_or_default());
    fits(Some(selector), &all) != Some(false)
}

/// A block that cannot be read admits.
fn is_in(block: &IPBlock, address: IpAddr) -> bool {
    let contains = |network: &str| network.parse::<IpNetwork>().map(|network| network.contains(address));
    let is_excepted = block.except.iter().flatten().any(|network| contains(network) == Ok(true));
    contains(&block.cidr).unwrap_or(true) && !is_excepted
}

fn covers(rule: &NetworkPolicyPort, port: &Port, target: &Party<'_>) -> bool {
    if rule.protocol.as_deref().unwrap_or("TCP") != port.protocol {
        return false;
    }
    let number = i32::from(port.number);
    match (&rule.port, rule.end_port) {
        (None, _) => true,
        (Some(IntOrString::Int(first)), Some(last)) => (*first..=last).contains(&number),
        (Some(IntOrString::Int(only)), None) => *only == number,
        (Some(IntOrString::String(name)), _) => match target.pod {
            Some(pod) => number_of(pod, name, &port.protocol) == Some(port.number),
            None => true,
        },
    }
}

/// The number of a container's port by its name.
pub(crate) fn number_of(pod: &Pod, name: &str, protocol: &str) -> Option<u16> {
    let spec = pod.spec.as_ref()?;
    // Init containers that go on running (sidecars) have ports, too.
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let is_it = |port: &&k8s_openapi::api::core::v1::ContainerPort| {
        port.name.as_deref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol
    };
    ports.find(is_it).and_then(|port| port.container_port.try_into().ok())
}

fn labels(pod: &Pod) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    pod.metadata.labels.as_ref().unwrap_or(&NONE)
}

/// Whether labels fit a selector; `None` if it is not valid. An absent or empty one selects all.
fn fits(selector: Option<&LabelSelector>, labels: &BTreeMap<String, String>) -> Option<bool> {
    let selector = Selector::try_from(selector.cloned().unwrap_or_default()).ok()?;
    Some(selector.matches(labels))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(namespace: &str, app: &str, address: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": { "name": app, "namespace": namespace, "labels": { "app": app } },
            "spec": { "containers": [{ "name": "c", "ports": [{ "name": "web", "containerPort": 8080 }] }] },
            "status": { "podIPs": [{ "ip": address }] },
        }))
        .unwrap()
    }

    /// The names of the policies that deny front → cart on TCP/8080.
    fn denied(direction: Direction, specs: &[Value]) -> usize {
        let (front, cart) = (pod("web", "front", "10.0.1.5"), pod("shop", "cart", "10.0.2.7"));
        let namespaces = BTreeMap::from([("web".to_owned(), BTreeMap::from([("team".to_owned(), "a".to_owned())]))]);
        let (from, to) = (Party::of_pod(&front, &namespaces), Party::of_pod(&cart, &namespaces));
        let (subject, peer, of) = match direction {
            Direction::Ingress => (&to, &from, "shop"),
            Direction::Egress => (&from, &to, "web"),
        };
        let policy = |spec: &Value| json!({ "metadata": { "name": "p", "namespace": of }, "spec": spec });
        let policies: Vec<NetworkPolicy> =
            specs.iter().map(|spec| serde_json::from_value(policy(spec)).unwrap()).collect();
        let port = Port { protocol: "TCP".to_owned(), number: 8080 };
        denying(direction, subject, peer, &port, &policies).len()
    }

    #[test]
    fn policies_that_select_and_allow_nothing_deny() {
        use Direction::{Egress, Ingress};
        let all = json!({});
        let from = |peer: &Value| json!({ "podSelector": {}, "ingress": [{ "from": [peer] }] });
        let to = |rule: Value| json!({ "podSelector": {}, "policyTypes": ["Egress"], "egress": [rule] });
        let port = |port: Value| json!({ "podSelector": {}, "ingress": [{ "ports": [port] }] });
        let web = |labels: Value| json!({ "namespaceSelector": { "matchLabels": labels } });
        for (direction, specs, expected) in [
            (Ingress, vec![], 0),
            (Ingress, vec![json!({ "podSelector": all })], 1),
            (Ingress, vec![json!({ "podSelector": all, "ingress": [{}] })], 0),
            // Rules add up.
            (Ingress, vec![json!({ "podSelector": all }), json!({ "podSelector": all, "ingress": [{}] })], 0),
            (Ingress, vec![json!({ "podSelector": all }), json!({ "podSelector": all })], 2),
            (Ingress, vec![json!({ "podSelector": { "matchLabels": { "app": "other" } } })], 0),
            // Without a namespaceSelector, the Pods of the policy's own namespace.
            (Ingress, vec![from(&json!({ "podSelector": {} }))], 1),
            (Ingress, vec![from(&web(json!({ "team": "a" })))], 0),
            (Ingress, vec![from(&web(json!({ "kubernetes.io/metadata.name": "web" })))], 0),
            (Ingress, vec![from(&web(json!({ "team": "b" })))], 1),
            (
                Ingress,
                vec![from(&json!({ "namespaceSelector": {}, "podSelector": { "matchLabels": { "app": "x" } } }))],
                1,
            ),
            (Ingress, vec![from(&json!({ "ipBlock": { "cidr": "10.0.0.0/8" } }))], 0),
            (Ingress, vec![from(&json!({ "ipBlock": { "cidr": "10.0.0.0/8", "except": ["10.0.1.0/24"] } }))], 1),
            (Ingress, vec![port(json!({ "port": 8080 }))], 0),
            (Ingress, vec![port(json!({ "port": "web" }))], 0),
            (Ingress, vec![port(json!({ "port": "other" }))], 1),
            (Ingress, vec![port(json!({ "port": 8000, "endPort": 8100 }))], 0),
            (Ingress, vec![port(json!({ "port": 8080, "protocol": "UDP" }))], 1),
            (Ingress, vec![json!({ "podSelector": all, "policyTypes": ["Egress"] })], 0),
            (Egress, vec![json!({ "podSelector": all })], 0),
            (Egress, vec![json!({ "podSelector": all, "policyTypes": ["Egress"] })], 1),
            (Egress, vec![to(json!({ "to": [{ "namespaceSelector": {} }], "ports": [{ "port": "web" }] }))], 0),
            (Egress, vec![to(json!({ "ports": [{ "port": 53, "protocol": "UDP" }] }))], 1),
            // An invalid selector selects nothing that is known.
            (Ingress, vec![json!({ "podSelector": { "matchExpressions": [{ "key": "a", "operator": "Near" }] } })], 0),
        ] {
            assert_eq!(denied(direction, &specs), expected, "{direction:?} {specs:?}");
        }
    }

    #[test]
    fn policies_select_no_pod_of_the_host_network() {
        let mut cart = pod("shop", "cart", "10.0.2.7");
        cart.spec.as_mut().unwrap().host_network = Some(true);
        let policy = json!({ "metadata": { "name": "p", "namespace": "shop" }, "spec": { "podSelector": {} } });
        let policies = [serde_json::from_value(policy).unwrap()];
        let namespaces = BTreeMap::new();
        assert!(selecting(Direction::Ingress, &Party::of_pod(&cart, &namespaces), &policies).is_empty());
    }
}
