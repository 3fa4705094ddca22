//! A minimal OCI: any number of instances, and requested VNICs at once. It answers what the controller reads, and checks
//! nothing. Its clusters are for measurements of ten thousand nodes; SCALE is another number.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures::StreamExt as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::PostParams;
use kube_harness::wait_within;
use sandbox::OciSettings;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::scene::Scene;

/// Concurrent requests to the API server.
pub(crate) const AT_ONCE: usize = 24;
pub(crate) const PATIENCE: Duration = Duration::from_mins(60);
const CLUSTER: &str = "paper";
pub(crate) const SUBNET: &str = "ocid1.subnet.oc1.iad.paper";
const COMPARTMENT: &str = "ocid1.compartment.oc1..paper";

/// The requested VNICs, by instance.
type Attached = Arc<RwLock<HashMap<String, Vec<Value>>>>;

/// The designed number of nodes, or `SCALE`.
pub(crate) fn count() -> usize {
    std::env::var("SCALE").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000)
}

/// A cluster without nodes, with this OCI.
pub(crate) async fn scene(resync_seconds: &str) -> Scene {
    let mut scene = Scene::with(0, 2, OciSettings::default()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (key, value) in [
        ("OCI_ENDPOINT", &*format!("http://{}", listener.local_addr().unwrap())),
        ("CLUSTER_ID", CLUSTER),
        ("LEASE_SECONDS", "60"),
        ("RESYNC_SECONDS", resync_seconds),
    ] {
        scene.environment.insert(key.to_owned(), value.to_owned());
    }
    tokio::spawn(serve(listener, Attached::default()));
    scene
}

pub(crate) async fn create(scene: &Scene, nodes: impl Iterator<Item = Value>) {
    let api: Api<Node> = Api::all(scene.client.clone());
    futures::stream::iter(nodes)
        .for_each_concurrent(AT_ONCE, |node| {
            let (api, node) = (api.clone(), serde_json::from_value(node).unwrap());
            async move { drop(api.create(&PostParams::default(), &node).await.unwrap()) }
        })
        .await;
}

pub(crate) async fn until(what: &str, mut is_true: impl AsyncFnMut() -> bool) {
    wait_within(PATIENCE, what, async || {
        sleep(Duration::from_secs(1)).await;
        is_true().await
    })
    .await;
}

pub(crate) fn instance(number: usize) -> String {
    format!("ocid1.instance.oc1.iad.i{number}")
}

/// A Node like OKE's: about 15 KB, most of it names of images.
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
    let mut conditions = ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"].map(condition).to_vec();
    conditions[3]["status"] = "True".into();
    json!({
        "metadata": { "name": format!("node-{number}"), "labels": pairs(25, "label"), "annotations": pairs(8, "annotation") },
        "spec": { "providerID": format!("oci://{}", instance(number)) },
        "status": {
            "images": (0..50).map(image).collect::<Vec<_>>(),
            "conditions": conditions,
        },
    })
}

/// Answers requests; never returns.
async fn serve(listener: TcpListener, attached: Attached) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let attached = attached.clone();
        let answer = service_fn(move |request: Request<Incoming>| {
            let attached = attached.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let answer = answer(&head, &body, &attached);
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(answer.to_string()))))
            }
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}

fn answer(request: &Parts, body: &[u8], attached: &Attached) -> Value {
    let path: Vec<&str> = request.uri.path().split('/').skip(2).collect();
    let query = request.uri.query().unwrap_or_default();
    let value_of =
        |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=')).unwrap_or_default();
    match path.as_slice() {
        ["instances", id] => json!({ "id": id, "compartmentId": COMPARTMENT, "lifecycleState": "RUNNING",
            "shape": "VM.Standard.E5.Flex", "shapeConfig": { "ocpus": 8.0, "maxVnicAttachments": 8 } }),
        ["vnicAttachments"] if request.method == Method::POST => {
            let request: Value = serde_json::from_slice(body).unwrap();
            let id = request["instanceId"].as_str().unwrap().to_owned();
            let mut all = attached.write().unwrap();
            let own = all.entry(id.clone()).or_default();
            own.push(request);
            attachment(&id, own.len(), own.last())
        }
        ["vnicAttachments"] => match value_of("instanceId") {
            "" => json!([]),
            id => {
                let all = attached.read().unwrap();
                let own = all.get(id).into_iter().flatten().enumerate();
                let own = own.map(|(index, request)| attachment(id, index + 1, Some(request)));
                std::iter::once(attachment(id, 0, None)).chain(own).collect()
            }
        },
        ["vnics", id] => vnic(id, attached),
        ["privateIps"] => json!([]),
        ["subnets", id] => json!({ "id": id, "compartmentId": COMPARTMENT, "cidrBlock": "10.0.0.0/8" }),
        other => panic!("unexpected request {other:?}"),
    }
}

/// 0 is the primary one.
fn attachment(id: &str, vnic: usize, request: Option<&Value>) -> Value {
    let number = id.rsplit(".i").next().unwrap_or_default();
    json!({ "id": format!("ocid1.vnicattachment.oc1.iad.a{number}-{vnic}"), "compartmentId": COMPARTMENT, "instanceId": id,
        "lifecycleState": "ATTACHED", "vnicId": format!("ocid1.vnic.oc1.iad.{number}-{vnic}"), "subnetId": SUBNET,
        "displayName": request.map(|request| request["displayName"].clone()) })
}

fn vnic(id: &str, attached: &Attached) -> Value {
    let (number, vnic) = id.rsplit('.').next().unwrap_or_default().split_once('-').unwrap_or_default();
    let (number, vnic): (usize, usize) = (number.parse().unwrap(), vnic.parse().unwrap());
    let all = attached.read().unwrap();
    let request = vnic.checked_sub(1).and_then(|index| all.get(&instance(number))?.get(index));
    let details = |field: &str| request.map(|request| request["createVnicDetails"][field].clone());
    json!({ "id": id, "compartmentId": COMPARTMENT, "lifecycleState": "AVAILABLE", "subnetId": SUBNET,
        "displayName": details("displayName"), "freeformTags": details("freeformTags").unwrap_or_else(|| json!({})),
        "macAddress": format!("02:00:17:{vnic:02x}:{:02x}:{:02x}", number / 256, number % 256),
        "privateIp": format!("10.{}.{}.{}", vnic, number / 250, number % 250), "isPrimary": vnic == 0 })
}
