//! What the node's agent reports, by a real API server: the conditions follow it, and what pods use stays until none does.

use api::condition::find;
use api::{ConditionType, FORCE_DETACH_ANNOTATION, NodeReport, VnicAttachment};
use kube::api::{Patch, PatchParams};
use kube_harness::wait_until;
use sandbox::Operation;
use serde_json::json;

use crate::scene::Scene;

impl Scene {
    /// As the agent of the object's node writes it.
    async fn report(&self, name: &str, report: NodeReport) {
        let NodeReport { configured, reason, in_use, generation } = report;
        let node = json!({ "configured": configured, "reason": reason, "inUse": in_use, "generation": generation });
        let patch = Patch::Merge(json!({ "status": { "node": node } }));
        self.objects().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn annotate(&self, name: &str, key: &str, value: &str) {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { key: value } } }));
        self.objects().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

fn used_by(in_use: u32, generation: i64) -> NodeReport {
    NodeReport { configured: true, reason: String::new(), in_use, generation: Some(generation) }
}

fn pod_addresses(object: &VnicAttachment) -> usize {
    object.status.as_ref().unwrap().pod_addresses.len()
}

#[tokio::test]
async fn vnic_in_use_is_kept_until_its_node_reports_unused() {
    let scene = Scene::new().await;
    let _controller = scene.controller("one");
    scene.want("shared", 0, json!({ "purpose": "Attach", "ipv4Count": 3 })).await;
    // It is attached, and the agent has not reported yet that pods can have it.
    let object = scene.wait_for_reason("shared", "NotReported").await;
    let configured = |object: &VnicAttachment| {
        let status = object.status.as_ref().unwrap();
        find(&status.conditions, ConditionType::Configured).unwrap().reason.clone()
    };
    assert_eq!((pod_addresses(&object), configured(&object)), (3, "NotReported".to_owned()));

    let missing = NodeReport { configured: false, reason: "LinkMissing".to_owned(), ..used_by(0, 1) };
    scene.report("shared", missing).await;
    let object = scene.wait_for_reason("shared", "NotConfigured").await;
    let ready = find(&object.status.as_ref().unwrap().conditions, ConditionType::Ready).unwrap().clone();
    assert!(ready.message.contains("LinkMissing"), "{ready:?}");
    scene.report("shared", used_by(2, 1)).await;
    assert_eq!(configured(&scene.wait_for_reason("shared", "Ready").await), "Configured");

    // The node has stopped new use; two pods are left, then none.
    scene.change("shared", json!({ "ipv4Count": 1 })).await;
    scene.wait_for_reason("shared", "InUse").await;
    scene.report("shared", used_by(2, 2)).await;
    scene.change("shared", json!({ "mtu": 1500 })).await;
    wait_until("the change is seen", async || {
        scene.get("shared").await.unwrap().status.unwrap().observed_generation == Some(3)
    })
    .await;
    assert_eq!(pod_addresses(&scene.wait_for_reason("shared", "InUse").await), 3);
    scene.report("shared", used_by(0, 3)).await;
    assert_eq!(pod_addresses(&scene.wait_for_reason("shared", "Ready").await), 1);

    scene.report("shared", used_by(1, 3)).await;
    scene.delete("shared").await;
    scene.wait_for_reason("shared", "InUse").await;
    assert_eq!(scene.cloud.answered(Operation::DetachVnic, 204), 0);
    scene.annotate("shared", FORCE_DETACH_ANNOTATION, "true").await;
    scene.wait_until_gone("shared").await;
    assert_eq!(scene.cloud.answered(Operation::DetachVnic, 204), 1);
}
