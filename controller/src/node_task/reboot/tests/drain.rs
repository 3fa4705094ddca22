//! Which pods leave a node.

use api::Received;
use api::node_task::Reboot;
use serde_json::{Value, json};

use crate::node_task::reboot::drain::{Drain, DrainRules, DrainedPod, EvictionRefusal, PodKey};

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

fn rules(reboot: Reboot) -> DrainRules {
    let now = "2026-11-29T00:01:00Z".parse().unwrap();
    DrainRules { reboot, is_node_ready: true, now, is_own: |namespace| namespace == "own" }
}

fn all_pods() -> Vec<Received<DrainedPod>> {
    let plain = json!({});
    let mirror = json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "h" } } });
    let finished = json!({ "status": { "phase": "Succeeded" } });
    let leaving = json!({ "metadata": { "deletionTimestamp": "2026-11-29T00:00:29Z" } });
    let ends_soon = json!({ "metadata": { "deletionTimestamp": "2026-11-29T00:00:30Z" } });
    let scratch =
        json!({ "spec": { "volumes": [{ "name": "a", "secret": {} }, { "name": "cache", "emptyDir": {} }] } });
    let scratch_finished = json!({ "spec": scratch["spec"], "status": finished["status"] });
    let owned = json!({ "metadata": { "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "o" }] } });
    let own = json!({ "metadata": { "namespace": "own" } });
    vec![
        pod("replicated", Some("ReplicaSet"), &plain),
        pod("scratch", Some("ReplicaSet"), &scratch),
        pod("scratch-finished", Some("Job"), &scratch_finished),
        pod("stateful", Some("StatefulSet"), &plain),
        pod("custom", Some("Widget"), &plain),
        pod("daemon", Some("DaemonSet"), &scratch),
        pod("daemon-finished", Some("DaemonSet"), &json!({ "status": { "phase": "Failed" } })),
        pod("static", Some("Node"), &mirror),
        pod("bare-finished", None, &finished),
        pod("bare", None, &plain),
        pod("bare-with-owner", None, &owned),
        pod("ending", Some("ReplicaSet"), &leaving),
        pod("bare-ending", None, &ends_soon),
        pod("probe", None, &own),
        pod("job-in-own", Some("Job"), &own),
    ]
}

#[test]
fn pods_leave_as_with_kubectl_drain() {
    let drain = Drain::of(all_pods(), rules(Reboot::default()));
    let evictable =
        ["job-in-own", "bare-finished", "custom", "daemon-finished", "replicated", "scratch-finished", "stateful"];
    assert_eq!(names(&drain.evictable), evictable);
    assert_eq!(names(&drain.leaving), ["probe", "bare-ending", "ending"]);
    let kept: Vec<&str> = drain.kept.iter().map(|(pod, _)| pod.name.as_str()).collect();
    assert_eq!(kept, ["bare", "bare-with-owner", "scratch"]);
    let why = |number: usize| drain.kept[number].1;
    assert!(why(0).contains("evictBarePods") && why(2).contains("deleteEmptyDirData"), "{:?}", drain.kept);

    let permitted = Reboot { delete_empty_dir_data: true, evict_bare_pods: true, ..Reboot::default() };
    let drain = Drain::of(all_pods(), rules(permitted));
    assert_eq!((drain.kept.len(), drain.evictable.len(), drain.leaving.len()), (0, 10, 3));
}

#[test]
fn pods_without_a_kubelet_are_not_waited_for() {
    let dead = DrainRules { is_node_ready: false, ..rules(Reboot::default()) };
    assert_eq!(names(&Drain::of(all_pods(), dead).leaving), ["probe", "bare-ending"]);
}

#[test]
fn pod_that_cannot_be_read_is_evicted_by_its_metadata() {
    let unreadable = json!({ "status": 7 });
    let pods = || vec![pod("odd", Some("ReplicaSet"), &unreadable), pod("bare", None, &unreadable)];
    let permitted = Reboot { delete_empty_dir_data: true, ..Reboot::default() };
    let drain = Drain::of(pods(), rules(permitted));
    assert_eq!((names(&drain.evictable), drain.kept.len()), (vec!["odd"], 1));
    assert_eq!(Drain::of(pods(), rules(Reboot::default())).kept.len(), 2, "it may have an emptyDir volume");
}

#[test]
fn obstacle_is_the_refused_pod_while_it_is_there() {
    let web = || pod("web", Some("ReplicaSet"), &json!({}));
    let drain = Drain::of(vec![web(), pod("a", Some("ReplicaSet"), &json!({}))], rules(Reboot::default()));
    let key = drain.evictable[1].clone();
    let message = "The disruption budget web needs 1 healthy pods and has 1 currently".to_owned();
    let refusal = EvictionRefusal { pod: key, message };
    let expected = "2 pods are left; shop/web: The disruption budget web needs 1 healthy pods and has 1 currently";
    assert_eq!(drain.refused(Some(&refusal)).obstacle(), expected);
    let drain =
        Drain::of(vec![pod("a", Some("ReplicaSet"), &json!({}))], rules(Reboot::default())).refused(Some(&refusal));
    assert_eq!(drain.obstacle(), "1 pods are left; shop/a is not evicted yet");
}
