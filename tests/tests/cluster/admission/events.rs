//! What an agent may tell by events: about the Node of its token, in its own name, as events.k8s.io has it, and nothing else.

use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{OWN_POD, admin, agent_on, assert_refused, server};

const OWN_NODE: &str = "an agent's Event must be about its own Node";
const OWN_NAME: &str = "an agent's Event must be reported in the name of its own Pod";
const NO_OTHER: &str = "an agent's Event must not name another object";
const BOUNDED: &str = "an agent's Event must be named after its Node with the suffix .agent-00 to .agent-99";

/// As the agent of this pod on this node writes it.
pub(super) fn event(node: &str, pod: &str) -> Value {
    json!({
        "metadata": { "name": format!("{node}.agent-00"), "namespace": "default" },
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "type": "Warning", "reason": "LinkMissing", "action": "ConditionRaised", "note": "a note",
        "regarding": { "apiVersion": "v1", "kind": "Node", "name": node, "uid": node },
        "reportingController": "oke.oraclecloud.com/oke-node-agent", "reportingInstance": pod,
    })
}

pub(super) async fn create(client: &kube::Client, event: &Value) -> kube::Result<Event> {
    let namespace = event["metadata"]["namespace"].as_str().unwrap();
    let event: Event = serde_json::from_value(event.clone()).unwrap();
    Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &event).await
}

#[tokio::test]
async fn agent_can_create_events_only_about_its_own_node() {
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
async fn agent_event_must_name_only_its_node_and_itself() {
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
        (set("/metadata/namespace", json!("kube-system")), OWN_POD),
    ] {
        assert_refused(create(&agent, &changed).await, why);
    }
    create(&agent, &event("strict-1", &pod)).await.unwrap();
}

#[tokio::test]
async fn events_of_an_agent_are_bounded_in_number_and_size() {
    let server = server().await;
    let (pod, agent) = agent_on(server, "few-1").await;
    let named = |name: &str| {
        let mut event = event("few-1", &pod);
        event["metadata"]["name"] = json!(name);
        event
    };
    for number in 0..100 {
        create(&agent, &named(&format!("few-1.agent-{number:02}"))).await.unwrap();
    }
    match create(&agent, &named("few-1.agent-42")).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 409, "{status:?}"),
        other => panic!("{other:?}"),
    }
    for name in ["few-1.agent-100", "few-1.agent-0", "few-1.agent-0a", "few-1.1", "few-2.agent-00", "few-1.agent-00.1"]
    {
        assert_refused(create(&agent, &named(name)).await, BOUNDED);
    }
    let mut generated = named("");
    generated["metadata"] = json!({ "generateName": "few-1.agent-", "namespace": "default" });
    assert_refused(create(&agent, &generated).await, BOUNDED);

    let (pod, agent) = agent_on(server, "small-1").await;
    let series = json!({ "count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z" });
    for (parent, key, value) in [
        ("/metadata", "labels", json!({ "a": "b" })),
        ("/metadata", "annotations", json!({ "a": "x".repeat(1 << 17) })),
        ("", "series", series),
    ] {
        let mut large = event("small-1", &pod);
        large.pointer_mut(parent).unwrap()[key] = value;
        assert_refused(create(&agent, &large).await, BOUNDED);
    }
    // These the API server bounds.
    for (key, most) in [("note", 1024), ("reason", 128), ("action", 128)] {
        let mut large = event("small-1", &pod);
        large[key] = json!("x".repeat(most + 1));
        match create(&agent, &large).await {
            Err(kube::Error::Api(status)) => assert_eq!(status.code, 422, "{key}: {status:?}"),
            other => panic!("{key}: {other:?}"),
        }
    }
    let long = format!("f:{}", "x".repeat(1 << 17));
    let many = Value::Object((0..1000).map(|number| (format!("f:{number}"), json!({}))).collect());
    for (fields, managers) in
        [(json!({ &long: {} }), 1), (json!({ "f:note": { &long: {} } }), 1), (many, 1), (json!({ "f:other": {} }), 3)]
    {
        let manager = |number| {
            json!({ "manager": format!("m{number}"), "operation": "Update",
            "apiVersion": "events.k8s.io/v1", "fieldsType": "FieldsV1", "time": "2026-01-01T00:00:00Z", "fieldsV1": fields })
        };
        let mut large = event("small-1", &pod);
        large["metadata"]["managedFields"] = (0..managers).map(manager).collect();
        assert_refused(create(&agent, &large).await, "an agent's Event must not set managed fields");
    }
    let most = json!("x".repeat(1024));
    let mut large = event("small-1", &pod);
    large["note"] = most;
    let written = create(&agent, &large).await.unwrap();
    let size = serde_json::to_vec(&written).unwrap().len();
    assert!(size < 4096, "{size} bytes");
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
    events(admin(server)).create(&PostParams::default(), &older).await.unwrap();
}

#[tokio::test]
async fn agent_cannot_change_or_delete_its_events() {
    let server = server().await;
    let (pod, agent) = agent_on(server, "stays-1").await;
    let event_name = create(&agent, &event("stays-1", &pod)).await.unwrap().metadata.name.unwrap();
    let events: Api<Event> = Api::namespaced(agent, "default");
    let series = Patch::Merge(json!({ "series": { "count": 2, "lastObservedTime": "2026-01-01T00:00:00.000000Z" } }));
    assert_refused(events.patch(&event_name, &PatchParams::default(), &series).await, OWN_POD);
    assert_refused(events.delete(&event_name, &DeleteParams::default()).await, OWN_POD);
}
