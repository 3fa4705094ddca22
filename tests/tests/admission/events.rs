//! What an agent may tell by events: about the Node of its token, in its own name, as events.k8s.io has it, and nothing else.

use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube_harness::{ApiServer, Bound};
use serde_json::{Value, json};

use super::{NAMESPACE, OWN_POD, UNBOUND, agent, agent_on, assert_refused, client_of, make_pod, server};

const OWN_NODE: &str = "an agent's event is about its own Node";
const OWN_NAME: &str = "an agent's event is told in the name of its own Pod";
const NO_OTHER: &str = "an agent's event names no other object";

/// As the agent of this pod on this node writes it.
fn event(node: &str, pod: &str) -> Value {
    json!({
        "metadata": { "generateName": format!("{node}-"), "namespace": "default" },
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Warning", "reason": "LinkMissing", "action": "ConditionRaised", "note": "a note",
        "regarding": { "apiVersion": "v1", "kind": "Node", "name": node, "uid": node },
        "reportingController": "oke.oraclecloud.com/oke-node-agent", "reportingInstance": pod,
    })
}

async fn create(client: &kube::Client, event: &Value) -> kube::Result<Event> {
    let namespace = event["metadata"]["namespace"].as_str().unwrap();
    let event: Event = serde_json::from_value(event.clone()).unwrap();
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &event).await
}

#[tokio::test]
async fn an_agent_tells_events_about_the_node_of_its_token_and_about_no_other() {
    let server = server().await;
    let (pod, agent) = agent_on(server, "tells-1").await;
    let (other_pod, other) = agent_on(server, "tells-2").await;
    create(&agent, &event("tells-1", &pod)).await.unwrap();
    create(&other, &event("tells-2", &other_pod)).await.unwrap();
    assert_refused(create(&agent, &event("tells-2", &pod)).await, OWN_NODE);
    assert_refused(create(&agent, &event("tells-2", &other_pod)).await, OWN_NODE);
    assert_refused(create(&agent, &event("tells-1", &other_pod)).await, OWN_NAME);
}

#[tokio::test]
async fn an_event_of_an_agents_is_about_nothing_but_its_node_and_in_nobody_elses_name() {
    let server = server().await;
    let (pod, agent) = agent_on(server, "strict-1").await;
    let set = |pointer: &str, value: Value| {
        let mut event = event("strict-1", &pod);
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        event.pointer_mut(parent).unwrap()[key] = value;
        event
    };
    let own_pod = json!({ "apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": "default" });
    let node = json!({ "apiVersion": "v1", "kind": "Node", "name": "tells-2", "uid": "tells-2" });
    for (changed, why) in [
        (set("/regarding/name", json!("strict-2")), OWN_NODE),
        (set("/regarding/uid", json!("strict-2")), OWN_NODE),
        (set("/regarding/uid", Value::Null), OWN_NODE),
        (set("/regarding/kind", json!("Pod")), OWN_NODE),
        (set("/regarding/apiVersion", json!("example.com/v1")), OWN_NODE),
        (set("/regarding/fieldPath", json!("spec")), OWN_NODE),
        (set("/regarding", own_pod), OWN_NODE),
        (set("/reportingController", json!("kubelet")), OWN_NAME),
        (set("/reportingInstance", json!("another")), OWN_NAME),
        (set("/related", node.clone()), NO_OTHER),
        (set("/metadata/finalizers", json!(["oke.oraclecloud.com/mine"])), NO_OTHER),
        (set("/metadata/ownerReferences", json!([node])), NO_OTHER),
        (set("/metadata/namespace", json!(NAMESPACE)), OWN_POD),
    ] {
        assert_refused(create(&agent, &changed).await, why);
    }
    create(&agent, &event("strict-1", &pod)).await.unwrap();
}

#[tokio::test]
async fn an_agent_tells_nothing_by_the_older_form_of_events() {
    let server = server().await;
    let (pod, agent) = agent_on(server, "older-1").await;
    let older: CoreEvent = serde_json::from_value(json!({
        "metadata": { "generateName": "older-1-", "namespace": "default" },
        "involvedObject": { "apiVersion": "v1", "kind": "Node", "name": "older-1", "uid": "older-1" },
        "eventTime": "2026-01-01T00:00:00.000000Z", "action": "ConditionRaised",
        "type": "Warning", "reason": "LinkMissing", "message": "a note",
        "reportingComponent": "oke.oraclecloud.com/oke-node-agent", "reportingInstance": pod,
    }))
    .unwrap();
    let events = |client: kube::Client| Api::<CoreEvent>::namespaced(client, "default");
    assert_refused(events(agent).create(&PostParams::default(), &older).await, OWN_POD);
    events(super::admin(server)).create(&PostParams::default(), &older).await.unwrap();
}

#[tokio::test]
async fn what_an_agent_told_it_neither_changes_nor_takes_back() {
    let server = server().await;
    let (pod, agent) = agent_on(server, "stays-1").await;
    let told = create(&agent, &event("stays-1", &pod)).await.unwrap().metadata.name.unwrap();
    let events: Api<Event> = Api::namespaced(agent, "default");
    let series = Patch::Merge(json!({ "series": { "count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z" } }));
    assert_refused(events.patch(&told, &PatchParams::default(), &series).await, OWN_POD);
    assert_refused(events.delete(&told, &DeleteParams::default()).await, OWN_POD);
}

#[tokio::test]
async fn an_agents_token_that_is_bound_to_no_pod_on_a_node_tells_nothing() {
    let server = server().await;
    let (pod, _) = agent_on(server, "silent-1").await;
    for bound in [Bound::Nothing, Bound::Node("silent-1".into())] {
        let client = server.client(&server.token(&agent(), &bound).await.unwrap()).unwrap();
        assert_refused(create(&client, &event("silent-1", &pod)).await, UNBOUND);
    }
    make_pod(server, NAMESPACE, "silent-nowhere", None).await;
    let nowhere = client_of(server, "silent-nowhere").await;
    assert_refused(create(&nowhere, &event("silent-1", "silent-nowhere")).await, UNBOUND);
}

#[tokio::test]
async fn others_tell_events_as_before() {
    let server: &ApiServer = server().await;
    let mut theirs = event("strict-1", "anybody");
    theirs["reportingController"] = json!("example.com/theirs");
    create(&super::admin(server), &theirs).await.unwrap();
}
