//! `NetworkTest`: probes between nodes, and from nodes to services, on demand or on a schedule. Cluster operators write the
//! spec, the controller runs the probes through the agents and writes the status.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

mod status;

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::probe::ProbeKind;
use crate::schema;

pub use status::{MOST_WORST_PAIRS, NetworkTestStatus, PairVerdict, STATUS_MAX, TestCounts, TestLatency, TestState};

/// What is tested, from where, and how often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, CustomResource, KubeSchema)]
#[kube(
    group = "oke.oraclecloud.com",
    version = "v1alpha1",
    kind = "NetworkTest",
    plural = "networktests",
    shortname = "nettest",
    category = "oke",
    status = "NetworkTestStatus",
    derive = "PartialEq",
    doc = "Probes between nodes, with the cause of each failure.",
    validation = Rule::new("size(self.metadata.name) <= 63").message("a NetworkTest's name has at most 63 characters")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
#[x_kube(
    validation = Rule::new("self == oldSelf").message("cannot be changed: create another NetworkTest"),
    validation = Rule::new("!self.targets.exists(t, has(t.host)) || (has(self.externalTargets) && self.externalTargets)")
        .message("a target by host name needs externalTargets: true")
        .field_path(".externalTargets")
)]
pub struct NetworkTestSpec {
    /// Where probes start, 1 to 8 entries: nodes with an agent.
    #[schemars(length(min = 1, max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub sources: Vec<TestSource>,
    /// Where probes go, 1 to 8 entries.
    #[schemars(length(min = 1, max = 8), extend("x-kubernetes-list-type" = "atomic"))]
    pub targets: Vec<TestTarget>,
    /// The probes of each pair, 1 to 4.
    #[schemars(length(min = 1, max = 4), extend("x-kubernetes-list-type" = "atomic"))]
    pub probes: Vec<TestProbe>,
    /// If true, targets may be addresses of no node and names outside the cluster; false if absent. The controller's
    /// configuration must allow it, too.
    #[serde(default, skip_serializing_if = "is_false")]
    pub external_targets: bool,
    /// Seconds from the start of one run to the next, 60 to 86400; one run only if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<60, 86400>")]
    pub interval_seconds: Option<u32>,
    /// Seconds that a run may take, 10 to 600; 120 if absent. Pairs that are left then are not tested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<10, 600>")]
    pub deadline_seconds: Option<u16>,
    /// Pairs that are tested at once, 1 to 32; 8 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 32>")]
    pub concurrency: Option<u8>,
    /// Seconds after which a finished test is deleted, 0 to 604800; 86400 if absent. A test with an interval never finishes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<0, 604800>")]
    pub ttl_seconds_after_finished: Option<u32>,
}

/// Nodes that send probes: one of node and nodeSelector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.node) != has(self.nodeSelector)").message("needs one of node and nodeSelector"),
    validation = Rule::new("!has(self.address) || has(self.node)").message("address needs node").field_path(".address")
)]
pub struct TestSource {
    /// A Node's name; nodeSelector instead if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::some_text::<253>")]
    pub node: Option<String>,
    /// The address of that node from which probes are sent, such as a secondary VNIC's; the kernel chooses if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::address")]
    pub address: Option<IpAddr>,
    /// Selects Nodes by their labels; an empty one selects all. Node instead if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,
}

/// A target: one of node, nodeSelector, address, service and host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.node), has(self.nodeSelector), has(self.address), has(self.service), has(self.host)].filter(x, x).size() == 1")
        .message("needs exactly one of node, nodeSelector, address, service and host"),
    validation = Rule::new("!has(self.address) || !isIP(self.address) || !(ip(self.address).isLoopback() || ip(self.address).isUnspecified() || ip(self.address).isLinkLocalUnicast() || ip(self.address).isLinkLocalMulticast() || ip(self.address) == ip('fd00:c1::a9fe:a9fe'))")
        .message("must not be loopback, link-local or the metadata service: use service imds or dns")
        .field_path(".address")
)]
pub struct TestTarget {
    /// A Node's name: its InternalIP is the target. Another field if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::some_text::<253>")]
    pub node: Option<String>,
    /// Selects Nodes by their labels; an empty one selects all. Another field if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// An address. One that is no Node's needs externalTargets. Another field if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::address")]
    pub address: Option<IpAddr>,
    /// A service that every node has, or peers: up to three other nodes. Another field if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<TargetService>,
    /// A host name, which the source's node resolves. Needs externalTargets. Another field if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::host_name")]
    pub host: Option<String>,
}

/// A target by what it is for the source's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum TargetService {
    /// The next hop of the source's route: the subnet's virtual router.
    #[serde(rename = "gateway")]
    Gateway,
    /// The metadata service.
    #[serde(rename = "imds")]
    Imds,
    /// The VCN's resolver.
    #[serde(rename = "dns")]
    Dns,
    /// The Kubernetes API server, as the agent reaches it.
    #[serde(rename = "apiserver")]
    ApiServer,
    /// The endpoint of OCI's core services in the region.
    #[serde(rename = "oci-services")]
    OciServices,
    /// Up to three other nodes.
    #[serde(rename = "peers")]
    Peers,
}

/// One probe of each pair.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(self.type in ['TCP', 'UDP']) ? has(self.port) : (!has(self.port) || self.type == 'HTTP')")
        .message("port is for TCP and UDP, which need it, and for HTTP")
        .field_path(".port"),
    validation = Rule::new("(has(self.count) ? self.count : 5) <= 5 * (has(self.rate) ? self.rate : 20)")
        .message("a probe takes at most 5 seconds: count must be at most 5 times rate")
        .field_path(".count"),
    validation = Rule::new("!(self.type in ['TCP', 'HTTP']) || !has(self.count) || self.count <= 20")
        .message("TCP and HTTP make at most 20 connections")
        .field_path(".count"),
    validation = Rule::new("!has(self.name) || self.type == 'DNS'").message("name is for DNS only").field_path(".name"),
    validation = Rule::new("!has(self.path) || self.type == 'HTTP'").message("path is for HTTP only").field_path(".path")
)]
pub struct TestProbe {
    /// ICMP, TCP, UDP, HTTP, DNS, PathMTU (full-size packets that no router may fragment) or Route (the kernel's route lookup,
    /// without a packet).
    #[serde(rename = "type")]
    pub kind: ProbeKind,
    /// The port, of TCP, UDP and HTTP; HTTP uses 80 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 65535>")]
    pub port: Option<u16>,
    /// The name that DNS resolves; kubernetes.io if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::host_name")]
    pub name: Option<String>,
    /// The path of HTTP; / if absent, and of the metadata service the instance's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::http_path")]
    pub path: Option<String>,
    /// Packets or requests, 1 to 100, of TCP and HTTP 1 to 20, and at most 5 times rate; 5 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 100>")]
    pub count: Option<u8>,
    /// Requests per second, 1 to 100; 20 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 100>")]
    pub rate: Option<u8>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}
