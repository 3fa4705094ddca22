//! The manifests: every name that they refer to exists, they give no more than is needed, and they say what the code says. That
//! an API server accepts them is shown in `rendered.rs`.

mod addon;
mod chart;
mod controller;
mod node_readiness;
mod rendered;
mod tutorial;

pub(crate) use chart::tools;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Container, PodSpec, Probe, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tests::built::bin_dir;

use crate::root;

const AGENT: &str = "oke-node-agent";
const CONTROLLER: &str = "oke-node-controller";
const UNINSTALL: &str = "oke-node-uninstall";
/// Each is applied as a whole, and the second one after the first was deleted.
const FOLDERS: [&str; 2] = ["manifests/base", "manifests/uninstall"];
/// Where a pod finds what proves to the API server who it is.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The files that kubectl makes objects of. Patches and kustomization files are not among them.
fn sources() -> Vec<PathBuf> {
    let folders = FOLDERS.map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let is_source =
        |path: &PathBuf| path.extension().is_some_and(|it| it == "yaml") && !path.ends_with("kustomization.yaml");
    files.filter(is_source).collect()
}

fn documents(yaml: &str) -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(yaml).map(|document| Value::deserialize(document).unwrap()).collect()
}

/// All objects of a kind. That Kubernetes knows their fields, `rendered.rs` shows.
fn of_kind<T: DeserializeOwned>(kind: &str) -> Vec<T> {
    let all = sources().into_iter().flat_map(|path| documents(&fs::read_to_string(path).unwrap()));
    let found = all.filter(|document| document["kind"] == kind);
    found.map(|document| serde_json::from_value(document).unwrap()).collect()
}

/// The object of a kind and name.
fn named<T: DeserializeOwned + Metadata<Ty = ObjectMeta>>(kind: &str, name: &str) -> T {
    of_kind(kind).into_iter().find(|object: &T| object.metadata().name.as_deref() == Some(name)).unwrap()
}

fn daemon_set(name: &str) -> DaemonSet {
    named("DaemonSet", name)
}

fn pod_of(name: &str) -> PodSpec {
    daemon_set(name).spec.unwrap().template.spec.unwrap()
}

fn pod() -> PodSpec {
    pod_of(AGENT)
}

fn deployed() -> PodSpec {
    named::<Deployment>("Deployment", CONTROLLER).spec.unwrap().template.spec.unwrap()
}

fn only(containers: Vec<Container>) -> Container {
    let [container] = <[Container; 1]>::try_from(containers).unwrap();
    container
}

#[test]
fn selectors_accounts_and_volumes_refer_to_existing_objects() {
    for name in [AGENT, UNINSTALL] {
        let set = daemon_set(name);
        let spec = set.spec.as_ref().unwrap();
        let labels = spec.template.metadata.as_ref().unwrap().labels.as_ref().unwrap();
        for (label, value) in spec.selector.match_labels.as_ref().unwrap() {
            assert_eq!(labels.get(label), Some(value), "the selector finds the DaemonSet's own pods");
        }
        let pod = pod_of(name);
        let (metadata, account) = (set.metadata(), pod.service_account_name);
        let own = |object: &ServiceAccount| {
            object.metadata.name == account && object.metadata.namespace == metadata.namespace
        };
        let is_there = of_kind("ServiceAccount").iter().any(own);
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
    let is_bound = |subjects: &Option<Vec<Subject>>| {
        let mut subjects = subjects.iter().flatten();
        subjects.any(|subject| subject.kind == "ServiceAccount" && subject.name == account)
    };
    let bindings = of_kind::<ClusterRoleBinding>("ClusterRoleBinding").into_iter().filter(|it| is_bound(&it.subjects));
    let roles = bindings.map(|binding| named::<ClusterRole>("ClusterRole", &binding.role_ref.name));
    let everywhere = roles.flat_map(|role| role.rules.unwrap()).collect();
    let mut in_namespaces = Vec::new();
    for binding in of_kind::<RoleBinding>("RoleBinding").into_iter().filter(|it| is_bound(&it.subjects)) {
        assert_eq!(binding.role_ref.kind, "Role");
        let same = |role: &Role| {
            role.metadata.name.as_ref() == Some(&binding.role_ref.name)
                && role.metadata.namespace == binding.metadata.namespace
        };
        let role = of_kind("Role").into_iter().find(same).unwrap();
        let namespace = role.metadata.namespace.unwrap();
        in_namespaces.extend(role.rules.unwrap().into_iter().map(|rule| (namespace.clone(), rule)));
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
fn uninstaller_can_only_read_daemonsets_of_its_namespace() {
    let account = pod_of(UNINSTALL).service_account_name.unwrap();
    let namespace = daemon_set(AGENT).metadata.namespace.unwrap();
    assert_eq!(daemon_set(UNINSTALL).metadata.namespace.as_ref(), Some(&namespace), "it reads its own namespace");
    // Without names, because the DaemonSets of pools have names of the operator's choice.
    assert_eq!(rights(&account), (vec![], vec![(namespace, rule("apps", "daemonsets", None, &["get", "list"]))]));
}

#[test]
fn agent_has_no_right_but_these() {
    let (everywhere, in_namespaces) = rights(&pod().service_account_name.unwrap());
    let ours = |resource: &str, verbs: &[&str]| rule("oke.oraclecloud.com", resource, None, verbs);
    let npns = rule("oci.oraclecloud.com", "nativepodnetworks", None, &["list", "watch"]);
    let expected = [npns, ours("vnicattachments", &["list", "watch"]), ours("vnicattachments/status", &["patch"])];
    assert!(
        everywhere.len() == expected.len() && expected.iter().all(|rule| everywhere.contains(rule)),
        "{everywhere:?}"
    );
    let namespace = daemon_set(AGENT).metadata.namespace.unwrap();
    // Limited to one annotation of its own Pod by a policy.
    let channel = (namespace.clone(), rule("", "pods", None, &["patch"]));
    let own = (namespace, rule("apps", "daemonsets", None, &["get", "list"]));
    let okes = rule("apps", "daemonsets", Some(&["vcn-native-ip-cni"]), &["list", "watch"]);
    let okes = ("kube-system".to_owned(), okes);
    // Where those about objects without a namespace are.
    let events = ("default".to_owned(), rule("events.k8s.io", "events", None, &["create"]));
    assert_eq!(in_namespaces, [channel, own, okes, events]);
}

#[test]
fn no_privilege_is_left_to_a_default() {
    let [agent, uninstaller, controller] = [pod(), pod_of(UNINSTALL), deployed()];
    assert_eq!((&agent.init_containers, &controller.init_containers), (&None, &None));
    let volumes = controller.volumes.iter().flatten();
    assert!(volumes.clone().all(|volume| volume.host_path.is_none()), "nothing of the host's disk");
    let done = only(uninstaller.containers.clone());
    assert_eq!((&done.env, &done.volume_mounts), (&None, &None), "it waits after the uninstaller");
    for container in [&done, &controller.containers[0]] {
        assert_eq!(container.security_context.as_ref().unwrap().capabilities.as_ref().unwrap().add, None);
    }
    let done = done.security_context.unwrap();
    assert_eq!((done.run_as_non_root, done.run_as_user), (Some(true), Some(65534)));
    assert_eq!(controller.security_context.as_ref().unwrap().run_as_non_root, Some(true));
    // With the type of SELinux that those need which change the host.
    for (pod, kind) in [(agent, Some("spc_t")), (uninstaller, Some("spc_t")), (controller, None)] {
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
        assert_eq!(context.se_linux_options.and_then(|options| options.type_).as_deref(), kind);
    }
}

#[test]
fn variables_and_mounts_are_known_to_the_programs() {
    for (containers, help, file) in [
        (pod().containers, help_of(AGENT, &["--help"]), Some("/agent.conf")),
        (pod_of(UNINSTALL).init_containers.unwrap(), help_of("oke-cni-installer", &["uninstall", "--help"]), None),
        (deployed().containers, help_of(CONTROLLER, &["--help"]), Some("/controller.conf")),
    ] {
        let container = only(containers);
        for variable in container.env.unwrap() {
            assert!(help.contains(&format!("[env: {}=]", variable.name)), "{} is not in\n{help}", variable.name);
        }
        let mut mounts: Vec<String> =
            container.volume_mounts.unwrap().into_iter().map(|mount| mount.mount_path).collect();
        if let Some(file) = file {
            let with_file = mounts.iter().position(|mount| help.contains(&format!("[default: {mount}{file}]")));
            mounts.remove(with_file.expect("a mount of the configuration file"));
        }
        for mount in mounts {
            // Below HOST_ROOT and SYSCTL_ROOT.
            let known = help.contains(&format!("[default: {mount}]")) || mount.starts_with("/host/") || mount == TOKEN;
            assert!(known, "{mount} is not a directory of the program's\n{help}");
        }
    }
}

/// The kubelet makes a Warning Event of every probe that fails, whatever the threshold. Starts take less than these seconds.
#[test]
fn probes_begin_after_a_normal_start() {
    let delay = |probe: &Option<Probe>| probe.as_ref().unwrap().initial_delay_seconds.unwrap_or_default();
    let [agent, controller] = [pod(), deployed()].map(|pod| only(pod.containers));
    assert!(delay(&agent.startup_probe) >= 2 && delay(&agent.readiness_probe) >= 5);
    assert!(delay(&controller.readiness_probe) >= 5 && delay(&controller.liveness_probe) >= 5);
    assert_eq!(controller.startup_probe, None);
}

#[test]
fn probes_use_paths_and_ports_that_programs_serve() {
    for (pod, program, port) in [(pod(), AGENT, 9808), (deployed(), CONTROLLER, 9809)] {
        let container = only(pod.containers);
        let address_of = |probe: Option<Probe>| {
            let get = probe.unwrap().http_get.unwrap();
            (get.host.unwrap(), serde_json::to_value(get.port).unwrap(), get.path.unwrap())
        };
        let listen = |path: &str| ("127.0.0.1".to_owned(), Value::from(port), path.to_owned());
        if container.startup_probe.is_some() {
            assert_eq!(address_of(container.startup_probe), listen("/healthz"));
        }
        assert_eq!(address_of(container.liveness_probe), listen("/healthz"));
        assert_eq!(address_of(container.readiness_probe), listen("/readyz"));
        let help = help_of(program, &["--help"]);
        assert!(help.contains(&format!("[default: 127.0.0.1:{port}]")), "{help}");
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
        // A ConfigMap is not a privilege.
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
fn image_contains_programs_that_manifests_start_and_installer_copies() {
    let files = in_image();
    let of_set = |name: &str| pod_of(name).init_containers.into_iter().flatten().chain(pod_of(name).containers);
    for container in of_set(AGENT).chain(of_set(UNINSTALL)).chain(deployed().containers) {
        let command = container.command.unwrap();
        assert!(files.contains(&command[0]), "{command:?} is not in {files:?}");
    }
    let help = help_of(AGENT, &["--help"]);
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
    for plugin in ["vcn-native", "vnic-attach"] {
        assert!(files.contains(&format!("{plugins}/{plugin}")), "{plugins}/{plugin}");
    }
}

/// One name for one thing in every program: the key, and the flag is the key in lower case.
#[test]
fn every_flag_is_its_key_in_lower_case() {
    let uninstall = ("oke-cni-installer", &["uninstall", "--help"][..]);
    let programs = [AGENT, CONTROLLER, "oke-cni-installer"].map(|program| (program, &["--help"][..]));
    for (program, arguments) in programs.into_iter().chain([uninstall]) {
        let help = help_of(program, arguments);
        let (mut flag, mut keys) = (String::new(), 0);
        for line in help.lines() {
            let option = line.split_whitespace().find(|word| word.starts_with("--"));
            if let Some(option) = option.filter(|_| line.trim_start().starts_with('-')) {
                flag = option.to_owned();
            }
            if let Some((key, _)) = line.split_once("[env: ").and_then(|(_, rest)| rest.split_once('=')) {
                assert_eq!(flag, format!("--{}", key.to_lowercase().replace('_', "-")), "{program}");
                keys += 1;
            }
        }
        assert!(keys > 3, "{program}: {help}");
    }
}

fn help_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(bin_dir().join(program)).args(arguments).env_clear().output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
