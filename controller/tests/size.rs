//! What VnicAttachments take in etcd, everything counted, written by the hands that write them: at most 2 KB for what a
//! VnicProfile makes, whatever the definitions let through, and for what is asked for as a rule.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::condition::MESSAGE_MAX;
use api::{
    AttachmentReason as Reason, NODE_NAME_MAX, OBJECT_MAX, VnicAttachment, VnicAttachmentStatus, VnicProfile,
    VnicTemplate,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use kube_harness::ApiServer;
use oke_node_controller::attachment::objects::{KubeObjects, Objects};
use oke_node_controller::attachment::status;
use oke_node_controller::attachment::verdict::{Facts, Said, Verdict};
use oke_node_controller::profile::apply::apply;
use oke_node_controller::profile::plan::Step;
use oke_node_controller::profile::stamp::Stamp;
use serde_json::{Value, json};
use vcn::Ocid;

/// As long as real ones get: newer regions are named in full, the last part has 60 characters.
fn ocid(kind: &str, number: usize) -> String {
    format!("ocid1.{kind}.oc1.eu-frankfurt-1.anyhqljtqn6sucaczptn5sxbqhqrbmzb7mhgeuqkxg6qwtjp3a5y4wl{number:05}")
}

fn instance() -> Ocid {
    ocid("instance", 1).parse().unwrap()
}

fn addresses() -> Vec<IpAddr> {
    ["10.255.255.254", "2603:c020:400e:fe00:1234:5678:9abc:def0"].map(|text| text.parse().unwrap()).into()
}

/// Bare metal, both families, two security groups: more is asked of few.
fn large() -> Value {
    json!({
        "name": "pods", "purpose": "Pods", "subnetId": ocid("subnet", 1), "nicIndex": 1, "ipv4Count": 31, "ipv6Count": 31,
        "nsgIds": (0..2).map(|number| ocid("networksecuritygroup", number)).collect::<Value>(),
    })
}

fn in_order() -> Verdict {
    let facts = Facts { vnic_id: ocid("vnic", 1).parse().ok(), own_addresses: addresses(), ..Facts::default() };
    let ready = Some(Said::new(Reason::Ready, "the VNIC is as asked"));
    Verdict { attached: Said::new(Reason::Attached, "the VNIC is on the instance"), ready, facts }
}

fn refused(reason: Reason) -> Said {
    Said { request_id: Some("F".repeat(32)), ..Said::new(reason, "<".repeat(MESSAGE_MAX)) }
}

/// Everything that is ever said.
fn verdicts() -> [Verdict; 3] {
    let attached = Verdict { ready: Some(refused(Reason::NotAuthorizedOrNotFound)), ..in_order() };
    let not =
        Verdict { attached: refused(Reason::NotAuthorizedOrNotFound), ..Verdict::without_vnic(Reason::Pending, "") };
    [in_order(), attached, not]
}

/// Objects once the kinds are served, which is a moment after they were defined, and a client.
async fn objects() -> (Client, Api<VnicAttachment>) {
    let server = ApiServer::shared().unwrap();
    let client = server.client(server.admin()).unwrap();
    for crd in api::crd::all() {
        server.apply_object(serde_json::to_value(crd).unwrap()).await.unwrap();
    }
    let (objects, profiles): (Api<VnicAttachment>, Api<VnicProfile>) =
        (Api::all(client.clone()), Api::all(client.clone()));
    let deadline = Instant::now() + Duration::from_secs(120);
    while objects.list(&ListParams::default()).await.is_err() || profiles.list(&ListParams::default()).await.is_err() {
        assert!(Instant::now() < deadline, "the kinds are not served");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (client, objects)
}

async fn stored(name: &str) -> String {
    let key = format!("/registry/{}/vnicattachments/{name}", api::GROUP);
    String::from_utf8(ApiServer::shared().unwrap().stored(&key).await.unwrap().unwrap()).unwrap()
}

/// The controller finds the object and says this of it; how many bytes etcd holds then.
async fn bytes(objects: &Api<VnicAttachment>, name: &str, verdict: &Verdict) -> usize {
    let worker = KubeObjects::new(objects.clone().into_client());
    let mut object = objects.get(name).await.unwrap();
    if object.finalizers().is_empty() {
        object = worker.set_finalizer(&object, true).await.unwrap().unwrap();
    }
    let now = Time(Timestamp::from_second(1_795_000_000).unwrap());
    let node = "n".repeat(NODE_NAME_MAX);
    let node = if name.contains("longest") { node.as_str() } else { "10.255.255.254" };
    if let Some(status) = status::status(&object, object.status.as_ref(), verdict, Some(node), &now) {
        worker.write_status(&object, &status).await.unwrap();
    }
    let stored = stored(name).await;
    println!("{name}: {} bytes in etcd: {stored}", stored.len());
    stored.len()
}

async fn make(client: &Client, profile: &str, template: &Value) -> String {
    let template: VnicTemplate = serde_json::from_value(template.clone()).unwrap();
    let spec = json!({ "nodeSelector": {}, "allNodes": true, "attachments": [template] });
    let profile = VnicProfile::new(profile, serde_json::from_value(spec).unwrap());
    let stamp = Stamp::new(&profile, &Arc::new(template), &instance(), "10.255.255.254");
    let name = stamp.name.clone();
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    for (step, outcome) in apply(client, &[&Step::Make(stamp)], end).await {
        outcome.unwrap_or_else(|error| panic!("{step}: {error}"));
    }
    name
}

#[tokio::test]
async fn a_large_vnic_of_a_profile_takes_far_less_than_two_kilobytes() {
    let (client, objects) = objects().await;
    let name = make(&client, "object-storage", &large()).await;
    let bytes = bytes(&objects, &name, &in_order()).await;
    assert!(bytes <= 1500, "{bytes}");
}

/// The finalizer has another writer than the spec, which costs bytes.
async fn users(objects: &Api<VnicAttachment>, name: &str, spec: Value) {
    let object = json!({
        "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment", "metadata": { "name": name }, "spec": spec,
    });
    objects.patch(name, &PatchParams::apply("kubectl"), &Patch::Apply(&object)).await.unwrap();
}

#[tokio::test]
async fn a_users_own_vnic_takes_less_than_two_kilobytes_unless_it_is_attached_and_something_is_refused() {
    let (_, objects) = objects().await;
    let mut metal = large();
    metal["instanceId"] = json!(instance());
    let gateway = json!({
        "instanceId": instance(), "subnetId": ocid("subnet", 1), "name": "storage", "purpose": "Attach",
        "allowedNamespaces": ["storage-gateways", "backup"], "nsgIds": [ocid("networksecuritygroup", 1)], "mtu": 1500,
        "routes": [{ "destination": "172.16.0.0/12" }], "freeformTags": { "cost-center": "storage" }, "ipv4Count": 4,
    });
    let [in_order, incomplete, not_attached] = verdicts();
    for (name, spec) in [("metal", metal), ("object-storage-gateway-1", gateway)] {
        users(&objects, name, spec).await;
        for (verdict, most) in [(&in_order, OBJECT_MAX), (&not_attached, OBJECT_MAX), (&incomplete, 2200)] {
            let bytes = bytes(&objects, name, verdict).await;
            assert!(bytes <= most, "{name}: {bytes}");
        }
    }
}

/// Templates that are as large as they may be but for their display names, each in another way.
fn fillings() -> [(&'static str, Value); 4] {
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
        ("routes", with(json!({ "routes": routes(6).collect::<Value>(), "nsgIds": groups(1) }))),
        ("tags", with(json!({ "freeformTags": tags, "allowedNamespaces": ["n".repeat(63), "a"], "mtu": 1500 }))),
        (
            "numbers",
            with(json!({ "ipv4Count": 255, "ipv6Count": 255, "nicIndex": 1, "mtu": 9000, "skipSourceDestCheck": true,
                "assignPublicIp": true, "onDelete": "Orphan", "nsgIds": groups(2) })),
        ),
    ]
}

/// The longest display name that the API server takes in a profile of this name.
async fn longest(client: &Client, profile: &str, template: &Value) -> Value {
    let profiles: Api<VnicProfile> = Api::all(client.clone());
    let (mut fits, mut too_long) = (0, 256);
    let named = |length: usize| {
        let mut template = template.clone();
        if length > 0 {
            template["displayName"] = json!("d".repeat(length));
        }
        template
    };
    while too_long - fits > 1 {
        let length = usize::midpoint(fits, too_long);
        let spec = json!({ "nodeSelector": {}, "allNodes": true, "attachments": [named(length)] });
        let object = VnicProfile::new(profile, serde_json::from_value(spec).unwrap());
        match profiles.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await {
            Ok(_) => fits = length,
            Err(kube::Error::Api(status)) if status.message.contains("is too large") => too_long = length,
            Err(error) => panic!("{error}"),
        }
    }
    assert!((1..255).contains(&fits), "it is the size that bounds it: {fits}: {template}");
    named(fits)
}

#[tokio::test]
async fn the_largest_that_a_profile_can_make_takes_two_kilobytes_whatever_is_said_of_it() {
    let (client, objects) = objects().await;
    let mut most = 0;
    for (filling, template) in fillings() {
        let profile = format!("longest-{filling}{}", "p".repeat(40 - filling.len()));
        let name = make(&client, &profile, &longest(&client, &profile, &template).await).await;
        for verdict in verdicts() {
            most = most.max(bytes(&objects, &name, &verdict).await);
        }
        objects.delete(&name, &DeleteParams::default()).await.unwrap();
        let facts = Facts { vnic_id: ocid("vnic", 1).parse().ok(), ..Facts::default() };
        let leaving = Verdict { attached: refused(Reason::NotAuthorizedOrNotFound), ready: None, facts };
        most = most.max(bytes(&objects, &name, &leaving).await);
    }
    println!("the largest takes {most} bytes");
    assert!((OBJECT_MAX - 100..=OBJECT_MAX).contains(&most), "{most}");
}

/// The API server writes down who wrote the spec, the finalizer and the status: 0.6 KB that cannot be taken away without a
/// conflict at the user's next apply.
#[tokio::test]
async fn the_largest_of_a_users_own_takes_less_than_three_kilobytes() {
    let (_, objects) = objects().await;
    let mut most = 0;
    for (filling, mut spec) in fillings() {
        let name = format!("longest-{filling}");
        spec["instanceId"] = json!(instance());
        let mut fits = 0;
        for length in 1..=255 {
            spec["displayName"] = json!("d".repeat(length));
            let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment",
                "metadata": { "name": name }, "spec": spec });
            let dry = PostParams { dry_run: true, ..PostParams::default() };
            if objects.create(&dry, &serde_json::from_value(object).unwrap()).await.is_err() {
                break;
            }
            fits = length;
        }
        spec["displayName"] = json!("d".repeat(fits));
        users(&objects, &name, spec).await;
        for verdict in verdicts() {
            most = most.max(bytes(&objects, &name, &verdict).await);
        }
    }
    println!("the largest of a user's own takes {most} bytes");
    assert!((OBJECT_MAX..=2600).contains(&most), "{most}");
}

#[tokio::test]
async fn a_status_is_written_whole_and_only_to_the_very_object() {
    let (client, objects) = objects().await;
    let spec = json!({ "instanceId": instance(), "subnetId": ocid("subnet", 1), "name": "whole", "purpose": "Host" });
    users(&objects, "whole", spec.clone()).await;
    bytes(&objects, "whole", &in_order()).await;
    let mut old = objects.get("whole").await.unwrap();
    let worker = KubeObjects::new(client);
    let less = VnicAttachmentStatus { observed_generation: Some(1), ..VnicAttachmentStatus::default() };
    worker.write_status(&old, &less).await.unwrap();
    assert_eq!(objects.get("whole").await.unwrap().status, Some(less.clone()));
    old = objects.get("whole").await.unwrap();
    worker.set_finalizer(&old, false).await.unwrap().unwrap();
    objects.delete("whole", &DeleteParams::default()).await.unwrap();
    worker.write_status(&old, &less).await.unwrap();
    users(&objects, "whole", spec).await;
    let refused = worker.write_status(&old, &less).await.unwrap_err();
    assert!(refused.is_conflict(), "{refused:?}");
    assert_eq!(objects.get("whole").await.unwrap().status, None);
}
