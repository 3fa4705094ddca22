//! What VnicAttachments take in etcd, written by the hands that write them: at most 2 KB.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::time::{Duration, Instant};

use api::condition::set_all;
use api::{
    AttachmentReason, Condition, ConditionType, VnicAttachment, VnicAttachmentStatus, VnicProfile, VnicTemplate,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use kube_harness::ApiServer;
use oke_node_controller::attachment::objects::{KubeObjects, Objects};
use oke_node_controller::profile::apply::apply;
use oke_node_controller::profile::plan::Step;
use oke_node_controller::profile::stamp::Stamp;
use serde_json::json;
use vcn::Ocid;

const MOST: usize = 2048;

/// As long as real ones get: newer regions are named in full, the last part has 60 characters.
fn ocid(kind: &str) -> Ocid {
    format!("ocid1.{kind}.oc1.eu-frankfurt-1.anyhqljtqn6sucaczptn5sxbqhqrbmzb7mhgeuqkxg6qwtjp3a5y4wl01234")
        .parse()
        .unwrap()
}

fn template() -> VnicTemplate {
    serde_json::from_value(json!({
        "name": "pods", "purpose": "Pods", "subnetId": ocid("subnet"), "nicIndex": 1, "ipv4Count": 31, "ipv6Count": 31,
        "nsgIds": [ocid("networksecuritygroup"), "ocid1.networksecuritygroup.oc1.eu-frankfurt-1.anyhqljtqn6sucaczptn5sxbqhqrbmzb7mhgeuqkxg6qwtjp3a5y4wl56789"],
    }))
    .unwrap()
}

fn status() -> VnicAttachmentStatus {
    let mut conditions = Vec::new();
    let said = |kind, reason| Condition::new(kind, reason, "", Time(Timestamp::from_second(1_795_000_000).unwrap()));
    set_all(
        &mut conditions,
        [
            said(ConditionType::Attached, AttachmentReason::Attached),
            said(ConditionType::Configured, AttachmentReason::NotReported),
            said(ConditionType::Ready, AttachmentReason::Ready),
        ],
    );
    VnicAttachmentStatus {
        observed_generation: Some(12),
        conditions,
        node_name: Some("10.255.255.254".to_owned()),
        vnic_id: Some(ocid("vnic")),
        mac_address: "02:00:17:0a:0b:0c".parse().ok(),
        vlan_tag: Some(4094),
        own_addresses: vec![
            "10.255.255.254".parse().unwrap(),
            "2603:c020:400e:fe00:1234:5678:9abc:def0".parse().unwrap(),
        ],
        ipv4_count: Some(31),
        ipv6_count: Some(31),
    }
}

/// Once the kind is served, which is a moment after it was defined.
async fn served(client: &Client) -> Api<VnicAttachment> {
    let server = ApiServer::shared().unwrap();
    for crd in api::crd::all() {
        server.apply_object(serde_json::to_value(crd).unwrap()).await.unwrap();
    }
    let objects: Api<VnicAttachment> = Api::all(client.clone());
    let deadline = Instant::now() + Duration::from_secs(120);
    while let Err(error) = objects.list(&ListParams::default()).await {
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    objects
}

/// The controller finds the object and writes how far it is; how many bytes etcd holds then.
async fn bytes(objects: &Api<VnicAttachment>, name: &str, status: &VnicAttachmentStatus) -> usize {
    let server = ApiServer::shared().unwrap();
    let worker = KubeObjects::new(objects.clone().into_client());
    let mut object = objects.get(name).await.unwrap();
    if object.finalizers().is_empty() {
        object = worker.set_finalizer(&object, true).await.unwrap().unwrap();
    }
    worker.write_status(&object, status).await.unwrap();
    let stored = server.stored(&format!("/registry/{}/vnicattachments/{name}", api::GROUP)).await.unwrap().unwrap();
    println!("{name}: {} bytes in etcd: {}", stored.len(), String::from_utf8_lossy(&stored));
    stored.len()
}

/// Bare metal, both families, a region with a long name, two security groups: more is asked of few.
#[tokio::test]
async fn a_large_vnic_of_a_profile_takes_less_than_two_kilobytes() {
    let server = ApiServer::shared().unwrap();
    let client = server.client(server.admin()).unwrap();
    let objects = served(&client).await;
    let spec = json!({ "nodeSelector": {}, "allNodes": true, "attachments": [template()] });
    let profile = VnicProfile::new("object-storage", serde_json::from_value(spec).unwrap());
    let stamp = Stamp::new(&profile, &std::sync::Arc::new(template()), &ocid("instance"), "10.255.255.254");
    let name = stamp.name.clone();
    for (step, outcome) in apply(&client, &[Step::Make(stamp)]).await {
        outcome.unwrap_or_else(|error| panic!("{step}: {error}"));
    }
    let bytes = bytes(&objects, &name, &status()).await;
    assert!(bytes <= MOST, "{bytes}");
}

/// Its spec and its finalizer have other writers, which costs bytes; a virtual machine with one family has fewer.
#[tokio::test]
async fn a_users_own_vnic_takes_less_than_two_kilobytes() {
    let server = ApiServer::shared().unwrap();
    let objects = served(&server.client(server.admin()).unwrap()).await;
    let name = "object-storage-gateway-1";
    let object = json!({
        "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment", "metadata": { "name": name },
        "spec": {
            "instanceId": ocid("instance"), "subnetId": ocid("subnet"), "name": "object-storage", "purpose": "Attach",
            "allowedNamespaces": ["gateways"], "ipv4Count": 4, "nsgIds": [ocid("networksecuritygroup")],
        },
    });
    let by_kubectl = PatchParams::apply("kubectl");
    objects.patch(name, &by_kubectl, &Patch::Apply(&object)).await.unwrap();
    let status = VnicAttachmentStatus {
        vlan_tag: None,
        own_addresses: vec!["10.255.255.254".parse().unwrap()],
        ipv4_count: Some(4),
        ipv6_count: None,
        ..status()
    };
    let bytes = bytes(&objects, name, &status).await;
    assert!(bytes <= MOST, "{bytes}");
}
