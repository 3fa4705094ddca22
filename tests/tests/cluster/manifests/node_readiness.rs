//! The example for the Node Readiness Controller. The reporter reads the address that the agent serves. It may write the
//! condition that the rule waits for, and nothing else of a Node.

use std::fs;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube_harness::{ApiServer, Bound, ServiceAccount, wait_for};
use serde_json::{Value, json};

use super::{AGENT, documents, help_of, root};

fn example(file: &str) -> Vec<Value> {
    documents(&fs::read_to_string(root().join("manifests/node-readiness").join(file)).unwrap())
}

#[tokio::test]
async fn the_reporter_writes_the_condition_of_the_rule() {
    let reporter = example("reporter.yaml");
    let set = reporter.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
    let environment = set["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    let value = |name: &str| environment.iter().find(|it| it["name"] == name).unwrap()["value"].as_str().unwrap();
    let address = value("CHECK_ENDPOINT").strip_prefix("http://").unwrap().strip_suffix("/readyz").unwrap();
    assert!(
        help_of(AGENT, &["--help"]).contains(&format!("[default: {address}]")),
        "the agent does not listen on {address}"
    );
    assert!(value("METRICS_BIND_ADDRESS").starts_with("127.0.0.1:"), "its metrics are not open to the network");
    assert!(value("HEARTBEAT_PERIOD").ends_with('h'), "it seldom writes a condition that is unchanged");
    let rule = &example("rule.yaml")[0];
    assert_eq!(rule["spec"]["conditions"], json!([{ "type": value("CONDITION_TYPE"), "requiredStatus": "True" }]));

    let server = ApiServer::shared().unwrap();
    let admin = server.client(server.admin()).unwrap();
    server.apply(&root().join("manifests/base/namespace.yaml")).await.unwrap();
    server.apply(&root().join("manifests/node-readiness/reporter.yaml")).await.unwrap();
    let node: Node = serde_json::from_value(json!({ "metadata": { "name": "readiness" } })).unwrap();
    Api::<Node>::all(admin).create(&PostParams::default(), &node).await.unwrap();
    let account = ServiceAccount::new("oke-node-manager", "oke-node-readiness");
    let client = server.client(&server.token(&account, &Bound::Nothing).await.unwrap()).unwrap();
    let nodes: Api<Node> = Api::all(client);
    let condition = json!({ "type": value("CONDITION_TYPE"), "status": "True", "reason": "EndpointOK", "message": "" });
    let status = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
    let written = async || nodes.patch_status("readiness", &PatchParams::default(), &status).await.ok();
    // The API server applies a role some time after it accepted it.
    let node = wait_for("the condition", written).await;
    let has =
        |it: &k8s_openapi::api::core::v1::NodeCondition| it.type_ == value("CONDITION_TYPE") && it.status == "True";
    assert!(node.status.unwrap().conditions.unwrap().iter().any(has));
    let label = Patch::Merge(json!({ "metadata": { "labels": { "a": "b" } } }));
    assert!(nodes.patch("readiness", &PatchParams::default(), &label).await.is_err(), "it changes no label");
}
