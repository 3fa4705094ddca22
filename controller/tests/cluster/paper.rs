//! A cloud on paper: as many instances as one likes, each with two VNICs that are there already. It answers what the
//! controller reads, checks nothing and changes nothing.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, RwLock};

use api::{CLUSTER_TAG, NAME_TAG, UID_TAG};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub(crate) const CLUSTER: &str = "paper";
pub(crate) const SUBNET: &str = "ocid1.subnet.oc1.iad.paper";
const COMPARTMENT: &str = "ocid1.compartment.oc1..paper";

/// How many VNICs each instance has beside its own.
pub(crate) const EACH: usize = 2;

/// The uids of the objects, by their names.
pub(crate) type Uids = Arc<RwLock<HashMap<String, String>>>;

/// The object of a VNIC.
pub(crate) fn name(instance: usize, vnic: usize) -> String {
    format!("v-{instance}-{vnic}")
}

pub(crate) fn instance(number: usize) -> String {
    format!("ocid1.instance.oc1.iad.i{number}")
}

/// A Node as OKE's are: about 15 KB, most of it names of images.
pub(crate) fn node(number: usize) -> Value {
    let pairs = |count: usize, what: &str| -> Value {
        let pair =
            |key| (format!("{what}-{key}.node.example.com/of-usual-length"), format!("value-{key}-of-{number}").into());
        Value::Object((0..count).map(pair).collect())
    };
    let image = |image: usize| {
        let name = format!("iad.ocir.io/oracle/of-usual-length/image-{image}");
        json!({ "names": [format!("{name}@sha256:{image:064x}"), format!("{name}:v1.33.1-{image}")], "sizeBytes": 123_456_789 })
    };
    let condition = |kind: &str| {
        json!({ "type": kind, "status": "False", "reason": format!("KubeletHasNo{kind}"),
        "message": "kubelet has no trouble of this kind", "lastHeartbeatTime": "2026-01-01T00:00:00Z" })
    };
    let conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(condition);
    json!({
        "metadata": { "name": format!("node-{number}"), "labels": pairs(25, "label"), "annotations": pairs(8, "annotation") },
        "spec": { "providerID": format!("oci://{}", instance(number)) },
        "status": {
            "images": (0..50).map(image).collect::<Vec<_>>(),
            "conditions": conditions,
        },
    })
}

/// Answers for ever.
pub(crate) async fn serve(listener: TcpListener, uids: Uids) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let uids = uids.clone();
        let answer = service_fn(move |request: Request<Incoming>| {
            let answer = answer(&request, &uids);
            async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer.to_string())))) }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}

fn answer(request: &Request<Incoming>, uids: &Uids) -> Value {
    let path: Vec<&str> = request.uri().path().split('/').skip(2).collect();
    let query = request.uri().query().unwrap_or_default();
    let asked =
        |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=')).unwrap_or_default();
    match path.as_slice() {
        ["instances", id] => json!({ "id": id, "compartmentId": COMPARTMENT, "lifecycleState": "RUNNING",
            "shape": "VM.Standard.E5.Flex", "shapeConfig": { "ocpus": 8.0, "maxVnicAttachments": 8 } }),
        ["vnicAttachments"] => match asked("instanceId") {
            "" => json!([]),
            id => (0..=EACH).map(|vnic| attachment(id, vnic)).collect(),
        },
        ["vnics", id] => vnic(id, uids),
        ["privateIps"] => json!([]),
        ["subnets", id] => json!({ "id": id, "compartmentId": COMPARTMENT, "cidrBlock": "10.0.0.0/8" }),
        other => panic!("nobody reads {other:?}"),
    }
}

/// 0 is the primary one.
fn attachment(id: &str, vnic: usize) -> Value {
    let number = id.rsplit(".i").next().unwrap_or_default();
    json!({ "id": format!("ocid1.vnicattachment.oc1.iad.a{number}-{vnic}"), "compartmentId": COMPARTMENT, "instanceId": id,
        "lifecycleState": "ATTACHED", "vnicId": format!("ocid1.vnic.oc1.iad.{number}-{vnic}"), "subnetId": SUBNET })
}

fn vnic(id: &str, uids: &Uids) -> Value {
    let (instance, vnic) = id.rsplit('.').next().unwrap_or_default().split_once('-').unwrap_or_default();
    let (number, vnic): (usize, usize) = (instance.parse().unwrap(), vnic.parse().unwrap());
    let name = name(number, vnic);
    let uid = uids.read().unwrap().get(&name).cloned();
    let tags = uid.map(|uid| json!({ CLUSTER_TAG: CLUSTER, UID_TAG: uid, NAME_TAG: name }));
    let address = format!("10.{}.{}.{}", vnic, number / 250, number % 250);
    json!({ "id": id, "compartmentId": COMPARTMENT, "lifecycleState": "AVAILABLE", "subnetId": SUBNET,
        "displayName": name, "macAddress": format!("02:00:17:{vnic:02x}:{:02x}:{:02x}", number / 256, number % 256),
        "privateIp": address, "isPrimary": vnic == 0, "freeformTags": tags.unwrap_or_default() })
}
