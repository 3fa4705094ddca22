//! `NetworkTest`: probes between nodes, and from nodes to services, on demand or on a schedule. Cluster operators write the
//! spec, the controller runs the probes through the agents and writes the status.
#![expect(unreachable_pub, reason = "KubeSchema writes a public copy of each struct into a function")]

mod probe_kind;
mod status;

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

pub use probe_kind::ProbeKind;
pub use status::{
    MAX_WORST_PAIRS, NetworkTestStatus, PairVerdict, STATUS_MAX, TestCounts, TestLatency, TestState, TestThroughput,
};

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
    validation = Rule::new("!self.targets.exists(t, has(t.host) || has(t.url)) || (has(self.externalTargets) && self.externalTargets)")
        .message("a target by host name or URL needs externalTargets: true")
        .field_path(".externalTargets"),
    validation = Rule::new("!self.targets.exists(t, has(t.url)) || self.probes.all(p, p.type in ['HTTP', 'HTTPS'] && !has(p.port) && !has(p.path))")
        .message("a target by URL is for the probes HTTP and HTTPS without port and path: the URL has them")
        .field_path(".probes"),
    validation = Rule::new("!self.probes.exists(p, p.type == 'Throughput') || (!self.sources.exists(s, has(s.pods) || (has(s.podNetwork) && s.podNetwork)) && self.targets.all(t, has(t.node) || has(t.nodeSelector) || has(t.address) || (has(t.service) && t.service == 'peers')))")
        .message("Throughput is measured between nodes with agents: sources and targets must be nodes")
        .field_path(".probes")
)]
pub struct NetworkTestSpec {
    /// Where probes start, 1 to 8 entries: nodes with an agent, or pods.
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

/// What sends probes: one of node, nodeSelector and pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.node), has(self.nodeSelector), has(self.pods)].filter(x, x).size() == 1")
        .message("needs exactly one of node, nodeSelector and pods"),
    validation = Rule::new("!has(self.address) || has(self.node)").message("address needs node").field_path(".address"),
    validation = Rule::new("!has(self.allAddresses) || !self.allAddresses || (!has(self.pods) && !has(self.address))")
        .message("allAddresses needs node or nodeSelector, without address")
        .field_path(".allAddresses"),
    validation = Rule::new("!has(self.podNetwork) || !self.podNetwork || (has(self.node) && !has(self.address) && !(has(self.allAddresses) && self.allAddresses))")
        .message("podNetwork needs node, without address and allAddresses")
        .field_path(".podNetwork")
)]
pub struct TestSource {
    /// A Node's name; another field if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::some_text::<253>")]
    pub node: Option<String>,
    /// The address from which probes are sent: one of the Node or of its VnicAttachments. The kernel chooses if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::address")]
    pub address: Option<IpAddr>,
    /// Selects Nodes by their labels; an empty one selects all. Another field if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// If true, each known address of a Node and of its VnicAttachments is a source of its own, if the target has an address of the
    /// same family. False if absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub all_addresses: bool,
    /// If true, a short-lived probe Pod on the node sends, so that probes start in the pod network. False if absent.
    #[serde(default, skip_serializing_if = "is_false")]
    pub pod_network: bool,
    /// Pods: for each, a short-lived probe Pod on its node sends. Another field if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodSelection>,
}

/// A target: one of node, nodeSelector, pods, address, service, host and url; or a node with one of its addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("[has(self.node), has(self.nodeSelector), has(self.pods), has(self.address) && !has(self.node), has(self.service), has(self.host), has(self.url)].filter(x, x).size() == 1")
        .message("needs exactly one of node, nodeSelector, pods, address, service, host and url, or node with address"),
    validation = Rule::new("!has(self.address) || !isIP(self.address) || !(ip(self.address).isLoopback() || ip(self.address).isUnspecified() || ip(self.address).isLinkLocalUnicast() || ip(self.address).isLinkLocalMulticast() || ip(self.address) == ip('fd00:c1::a9fe:a9fe'))")
        .message("must not be loopback, link-local or the metadata service: use service imds or dns")
        .field_path(".address")
)]
pub struct TestTarget {
    /// A Node's name: its first InternalIP of the source's family is the target, or the address next to it. Another field if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::some_text::<253>")]
    pub node: Option<String>,
    /// Selects Nodes by their labels; an empty one selects all. Another field if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// Pods: their addresses are targets, of both families. Another field if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<PodSelection>,
    /// An address: of the node, or of any Node without it. One that is neither an InternalIP of the Node, nor of its
    /// VnicAttachments, nor in a network of the cluster's Services (SERVICE_NETWORKS of the controller) needs externalTargets.
    /// Another field if absent.
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
    /// A URL of http or https, which decides between the probes HTTP and HTTPS. The source's node resolves its host. Needs
    /// externalTargets. Another field if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::url")]
    pub url: Option<String>,
}

/// Running pods of one namespace, the first 20 by name. Pods in the host's network are left out: they have their node's address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodSelection {
    /// The namespace. The controller needs the ClusterRole oke-network-test-pods there.
    #[schemars(schema_with = "schema::namespace")]
    pub namespace: String,
    /// Selects Pods by their labels; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub selector: Option<LabelSelector>,
    /// Selects the Pod with this name; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::some_text::<253>")]
    pub name: Option<String>,
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
    validation = Rule::new("(self.type in ['TCP', 'UDP']) ? has(self.port) : (!has(self.port) || self.type in ['HTTP', 'HTTPS', 'Throughput'])")
        .message("port is for TCP and UDP, which need it, and for HTTP, HTTPS and Throughput")
        .field_path(".port"),
    validation = Rule::new("(has(self.count) ? self.count : 5) <= 5 * (has(self.rate) ? self.rate : 20)")
        .message("a probe takes at most 5 seconds: count must be at most 5 times rate")
        .field_path(".count"),
    validation = Rule::new("!(self.type in ['TCP', 'HTTP', 'HTTPS']) || !has(self.count) || self.count <= 20")
        .message("TCP, HTTP and HTTPS make at most 20 connections")
        .field_path(".count"),
    validation = Rule::new("!has(self.megabitsPerSecond) || self.type == 'Throughput'")
        .message("megabitsPerSecond is for Throughput only")
        .field_path(".megabitsPerSecond"),
    validation = Rule::new("self.type != 'Throughput' || !(has(self.count) || has(self.rate) || (has(self.port) && self.port < 1024))")
        .message("Throughput has neither count nor rate, and no port below 1024"),
    validation = Rule::new("!has(self.name) || self.type == 'DNS'").message("name is for DNS only").field_path(".name"),
    validation = Rule::new("!has(self.path) || self.type in ['HTTP', 'HTTPS']").message("path is for HTTP and HTTPS only").field_path(".path")
)]
pub struct TestProbe {
    /// The type of the probe. HTTPS accepts any certificate. PathMTU sends full-size packets that no router may fragment. Route is the
    /// kernel's route lookup, without a packet. Throughput sends TCP data for 2 seconds, between nodes.
    #[serde(rename = "type")]
    pub kind: ProbeKind,
    /// The port, of TCP, UDP, HTTP, HTTPS and Throughput; HTTP uses 80 if absent, HTTPS 443, Throughput 5201, on which the
    /// target's agent listens meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 65535>")]
    pub port: Option<u16>,
    /// The name that DNS resolves; kubernetes.io if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::host_name")]
    pub name: Option<String>,
    /// The path of HTTP and HTTPS; / if absent, and of the metadata service the instance's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::http_path")]
    pub path: Option<String>,
    /// Packets or requests, 1 to 100, of TCP, HTTP and HTTPS 1 to 20, and at most 5 times rate; 5 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 100>")]
    pub count: Option<u8>,
    /// Requests per second, 1 to 100; 20 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 100>")]
    pub rate: Option<u8>,
    /// Megabits per second that Throughput sends, 1 to 10000; 100 if absent. The path must carry nine tenths of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::integer::<1, 10000>")]
    pub megabits_per_second: Option<u16>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it by reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}
