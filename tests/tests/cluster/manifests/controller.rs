//! manifests/base/controller.yaml says what the controller is, and gives it no more than it needs. That Kubernetes knows its
//! fields, manifests.rs sees to; that the roles suffice and every rule is needed, controller/tests/cluster/access.rs.

use std::collections::BTreeSet;
use std::fs;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::VolumeProjection;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Value, json};

use super::{CONTROLLER, deployed, documents, named};
use crate::root;

fn of_kind(kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(root().join("manifests/base/controller.yaml")).unwrap();
    documents(&text).into_iter().filter(|document| document["kind"] == kind).collect()
}

#[test]
fn controller_does_not_depend_on_the_network_it_manages() {
    let pod = deployed();
    assert_eq!((pod.host_network, pod.dns_policy.as_deref()), (Some(true), Some("Default")));
    let tolerated: BTreeSet<String> =
        pod.tolerations.unwrap().into_iter().filter_map(|toleration| toleration.key).collect();
    for taint in ["node.kubernetes.io/not-ready", "node.kubernetes.io/network-unavailable"] {
        assert!(tolerated.contains(taint), "{taint}");
    }
}

#[test]
fn one_of_the_two_is_always_there() {
    let deployment = named::<Deployment>("Deployment", CONTROLLER).spec.unwrap();
    assert_eq!(deployment.replicas, Some(2));
    // On two nodes there is no room for a third, since no two share a node.
    let rolling = deployment.strategy.unwrap().rolling_update.unwrap();
    assert_eq!((rolling.max_surge, rolling.max_unavailable), (Some(IntOrString::Int(0)), Some(IntOrString::Int(1))));
    let labels = deployment.template.metadata.unwrap().labels.unwrap();
    let affinity = deployed().affinity.unwrap().pod_anti_affinity.unwrap();
    let [apart] = <[_; 1]>::try_from(affinity.required_during_scheduling_ignored_during_execution.unwrap()).unwrap();
    assert_eq!(apart.topology_key, "kubernetes.io/hostname");
    let budget = named::<PodDisruptionBudget>("PodDisruptionBudget", CONTROLLER).spec.unwrap();
    assert_eq!(budget.max_unavailable, Some(IntOrString::Int(1)));
    for selector in [Some(deployment.selector), apart.label_selector, budget.selector] {
        let selected = selector.unwrap().match_labels.unwrap();
        assert!(selected.iter().all(|(label, value)| labels.get(label) == Some(value)), "{selected:?}");
    }
}

#[test]
fn its_token_dies_with_the_pod() {
    let projected = deployed().volumes.unwrap().into_iter().find_map(|volume| volume.projected).unwrap();
    let token = |source: VolumeProjection| source.service_account_token;
    let [token] =
        <[_; 1]>::try_from(projected.sources.unwrap().into_iter().filter_map(token).collect::<Vec<_>>()).unwrap();
    assert_eq!((token.path.as_str(), token.audience, token.expiration_seconds), ("token", None, Some(3607)));
}

#[test]
fn every_binding_binds_only_own_role_to_own_account() {
    let account = deployed().service_account_name.unwrap();
    let place = |object: &Value| (object["metadata"]["name"].clone(), object["metadata"]["namespace"].clone());
    for (binding_kind, role_kind) in [("ClusterRoleBinding", "ClusterRole"), ("RoleBinding", "Role")] {
        let bound: Vec<_> = of_kind(binding_kind)
            .iter()
            .map(|binding| {
                assert_eq!(binding["roleRef"]["kind"], role_kind);
                let subject =
                    serde_json::json!([{ "kind": "ServiceAccount", "name": account, "namespace": "oke-node-manager" }]);
                assert_eq!(binding["subjects"], subject);
                (binding["roleRef"]["name"].clone(), binding["metadata"]["namespace"].clone())
            })
            .collect();
        let roles: Vec<_> = of_kind(role_kind).iter().map(place).collect();
        assert_eq!(bound, roles);
    }
    assert_eq!(
        of_kind("ServiceAccount").iter().map(|found| found["metadata"]["name"].clone()).collect::<Vec<_>>(),
        [account]
    );
}

#[test]
fn no_rule_is_a_wildcard_and_none_reads_secrets() {
    // The group of OKE's kind is not documented, so one rule names the resource in every group.
    let repair = json!({ "apiGroups": ["*"], "resources": ["noderepairconfigs"], "verbs": ["list"] });
    for role in of_kind("ClusterRole").iter().chain(&of_kind("Role")) {
        for rule in role["rules"].as_array().unwrap().iter().filter(|rule| **rule != repair) {
            for list in ["apiGroups", "resources", "verbs"] {
                let words: Vec<&str> = rule[list].as_array().unwrap().iter().filter_map(Value::as_str).collect();
                assert!(!words.iter().any(|word| *word == "*" || *word == "secrets"), "{rule}");
            }
        }
    }
}
