//! A Service: its port, its endpoints, and its traffic policies.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};

use super::{Fact, Facts, NAMED, Weight};
use crate::connection::backends::{Backend, backends, has_target_port, port_of, ports_of, shown, target_port};
use crate::connection::objects::{Objects, name_of, why_not_ready};
use crate::ends::ObjectName;
use crate::table::count;

impl Facts {
    pub(super) fn service(&mut self, name: &ObjectName, service: &Service, chosen: Option<&str>, objects: &Objects) {
        let spec = service.spec.clone().unwrap_or_default();
        if spec.type_.as_deref() == Some("ExternalName") {
            let alias = spec.external_name.unwrap_or_default();
            let message = format!("Service {name} is an alias of {alias}: it has no address and no endpoint");
            let next = format!("Test the name itself: kubectl oke-node nettest NODE {alias} --port PORT --external");
            return self.add(Weight::Note, Fact::ExternalName, message, next);
        }
        let Some(port) = port_of(service, chosen) else {
            // A headless Service needs none.
            let label = if chosen.is_some() { Weight::Proven } else { Weight::Note };
            let port = chosen.map_or_else(|| "no port".to_owned(), |chosen| format!("no port {chosen}"));
            let message = format!("Service {name} has {port}; its ports: {}", ports_of(service));
            let next =
                format!("Correct the port, or spec.ports: kubectl -n {} edit service {}", name.namespace, name.name);
            return self.add(label, Fact::NoServicePort, message, next);
        };
        self.port = Some(port.clone());
        if spec.type_.as_deref() == Some("LoadBalancer") && !has_ingress(service) {
            let message =
                format!("the LoadBalancer of Service {name} has no address yet; its cluster address is tested");
            let next = format!("kubectl -n {} describe service {}", name.namespace, name.name);
            self.add(Weight::Note, Fact::NoLoadBalancer, message, next);
        }
        let Some(slices) = &objects.slices else { return };
        let all = backends(slices, port);
        let mut ready: Vec<Backend> = all.iter().filter(|one| one.is_ready).cloned().collect();
        if ready.is_empty() {
            ready = all.iter().filter(|one| one.is_serving).cloned().collect();
        }
        if ready.is_empty() {
            return self.none_ready(name, service, &all, objects);
        }
        self.backends = ready.iter().filter(|one| one.port.is_some()).cloned().collect();
        if self.backends.is_empty() {
            return self.no_target_port(name, port, Weight::Proven);
        }
        let selected = objects.selected.iter().flatten();
        let declared: Vec<bool> = selected.filter_map(|pod| has_target_port(pod, port)).collect();
        if !declared.is_empty() && !declared.contains(&true) {
            self.no_target_port(name, port, Weight::Likely);
        }
        let waiting: BTreeSet<String> = all.iter().filter(|one| !one.is_ready).map(ToString::to_string).collect();
        if !waiting.is_empty() {
            let message = format!("{} not ready: {}", count(waiting.len(), "endpoint"), reasons(&waiting, objects));
            let next = format!("kubectl -n {} describe pods", name.namespace);
            self.add(Weight::Note, Fact::EndpointNotReady, message, next);
        }
        self.local(name, service);
    }

    fn no_target_port(&mut self, name: &ObjectName, port: &ServicePort, label: Weight) {
        let target = target_port(port);
        let message = format!(
            "Service {name} leads port {} to {target}, and no container of its Pods has {}",
            shown(port),
            if label == Weight::Proven { "a port of that name" } else { "declared that port" }
        );
        let next = format!(
            "Correct targetPort of the Service, or the containers' ports: kubectl -n {} get pods -o jsonpath='{{.items[*].spec.containers[*].ports}}'",
            name.namespace
        );
        self.add(label, Fact::NoTargetPort, message, next);
    }

    /// Why a Service has no ready endpoint.
    fn none_ready(&mut self, name: &ObjectName, service: &Service, all: &[Backend], objects: &Objects) {
        let namespace = &name.namespace;
        let selector = service.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
        let words: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let words = words.join(",");
        let selected = objects.selected.as_deref();
        let ready = selected.is_some_and(|pods| pods.iter().any(|pod| why_not_ready(pod).is_none()));
        if selector.is_empty() && all.is_empty() {
            let message = format!("Service {name} has no selector, and no EndpointSlice has an endpoint of it");
            let next = format!(
                "Add spec.selector, or an EndpointSlice in {namespace} with the label kubernetes.io/service-name={}",
                name.name
            );
            return self.add(Weight::Proven, Fact::NoEndpointSlice, message, next);
        }
        if all.is_empty() && selected.is_some_and(<[Pod]>::is_empty) {
            let message = format!("the selector {words} of Service {name} selects no Pod in {namespace}");
            let next = format!("Compare it with the labels: kubectl -n {namespace} get pods --show-labels");
            return self.add(Weight::Proven, Fact::SelectorWithoutPods, message, next);
        }
        // Ready Pods without an endpoint: nothing fills the slices.
        if all.is_empty() && ready {
            let fitting = selected.map_or(0, <[Pod]>::len);
            let message = format!("{} of Service {name}, and no EndpointSlice has one of them", count(fitting, "Pod"));
            let next = "Check that kube-controller-manager runs: it writes EndpointSlices.".to_owned();
            return self.add(Weight::Proven, Fact::NoEndpointSlice, message, next);
        }
        let pods: BTreeSet<String> = match selected {
            Some(pods) if all.is_empty() => pods.iter().map(|pod| name_of(pod).to_string()).collect(),
            _ => all.iter().map(ToString::to_string).collect(),
        };
        let message = format!(
            "Service {name} has no ready endpoint for port {}; {}: {}",
            self.port.as_ref().map(shown).unwrap_or_default(),
            count(pods.len(), "endpoint"),
            reasons(&pods, objects)
        );
        let pod = selected.and_then(|pods| pods.iter().find(|pod| why_not_ready(pod).is_some())).map(name_of);
        let next = pod.map_or_else(
            || format!("kubectl -n {namespace} get endpointslices -l kubernetes.io/service-name={}", name.name),
            |pod| format!("kubectl -n {} describe pod {}", pod.namespace, pod.name),
        );
        self.add(Weight::Proven, Fact::NoReadyEndpoint, message, next);
    }

    /// Finds a traffic policy `Local` that leaves the source's node without an endpoint.
    fn local(&mut self, name: &ObjectName, service: &Service) {
        let Some(spec) = &service.spec else { return };
        let Some(node) = self.node.clone() else { return };
        let nodes: BTreeSet<&str> = self.backends.iter().filter_map(|one| one.node.as_deref()).collect();
        if nodes.contains(node.as_str()) {
            return;
        }
        let on = nodes.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        let more = if nodes.len() > NAMED { format!(" and {} more", nodes.len() - NAMED) } else { String::new() };
        if spec.internal_traffic_policy.as_deref() == Some("Local") {
            let message = format!(
                "internalTrafficPolicy of Service {name} is Local, and no ready endpoint is on {node}; there are some on {on}{more}"
            );
            let next = "Run an endpoint on each node (DaemonSet), or set internalTrafficPolicy to Cluster.".to_owned();
            return self.add(Weight::Proven, Fact::NoLocalEndpoint, message, next);
        }
        let is_outside = matches!(spec.type_.as_deref(), Some("NodePort" | "LoadBalancer"));
        if is_outside && spec.external_traffic_policy.as_deref() == Some("Local") {
            let message = format!(
                "externalTrafficPolicy of Service {name} is Local: {node} has no endpoint and drops what comes from outside for its \
                 NodePort; it is answered by {on}{more}"
            );
            let next = "Send to a node with an endpoint, or set externalTrafficPolicy to Cluster.".to_owned();
            self.add(Weight::Note, Fact::NoLocalEndpoint, message, next);
        }
    }
}

fn has_ingress(service: &Service) -> bool {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    balancer.is_some_and(|balancer| balancer.ingress.iter().flatten().next().is_some())
}

/// The first ones of Pods by name, with why they are not ready.
fn reasons(names: &BTreeSet<String>, objects: &Objects) -> String {
    let reason = |name: &String| {
        let mut pods = objects.selected.iter().flatten();
        match pods.find(|pod| name_of(pod).to_string() == *name).and_then(why_not_ready) {
            Some(why) => format!("{name} ({why})"),
            None => name.clone(),
        }
    };
    let first: Vec<String> = names.iter().take(NAMED).map(reason).collect();
    let more = if names.len() > NAMED { format!(" and {} more", names.len() - NAMED) } else { String::new() };
    format!("{}{more}", first.join(", "))
}
