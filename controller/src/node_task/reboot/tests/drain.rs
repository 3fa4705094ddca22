//! Which pods leave a node.

use api::Received;
use serde_json::{Value, json};

use crate::node_task::reboot::drain::{Drain, DrainedPod, EvictionRefusal, PodKey};

fn pod(name: &str, owner: Option<&str>, more: &Value) -> Received<DrainedPod> {
    let owners: Vec<Value> = owner
        .map(|kind| json!({ "apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o", "controller": true }))
        .into_iter()
        .collect();
    let mut pod = json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "shop", "name": name, "uid": name, "ownerReferences": owners },
        "spec": { "containers": [] }, "status": { "phase": "Running" } });
    json_patch::merge(&mut pod, more);
    serde_json::from_value(pod).unwrap()
}

fn names(pods: &[PodKey]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name.as_str()).collect()
}

#[test]
fn pods_leave_as_with_kubectl_drain() {
    let plain = json!({});
    let mirror = json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "h" } } });
    let finished = json!({ "status": { "phase": "Succeeded" } });
    let leaving = json!({ "metadata": { "deletionTimestamp": "2026-11-29T00:00:00Z" } });
    let scratch = json!({ "spec": { "volumes": [{ "name": "cache", "emptyDir": {} }] } });
    let owned = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "o" }] } });
    let drain = Drain::of(
        vec![
            pod("replicated", Some("ReplicaSet"), &plain),
            pod("scratch", Some("ReplicaSet"), &scratch),
            pod("stateful", Some("StatefulSet"), &plain),
            pod("custom", Some("Widget"), &plain),
            pod("daemon", Some("DaemonSet"), &plain),
            pod("daemon-finished", Some("DaemonSet"), &json!({ "status": { "phase": "Failed" } })),
            pod("static", Some("Node"), &mirror),
            pod("bare-finished", None, &finished),
            pod("bare", None, &plain),
            pod("bare-with-owner", None, &owned),
            pod("ending", Some("ReplicaSet"), &leaving),
            pod("bare-ending", None, &leaving),
            pod("probe", None, &json!({ "metadata": { "namespace": "own" } })),
            pod("job-in-own", Some("Job"), &json!({ "metadata": { "namespace": "own" } })),
        ],
        |namespace| namespace == "own",
    );
    let evictable = ["job-in-own", "bare-finished", "custom", "daemon-finished", "replicated", "scratch", "stateful"];
    assert_eq!(names(&drain.evictable), evictable);
    assert_eq!(names(&drain.leaving), ["probe", "bare-ending", "ending"]);
    assert_eq!(names(&drain.unmanaged), ["bare", "bare-with-owner"]);
}

#[test]
fn pod_that_cannot_be_read_is_evicted_by_its_metadata() {
    let unreadable = json!({ "status": 7 });
    let drain = Drain::of(vec![pod("odd", Some("ReplicaSet"), &unreadable), pod("bare", None, &unreadable)], |_| false);
    assert_eq!((names(&drain.evictable), names(&drain.unmanaged)), (vec!["odd"], vec!["bare"]));
}

#[test]
fn obstacle_is_the_refused_pod_while_it_is_there() {
    let web = || pod("web", Some("ReplicaSet"), &json!({}));
    let drain = Drain::of(vec![web(), pod("a", Some("ReplicaSet"), &json!({}))], |_| false);
    let key = drain.evictable[1].clone();
    let message = "The disruption budget web needs 1 healthy pods and has 1 currently".to_owned();
    let refusal = EvictionRefusal { pod: key, message };
    let expected = "2 pods are left; shop/web: The disruption budget web needs 1 healthy pods and has 1 currently";
    assert_eq!(drain.refused(Some(&refusal)).obstacle(), expected);
    let drain = Drain::of(vec![pod("a", Some("ReplicaSet"), &json!({}))], |_| false).refused(Some(&refusal));
    assert_eq!(drain.obstacle(), "1 pods are left; shop/a is not evicted yet");
}
