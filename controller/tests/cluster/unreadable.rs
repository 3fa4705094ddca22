//! What other programs wrote into objects and we cannot read: it hides no other object, and the object can still be deleted.

use api::{FORCE_DETACH_ANNOTATION, Received};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube_harness::wait_until;
use sandbox::Operation;
use serde_json::{Value, json};

use crate::scene::{Scene, reason};

/// The API server takes times of more days than our types do.
const LAST_DAY: &str = "9999-12-31T23:59:59Z";

impl Scene {
    /// VnicAttachments as the API server has them.
    fn raw(&self) -> Api<Received<DynamicObject>> {
        let kind = GroupVersionKind::gvk(api::GROUP, api::VERSION, "VnicAttachment");
        Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind))
    }

    /// The definition as one without bounds of statuses.
    async fn accept_any_status(&self) {
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let definitions: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
        let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let path = "/spec/versions/0/schema/openAPIV3Schema/properties/status";
        let patch = json!([{ "op": "replace", "path": path, "value": any }]);
        let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
        definitions.patch("vnicattachments.oke.oraclecloud.com", &PatchParams::default(), &patch).await.unwrap();
    }

    async fn delete_raw(&self, name: &str) {
        self.raw().delete(name, &Default::default()).await.unwrap();
        let what = format!("{name} is gone");
        wait_until(&what, async || self.raw().get_opt(name).await.unwrap().is_none()).await;
    }

    /// Writes a part of a status, once the definition allows it.
    async fn spoil(&self, name: &str, status: Value) {
        wait_until("the definition allows it", async || {
            let patch = Patch::Merge(json!({ "status": status }));
            self.raw().patch_status(name, &PatchParams::default(), &patch).await.is_ok()
        })
        .await;
    }

    /// As a kubelet may write its Node, and anyone an object of its own.
    async fn rogue_node(&self, name: &str) {
        self.kubernetes
            .apply_object(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name } }))
            .await
            .unwrap();
        let condition =
            json!({ "type": "oke.oraclecloud.com/NetworkReady", "status": "True", "lastTransitionTime": LAST_DAY });
        let status = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
        let kind = ApiResource::erase::<Node>(&());
        let nodes: Api<Received<DynamicObject>> = Api::all_with(self.client.clone(), &kind);
        nodes.patch_status(name, &PatchParams::default(), &status).await.unwrap();
        nodes.patch(name, &PatchParams::default(), &writers()).await.unwrap();
        let request = kube::core::Request::new("/api/v1/nodes").get(name, &Default::default());
        let stored = self.client.request_text(request.unwrap()).await.unwrap();
        assert!(stored.contains(LAST_DAY), "{stored}");
    }
}

/// A list of writers with a time that only the API server can read.
fn writers() -> Patch<Value> {
    Patch::Merge(
        json!({ "metadata": { "managedFields": [{ "manager": "rogue", "operation": "Update", "apiVersion": "v1",
        "time": LAST_DAY, "fieldsType": "FieldsV1", "fieldsV1": { "f:metadata": { "f:labels": { "f:a": {} } } } }] } }),
    )
}

#[tokio::test]
async fn unreadable_parts_hide_no_object_and_keep_none() {
    let scene = Scene::with(2, 8, Default::default()).await;
    scene.accept_any_status().await;
    scene.rogue_node("rogue-1").await;
    let controller = scene.controller("one");
    for (name, instance) in [("reported", 0), ("used", 1)] {
        scene.want(name, instance, json!({ "purpose": "Attach", "ipv4Count": 1 })).await;
        // It is attached, and no agent reports.
        scene.wait_for_reason(name, "NotReported").await;
    }
    // By the watch.
    scene.rogue_node("rogue-2").await;
    scene.spoil("reported", json!({ "node": { "configured": true, "inUse": 1_000_000_000_000_000_u64 } })).await;
    let node = json!({ "configured": true, "inUse": 1, "generation": 1 });
    let conditions = json!([{ "type": "Ready", "status": "True", "reason": 7, "lastTransitionTime": LAST_DAY }]);
    let hostile =
        json!({ "node": node, "ownAddresses": ["x", 7], "conditions": conditions, "observedGeneration": "NaN" });
    scene.spoil("used", hostile).await;
    scene.delete("reported").await;
    scene.wait_until_gone("reported").await;
    scene.delete("used").await;
    scene.wait_for_reason("used", "InUse").await;
    let force = Patch::Merge(json!({ "metadata": { "annotations": { FORCE_DETACH_ANNOTATION: "true" } } }));
    scene.objects().patch("used", &PatchParams::default(), &force).await.unwrap();
    scene.wait_until_gone("used").await;
    assert_eq!(scene.cloud.answered(Operation::DetachVnic, 204), 2);

    // By the first list of another process.
    scene.want("listed", 0, json!({ "purpose": "Attach" })).await;
    scene.want("other", 1, json!({ "purpose": "Attach" })).await;
    scene.wait_for_reason("listed", "NotReported").await;
    scene.wait_for_reason("other", "NotReported").await;
    drop(controller);
    scene.spoil("listed", json!({ "node": { "configured": "x" }, "vnicId": ["x"], "conditions": "x" })).await;
    let _controller = scene.controller("one");
    wait_until("its status is written again", async || {
        let object = scene.raw().get("listed").await.unwrap().0.unwrap();
        let object = serde_json::from_value(json!({ "metadata": { "name": "listed" }, "spec": object.data["spec"],
            "status": object.data["status"] }));
        object.is_ok_and(|object| reason(&object) == "NotReported")
    })
    .await;
    scene.delete("other").await;
    scene.wait_until_gone("other").await;
    scene.delete_raw("listed").await;
    assert_eq!(scene.vnics(), Vec::<String>::new());
}
