//! What `kubectl get` shows: the API server makes the table.

use kube::api::{Patch, PatchParams, PostParams};
use kube::core::Request;
use serde_json::{Value, json};

use crate::cluster::{api, client, typed};
use crate::sample::{attachment, network_test, node_policy, node_task, ocid, profile, with};

/// Headings and the cells of one object, but for its age; those of `-o wide` too where that is requested.
async fn row(client: &kube::Client, plural: &str, wide: bool) -> String {
    let path = format!("/apis/{}/{}/{plural}", api::GROUP, api::VERSION);
    let mut request = Request::new(path).get("columns", &Default::default()).unwrap();
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io".parse().unwrap();
    request.headers_mut().insert("accept", table);
    let table: Value = client.request(request).await.unwrap();
    let cells = table["rows"][0]["cells"].as_array().unwrap().clone();
    let columns = table["columnDefinitions"].as_array().unwrap().iter().zip(cells);
    let shown = columns.filter(|(column, _)| column["name"] != "Age" && (wide || column["priority"] == 0));
    shown
        .map(|(column, cell)| format!("{}={cell} ", column["name"].as_str().unwrap()))
        .collect::<String>()
        .replace('"', "")
}

fn conditions(reason: &str, message: &str) -> Value {
    json!([{ "type": "Ready", "status": "False", "reason": reason, "message": message,
        "lastTransitionTime": "2026-11-21T20:00:00Z", "observedGeneration": 1 }])
}

#[tokio::test]
async fn objects_are_shown_with_node_address_state_and_counts() {
    let client = client().await;
    let [subnet, instance, vnic] = ["subnet", "instance", "vnic"].map(|kind| ocid(kind, 1));
    for (plural, object, status, narrow, wide) in [
        (
            "vnicattachments",
            with(attachment("columns"), json!({ "subnetRoute": true })),
            json!({ "nodeName": "10.0.0.2", "vnicId": vnic, "ownAddresses": ["10.0.32.2", "2603:c020:0:2::2"],
                "conditions": conditions("SubnetFull", "no free address") }),
            "Name=columns Node=10.0.0.2 VNIC-Name=storage Address=10.0.32.2 Ready=False Reason=SubnetFull ",
            format!("Subnet-Route=true VNIC={vnic} Subnet={subnet} Instance={instance} Message=no free address "),
        ),
        (
            "vnicprofiles",
            profile("columns"),
            json!({ "summary": { "matched": 9, "attached": 8, "ready": 7, "failed": 1 },
                "conditions": conditions("Failing", "1 node") }),
            "Name=columns Ready=False Reason=Failing Matched=9 Attached=8 Nodes-Ready=7 Failed=1 ",
            String::new(),
        ),
        (
            "networktests",
            network_test("columns"),
            json!({ "state": "Finished", "worstVerdict": "Likely: SecurityList",
                "counts": { "pairs": 9, "tested": 9, "failed": 1, "unknown": 0, "sent": 45, "lost": 5 } }),
            "Name=columns State=Finished Pairs=9 Failed=1 Lost=5 Worst=Likely: SecurityList ",
            String::new(),
        ),
        (
            "nodepolicies",
            with(node_policy("columns"), json!({ "mode": "Apply", "priority": 200 })),
            json!({ "createdBy": "alice", "nodes": { "matched": 40, "target": 3, "stable": 37, "failed": 0, "drifted": 1,
                "driftedItems": 2, "conflicted": 0, "unsupported": 0, "unavailable": 0 }, "conditions": [
                    { "type": "Progressing", "status": "True", "reason": "Canary", "message": "node-7",
                        "lastTransitionTime": "2026-11-21T20:00:00Z" },
                    { "type": "Applied", "status": "False", "reason": "Drifted", "lastTransitionTime": "2026-11-21T20:00:00Z" },
            ] }),
            "Name=columns Mode=Apply Progress=Canary Applied=False Reason=Drifted Nodes=40 Target=3 Failed=0 Drifted=2 ",
            "Priority=200 Created-By=alice Message=node-7 ".to_owned(),
        ),
        (
            "nodetasks",
            node_task("columns"),
            json!({ "state": "Failed", "reason": "UnitNotActive", "message": "crio.service", "createdBy": "alice",
                "nodes": { "matched": 3, "succeeded": 1, "failed": 1, "skipped": 1 } }),
            "Name=columns State=Failed Reason=UnitNotActive Node=10.0.10.2 Nodes=3 Succeeded=1 Failed=1 ",
            "Skipped=1 Created-By=alice Message=crio.service ".to_owned(),
        ),
    ] {
        let objects = api(&client, object["kind"].as_str().unwrap());
        objects.create(&PostParams::default(), &typed(&object)).await.unwrap();
        let status = Patch::Merge(json!({ "status": status }));
        objects.patch_status("columns", &PatchParams::default(), &status).await.unwrap();
        assert_eq!(row(&client, plural, false).await, narrow);
        assert!(wide.is_empty() || row(&client, plural, true).await == format!("{narrow}{wide}"), "{plural}");
    }
}
