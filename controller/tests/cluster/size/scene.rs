//! Objects of maximal size, the API server that stores them, and the writers.

use std::net::IpAddr;
use std::sync::Arc;

use api::condition::MESSAGE_MAX;
use api::{AttachmentReason as Reason, NODE_NAME_MAX, VnicAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use kube_harness::ApiServer;
use oke_node_controller::attachment::apply::objects::{KubeObjects, Objects};
use oke_node_controller::attachment::observe::pod_network::KubePodNetworks;
use oke_node_controller::attachment::report::attachment_status::{AttachmentStatus, Facts, StatusReason};
use oke_node_controller::attachment::report::status::status;
use oke_node_controller::cluster::managed_fields::compact;
use serde_json::{Value, json};
use vcn::Ocid;

/// As long as real ones: newer regions are named in full, and the last part has 60 characters.
pub(crate) fn ocid(kind: &str, number: usize) -> String {
    format!("ocid1.{kind}.oc1.eu-frankfurt-1.anyhqljtqn6sucaczptn5sxbqhqrbmzb7mhgeuqkxg6qwtjp3a5y4wl{number:05}")
}

pub(crate) fn instance() -> Ocid {
    ocid("instance", 1).parse().unwrap()
}

pub(crate) fn addresses() -> Vec<IpAddr> {
    ["10.255.255.254", "2603:c020:400e:fe00:1234:5678:9abc:def0"].map(|text| text.parse().unwrap()).into()
}

/// Bare metal, both families, two security groups: a rich request.
pub(crate) fn large() -> Value {
    json!({
        "name": "pods", "purpose": "Pods", "subnetId": ocid("subnet", 1), "nicIndex": 1, "ipv4Count": 31, "ipv6Count": 31,
        "nsgIds": (0..2).map(|number| ocid("networksecuritygroup", number)).collect::<Value>(),
    })
}

pub(crate) fn in_order() -> AttachmentStatus {
    let facts = Facts { vnic_id: ocid("vnic", 1).parse().ok(), own_addresses: addresses(), ..Facts::default() };
    let ready = Some(StatusReason::new(Reason::Ready, "the VNIC matches the spec"));
    AttachmentStatus { attached: StatusReason::new(Reason::Attached, "the VNIC is on the instance"), ready, facts }
}

pub(crate) fn refused(reason: Reason) -> StatusReason {
    StatusReason { request_id: Some("F".repeat(32)), ..StatusReason::new(reason, "<".repeat(MESSAGE_MAX)) }
}

/// Of an object whose VNIC is detached.
pub(crate) fn leaving() -> AttachmentStatus {
    let facts = Facts { vnic_id: ocid("vnic", 1).parse().ok(), ..Facts::default() };
    AttachmentStatus { attached: refused(Reason::NotAuthorizedOrNotFound), ready: None, facts }
}

/// The greatest length below a limit that the API server accepts, if the size bounds it.
pub(crate) async fn longest(limit: usize, accepts: impl AsyncFn(usize) -> kube::Result<()>) -> usize {
    let (mut fits, mut too_long) = (0, limit);
    while too_long - fits > 1 {
        let length = usize::midpoint(fits, too_long);
        match accepts(length).await {
            Ok(()) => fits = length,
            Err(kube::Error::Api(status)) if status.message.contains("is too large") => too_long = length,
            Err(error) => panic!("{error}"),
        }
    }
    assert!((1..limit - 1).contains(&fits), "it is the size that bounds it: {fits}");
    fits
}

pub(crate) fn verdicts() -> [AttachmentStatus; 3] {
    let attached = AttachmentStatus { ready: Some(refused(Reason::NotAuthorizedOrNotFound)), ..in_order() };
    let not = AttachmentStatus {
        attached: refused(Reason::NotAuthorizedOrNotFound),
        ..AttachmentStatus::without_vnic(Reason::Pending, "")
    };
    [in_order(), attached, not]
}

/// Objects of served kinds, and a client.
pub(crate) async fn objects() -> (Client, Api<VnicAttachment>) {
    let server = ApiServer::shared().unwrap();
    let client = server.client(server.admin()).unwrap();
    for crd in api::crd::all() {
        server.apply_object(serde_json::to_value(crd).unwrap()).await.unwrap();
    }
    let objects = Api::all(client.clone());
    (client, objects)
}

pub(crate) async fn stored(name: &str) -> String {
    let key = format!("/registry/{}/vnicattachments/{name}", api::GROUP);
    String::from_utf8(ApiServer::shared().unwrap().stored(&key).await.unwrap().unwrap()).unwrap()
}

pub(crate) fn as_the_controller(client: Client) -> KubeObjects {
    let pod_networks = KubePodNetworks::new(&client, Arc::default());
    KubeObjects::new(client, pod_networks)
}

/// The longest report of a node's agent.
async fn report(objects: &Api<VnicAttachment>, name: &str) {
    let word = "w".repeat(32);
    let node = json!({ "configured": false, "reason": word, "inUse": 32, "generation": 1_000_000 });
    let params = PatchParams { field_manager: Some("oke-node-agent".to_owned()), ..PatchParams::default() };
    objects.patch_status(name, &params, &Patch::Merge(json!({ "status": { "node": node } }))).await.unwrap();
}

/// As many addresses for pods as the object requests, of maximal length.
fn pod_addresses(object: &VnicAttachment) -> Vec<IpAddr> {
    let count = if object.spec.vnic.is_shared_by_pods() { object.spec.vnic.ipv4_count } else { 0 };
    (0..count).map(|number| IpAddr::from([203, 113, 213, 100 + number])).collect()
}

/// The controller reads the object and writes this status, and the node's agent reports; returns the most bytes in etcd.
pub(crate) async fn bytes(objects: &Api<VnicAttachment>, name: &str, verdict: &AttachmentStatus) -> usize {
    let worker = as_the_controller(objects.clone().into_client());
    let mut object = objects.get(name).await.unwrap();
    compact(&mut object);
    if object.finalizers().is_empty() {
        object = worker.set_finalizer(&object, true).await.unwrap().unwrap();
    }
    let node = "n".repeat(NODE_NAME_MAX);
    let node = Some(if name.contains("longest") { node.as_str() } else { "10.255.255.254" });
    let now = Time(Timestamp::from_second(1_795_000_000).unwrap());
    let mut verdict = verdict.clone();
    verdict.facts.pod_addresses = verdict.facts.vnic_id.as_ref().map(|_| pod_addresses(&object)).unwrap_or_default();
    let status = status(&object, &verdict, node, &now);
    if let Some(status) = status {
        worker.write_status(&object, &status).await.unwrap();
    }
    let before = stored(name).await.len();
    if verdict.facts.vnic_id.is_some() {
        report(objects, name).await;
    }
    let stored = stored(name).await;
    println!("{name}: {} bytes in etcd: {stored}", stored.len());
    stored.len().max(before)
}

/// Templates of maximal size without display names, in different ways.
pub(crate) fn fillings() -> [(&'static str, Value); 5] {
    let groups = |count: usize| (0..count).map(|number| ocid("networksecuritygroup", number)).collect::<Value>();
    let routes =
        |count: usize| (0..count).map(|n| json!({ "destination": format!("10.{n}.0.0/16"), "via": "10.0.0.1" }));
    let tags: serde_json::Map<_, _> =
        (0..2).map(|n| (format!("{}&{n}", "k".repeat(40)), json!("\"<é".repeat(6)))).collect();
    let with = |more: Value| {
        let mut template = json!({ "name": "v".repeat(20), "purpose": "Attach", "subnetId": ocid("subnet", 1) });
        template.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        template
    };
    [
        ("groups", with(json!({ "nsgIds": groups(4) }))),
        ("shared", with(json!({ "nsgIds": groups(4), "ipv4Count": 32 }))),
        ("routes", with(json!({ "routes": routes(6).collect::<Value>(), "nsgIds": groups(1) }))),
        ("tags", with(json!({ "freeformTags": tags, "allowedNamespaces": ["n".repeat(63), "a"], "mtu": 1500 }))),
        (
            "numbers",
            with(
                json!({ "mode": "Exclusive", "ipv4Count": 255, "ipv6Count": 255, "nicIndex": 1, "mtu": 9000, "skipSourceDestCheck": true,
                "assignPublicIp": true, "onDelete": "Orphan", "nsgIds": groups(2) }),
            ),
        ),
    ]
}
