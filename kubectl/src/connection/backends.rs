//! What a Service leads to: its port, and its endpoints with the port that they have. Pure.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::ends::ObjectName;

/// The most endpoints that are read.
pub(crate) const ENDPOINTS_MAX: usize = 1_000;

/// An endpoint of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Backend {
    pub pod: Option<ObjectName>,
    pub address: IpAddr,
    pub node: Option<String>,
    pub is_ready: bool,
    /// Whether it is ending and still serves: kube-proxy uses it where none is ready.
    pub is_serving: bool,
    /// The port there; none if the slice has no port of that name.
    pub port: Option<u16>,
}

/// The chosen port of a Service; the first one if none is named.
pub(crate) fn port_of<'s>(service: &'s Service, chosen: Option<&str>) -> Option<&'s ServicePort> {
    let mut ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let Some(chosen) = chosen else { return ports.next() };
    ports.find(|port| port.name.as_deref() == Some(chosen) || port.port.to_string() == chosen)
}

/// All ports, for people: `http 80/TCP, 81/TCP`.
pub(crate) fn ports_of(service: &Service) -> String {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let words: Vec<String> = ports.map(shown).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// A port, for people.
pub(crate) fn shown(port: &ServicePort) -> String {
    let name = port.name.as_ref().map(|name| format!("{name} ")).unwrap_or_default();
    format!("{name}{}/{}", port.port, protocol_of(port))
}

pub(crate) fn protocol_of(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

/// The endpoints in the slices, with the port that they have for a port of the Service.
pub(crate) fn backends(slices: &[EndpointSlice], port: &ServicePort) -> Vec<Backend> {
    let of_slice = |slice: &EndpointSlice| {
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let ports = slice.ports.iter().flatten();
        let mut fitting = ports.filter(|one| {
            name(&one.name) == name(&port.name) && one.protocol.as_deref().unwrap_or("TCP") == protocol_of(port)
        });
        let number = fitting.next().and_then(|one| one.port?.try_into().ok());
        slice.endpoints.iter().filter_map(|endpoint| backend(endpoint, number)).collect::<Vec<_>>()
    };
    let mut found: Vec<Backend> = slices.iter().flat_map(of_slice).take(ENDPOINTS_MAX).collect();
    // A slice whose port is missing repeats no endpoint of another slice that has it.
    found.sort_by(|a, b| (&a.pod, a.address, a.port.is_none()).cmp(&(&b.pod, b.address, b.port.is_none())));
    found.dedup_by(|a, b| (&a.pod, a.address) == (&b.pod, b.address));
    found
}

fn backend(endpoint: &Endpoint, port: Option<u16>) -> Option<Backend> {
    let reference = endpoint.target_ref.clone().filter(|target| target.kind.as_deref() == Some("Pod"));
    let pod = reference.and_then(|target| Some(ObjectName { namespace: target.namespace?, name: target.name? }));
    let address = endpoint.addresses.first()?.parse().ok()?;
    // Absent is ready.
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    let is_ready = conditions.ready != Some(false);
    let is_serving = conditions.serving != Some(false) && conditions.terminating == Some(true);
    Some(Backend { pod, address, node: endpoint.node_name.clone(), is_ready, is_serving, port })
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.pod {
            Some(pod) => pod.fmt(f),
            None => self.address.fmt(f),
        }
    }
}

/// Whether a container of the Pod has the target port of a Service's port. `None` if no container declares any port: then nothing
/// is known, because a port works without being declared.
pub(crate) fn has_target_port(pod: &Pod, port: &ServicePort) -> Option<bool> {
    let spec = pod.spec.as_ref()?;
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let declared: Vec<_> = containers.flat_map(|container| container.ports.iter().flatten()).collect();
    let of_protocol = declared.iter().filter(|one| one.protocol.as_deref().unwrap_or("TCP") == protocol_of(port));
    let number = match &port.target_port {
        Some(IntOrString::String(name)) => {
            return Some(of_protocol.into_iter().any(|one| one.name.as_ref() == Some(name)));
        }
        Some(IntOrString::Int(number)) if *number != 0 => *number,
        _ => port.port,
    };
    let mut of_protocol = of_protocol;
    if declared.is_empty() { None } else { Some(of_protocol.any(|one| one.container_port == number)) }
}

/// The target port, for people.
pub(crate) fn target_port(port: &ServicePort) -> String {
    match &port.target_port {
        Some(IntOrString::String(name)) => name.clone(),
        Some(IntOrString::Int(number)) if *number != 0 => number.to_string(),
        _ => port.port.to_string(),
    }
}
