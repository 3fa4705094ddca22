//! Which Node an instance has, what is kept of a Node, and what a hostile one spoils.

use super::*;

fn node(name: &str, instance: &str) -> NodeView {
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "uid": "u", "annotations": { VNICS_ANNOTATION: "storage", "other": "x", CORDON_ANNOTATION: "reboot-a/u" } },
        "spec": { "providerID": format!("oci://{instance}"), "podCIDR": "10.1.0.0/24", "unschedulable": true },
        "status": { "nodeInfo": { "containerRuntimeVersion": "cri-o://1.34.0", "kernelVersion": "5.15", "bootID": "b" }, "allocatable": { "cpu": "4", "memory": "1024Ki", "hugepages-2Mi": "2Mi", "nvidia.com/gpu": "7" }, "addresses": [
            { "type": "InternalIP", "address": "10.0.0.2" }, { "type": "InternalIP", "address": "2001:db8::2" },
            { "type": "ExternalIP", "address": "203.0.113.2" }, { "type": "Hostname", "address": "a" } ] },
    });
    NodeView::of(serde_json::from_value(object).unwrap())
}

const ONE: &str = "ocid1.instance.oc1.iad.one";

#[test]
fn a_node_is_found_by_its_instance() {
    let mut nodes = Nodes::default();
    let instance: Ocid = ONE.parse().unwrap();
    assert_eq!(nodes.apply(node("a", ONE)), BTreeSet::from([instance.clone()]));
    let changes = nodes.changes();
    assert_eq!(nodes.apply(node("a", ONE)), BTreeSet::new(), "a heartbeat");
    assert_eq!(nodes.changes(), changes, "a heartbeat");
    let expected = NodeView {
        name: "a".to_owned(),
        uid: Some("u".to_owned()),
        instance: Some(instance.clone()),
        vnics: Some("storage".to_owned()),
        report: NodeReport {
            allocatable_memory: Some(3 << 20),
            allocatable_gpus: Some(7),
            runtime: Some("cri-o".to_owned()),
        },
        boot_id: "b".into(),
        unschedulable: true,
        cordoned_by: Some("reboot-a/u".into()),
        addresses: ["10.0.0.2", "2001:db8::2"].map(|address| address.parse().unwrap()).into(),
        ..NodeView::default()
    };
    assert_eq!(nodes.of(&instance), Some(&expected));
}

#[test]
fn gpus_are_counted_unless_they_are_divided() {
    let count = |resources: &[(&str, &str)]| {
        gpus(&resources.iter().map(|(name, amount)| ((*name).to_owned(), (*amount).to_owned())).collect())
    };
    assert_eq!((count(&[("cpu", "4")]), count(&[("nvidia.com/gpu", "0")])), (None, Some(0)));
    assert_eq!(count(&[("amd.com/gpu", "8"), ("nvidia.com/gpu", "x")]), Some(8));
    assert_eq!(count(&[("nvidia.com/gpu", "7"), ("nvidia.com/mig-1g.10gb", "0")]), Some(7));
    assert_eq!(count(&[("nvidia.com/gpu", "0"), ("nvidia.com/mig-1g.10gb", "7")]), None);
}

#[test]
fn hostile_part_of_a_node_spoils_only_itself() {
    let last_day = "9999-12-31T23:59:59Z";
    let conditions = serde_json::json!([
        { "type": "Ready", "status": "True", "lastTransitionTime": last_day },
        { "type": "oke.oraclecloud.com/NetworkReady", "status": "True", "lastTransitionTime": last_day },
        { "type": 7 }, null,
    ]);
    let sound = serde_json::json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "a", "managedFields": [{ "manager": "kubelet", "time": last_day }] },
        "spec": { "providerID": format!("oci://{ONE}") },
        "status": { "nodeInfo": { "containerRuntimeVersion": "cri-o://1.34.0", "kernelVersion": "5.15" }, "allocatable": { "memory": "1024Ki" }, "conditions": conditions,
            "addresses": [{ "type": "InternalIP", "address": "10.0.0.2" }, 7, { "type": "InternalIP", "address": "x" }] },
    });
    let read = |object: &serde_json::Value| NodeView::received(serde_json::from_value(object.clone()).unwrap());
    let view = read(&sound);
    assert_eq!((view.instance.is_some(), view.conditions.len(), view.addresses.len()), (true, 1, 1));
    for part in ["allocatable", "conditions", "addresses"] {
        for value in
            [serde_json::json!(null), serde_json::json!(1e300), serde_json::json!(["x"]), serde_json::json!("x")]
        {
            let mut object = sound.clone();
            object["status"][part] = value;
            assert!(read(&object).instance.is_some(), "{part}");
        }
    }
    let mut unreadable = sound;
    unreadable["metadata"]["creationTimestamp"] = last_day.into();
    assert_eq!((read(&unreadable).name.as_str(), read(&unreadable).instance), ("a", None));
}

#[test]
fn a_node_with_a_foreign_provider_id_says_why() {
    let view = node("virtual", "ocid1.virtualnode.oc1.iad.v");
    assert!(view.instance.is_none() && view.stranger.unwrap().contains("ocid1.virtualnode.oc1.iad.v"));
    for spec in [serde_json::json!({}), serde_json::json!({ "providerID": "" })] {
        let object = serde_json::json!({ "apiVersion": "v1", "kind": "Node", "metadata": {}, "spec": spec });
        let view = NodeView::of(serde_json::from_value(object).unwrap());
        assert_eq!((view.instance, view.stranger), (None, None));
    }
}

#[test]
fn an_instance_keeps_its_new_node_name() {
    let mut nodes = Nodes::default();
    let instance: Ocid = ONE.parse().unwrap();
    nodes.apply(node("a", ONE));
    nodes.apply(node("b", ONE));
    nodes.delete("a");
    assert_eq!(nodes.of(&instance).map(|node| node.name.as_str()), Some("b"));
    nodes.apply(node("c", ONE));
    nodes.delete("c");
    assert_eq!(nodes.of(&instance).map(|node| node.name.as_str()), Some("b"), "it was there all the time");
    assert_eq!(nodes.replace(Vec::new()), BTreeSet::from([instance.clone()]));
    assert_eq!(nodes.of(&instance), None);
}

#[test]
fn the_oldest_of_several_nodes_has_the_instance() {
    let instance: Ocid = ONE.parse().unwrap();
    let created_at =
        |name: &str, second| NodeView { created: Some(Timestamp::from_second(second).unwrap()), ..node(name, ONE) };
    let (old, young) = (created_at("b", 1), created_at("a", 2));
    for order in [[&old, &young], [&young, &old]] {
        let mut nodes = Nodes::default();
        order.into_iter().for_each(|node| drop(nodes.apply(node.clone())));
        let named = |nodes: &Nodes| nodes.of(&instance).map(|node| node.name.clone());
        assert_eq!(named(&nodes).as_deref(), Some("b"));
        // The old one was deleted and created again between two events.
        nodes.apply(created_at("b", 3));
        assert_eq!(named(&nodes).as_deref(), Some("a"));
    }
}

#[test]
fn packed_labels_do_not_depend_on_order() {
    let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    let two = [("pool", "storage"), ("a.b/c", "")];
    let labels: Labels = two.map(pair).into_iter().collect();
    assert_eq!(labels.map(), two.map(pair).into());
    let other: Labels = two.map(pair).into_iter().rev().collect();
    assert_eq!(labels, other);
    assert_eq!(Labels::default().map(), BTreeMap::new());
}
