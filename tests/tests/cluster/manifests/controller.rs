//! manifests/base/controller.yaml says what the controller is, and gives it no more than it needs. That Kubernetes knows its
//! fields, manifests.rs sees to; that the roles suffice and every rule is needed, controller/tests/cluster/access.rs.

use std::collections::BTreeSet;
use std::fs;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, Probe, VolumeProjection};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{deployed, documents, help_of};
use crate::root;

fn of_kind(kind: &str) -> Vec<Value> {
    let text = fs::read_to_string(root().join("manifests/base/controller.yaml")).unwrap();
    documents(&text).into_iter().filter(|document| document["kind"] == kind).collect()
}

fn the<T: DeserializeOwned>(kind: &str) -> T {
    let [object] = <[Value; 1]>::try_from(of_kind(kind)).unwrap();
    serde_json::from_value(object).unwrap()
}

fn container() -> Container {
    let [container] = <[Container; 1]>::try_from(deployed().containers).unwrap();
    container
}

fn help() -> String {
    help_of("oke-node-controller", &["--help"])
}

#[test]
fn no_privilege_is_left_to_a_default() {
    let (pod, container) = (deployed(), container());
    assert_eq!((pod.host_pid, pod.host_ipc, pod.init_containers), (None, None, None));
    assert_eq!(pod.automount_service_account_token, Some(false));
    let context = pod.security_context.unwrap();
    assert_eq!(
        (context.run_as_non_root, context.seccomp_profile.unwrap().type_.as_str()),
        (Some(true), "RuntimeDefault")
    );
    let context = container.security_context.unwrap();
    assert_eq!(context.privileged, Some(false));
    assert_eq!(context.allow_privilege_escalation, Some(false));
    assert_eq!(context.read_only_root_filesystem, Some(true));
    let capabilities = context.capabilities.unwrap();
    assert_eq!((capabilities.add, capabilities.drop), (None, Some(vec!["ALL".to_owned()])));
    assert!(pod.volumes.unwrap().iter().all(|volume| volume.host_path.is_none()), "nothing of the host's disk");
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
    let deployment = the::<Deployment>("Deployment").spec.unwrap();
    assert_eq!(deployment.replicas, Some(2));
    // On two nodes there is no room for a third, since no two share a node.
    let rolling = deployment.strategy.unwrap().rolling_update.unwrap();
    assert_eq!((rolling.max_surge, rolling.max_unavailable), (Some(IntOrString::Int(0)), Some(IntOrString::Int(1))));
    let labels = deployment.template.metadata.unwrap().labels.unwrap();
    let affinity = deployed().affinity.unwrap().pod_anti_affinity.unwrap();
    let [apart] = <[_; 1]>::try_from(affinity.required_during_scheduling_ignored_during_execution.unwrap()).unwrap();
    assert_eq!(apart.topology_key, "kubernetes.io/hostname");
    let budget = the::<PodDisruptionBudget>("PodDisruptionBudget").spec.unwrap();
    assert_eq!(budget.max_unavailable, Some(IntOrString::Int(1)));
    for selector in [Some(deployment.selector), apart.label_selector, budget.selector] {
        let wanted = selector.unwrap().match_labels.unwrap();
        assert!(wanted.iter().all(|(label, value)| labels.get(label) == Some(value)), "{wanted:?}");
    }
}

#[test]
fn probes_ask_what_the_controller_answers() {
    let container = container();
    let asked = |probe: Option<Probe>| {
        let get = probe.unwrap().http_get.unwrap();
        (get.host.unwrap(), serde_json::to_value(get.port).unwrap(), get.path.unwrap())
    };
    let listen = |path: &str| ("127.0.0.1".to_owned(), Value::from(9809), path.to_owned());
    assert_eq!(asked(container.liveness_probe), listen("/healthz"));
    assert_eq!(asked(container.readiness_probe), listen("/readyz"));
    let help = help();
    assert!(help.contains("[default: 127.0.0.1:9809]"), "{help}");
}

#[test]
fn every_variable_and_directory_is_one_that_the_controller_has() {
    let (container, help) = (container(), help());
    for variable in container.env.unwrap() {
        assert!(help.contains(&format!("[env: {}=]", variable.name)), "{} is not in\n{help}", variable.name);
    }
    let mounts: Vec<String> = container.volume_mounts.unwrap().into_iter().map(|mount| mount.mount_path).collect();
    // Where every client of an API server expects its token, and the folder of the configuration file.
    assert_eq!(mounts, ["/var/run/secrets/kubernetes.io/serviceaccount", "/etc/oke-node-controller"]);
    assert!(help.contains("[default: /etc/oke-node-controller/controller.conf]"), "{help}");
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
    for role in of_kind("ClusterRole").iter().chain(&of_kind("Role")) {
        for rule in role["rules"].as_array().unwrap() {
            for list in ["apiGroups", "resources", "verbs"] {
                let words: Vec<&str> = rule[list].as_array().unwrap().iter().filter_map(Value::as_str).collect();
                assert!(!words.iter().any(|word| *word == "*" || *word == "secrets"), "{rule}");
            }
        }
    }
}
