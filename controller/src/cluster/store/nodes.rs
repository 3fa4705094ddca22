//! Nodes, as far as the controller needs them. Synchronous and pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use api::{
    CORDON_ANNOTATION, CORDON_OWNER_MAX, NODE_POOL_ANNOTATION, Received, VNICS_ANNOTATION, instance_of, lenient,
    lenient_list,
};
use health::summary::poll::NodeReport;
use k8s_openapi::api::core::v1::{NodeAddress, ObjectReference};
use k8s_openapi::jiff::Timestamp;
use kube::core::Object;
use serde::Deserialize;
use vcn::Ocid;

use crate::cluster::node_condition::{KubeletProblem, NodeCondition, StoredCondition};

/// The most characters of a boot's id: it is a UUID.
const BOOT_ID_MAX: usize = 64;

/// A Node as received: fields that are not named here are not even read.
pub(crate) type NodeObject = Object<NodeSpec, NodeStatus>;

/// The fields that are read of a Node's spec.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    /// The cloud's identity of the machine: its instance OCID.
    #[serde(rename = "providerID", deserialize_with = "lenient")]
    pub provider_id: Option<String>,
    /// What keeps pods away.
    #[serde(deserialize_with = "lenient_list")]
    pub taints: Vec<NodeTaint>,
    /// Whether no new pod is scheduled to it.
    #[serde(deserialize_with = "lenient")]
    pub unschedulable: bool,
}

/// The fields that are read of a taint.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeTaint {
    /// The key of the taint.
    pub key: String,
}

/// The field that is read of a Node's capacity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeCapacity {
    /// The size of the kubelet's file system.
    #[serde(rename = "ephemeral-storage", deserialize_with = "lenient")]
    pub ephemeral_storage: Option<String>,
}

/// The fields that are read of a Node's status: not its images, most of a Node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// The addresses, with their types.
    #[serde(deserialize_with = "lenient_list")]
    pub addresses: Vec<NodeAddress>,
    /// What the machine has.
    #[serde(deserialize_with = "lenient")]
    pub capacity: NodeCapacity,
    /// What is left for pods.
    #[serde(deserialize_with = "lenient")]
    pub allocatable: BTreeMap<String, String>,
    /// The conditions of all programs.
    #[serde(deserialize_with = "lenient_list")]
    pub conditions: Vec<StoredCondition>,
    /// What the kubelet reported once.
    #[serde(rename = "nodeInfo", deserialize_with = "lenient")]
    pub info: NodeInfo,
}

/// The fields that are read of what the kubelet reported once.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeInfo {
    /// The runtime with its version.
    pub container_runtime_version: String,
    /// The id of the machine's boot.
    #[serde(rename = "bootID")]
    pub boot_id: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    pub name: String,
    /// Its uid, for events.
    pub uid: Option<String>,
    /// Its instance, if its providerID names one.
    pub instance: Option<Ocid>,
    /// Why its providerID does not name an instance, if it has another value.
    pub stranger: Option<String>,
    pub labels: Labels,
    /// The annotation that requests VNICs, if it has one.
    pub vnics: Option<String>,
    /// The node pool that its annotation names. Its kubelet may write that: the instance's metadata must confirm it.
    pub node_pool: Option<Ocid>,
    /// Its creation time: a recreated Node is younger than its instance's VNICs.
    pub created: Option<Timestamp>,
    /// Whether it is being deleted.
    pub leaving: bool,
    /// Its addresses of type InternalIP, of both families.
    pub addresses: Box<[IpAddr]>,
    /// What its agent must know of it. The memory includes huge pages: the kubelet subtracts those from `memory`.
    pub report: NodeReport,
    /// The id of the machine's boot, as its kubelet reported it.
    pub boot_id: Box<str>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// The task that cordoned it last, if the annotation is still there.
    pub cordoned_by: Option<Box<str>>,
    /// The size of its kubelet's file system in bytes, as the kubelet read it at its start.
    pub ephemeral_storage: Option<u64>,
    /// The keys of its taints.
    pub taints: Box<[Box<str>]>,
    /// Our conditions that it has.
    pub conditions: Vec<NodeCondition>,
    /// Why its kubelet is not ready, if it is not.
    pub kubelet: Option<KubeletProblem>,
    /// The version that the API server gave it.
    pub version: Option<String>,
}

/// Labels as one text, sorted: those of ten thousand Nodes would take 40 MB as maps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<str>);

/// All known Nodes, by name and by instance.
#[derive(Debug, Default)]
pub struct Nodes {
    nodes: HashMap<String, Arc<NodeView>>,
    names: HashMap<Ocid, String>,
    changes: u64,
}

impl NodeView {
    /// The kept part of a Node; of one that cannot be read, what its metadata says.
    pub fn received(object: Received<NodeObject>) -> Self {
        Self::of(object.0.unwrap_or_else(|unreadable| {
            let name = unreadable.metadata.name.as_deref();
            tracing::warn!(event = "node.unreadable", name, error = unreadable.error, "only its metadata is used");
            NodeObject { types: None, metadata: unreadable.metadata, spec: NodeSpec::default(), status: None }
        }))
    }

    /// The kept part of a Node.
    pub fn of(object: NodeObject) -> Self {
        let (metadata, status) = (object.metadata, object.status.unwrap_or_default());
        let mut annotations = metadata.annotations.unwrap_or_default();
        // Empty until the cloud controller manager has handled the Node.
        let provider_id = object.spec.provider_id.filter(|id| !id.is_empty());
        let instance = provider_id.as_deref().map(instance_of).transpose();
        Self {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid,
            stranger: instance.as_ref().err().map(ToString::to_string),
            instance: instance.ok().flatten(),
            labels: metadata.labels.unwrap_or_default().into_iter().collect(),
            vnics: annotations.remove(VNICS_ANNOTATION),
            node_pool: annotations.remove(NODE_POOL_ANNOTATION).and_then(|id| id.parse().ok()),
            created: metadata.creation_timestamp.map(|time| time.0),
            leaving: metadata.deletion_timestamp.is_some(),
            addresses: status.addresses.iter().filter_map(internal).collect(),
            kubelet: KubeletProblem::of(&status.conditions),
            report: NodeReport {
                allocatable_memory: memory(&status.allocatable),
                allocatable_gpus: gpus(&status.allocatable),
                runtime: NodeReport::runtime_of(&status.info.container_runtime_version),
            },
            ephemeral_storage: status.capacity.ephemeral_storage.as_deref().and_then(health::mebibytes).map(bytes),
            boot_id: vcn::excerpt(&status.info.boot_id, BOOT_ID_MAX).into(),
            unschedulable: object.spec.unschedulable,
            cordoned_by: annotations
                .remove(CORDON_ANNOTATION)
                .filter(|by| by.len() <= CORDON_OWNER_MAX)
                .map(Into::into),
            taints: object.spec.taints.into_iter().map(|taint| taint.key.into()).collect(),
            conditions: status.conditions.into_iter().filter_map(NodeCondition::read).collect(),
            version: metadata.resource_version,
        }
    }
}

/// Of `allocatable`, the memory for pods and their huge pages. The kubelet writes a memory of 0 where huge pages take more than there
/// is.
fn memory(allocatable: &BTreeMap<String, String>) -> Option<u64> {
    allocatable.get("memory").filter(|amount| *amount != "0")?;
    let is_memory = |name: &str| name == "memory" || name.starts_with("hugepages-");
    let amounts = allocatable.iter().filter(|(name, _)| is_memory(name)).map(|(_, amount)| health::mebibytes(amount));
    amounts.sum::<Option<f64>>().map(bytes)
}

fn bytes(mebibytes: f64) -> u64 {
    (mebibytes * f64::from(1 << 20)) as u64
}

/// Of `allocatable`, the GPUs of device plugins. None where the Node has no such resource, or where GPUs are divided (MIG): they are
/// offered by other names then.
fn gpus(allocatable: &BTreeMap<String, String>) -> Option<u64> {
    let is_divided = |(name, amount): (&String, &String)| name.starts_with("nvidia.com/mig-") && amount != "0";
    if allocatable.iter().any(is_divided) {
        return None;
    }
    let names = ["nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu"];
    let counts: Vec<u64> = names.iter().filter_map(|name| allocatable.get(*name)?.parse().ok()).collect();
    (!counts.is_empty()).then(|| counts.into_iter().fold(0, u64::saturating_add))
}

impl NodeView {
    /// Its rank among Nodes that claim one instance: the oldest one counts, among equals the first by name.
    pub fn seniority(&self) -> (Option<Timestamp>, &str) {
        (self.created, &self.name)
    }

    /// Whether nothing changed that concerns VNICs.
    fn is_same_but_for_conditions(&self, other: &Self) -> bool {
        let Self { name, uid, instance, stranger, labels, vnics, node_pool, created, leaving, .. } = self;
        (name, uid, instance, stranger) == (&other.name, &other.uid, &other.instance, &other.stranger)
            && (labels, vnics, node_pool) == (&other.labels, &other.vnics, &other.node_pool)
            && (created, leaving) == (&other.created, &other.leaving)
    }

    /// As an Event's object.
    pub fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(self.name.clone()),
            uid: self.uid.clone(),
            ..ObjectReference::default()
        }
    }
}

/// The address, if it is of type InternalIP.
fn internal(address: &NodeAddress) -> Option<IpAddr> {
    (address.type_ == "InternalIP").then(|| address.address.parse().ok()).flatten()
}

impl Labels {
    /// As a map for lookups.
    pub fn map(&self) -> BTreeMap<String, String> {
        let pair = |line: &str| line.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        self.0.lines().filter_map(pair).collect()
    }
}

impl FromIterator<(String, String)> for Labels {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(labels: I) -> Self {
        let sorted: BTreeMap<String, String> = labels.into_iter().collect();
        // The API server allows no '=' and no line end in keys and values.
        let lines: Vec<String> = sorted.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        Self(lines.join("\n").into())
    }
}

impl Nodes {
    /// The Node of an instance; of several that claim it, the senior one.
    pub fn of(&self, instance: &Ocid) -> Option<&NodeView> {
        self.nodes.get(self.names.get(instance)?).map(AsRef::as_ref)
    }

    /// A Node by its name.
    pub fn named(&self, name: &str) -> Option<&Arc<NodeView>> {
        self.nodes.get(name)
    }

    /// All of them, unordered.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<NodeView>> {
        self.nodes.values()
    }

    /// How often a kept field changed: a heartbeat does not count.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// A new or changed Node. Returns the affected instances.
    pub fn apply(&mut self, node: NodeView) -> BTreeSet<Ocid> {
        if let Some(known) = self.nodes.get_mut(&node.name)
            && known.is_same_but_for_conditions(&node)
        {
            *known = Arc::new(node);
            return BTreeSet::new();
        }
        let same = |before: &Arc<NodeView>| before.instance == node.instance && before.created == node.created;
        let mut touched = match self.nodes.get(&node.name).is_some_and(same) {
            true => BTreeSet::new(),
            false => self.delete(&node.name),
        };
        if let Some(instance) = &node.instance {
            let holder = self.names.get(instance).and_then(|name| self.nodes.get(name));
            if holder.is_none_or(|holder| node.seniority() < holder.seniority()) {
                self.names.insert(instance.clone(), node.name.clone());
            }
            touched.insert(instance.clone());
        }
        self.nodes.insert(node.name.clone(), Arc::new(node));
        self.changes += 1;
        touched
    }

    /// Our conditions of a Node were written. The watch delivers other changes of it.
    pub fn set_conditions(&mut self, NodeView { name, conditions, version, kubelet, .. }: NodeView) {
        if let Some(known) = self.nodes.get_mut(&name) {
            let known = Arc::make_mut(known);
            (known.conditions, known.version, known.kubelet) = (conditions, version, kubelet);
        }
    }

    pub fn delete(&mut self, name: &str) -> BTreeSet<Ocid> {
        let Some(node) = self.nodes.remove(name) else { return BTreeSet::new() };
        self.changes += 1;
        let Some(instance) = node.instance.clone() else { return BTreeSet::new() };
        // An instance that returned under another name keeps that one.
        if self.names.get(&instance).is_some_and(|current| current == name) {
            self.names.remove(&instance);
            // Another Node that claims it was there all the time.
            let others = self.nodes.values().filter(|other| other.instance.as_ref() == Some(&instance));
            if let Some(other) = others.min_by_key(|other| other.seniority()) {
                self.names.insert(instance.clone(), other.name.clone());
            }
        }
        BTreeSet::from([instance])
    }

    /// Takes a complete list, in place of what was known.
    pub fn replace(&mut self, all: Vec<NodeView>) -> BTreeSet<Ocid> {
        let mut gone: BTreeSet<String> = self.nodes.keys().cloned().collect();
        let mut touched = BTreeSet::new();
        for node in all {
            gone.remove(&node.name);
            touched.extend(self.apply(node));
        }
        for name in gone {
            touched.extend(self.delete(&name));
        }
        touched
    }
}

#[cfg(test)]
mod tests;
