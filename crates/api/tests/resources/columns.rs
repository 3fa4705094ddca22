//! What `kubectl get` shows: the API server makes the table.

use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use serde_json::{Value, json};

use crate::cluster::{api, client, typed};
use crate::sample::{attachment, network_test, ocid, profile};

/// Headings and the cells of one object, but for its age; those of `-o wide` too where that is asked for.
async fn row(client: &kube::Client, plural: &str, name: &str, wide: bool) -> Vec<(String, Value)> {
    let path = format!("/apis/{}/{}/{plural}", api::GROUP, api::VERSION);
    let mut request = Request::new(path).get(name, &Default::default()).unwrap();
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io".parse().unwrap();
    request.headers_mut().insert("accept", table);
    let table: Value = client.request(request).await.unwrap();
    let cells = table["rows"][0]["cells"].as_array().unwrap().clone();
    let columns = table["columnDefinitions"].as_array().unwrap().iter().zip(cells);
    let shown = columns.filter(|(column, _)| wide || column["priority"] == 0);
    let shown = shown.map(|(column, cell)| (column["name"].as_str().unwrap().to_owned(), cell));
    shown.filter(|(name, _)| name != "Age").collect()
}

fn cells(expected: &[(&str, Value)]) -> Vec<(String, Value)> {
    expected.iter().map(|(name, cell)| ((*name).to_owned(), cell.clone())).collect()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-11-21T20:00:00Z", "observedGeneration": 1,
    })
}

#[tokio::test]
async fn an_attachment_is_shown_with_its_node_address_and_state() {
    let client = client().await;
    let attachments = api(&client, "VnicAttachment");
    attachments.create(&PostParams::default(), &typed(&attachment("columns"))).await.unwrap();
    let name = ("Name", json!("columns"));
    let storage = ("VNIC-Name", json!("storage"));
    let before = [
        name.clone(),
        ("Node", Value::Null),
        storage.clone(),
        ("Address", Value::Null),
        ("Ready", Value::Null),
        ("Reason", Value::Null),
    ];
    assert_eq!(row(&client, "vnicattachments", "columns", false).await, cells(&before));

    let status = json!({ "status": {
        "nodeName": "10.0.0.2", "vnicId": ocid("vnic", 7), "ownAddresses": ["10.0.32.2", "2603:c020:0:2::2"],
        "conditions": [
            condition("Attached", "True", "Attached", ""),
            condition("Ready", "False", "SubnetFull", "no free address"),
        ],
    }});
    attachments.patch_status("columns", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let narrow = [
        name.clone(),
        ("Node", json!("10.0.0.2")),
        storage.clone(),
        ("Address", json!("10.0.32.2")),
        ("Ready", json!("False")),
        ("Reason", json!("SubnetFull")),
    ];
    assert_eq!(row(&client, "vnicattachments", "columns", false).await, cells(&narrow));
    let wide = [
        ("VNIC", json!(ocid("vnic", 7))),
        ("Subnet", json!(ocid("subnet", 1))),
        ("Instance", json!(ocid("instance", 1))),
        ("Message", json!("no free address")),
    ];
    let wide: Vec<_> = narrow.into_iter().chain(wide).collect();
    assert_eq!(row(&client, "vnicattachments", "columns", true).await, cells(&wide));
}

#[tokio::test]
async fn a_profile_is_shown_with_its_nodes_counted() {
    let client = client().await;
    let profiles = api(&client, "VnicProfile");
    profiles.create(&PostParams::default(), &typed(&profile("columns"))).await.unwrap();
    let status = json!({ "status": {
        "summary": { "matched": 9, "attached": 8, "ready": 7, "failed": 1 },
        "conditions": [condition("Ready", "False", "Failing", "1 node")],
    }});
    profiles.patch_status("columns", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let narrow = [
        ("Name", json!("columns")),
        ("Ready", json!("False")),
        ("Reason", json!("Failing")),
        ("Matched", json!(9)),
        ("Attached", json!(8)),
        ("Nodes-Ready", json!(7)),
        ("Failed", json!(1)),
    ];
    assert_eq!(row(&client, "vnicprofiles", "columns", false).await, cells(&narrow));
}

#[tokio::test]
async fn network_test_is_shown_with_its_state_and_worst_verdict() {
    let client = client().await;
    let tests = api(&client, "NetworkTest");
    tests.create(&PostParams::default(), &typed(&network_test("columns"))).await.unwrap();
    let status = json!({ "status": {
        "state": "Finished", "worstVerdict": "Likely: SecurityList",
        "counts": { "pairs": 9, "tested": 9, "failed": 1, "unknown": 0, "sent": 45, "lost": 5 },
    }});
    tests.patch_status("columns", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let narrow = [
        ("Name", json!("columns")),
        ("State", json!("Finished")),
        ("Pairs", json!(9)),
        ("Failed", json!(1)),
        ("Lost", json!(5)),
        ("Worst", json!("Likely: SecurityList")),
    ];
    assert_eq!(row(&client, "networktests", "columns", false).await, cells(&narrow));
}

#[tokio::test]
async fn resources_have_short_names_and_category_oke() {
    let client = client().await;
    let served = client.list_api_group_resources(&format!("{}/{}", api::GROUP, api::VERSION)).await.unwrap();
    let named: Vec<Value> = served
        .resources
        .into_iter()
        .map(|resource| json!([resource.name, resource.short_names, resource.categories, resource.namespaced]))
        .collect();
    let expected = [
        json!(["networktests", ["nettest"], ["oke"], false]),
        json!(["vnicattachments", ["vnica"], ["oke"], false]),
        json!(["vnicprofiles", ["vnicp"], ["oke"], false]),
    ];
    for resource in expected {
        assert!(named.contains(&resource), "{resource} is not in {named:?}");
    }
}

#[tokio::test]
async fn attachments_are_found_by_their_instance() {
    let client = client().await;
    let attachments = api(&client, "VnicAttachment");
    for number in [71, 72] {
        let mut object = attachment(&format!("found-{number}"));
        object["spec"]["instanceId"] = json!(ocid("instance", number));
        attachments.create(&PostParams::default(), &typed(&object)).await.unwrap();
    }
    let selector = format!("spec.instanceId={}", ocid("instance", 72));
    let found = attachments.list(&kube::api::ListParams::default().fields(&selector)).await.unwrap();
    let names: Vec<_> = found.items.into_iter().map(|object| object.metadata.name.unwrap()).collect();
    assert_eq!(names, ["found-72"]);
}
