//! The documents of a case. `case.yaml` has only what differs from the usual ones: each is merged into the usual one, and
//! `null` removes a field (RFC 7386).

use std::collections::{BTreeMap, BTreeSet};

use api::{CLUSTER_TAG, NAME_TAG, NativePodNetwork, UID_TAG, VNIC_FINALIZER, VnicAttachment};
use oci::{InstanceState, IpObject, VersionedObject, Vnic};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use vcn::Ocid;

use crate::attachment::mark::Uid;
use crate::attachment::observe::observed::{AddressList, Machine, Observed, ObservedAttachment, ObservedVnic};
use crate::attachment::observe::pod_network::PodNetwork;
use crate::attachment::state::retry_state::tests::Remembered;

const COMPARTMENT: &str = "ocid1.compartment.oc1..one";
const INSTANCE: &str = "ocid1.instance.oc1.iad.i1";
const SUBNET: &str = "ocid1.subnet.oc1.iad.pods";

/// `case.yaml`.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Documents {
    /// This cluster, if it differs from the one in the tags of the VNICs.
    pub(super) cluster: Option<String>,
    objects: Vec<Value>,
    pub(super) unreadable: BTreeSet<String>,
    pub(super) remembered: BTreeMap<Uid, Remembered>,
    pub(super) applied: BTreeSet<Ocid>,
    pub(super) refused_bulks: BTreeSet<String>,
    /// `None` if OCI answers 404.
    instance: Option<InstanceDocument>,
    /// Whether the primary VNIC is listed.
    primary: bool,
    /// The other VNICs.
    attachments: Vec<Value>,
    /// VNICs that exist although no list has them.
    unlisted: BTreeSet<Ocid>,
    subnets: Vec<Value>,
    pod_network: Option<PodNetworkDocument>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct InstanceDocument {
    lifecycle_state: InstanceState,
    shape: String,
    most_vnics: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttachmentDocument {
    /// The uid of its object.
    object: Option<Uid>,
    #[serde(flatten)]
    attachment: oci::VnicAttachment,
    vnic: Option<Vnic>,
    /// `None` if the addresses were not read.
    ipv4: Option<Vec<IpObject>>,
    ipv6: Option<Vec<IpObject>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
enum PodNetworkDocument {
    Absent,
    Unreadable(String),
    Document(Value),
}

impl Default for Documents {
    fn default() -> Self {
        Self {
            cluster: None,
            objects: Vec::new(),
            unreadable: BTreeSet::new(),
            remembered: BTreeMap::new(),
            applied: BTreeSet::new(),
            refused_bulks: BTreeSet::new(),
            instance: Some(InstanceDocument::default()),
            primary: true,
            attachments: Vec::new(),
            unlisted: BTreeSet::new(),
            subnets: vec![json!({})],
            pod_network: None,
        }
    }
}

impl Default for InstanceDocument {
    fn default() -> Self {
        Self { lifecycle_state: InstanceState::Running, shape: "VM.Standard.E5.Flex".to_owned(), most_vnics: Some(4) }
    }
}

impl Documents {
    pub(super) fn objects(&self) -> Vec<VnicAttachment> {
        self.objects.iter().cloned().map(object).collect()
    }

    pub(super) fn observed(&self) -> Observed {
        let machine = self.instance.as_ref().map_or(Machine::NotSeen, |it| Machine::There {
            state: it.lifecycle_state,
            shape: it.shape.clone(),
            most: it.most_vnics,
        });
        let others = self.attachments.iter().cloned().map(attachment);
        let subnets = self.subnets.iter().map(subnet);
        Observed {
            machine,
            attachments: self.primary.then(primary).into_iter().chain(others).collect(),
            unlisted: self.unlisted.clone(),
            subnets: subnets.map(|subnet| (subnet.id.clone(), subnet)).collect(),
            pod_network: self.pod_network.as_ref().map(|document| match document {
                PodNetworkDocument::Absent => PodNetwork::Absent,
                PodNetworkDocument::Unreadable(why) => PodNetwork::Unreadable(why.clone()),
                PodNetworkDocument::Document(npn) => {
                    PodNetwork::There(NativePodNetwork::parse(npn.to_string().as_bytes()).unwrap())
                }
            }),
            ..Observed::not_seen()
        }
    }
}

fn filled<T: DeserializeOwned>(mut usual: Value, differs: &Value) -> T {
    json_patch::merge(&mut usual, differs);
    serde_json::from_value(usual).unwrap()
}

/// `reported` is the condition Ready as `status reason: message`, and `attached` the condition Attached if it does not follow
/// from that.
fn object(mut differs: Value) -> VnicAttachment {
    let name = differs["metadata"]["name"].as_str().unwrap().to_owned();
    let generation = differs["metadata"]["generation"].as_u64().unwrap_or(1);
    let fields = differs.as_object_mut().unwrap();
    let [reported, attached] = ["reported", "attached"].map(|field| fields.remove(field));
    let status = reported.map(|ready| {
        let ready = ready.as_str().unwrap();
        let usual = if ready == "True Ready" { "True Attached" } else { ready.split(": ").next().unwrap() };
        let attached = attached.as_ref().map_or(usual, |attached| attached.as_str().unwrap());
        let conditions = [("Attached", attached), ("Configured", "Unknown NotReported"), ("Ready", ready)];
        let conditions = conditions.map(|(kind, words)| condition(kind, words));
        json!({ "observedGeneration": generation, "nodeName": "node-1", "conditions": conditions })
    });
    let usual = json!({
        "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment",
        "metadata": { "uid": format!("uid-{name}"), "finalizers": [VNIC_FINALIZER], "generation": generation },
        "spec": { "instanceId": INSTANCE, "name": name, "purpose": "Pods", "subnetId": SUBNET },
        "status": status,
    });
    filled(usual, &differs)
}

fn condition(kind: &str, words: &str) -> Value {
    let (words, message) = words.split_once(": ").unwrap_or((words, ""));
    let (status, reason) = words.split_once(' ').unwrap();
    json!({ "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z" })
}

fn primary() -> ObservedAttachment {
    let id = "ocid1.vnicattachment.oc1.iad.abuwcljtsandbox0000000001";
    attachment(json!({ "number": 1, "id": id, "subnetId": "ocid1.subnet.oc1.iad.nodes", "displayName": null }))
}

/// `number` counts the VNICs of the instance; the usual one is the second. `vnic: {}` is its usual VNIC.
fn attachment(mut differs: Value) -> ObservedAttachment {
    let number = differs.as_object_mut().unwrap().remove("number").map_or(2, |number| number.as_u64().unwrap());
    let object = differs["object"].as_str().unwrap_or_default().to_owned();
    let vnic_id = format!("ocid1.vnic.oc1.iad.abuwcljtsandbox{number:08}");
    let name = object.trim_start_matches("uid-");
    let tags = json!({ CLUSTER_TAG: "cluster-1", NAME_TAG: name, UID_TAG: object });
    let usual = json!({
        "id": format!("ocid1.vnicattachment.oc1.iad.abuwcljtsandbox{:010}", 3 * (number - 1)),
        "compartmentId": COMPARTMENT, "instanceId": INSTANCE, "lifecycleState": "ATTACHED",
        "displayName": format!("oke-node-manager/{object}"), "subnetId": SUBNET, "vnicId": vnic_id,
    });
    let fill = |field: &mut Value, usual: Value| *field = filled(usual, field);
    if let Some(vnic) = differs.get_mut("vnic") {
        let usual = json!({
            "id": vnic_id, "compartmentId": COMPARTMENT, "lifecycleState": "AVAILABLE", "subnetId": SUBNET,
            "displayName": name, "macAddress": format!("02:00:17:00:00:{number:02}"), "isPrimary": false,
            "privateIp": format!("10.0.32.{}", number + 1), "ipv6Addresses": [format!("2603:c020:0:2::{number}")],
            "nsgIds": [], "skipSourceDestCheck": false, "freeformTags": tags,
        });
        fill(vnic, usual);
    }
    for family in ["ipv4", "ipv6"] {
        for address in differs.get_mut(family).and_then(Value::as_array_mut).into_iter().flatten() {
            let is_ours = family == "ipv4" && address["isPrimary"] != true;
            let tags = if is_ours { tags.clone() } else { json!({}) };
            fill(address, json!({ "vnicId": vnic_id, "subnetId": SUBNET, "isPrimary": false, "freeformTags": tags }));
        }
    }
    let AttachmentDocument { object, attachment, vnic, ipv4, ipv6 } = filled(usual, &differs);
    let listed = |all: Option<Vec<IpObject>>| all.map_or(AddressList::NotRead, AddressList::Known);
    let (ipv4, ipv6) = (listed(ipv4), listed(ipv6));
    let vnic = vnic.map(|value| ObservedVnic { vnic: VersionedObject { value, etag: None }, ipv4, ipv6 });
    ObservedAttachment { attachment, owner: object, vnic }
}

fn subnet(differs: &Value) -> oci::Subnet {
    let usual = json!({
        "id": SUBNET, "compartmentId": COMPARTMENT, "displayName": SUBNET, "cidrBlock": "10.0.32.0/20",
        "ipv6CidrBlock": "2603:c020:0:2::/64", "ipv6CidrBlocks": ["2603:c020:0:2::/64"],
        "virtualRouterIp": "10.0.32.1", "ipv6VirtualRouterIp": "fe80::200:17ff:fe00:1",
        "prohibitPublicIpOnVnic": true,
    });
    filled(usual, differs)
}
