//! The agent follows the VnicAttachments of its instance with its own rights, under the admission policy, and reports into them.

use std::path::Path;

use api::{NodeReport, VnicAttachment};
use ipam::{BootTime, PodRecord};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use netlink::{LinkChange, Netns, Socket};
use serde_json::{Value, json};
use telemetry::{Delivery, Sink, VerbRecord};
use vcn::IfName;

use crate::events::Scene;
use crate::metadata::vnic;
use crate::node::{Agent, wait_for};
use crate::pod::{hold, store};
use crate::served::LIST_VNICS;

/// The record of a pod's interface.
const POD: &str = "vnic-attach/c1/net1";

/// A node with a VNIC `more` that several pods are to share, once it is requested.
fn scene() -> Scene {
    let scene = Scene::new();
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/base/crds.yaml");
    scene.cluster.do_(async |server| server.apply(&crds).await.unwrap());
    scene.cluster.wait_may(LIST_VNICS, true);
    scene
}

impl Scene {
    fn with_vnics<T: Send>(&self, work: impl AsyncFnOnce(Api<VnicAttachment>, Client) -> T + Send) -> T {
        self.cluster.do_(async |server| {
            let client = server.client(server.admin()).unwrap();
            work(Api::all(client.clone()), client).await
        })
    }

    /// A user requests the VNIC `more` so, or changes that.
    fn request(&self, more: Value) {
        let mut spec = json!({ "instanceId": "ocid1.instance.oc1.iad.node", "subnetId": "ocid1.subnet.oc1.iad.s",
            "name": "more", "purpose": "Attach" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let object = json!({ "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment",
            "metadata": { "name": "more", "finalizers": ["oke.oraclecloud.com/vnic"] }, "spec": spec });
        self.with_vnics(async |vnics, _| {
            vnics.patch("more", &PatchParams::apply("kubectl").force(), &Patch::Apply(object)).await.unwrap();
        });
    }

    /// The controller has attached it.
    fn attached(&self) {
        let status = json!({ "vnicId": "ocid1.vnic.oc1.iad.more", "nodeName": "node", "ownAddresses": ["10.0.34.7"],
            "podAddresses": ["10.0.34.8", "10.0.34.9"] });
        self.with_vnics(async |vnics, _| {
            let patch = Patch::Merge(json!({ "status": status }));
            vnics.patch_status("more", &PatchParams::default(), &patch).await.unwrap();
        });
    }

    fn report(&self) -> Option<NodeReport> {
        self.with_vnics(async |vnics, _| vnics.get("more").await.unwrap().status?.node)
    }

    fn wait_report(&self, agent: &Agent, in_use: u32, generation: i64) {
        self.wait_report_of(agent, "", in_use, generation);
    }

    /// With the reason why it is not configured, if it is not.
    fn wait_report_of(&self, agent: &Agent, reason: &str, in_use: u32, generation: i64) {
        let (configured, reason) = (reason.is_empty(), reason.to_owned());
        let expected = NodeReport { configured, reason, in_use, generation: Some(generation) };
        wait_for(
            "the report",
            || self.report() == Some(expected.clone()),
            || format!("{:?}\n{}", self.report(), agent.log()),
        );
    }

    /// What pods are offered of it.
    fn offer(&self) -> Value {
        let pools = self.cluster.node.pools();
        let vnics = pools["vnics"].as_array().cloned().unwrap_or_default();
        let offer =
            vnics.into_iter().find(|vnic| vnic["vnicId"] == "ocid1.vnic.oc1.iad.more" && vnic["attach"] != Value::Null);
        offer.unwrap_or_default()
    }

    fn wait_offer(&self, agent: &Agent, what: &str, is_so: impl Fn(&Value) -> bool) {
        wait_for(what, || is_so(&self.offer()), || format!("{}\n{}", self.offer(), agent.log()));
    }

    /// A pod gets an address of it.
    fn hold(&self) {
        hold(&self.cluster.node, POD);
    }

    fn release(&self) {
        let store = store(&self.cluster.node);
        let end = |held: &mut ipam::Allocations| Ok(held.release(&POD.parse().unwrap(), BootTime::now()?));
        store.update::<_, ipam::Error>(end).unwrap().unwrap();
    }

    /// Another program detaches it, and the machine loses the device.
    fn detach(&self) {
        self.cluster.node.metadata.set_vnics(vec![vnic("primary", 10), vnic("pods", 33)]);
        self.cluster.node.on(|socket| socket.delete_link_named(&"ens6".parse().unwrap()).unwrap());
    }

    fn watches(&self) -> u64 {
        self.cluster.counted_of("vnicattachments", "apiserver_longrunning_requests", "WATCH")
    }
}

#[test]
fn agent_applies_requests_reports_use_and_remembers_them_without_api() {
    let scene = scene();
    scene.request(json!({ "ipv4Count": 2, "allowedNamespaces": ["backup"] }));
    let agent = scene.cluster.node.agent(&["--dead-after-seconds", "3600"]);
    wait_for("the watch", || scene.watches() == 1, || agent.log());
    assert_eq!((scene.offer(), scene.report()), (Value::Null, None), "the controller has not attached it");
    scene.attached();
    scene
        .wait_offer(&agent, "the offer", |offer| offer["ipv4"]["addresses"] == json!(["10.0.34.8/32", "10.0.34.9/32"]));
    scene.wait_report(&agent, 0, 1);
    let (_, status) = scene.cluster.node.run(&["status"]);
    assert!(status.contains("attach more"), "{status}");
    scene.hold();
    scene.wait_report(&agent, 1, 1);

    // Fewer addresses: new use ends before the controller hears that it may go on.
    scene.request(json!({ "ipv4Count": 1, "allowedNamespaces": ["backup"] }));
    scene.wait_report(&agent, 1, 2);
    assert_eq!(scene.offer()["attach"]["isLeaving"], true);
    scene.request(json!({ "ipv4Count": 2, "allowedNamespaces": ["other"] }));
    scene.wait_report(&agent, 1, 3);
    assert_eq!(scene.offer()["attach"]["allowedNamespaces"], json!(["other"]));
    let writes = || scene.cluster.counted_of("vnicattachments", "apiserver_request_total", "PATCH");
    let before = writes();
    scene.cluster.node.wait_timer_passes(&agent, 8);
    assert_eq!(writes(), before, "nothing is written while nothing changes");

    let agent = agent;
    agent.stop();
    scene.cluster.server.stop().unwrap();
    std::fs::remove_file(scene.cluster.node.path("run/pools.json")).unwrap();
    let agent = scene.cluster.node.agent(&["--dead-after-seconds", "3600"]);
    scene.wait_offer(&agent, "the offer of the cached copy", |offer| offer["attach"]["name"] == "more");
    scene.cluster.node.inside(|| scene.cluster.server.start_again().unwrap());
    scene.with_vnics(async |vnics, _| drop(vnics.delete("more", &DeleteParams::default()).await.unwrap()));
    scene.wait_offer(&agent, "the end of new use", |offer| offer["attach"]["isLeaving"] == true);
    scene.wait_report(&agent, 1, 4);

    // It is forced, and then nothing is left that a VnicAttachment may describe.
    scene.detach();
    scene.wait_report_of(&agent, "VnicNotListed", 1, 4);
    assert_eq!(scene.offer(), Value::Null, "no other pod gets it");
    scene.release();
    scene.wait_report_of(&agent, "VnicNotListed", 0, 4);
    wait_for("the end of the watch", || scene.watches() == 0, || agent.log());
}

/// Neither the timer, an hour, nor the wait before other Events would show it in time.
#[test]
fn vnic_whose_link_another_namespace_has_is_reported_until_it_returns() {
    let scene = scene();
    scene.request(json!({ "mode": "Exclusive", "allowedNamespaces": ["team-a"] }));
    let node = &scene.cluster.node;
    let agent = node.agent(&["--resync-seconds", "3600", "--dead-after-seconds", "3600"]);
    scene.attached();
    scene.wait_offer(&agent, "the offer", |offer| offer["attach"]["mode"] == "Exclusive");
    scene.wait_report(&agent, 0, 1);
    scene.hold();
    let elsewhere = Netns::create().unwrap();
    let link: IfName = "ens6".parse().unwrap();
    node.on(|socket| {
        let index = socket.index_of(&link).unwrap();
        socket.change_link(index, &[LinkChange::Netns(&elsewhere)]).unwrap();
    });
    scene.wait_report(&agent, 1, 1);

    // A DEL comes.
    let link_of_pod =
        json!({ "link": link, "mac": "02:00:17:00:00:22", "kind": "veth", "identity": { "index": 4000 } });
    let leave = |held: &mut ipam::Allocations| {
        let allocation = held.allocations.iter_mut().find(|held| held.key.to_string() == POD).unwrap();
        allocation.pod = Some(PodRecord { namespace: "team-a".into(), name: "web-0".into(), uid: None });
        allocation.exclusive = Some(serde_json::from_value(link_of_pod).unwrap());
        let attached = json!({ "network": "pods", "vnic": "more" });
        allocation.attached = Some(serde_json::from_value(attached).unwrap());
        allocation.unreturned_since = Some(BootTime::now().unwrap());
        Ok::<_, ipam::Error>(())
    };
    store(node).update(leave).unwrap();
    let sent = Sink::new(node.path("run")).send(&VerbRecord::begin("vnic-attach", "0", "DEL"));
    assert_eq!(sent, Delivery::Agent);
    scene.wait_report_of(&agent, "LinkNotReturned", 1, 1);
    scene.wait_reported(&agent, &["Warning LinkNotReturned ConditionRaised"]);
    let note = scene.events().pop().unwrap().note.unwrap_or_default();
    for part in ["pod team-a/web-0 is gone, and the link ens6", "VNIC more", "`lsns -t net"] {
        assert!(note.contains(part), "{note}");
    }

    // The namespace ends, and the kernel returns the link.
    let mut inside = Socket::open_in(&elsewhere).unwrap();
    let index = inside.index_of(&link).unwrap();
    inside
        .change_link(index, &[LinkChange::Netns(&node.inside(|| Netns::current().unwrap())), LinkChange::RenameFree])
        .unwrap();
    scene.wait_report(&agent, 0, 1);
    scene
        .wait_reported(&agent, &["Warning LinkNotReturned ConditionRaised", "Normal LinkNotReturned ConditionCleared"]);
    wait_for("its name", || node.on(|socket| socket.link(&link).is_ok()), || agent.log());
    assert_eq!(store(node).read().unwrap().allocations, []);
}
