//! The manifests are what a Kubernetes API server takes them for: valid against its types (1.32, our floor), with no field
//! that it would not know, and with every name that they refer to. And they say what the code says.

mod controller;
mod rendered;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::Metadata;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Container, PodSpec, Probe, ServiceAccount};
use k8s_openapi::api::flowcontrol::v1::FlowSchema;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Any object of a manifest.
enum Object {
    /// One whose fields are Kubernetes', and which says nothing of the agent.
    Other,
    DaemonSet(Box<DaemonSet>),
    Deployment(Box<Deployment>),
    ServiceAccount(Box<ServiceAccount>),
    ClusterRole(ClusterRole),
    ClusterRoleBinding(ClusterRoleBinding),
    Role(Role),
    RoleBinding(RoleBinding),
}

const AGENT: &str = "oke-node-agent";
const UNINSTALL: &str = "oke-node-uninstall";
/// Each is applied as a whole, and the second one after the first was deleted.
const FOLDERS: [&str; 2] = ["manifests/base", "manifests/uninstall"];
/// Where a pod finds what proves to the API server who it is.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The files that kubectl makes objects of; patches and what says how they are rendered are no such files.
fn sources() -> Vec<PathBuf> {
    let folders = FOLDERS.map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let is_source =
        |path: &PathBuf| path.extension().is_some_and(|it| it == "yaml") && !path.ends_with("kustomization.yaml");
    files.filter(is_source).collect()
}

/// Strategic merge patches.
fn patches() -> Vec<PathBuf> {
    let folders = fs::read_dir(root().join("manifests/overlays")).unwrap().map(|entry| entry.unwrap().path());
    let folders = folders.chain([root().join("manifests/uninstall-drop-ins")]);
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap()).map(|entry| entry.unwrap().path());
    files.filter(|path| !path.ends_with("kustomization.yaml")).collect()
}

fn objects() -> Vec<Object> {
    let mut objects = Vec::new();
    for path in sources() {
        let text = fs::read_to_string(&path).unwrap();
        for document in serde_yaml_ng::Deserializer::from_str(&text) {
            let document = Value::deserialize(document).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            objects.push(object(document));
        }
    }
    objects
}

fn object(document: Value) -> Object {
    match document.get("kind").and_then(Value::as_str) {
        Some("Deployment") => Object::Deployment(Box::new(strictly(document))),
        Some("FlowSchema") => other::<FlowSchema>(document),
        Some("PodDisruptionBudget") => other::<PodDisruptionBudget>(document),
        Some("CustomResourceDefinition") => other::<CustomResourceDefinition>(document),
        Some("ValidatingAdmissionPolicy") => other::<ValidatingAdmissionPolicy>(document),
        Some("ValidatingAdmissionPolicyBinding") => other::<ValidatingAdmissionPolicyBinding>(document),
        Some("DaemonSet") => Object::DaemonSet(Box::new(strictly(document))),
        Some("ServiceAccount") => Object::ServiceAccount(Box::new(strictly(document))),
        Some("ClusterRole") => Object::ClusterRole(strictly(document)),
        Some("ClusterRoleBinding") => Object::ClusterRoleBinding(strictly(document)),
        Some("Role") => Object::Role(strictly(document)),
        Some("RoleBinding") => Object::RoleBinding(strictly(document)),
        other => panic!("no test knows the kind {other:?}"),
    }
}

fn other<T: DeserializeOwned + Serialize>(document: Value) -> Object {
    strictly::<T>(document);
    Object::Other
}

/// Reads an object, and sees to it that nothing of it was passed over: written again, it is the same.
fn strictly<T: DeserializeOwned + Serialize>(document: Value) -> T {
    let object: T = serde_json::from_value(document.clone()).unwrap();
    assert_eq!(
        serde_json::to_value(&object).unwrap(),
        document,
        "a field is not Kubernetes's, or not where it belongs"
    );
    object
}

fn daemon_set(name: &str) -> DaemonSet {
    let found = objects().into_iter().find_map(|object| match object {
        Object::DaemonSet(found) if found.metadata().name.as_deref() == Some(name) => Some(*found),
        _ => None,
    });
    found.unwrap()
}

fn pod_of(name: &str) -> PodSpec {
    daemon_set(name).spec.unwrap().template.spec.unwrap()
}

fn pod() -> PodSpec {
    pod_of(AGENT)
}

fn agent() -> Container {
    let [agent] = <[Container; 1]>::try_from(pod().containers).unwrap();
    agent
}

#[test]
fn every_field_is_one_that_kubernetes_knows() {
    let sets = objects().iter().filter(|object| matches!(object, Object::DaemonSet(_))).count();
    assert_eq!(sets, 2, "DaemonSets");
}

#[test]
fn every_field_of_a_patch_is_one_too() {
    let patches = patches();
    assert!(patches.len() >= 4, "{patches:?}");
    for file in patches {
        let text = fs::read_to_string(file).unwrap();
        let mut patch: Value = serde_yaml_ng::from_str(&text).unwrap();
        // A patch need not say what it does not change; the type demands it.
        let mut demanded = |at: &str, key: &str, nothing: Value| {
            let object = patch.pointer_mut(at).and_then(Value::as_object_mut).unwrap();
            object.entry(key).or_insert(nothing);
        };
        demanded("/spec", "selector", Value::Object(serde_json::Map::new()));
        demanded("/spec/template/spec", "containers", Value::Array(Vec::new()));
        object(patch);
    }
}

#[test]
fn a_field_that_kubernetes_does_not_know_is_found() {
    let text = fs::read_to_string(root().join("manifests/base/daemonset.yaml")).unwrap();
    for (from, to) in
        [("hostNetwork", "hostNet"), ("readOnly", "readonly"), ("  drop", "  dropped"), ("maxUn", "maxun")]
    {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        let document = serde_yaml_ng::Deserializer::from_str(&changed).last().unwrap();
        let document = Value::deserialize(document).unwrap();
        assert!(std::panic::catch_unwind(|| object(document)).is_err(), "{to}");
    }
}

#[test]
fn what_is_referred_to_is_there() {
    for name in [AGENT, UNINSTALL] {
        let set = daemon_set(name);
        let spec = set.spec.as_ref().unwrap();
        let labels = spec.template.metadata.as_ref().unwrap().labels.as_ref().unwrap();
        for (label, value) in spec.selector.match_labels.as_ref().unwrap() {
            assert_eq!(labels.get(label), Some(value), "the selector finds the DaemonSet's own pods");
        }
        let pod = pod_of(name);
        let (metadata, account) = (set.metadata(), pod.service_account_name);
        let named = |object: &ObjectMeta| object.name == account && object.namespace == metadata.namespace;
        let is_there = objects().into_iter().any(|object| match object {
            Object::ServiceAccount(account) => named(account.metadata()),
            _ => false,
        });
        assert!(is_there, "{account:?}");
        let containers = pod.init_containers.into_iter().flatten().chain(pod.containers);
        let mounts = containers.flat_map(|container| container.volume_mounts.unwrap_or_default());
        let mounts: BTreeSet<String> = mounts.map(|mount| mount.name).collect();
        let volumes: BTreeSet<String> = pod.volumes.unwrap().into_iter().map(|volume| volume.name).collect();
        assert_eq!(volumes, mounts, "every volume is mounted, and every mount is of a volume");
    }
}

/// What an account may do in the cluster, and by namespace.
fn rights(account: &str) -> (Vec<PolicyRule>, Vec<(String, PolicyRule)>) {
    let named = |subjects: &Option<Vec<Subject>>| {
        let mut subjects = subjects.iter().flatten();
        subjects.any(|subject| subject.kind == "ServiceAccount" && subject.name == account)
    };
    let (mut everywhere, mut in_namespaces) = (Vec::new(), Vec::new());
    for object in objects() {
        match object {
            Object::ClusterRoleBinding(binding) if named(&binding.subjects) => {
                everywhere.extend(cluster_role(&binding.role_ref.name));
            }
            Object::RoleBinding(binding) if named(&binding.subjects) => {
                assert_eq!(binding.role_ref.kind, "Role");
                let namespace = binding.metadata.namespace.unwrap();
                let rules = role(&namespace, &binding.role_ref.name);
                in_namespaces.extend(rules.into_iter().map(|rule| (namespace.clone(), rule)));
            }
            _ => {}
        }
    }
    in_namespaces.sort_by(|(one, _), (other, _)| other.cmp(one));
    (everywhere, in_namespaces)
}

fn rule(group: &str, resource: &str, names: Option<&[&str]>, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        resource_names: names.map(|names| names.iter().map(ToString::to_string).collect()),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..PolicyRule::default()
    }
}

#[test]
fn the_uninstaller_may_ask_for_the_agents_daemonset_and_nothing_else() {
    let account = pod_of(UNINSTALL).service_account_name.unwrap();
    let namespace = daemon_set(AGENT).metadata.namespace.unwrap();
    assert_eq!(daemon_set(UNINSTALL).metadata.namespace.as_ref(), Some(&namespace), "it asks in its own namespace");
    assert_eq!(rights(&account), (vec![], vec![(namespace, rule("apps", "daemonsets", Some(&[AGENT]), &["get"]))]));
}

#[test]
fn the_agent_may_watch_npns_and_okes_daemonset_and_read_its_own() {
    let (everywhere, in_namespaces) = rights(&pod().service_account_name.unwrap());
    assert_eq!(everywhere, [rule("oci.oraclecloud.com", "nativepodnetworks", None, &["list", "watch"])]);
    let namespace = daemon_set(AGENT).metadata.namespace.unwrap();
    let daemon_set = |name: &str, verbs: &[&str]| (namespace.clone(), rule("apps", "daemonsets", Some(&[name]), verbs));
    let (own, okes) = (daemon_set(AGENT, &["get"]), daemon_set("vcn-native-ip-cni", &["list", "watch"]));
    // Where those about objects without a namespace are.
    let events = ("default".to_owned(), rule("events.k8s.io", "events", None, &["create"]));
    assert_eq!(in_namespaces, [own, okes, events]);
}

fn cluster_role(name: &str) -> Vec<PolicyRule> {
    let found = objects().into_iter().find_map(|object| match object {
        Object::ClusterRole(role) if role.metadata.name.as_deref() == Some(name) => role.rules,
        _ => None,
    });
    found.unwrap()
}

fn role(namespace: &str, name: &str) -> Vec<PolicyRule> {
    let found = objects().into_iter().find_map(|object| match object {
        Object::Role(Role { metadata, rules })
            if metadata.name.as_deref() == Some(name) && metadata.namespace.as_deref() == Some(namespace) =>
        {
            rules
        }
        _ => None,
    });
    found.unwrap()
}

#[test]
fn no_token_is_mounted_by_default_and_no_privilege_is_left_to_one() {
    assert_eq!(pod().init_containers, None);
    for pod in [pod_of(AGENT), pod_of(UNINSTALL)] {
        assert_eq!(pod.automount_service_account_token, Some(false));
        assert_eq!((pod.host_pid, pod.host_ipc), (None, None));
        for container in pod.init_containers.into_iter().flatten().chain(pod.containers) {
            let context = container.security_context.unwrap();
            assert_eq!(context.privileged, Some(false));
            assert_eq!(context.allow_privilege_escalation, Some(false));
            assert_eq!(context.read_only_root_filesystem, Some(true));
            assert_eq!(context.capabilities.unwrap().drop, Some(vec!["ALL".to_owned()]));
        }
        let context = pod.security_context.unwrap();
        assert_eq!(context.seccomp_profile.unwrap().type_, "RuntimeDefault");
        assert_eq!(context.se_linux_options.unwrap().type_.as_deref(), Some("spc_t"));
    }
}

#[test]
fn what_waits_for_the_end_of_an_uninstalled_nodes_pod_has_no_privilege_at_all() {
    let [done] = <[Container; 1]>::try_from(pod_of(UNINSTALL).containers).unwrap();
    assert_eq!((done.env, done.volume_mounts), (None, None));
    let context = done.security_context.unwrap();
    assert_eq!(context.capabilities.unwrap().add, None);
    assert_eq!((context.run_as_non_root, context.run_as_user), (Some(true), Some(65534)));
}

#[test]
fn every_variable_and_every_directory_is_one_that_the_uninstaller_has() {
    let [uninstall] = <[Container; 1]>::try_from(pod_of(UNINSTALL).init_containers.unwrap()).unwrap();
    let help = help_of("oke-cni-installer", &["uninstall", "--help"]);
    for variable in uninstall.env.unwrap() {
        assert!(help.contains(&format!("[env: {}=]", variable.name)), "{} is not in\n{help}", variable.name);
    }
    for mount in uninstall.volume_mounts.unwrap() {
        let known = help.contains(&format!("[default: {}]", mount.mount_path))
            || mount.mount_path.starts_with("/host/")
            || mount.mount_path == TOKEN;
        assert!(known, "{} is no directory of the uninstaller's\n{help}", mount.mount_path);
    }
}

/// The kubelet makes a Warning Event of every probe that fails, whatever the threshold. Starts take less than these seconds.
#[test]
fn no_probe_asks_before_a_normal_start_is_over() {
    let deployment = objects().into_iter().find_map(|object| match object {
        Object::Deployment(found) => found.spec.unwrap().template.spec,
        _ => None,
    });
    let delay = |probe: &Option<Probe>| probe.as_ref().unwrap().initial_delay_seconds.unwrap_or_default();
    let [agent, controller] =
        [pod().containers, deployment.unwrap().containers].map(|all| all.into_iter().next().unwrap());
    assert!(delay(&agent.startup_probe) >= 2 && delay(&agent.readiness_probe) >= 5);
    assert!(delay(&controller.readiness_probe) >= 5 && delay(&controller.liveness_probe) >= 5);
    assert_eq!(controller.startup_probe, None);
}

#[test]
fn probes_ask_what_the_agent_answers() {
    let agent = agent();
    let asked = |probe: Option<Probe>| {
        let get = probe.unwrap().http_get.unwrap();
        (get.host.unwrap(), serde_json::to_value(get.port).unwrap(), get.path.unwrap())
    };
    let listen = |path: &str| ("127.0.0.1".to_owned(), Value::from(9808), path.to_owned());
    assert_eq!(asked(agent.startup_probe), listen("/healthz"));
    assert_eq!(asked(agent.liveness_probe), listen("/healthz"));
    assert_eq!(asked(agent.readiness_probe), listen("/readyz"));
    let help = help();
    assert!(help.contains("[default: 127.0.0.1:9808]"), "{help}");
}

#[test]
fn every_variable_and_every_directory_is_one_that_the_agent_has() {
    let (agent, help) = (agent(), help());
    for variable in agent.env.unwrap() {
        assert!(help.contains(&format!("[env: {}=]", variable.name)), "{} is not in\n{help}", variable.name);
    }
    for mount in agent.volume_mounts.unwrap() {
        // Below HOST_ROOT and SYSCTL_ROOT.
        let seen = mount.mount_path.starts_with("/host/") || mount.mount_path == TOKEN;
        let default = |end: &str| help.contains(&format!("[default: {}{end}", mount.mount_path));
        let known = default("]") || default("/agent.conf]") || seen;
        assert!(known, "{} is no directory of the agent's\n{help}", mount.mount_path);
    }
}

#[test]
fn the_table_of_privileges_has_every_one() {
    let document = fs::read_to_string(root().join("docs/privileges.md")).unwrap();
    let (of_agent, of_uninstall) = document.split_once("\n## The uninstaller\n").unwrap();
    for (name, table) in [(AGENT, of_agent), (UNINSTALL, of_uninstall)] {
        let pod = pod_of(name);
        let containers = pod.init_containers.into_iter().flatten().chain(pod.containers);
        let added =
            containers.flat_map(|it| it.security_context.unwrap().capabilities.unwrap().add.unwrap_or_default());
        // A ConfigMap is no privilege.
        let volumes = pod.volumes.unwrap().into_iter().filter_map(|volume| Some(volume.host_path?.path));
        for privilege in added.chain(volumes) {
            let rows = table.lines().filter(|line| line.starts_with(&format!("| `{privilege}` |"))).count();
            assert_eq!(rows, 1, "{privilege} of {name} has a row in docs/privileges.md");
        }
    }
}

/// `image/files`: the paths in the image.
fn in_image() -> BTreeSet<String> {
    let list = fs::read_to_string(root().join("image/files")).unwrap();
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[test]
fn the_image_has_what_the_manifests_start_and_the_installer_copies() {
    let files = in_image();
    let of_set = |name: &str| pod_of(name).init_containers.into_iter().flatten().chain(pod_of(name).containers);
    let deployment = object_of::<Deployment>("controller.yaml", "Deployment");
    let deployed = deployment.spec.unwrap().template.spec.unwrap().containers;
    for container in of_set(AGENT).chain(of_set(UNINSTALL)).chain(deployed) {
        let command = container.command.unwrap();
        assert!(files.contains(&command[0]), "{command:?} is not in {files:?}");
    }
    let help = help();
    let plugins = help
        .split("[env: CNI_SOURCE_DIR=]")
        .nth(1)
        .unwrap()
        .split("[default: ")
        .nth(1)
        .unwrap()
        .split(']')
        .next()
        .unwrap();
    assert!(files.contains(&format!("{plugins}/vcn-native")), "{plugins}");
}

/// The only object of a kind in a file of the base.
fn object_of<T: DeserializeOwned>(file: &str, kind: &str) -> T {
    let text = fs::read_to_string(root().join("manifests/base").join(file)).unwrap();
    let documents = serde_yaml_ng::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap());
    let mut found = documents.filter(|document| document["kind"] == kind);
    serde_json::from_value(found.next().unwrap()).unwrap()
}

fn help() -> String {
    help_of("oke-node-agent", &["--help"])
}

fn help_of(program: &str, arguments: &[&str]) -> String {
    let path = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join(program);
    assert!(path.is_file(), "{program} is not built: cargo build --workspace --bins");
    let output = Command::new(path).args(arguments).env_clear().output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
