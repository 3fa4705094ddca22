//! Objects from before a rule became stricter: what was wrong already does not stand in the way of other changes.

use kube::api::{Patch, PatchParams, PostParams};
use kube_harness::ApiServer;
use serde_json::{Value, json};

use crate::cluster::{api, typed};
use crate::sample::{attachment, ocid, with};
use kube_harness::wait_for;

/// The definition as it is.
fn strict() -> Value {
    let found = api::crd::all().into_iter().find(|crd| crd.spec.names.kind == "VnicAttachment");
    serde_json::to_value(found.unwrap()).unwrap()
}

/// The definition, as a version without bounds and rules for routes and for sizes would have had it.
fn laxer() -> Value {
    let mut crd = strict();
    let whole = crd.pointer_mut("/spec/versions/0/schema/openAPIV3Schema").unwrap().as_object_mut().unwrap();
    whole.remove("x-kubernetes-validations").unwrap();
    let routes = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/routes/items";
    let routes = crd.pointer_mut(routes).unwrap().as_object_mut().unwrap();
    routes.remove("x-kubernetes-validations");
    let destination = routes["properties"]["destination"].as_object_mut().unwrap();
    destination.remove("x-kubernetes-validations");
    crd
}

#[tokio::test]
async fn older_object_violating_newer_rule_accepts_unrelated_changes() {
    let server = ApiServer::start().unwrap();
    let client = server.client(server.admin()).unwrap();
    server.apply_object(typed_crd(laxer())).await.unwrap();
    let attachments = api(&client, "VnicAttachment");
    let object = with(attachment("older"), json!({ "routes": [{ "destination": "0.0.0.0/0" }], "mtu": 9000 }));
    attachments.create(&PostParams::default(), &typed(&object)).await.unwrap();
    let groups: Value = (0..5).map(|number| ocid("networksecuritygroup", number)).collect();
    let large = json!({ "nsgIds": groups, "displayName": "d".repeat(255), "mtu": 9000 });
    attachments.create(&PostParams::default(), &typed(&with(attachment("large"), large))).await.unwrap();

    server.apply_object(typed_crd(strict())).await.unwrap();
    let change = |spec: Value| {
        let attachments = attachments.clone();
        async move {
            let patch = Patch::Merge(json!({ "spec": spec }));
            attachments.patch("older", &PatchParams::default(), &patch).await.map_err(|error| error.to_string())
        }
    };
    // The definition takes a moment to be the new one. Another value each time: one that was taken is not looked at again.
    let mut other = 0..=255;
    let refusal = wait_for("the stricter rules hold", async || {
        let destination = format!("10.0.{}.1/16", other.next().unwrap());
        change(json!({ "routes": [{ "destination": destination }] })).await.err()
    });
    let refusal = refusal.await;
    assert!(refusal.contains("must be a CIDR block without host bits"), "{refusal}");
    change(json!({ "mtu": 1500 })).await.unwrap();
    change(json!({ "routes": [{ "destination": "10.1.0.0/16" }] })).await.unwrap();

    // An object that is too large can be kept, get a status and be deleted; only its next spec must be smaller.
    let patch = |patch: Value| {
        let attachments = attachments.clone();
        async move { attachments.patch("large", &PatchParams::default(), &Patch::Merge(patch)).await }
    };
    patch(json!({ "metadata": { "finalizers": ["example.com/kept"] } })).await.unwrap();
    let status = Patch::Merge(json!({ "status": { "observedGeneration": 1 } }));
    attachments.patch_status("large", &PatchParams::default(), &status).await.unwrap();
    let refusal = patch(json!({ "spec": { "mtu": 1500 } })).await.unwrap_err().to_string();
    assert!(refusal.contains("is too large"), "{refusal}");
    patch(json!({ "spec": { "displayName": null } })).await.unwrap();
    patch(json!({ "metadata": { "finalizers": null } })).await.unwrap();
}

fn typed_crd(mut crd: Value) -> Value {
    crd["apiVersion"] = json!("apiextensions.k8s.io/v1");
    crd["kind"] = json!("CustomResourceDefinition");
    crd
}
