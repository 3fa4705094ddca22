//! DaemonSets as an API server lists them, and what follows.

use serde_json::json;

use super::*;

fn set(name: &str, pod: Value) -> Value {
    json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name }, "spec": { "template": { "spec": pod } } })
}

fn agent(name: &str, expressions: Value) -> Value {
    let terms = json!([{ "matchExpressions": expressions }]);
    let required = json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
    set(name, json!({ "serviceAccountName": "oke-node-agent", "affinity": { "nodeAffinity": required } }))
}

fn uninstaller(selector: Value) -> Value {
    set("any", json!({ "serviceAccountName": "oke-node-uninstall", "nodeSelector": selector }))
}

fn sets(objects: Vec<Value>) -> DaemonSets {
    DaemonSets::of(objects.into_iter().map(|object| serde_json::from_value(object).unwrap()).collect())
}

#[test]
fn agents_are_found_by_account_whatever_their_name() {
    let mut leaving = agent("leaving", json!([]));
    leaving["metadata"]["deletionTimestamp"] = json!("2026-11-28T00:00:00Z");
    let found = sets(vec![
        agent("oke-node-agent", json!([])),
        agent("blue", json!([])),
        set("oke-node-agent-like", json!({ "serviceAccountName": "other" })),
        set("unreadable", json!({ "serviceAccountName": 7 })),
        uninstaller(json!({})),
        leaving,
    ]);
    assert_eq!(found.agents(), ["oke-node-agent", "blue", "unreadable"]);
    assert!(found.has("oke-node-agent-like") && !found.has("leaving"));
}

#[test]
fn nodes_are_released_when_every_agent_excludes_them() {
    let (os, label) = ("kubernetes.io/os", "oke-node-manager/release");
    let on = || uninstaller(json!({ os: "linux", label: "yes" }));
    let absent = json!([{ "key": label, "operator": "DoesNotExist" }]);
    let other = json!([{ "key": label, "operator": "NotIn", "values": ["yes"] }, { "key": "a", "operator": "Exists" }]);
    let exists = json!([{ "key": label, "operator": "Exists" }]);
    let mut two_terms = agent("b", absent.clone());
    let terms =
        "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let list = two_terms.pointer_mut(terms).unwrap().as_array_mut().unwrap();
    list.push(json!({ "matchExpressions": exists }));
    for (objects, expected) in [
        (vec![on(), agent("a", absent.clone()), agent("b", other.clone())], true),
        (vec![on(), agent("a", absent.clone()), agent("b", exists)], false),
        (vec![on(), agent("a", absent.clone()), two_terms], false),
        (vec![on(), set("a", json!({ "serviceAccountName": "oke-node-agent" }))], false),
        (vec![on(), agent("a", absent.clone()), set("unreadable", json!(7))], false),
        (vec![uninstaller(json!({ os: "linux" })), agent("a", absent.clone())], false),
        (vec![uninstaller(json!({ label: "no" })), agent("a", other)], false),
        (vec![agent("a", absent)], false),
    ] {
        let found = sets(objects);
        assert_eq!(found.are_released(), expected, "{found:?}");
    }
}
