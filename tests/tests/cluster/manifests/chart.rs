//! The Helm chart renders what kustomize renders, and an add-on's configuration changes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tests::built::bin_dir;

use super::rendered::{FOLDERS, PILOT, rendered, rendered_overlay, with_component};
use super::{documents, root};

const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tools/build");
/// Helm refuses to delete objects with this annotation.
const KEEP: &str = "helm.sh/resource-policy";

/// The image of the shipped manifests.
const IMAGE: &str = "image.repository=registry.invalid/oke-node-manager";
/// What `manifests/pilot` is in values.
const PILOT_VALUES: &str = "pools.pilot.settings.CNI_TAKEOVER=true";

/// By kind, namespace and name.
type Objects = BTreeMap<(String, String, String), Value>;

/// The folder of helm and cnitool.
pub(crate) fn tools() -> PathBuf {
    let place = Command::new(TOOLS).arg("--where").output().unwrap();
    assert!(place.status.success(), "{}", String::from_utf8_lossy(&place.stderr));
    PathBuf::from(String::from_utf8(place.stdout).unwrap().trim())
}

fn helm(arguments: &[&str]) -> Output {
    Command::new(tools().join("helm")).args(arguments).env_clear().env("HOME", "/nonexistent").output().unwrap()
}

/// `helm template` with an image and more arguments, for the oldest Kubernetes.
fn template(more: &[&str]) -> Result<String, String> {
    template_bare(&[&["--set", IMAGE], more].concat())
}

fn template_bare(more: &[&str]) -> Result<String, String> {
    let chart = root().join("manifests/chart").display().to_string();
    let output = helm(&[&["template", "oke-node-manager", &chart, "--kube-version", "1.32.0"], more].concat());
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn objects(yaml: &str) -> Objects {
    let named = |mut document: Value| {
        normalize(&mut document);
        let of = |field: &str| document["metadata"][field].as_str().unwrap_or_default().to_owned();
        ((document["kind"].as_str().unwrap().to_owned(), of("namespace"), of("name")), document)
    };
    documents(yaml).into_iter().filter(|document| !document.is_null()).map(named).collect()
}

/// Folded texts of CEL: kustomize's writer doubles some line breaks, which CEL ignores. The annotation is Helm's.
fn normalize(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(text)) = fields.get_mut("expression") {
                *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            }
            if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
                annotations.remove(KEEP);
                if annotations.is_empty() {
                    fields.remove("annotations");
                }
            }
            fields.values_mut().for_each(normalize);
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        _ => {}
    }
}

fn file_of(objects: &Objects, program: &str) -> String {
    let map = named(objects, "ConfigMap", &format!("oke-node-{program}"));
    let file = format!("{}.conf", program.split('-').next().unwrap());
    map["data"][file].as_str().unwrap().to_owned()
}

/// The object of a kind and name in our namespace.
fn named<'o>(objects: &'o Objects, kind: &str, name: &str) -> &'o Value {
    &objects[&(kind.to_owned(), "oke-node-manager".to_owned(), name.to_owned())]
}

/// The lines of a configuration file that set something.
fn set(file: &str) -> Vec<&str> {
    file.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect()
}

#[test]
fn chart_renders_the_same_objects_as_kustomize() {
    let clusters =
        FOLDERS.map(|folder| (folder, format!("cluster={}", folder.strip_prefix("overlays/").unwrap_or_default())));
    for (folder, values) in clusters.into_iter().chain([(PILOT, PILOT_VALUES.to_owned())]) {
        let mut chart = objects(&template(&["--set", &values]).unwrap());
        let mut kustomize = objects(&rendered(folder));
        for of_pool in [&mut chart, &mut kustomize] {
            compare_by_meaning(of_pool);
        }
        assert!(chart.keys().eq(kustomize.keys()), "{folder}: {:?} {:?}", chart.keys(), kustomize.keys());
        for (name, object) in &kustomize {
            assert_eq!(chart[name], *object, "{folder}: {name:?}");
        }
    }
}

/// The mounts of the component, in the base and in a pool that has them.
#[test]
fn chart_and_component_mount_the_same_folders_of_tunables() {
    for (folder, values) in
        [("base", "agent.tunables=true"), (PILOT, "agent.tunables=true,pools.pilot.settings.CNI_TAKEOVER=true")]
    {
        let chart = objects(&template(&["--set", values]).unwrap());
        let kustomize = objects(&with_component(folder, "tunables"));
        let sets = |all: &Objects| {
            let mut sets: Objects = all.clone();
            sets.retain(|(kind, ..), _| kind == "DaemonSet");
            compare_by_meaning(&mut sets);
            sets
        };
        assert_eq!(sets(&chart), sets(&kustomize), "{folder}");
        assert_eq!(sets(&chart).len(), if folder == PILOT { 2 } else { 1 });
    }
    let of_one = objects(&template(&["--set", "pools.gpu.tunables=true"]).unwrap());
    let mounts = |name: &str| {
        let container = &named(&of_one, "DaemonSet", name)["spec"]["template"]["spec"]["containers"][0];
        let mounts = container["volumeMounts"].as_array().unwrap().iter();
        mounts
            .map(|mount| mount["mountPath"].as_str().unwrap().to_owned())
            .filter(|path| path.starts_with("/host/proc/sys"))
            .collect::<Vec<_>>()
    };
    assert_eq!(mounts("oke-node-agent"), ["/host/proc/sys/net"]);
    assert_eq!(mounts("oke-node-agent-gpu"), ["/host/proc/sys/vm", "/host/proc/sys/fs/inotify", "/host/proc/sys/net"]);
}

/// Also with an overlay that has variables of its own.
#[test]
fn chart_and_components_render_the_same_tasks() {
    let tasks = "../oke-node-manager/manifests/tasks";
    for (values, components) in [
        ("tasks=true", format!("[{tasks}]")),
        ("tasks=true,reboot=true", format!("[{tasks}, ../oke-node-manager/manifests/reboot]")),
        ("tasks=true,reboot=true,cluster=self-managed", format!("[{tasks}, ../oke-node-manager/manifests/reboot]")),
    ] {
        let folder = if values.contains("self-managed") { "overlays/self-managed" } else { "base" };
        let overlay = format!("resources: [../oke-node-manager/manifests/{folder}]\ncomponents: {components}\n");
        let (mut chart, kustomize) =
            (objects(&template(&["--set", values]).unwrap()), objects(&rendered_overlay(&overlay)));
        remove_captures(&mut chart);
        assert!(chart.keys().eq(kustomize.keys()), "{values}: {:?} {:?}", chart.keys(), kustomize.keys());
        for (name, object) in &kustomize {
            assert_eq!(chart[name], *object, "{values}: {name:?}");
        }
        let env =
            &named(&chart, "Deployment", "oke-node-controller")["spec"]["template"]["spec"]["containers"][0]["env"];
        let is_on = |key: &str| env.as_array().unwrap().contains(&json!({ "name": key, "value": "on" }));
        assert_eq!((is_on("TASKS"), is_on("TASK_REBOOTS")), (true, values.contains("reboot")));
    }
    let without = template(&[]).unwrap();
    assert!(
        !without.contains(": oke-node-tasks") && !without.contains("name: oke-node-task-admin"),
        "neither namespace nor role"
    );
    assert!(!without.contains("pods/eviction") || !without.contains("name: oke-node-controller-reboot"));
    let refused = template(&["--set", "reboot=true"]).unwrap_err();
    assert!(refused.contains("reboot needs tasks"), "{refused}");
    let addon = template(&["--set-string", "configurations[0].key=tasks,configurations[0].value=true"]).unwrap();
    assert!(addon.contains("name: oke-node-task-admin"));
    let twice = template(&["--set", "tasks=true,controller.settings.TASKS=off"]).unwrap_err();
    assert!(twice.contains("TASKS"), "{twice}");
}

/// Alone, together, next to tasks, and with a pool: rights, settings, and what the agents mount.
#[test]
fn chart_and_components_grant_the_same_files() {
    for (values, components, folder) in [
        ("hostFiles=true", "operations host-files", "base"),
        ("hostCode=true", "operations host-code", "base"),
        ("hostFiles=true,hostCode=true", "operations host-files host-code", "base"),
        ("tasks=true,hostFiles=true", "tasks host-files", "overlays/self-managed"),
        (
            "hostCode=true,agent.tunables=true,pools.pilot.settings.CNI_TAKEOVER=true",
            "operations tunables host-code",
            PILOT,
        ),
    ] {
        let components: Vec<String> =
            components.split(' ').map(|name| format!("../oke-node-manager/manifests/{name}")).collect();
        let overlay =
            format!("resources: [../oke-node-manager/manifests/{folder}]\ncomponents: [{}]\n", components.join(", "));
        let cluster = folder.strip_prefix("overlays/").map(|name| format!(",cluster={name}")).unwrap_or_default();
        let mut chart = objects(&template(&["--set", &format!("{values}{cluster}")]).unwrap());
        let mut kustomize = objects(&rendered_overlay(&overlay));
        if values.contains("tasks=true") {
            remove_captures(&mut chart);
        }
        for all in [&mut chart, &mut kustomize] {
            compare_by_meaning(all);
        }
        assert!(chart.keys().eq(kustomize.keys()), "{values}: {:?} {:?}", chart.keys(), kustomize.keys());
        for (name, object) in &kustomize {
            assert_eq!(chart[name], *object, "{values}: {name:?}");
        }
        let controller =
            &named(&chart, "Deployment", "oke-node-controller")["spec"]["template"]["spec"]["containers"][0];
        let agent = named(&chart, "DaemonSet", "oke-node-agent").to_string();
        for (key, variable, folder) in
            [("hostFiles", "HOST_FILES", "/etc/sysctl.d"), ("hostCode", "HOST_CODE", "/etc/udev/rules.d")]
        {
            let is_on = controller["env"].as_array().unwrap().contains(&json!({ "name": variable, "value": "on" }));
            let is_granted = values.contains(key);
            assert_eq!((is_on, agent.contains(folder)), (is_granted, is_granted), "{values}: {key}");
        }
    }
    let without = template(&[]).unwrap();
    for part in ["HOST_FILES\n", "HOST_CODE\n", ": oke-node-tasks", "path: /etc/sysctl.d", "path: /etc/udev"] {
        assert!(!without.contains(part), "{part}");
    }
    let addon = template(&["--set-string", "configurations[0].key=hostCode,configurations[0].value=true"]).unwrap();
    assert!(addon.contains("HOST_CODE\n") && addon.contains("path: /etc/udev/rules.d"));
}

/// Unless they are set, for all agents or for a pool.
#[test]
fn tasks_enable_captures_of_headers() {
    let addon = |key: &str, value: &str, index: u8| {
        format!("configurations[{index}].key={key},configurations[{index}].value={value}")
    };
    let both = [addon("tasks", "true", 0), addon("captures", "payload", 1)].join(",");
    for (values, expected) in [
        (addon("tasks", "true", 0), "CAPTURES=headers"),
        (both, "CAPTURES=payload"),
        ("tasks=true,agent.settings.CAPTURES=off".to_owned(), "CAPTURES=off"),
    ] {
        let chart = objects(&template(&["--set-string", &values]).unwrap());
        assert_eq!(settings_of_agents(&chart, "oke-node-agent"), [expected], "{values}");
    }
    let pool = objects(&template(&["--set-string", "tasks=true,pools.gpu.settings.CAPTURES=off"]).unwrap());
    assert_eq!(settings_of_agents(&pool, "oke-node-agent-gpu"), ["CAPTURES=off"]);
    let without = objects(&template(&["--set", "tasks=true,controller.enabled=false"]).unwrap());
    assert_eq!(settings_of_agents(&without, "oke-node-agent"), [""; 0]);
}

/// The setting that the chart adds with tasks; with kustomize it is a line of the file.
fn remove_captures(chart: &mut Objects) {
    let name = ("ConfigMap".to_owned(), "oke-node-manager".to_owned(), "oke-node-agent".to_owned());
    let file = &mut chart.get_mut(&name).unwrap()["data"]["agent.conf"];
    let (text, added) = file.as_str().unwrap().split_once("\n# Set by the chart's values.\n").unwrap();
    assert_eq!(added, "CAPTURES=headers\n");
    *file = json!(text);
}

/// What a ConfigMap of agents sets.
fn settings_of_agents(objects: &Objects, name: &str) -> Vec<String> {
    let data = &named(objects, "ConfigMap", name)["data"]["agent.conf"];
    set(data.as_str().unwrap()).into_iter().map(str::to_owned).collect()
}

/// A pool's file has no setting in either; kustomize's strategic merge moves a patched volume to the front.
fn compare_by_meaning(objects: &mut Objects) {
    for ((kind, _, name), object) in objects {
        if !name.starts_with("oke-node-agent-") {
            continue;
        }
        if kind == "ConfigMap" {
            assert_eq!(set(object["data"]["agent.conf"].as_str().unwrap()), [""; 0]);
            object["data"].take();
        }
        if let Some(Value::Array(volumes)) = object.pointer_mut("/spec/template/spec/volumes") {
            volumes.sort_by_key(|volume| volume["name"].to_string());
        }
    }
}

#[test]
fn helm_keeps_namespace_and_kinds() {
    let all = documents(&template(&[]).unwrap());
    let is_kept = |it: &&Value| it["metadata"]["annotations"][KEEP] == "keep";
    let has_data =
        |it: &&Value| ["Namespace", "CustomResourceDefinition"].contains(&it["kind"].as_str().unwrap_or_default());
    assert!(all.iter().filter(has_data).count() > 2);
    assert!(all.iter().filter(is_kept).eq(all.iter().filter(has_data)));
}

#[test]
fn chart_and_image_have_the_workspaces_version() {
    let chart: Value =
        serde_yaml_ng::from_str(&fs::read_to_string(root().join("manifests/chart/Chart.yaml")).unwrap()).unwrap();
    assert_eq!(
        (&chart["version"], &chart["appVersion"]),
        (&json!(env!("CARGO_PKG_VERSION")), &json!(env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn chart_needs_an_image_and_takes_a_digest() {
    let without = template_bare(&[]).unwrap_err();
    assert!(without.contains("image.repository is not set") && without.contains("docs/install.md"), "{without}");
    let digest = format!("7@sha256:{}", "0a".repeat(32));
    let values = format!("image.repository=iad.ocir.io/team/manager,image.tag={digest}");
    let all = template_bare(&["--set-string", &values]).unwrap();
    assert_eq!(all.matches(&format!("image: iad.ocir.io/team/manager:{digest}\n")).count(), 2);
}

#[test]
fn wrong_values_are_refused() {
    for (value, complaint) in [
        ("agent.settings.POD_NETWORKS=none", "POD_NETWORKS"),
        ("agent.settings.POD_NETWORK=flannel", "POD_NETWORK"),
        ("agent.settings.STATE_DIR=/tmp", "STATE_DIR"),
        ("agent.settings.RESYNC_SECONDS=soon", "RESYNC_SECONDS"),
        ("cluster=eks", "cluster"),
        ("configurations[0].key=podnetwork,configurations[0].value=none", "configurations"),
        ("configurations[0].key=podNetwork,configurations[0].value=flannel", "configurations"),
        ("cluster=oke-flannel,agent.settings.POD_NETWORK=auto", "agent.settings.POD_NETWORK has no effect"),
        ("cluster=oke-flannel,pools.a.settings.POD_NETWORK=auto", "pools.a.settings.POD_NETWORK has no effect"),
        ("pools.a.settings.POD_NETWORKS=none", "POD_NETWORKS"),
        ("pools.a.takeover=true", "takeover"),
        ("pools.Pilot.value=a", "pools.Pilot: a pool's name"),
        ("pools.a.value=not a label", "pools.a.value is not a label's value"),
        ("pools.a.value=x,pools.b.value=x", "two entries have the value x"),
        ("pools.a.value=x,poolLabel=", "poolLabel is empty"),
    ] {
        let error = template(&["--set-string", value]).unwrap_err();
        assert!(error.contains(complaint), "{value}: {error}");
    }
}

/// Whether the program accepts a file.
fn is_valid(program: &str, file: &str, folder: &Path) -> bool {
    let path = folder.join(format!("{program}.conf"));
    fs::write(&path, file).unwrap();
    let command = ["config", "--check", path.to_str().unwrap()];
    Command::new(bin_dir().join(format!("oke-node-{program}"))).args(command).output().unwrap().status.success()
}

#[test]
fn addon_configuration_changes_the_rendered_configmaps() {
    let example = root().join("manifests/addon/example.json").display().to_string();
    let changed = objects(&template_bare(&["-f", &example]).unwrap());
    let (agent, controller) = (file_of(&changed, "agent"), file_of(&changed, "controller"));
    assert_eq!(set(&agent), ["VNIC_ATTACH=on"]);
    assert_eq!(set(&file_of(&changed, "agent-pilot")), ["VNIC_ATTACH=on"]);
    assert_eq!(set(&controller), ["OCI_PRINCIPAL=workload-identity"]);
    let data = &changed[&("ConfigMap".to_owned(), "oke-node-manager".to_owned(), "oke-node-agent".to_owned())]["data"];
    let rules: Value = serde_json::from_str(data["health-rules.json"].as_str().unwrap()).unwrap();
    assert_eq!(rules["rules"][0]["action"], "repair");
    let folder = tempfile::tempdir().unwrap();
    assert!(is_valid("agent", &agent, folder.path()) && is_valid("controller", &controller, folder.path()));
    let variables =
        |name: &str| named(&changed, "DaemonSet", name)["spec"]["template"]["spec"]["containers"][0]["env"].clone();
    let takeover = json!({ "name": "CNI_TAKEOVER", "value": "true" });
    assert_eq!(variables("oke-node-agent-pilot")[0], takeover, "the pool of the example");
    assert_ne!(variables("oke-node-agent")[0], takeover);
    let without = objects(
        &template(&["--set-string", "configurations[0].key=controller,configurations[0].value=false"]).unwrap(),
    );
    assert!(
        without
            .keys()
            .all(|(kind, _, name)| kind != "Deployment" && name != "oke-node-controller" || kind == "FlowSchema")
    );
}

#[test]
fn monitoring_opens_the_scraped_ports() {
    let on = ["podMonitors", "alerts", "dashboard"].map(|name| format!("monitoring.{name}=true"));
    let all = objects(&template(&["--set", &on.join(","), "--set", "monitoring.labels.release=prometheus"]).unwrap());
    for (program, kind, port) in [("agent", "DaemonSet", 9808), ("controller", "Deployment", 9809)] {
        let named = |kind: &str| &all[&(kind.to_owned(), "oke-node-manager".to_owned(), format!("oke-node-{program}"))];
        assert_eq!(set(&file_of(&all, program)), [format!("METRICS_PORT={port}")]);
        let template = &named(kind)["spec"]["template"];
        assert_eq!(template["spec"]["containers"][0]["ports"], json!([{ "name": "metrics", "containerPort": port }]));
        let monitor = named("PodMonitor");
        assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
        assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["port"], "metrics");
        let selector = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
        assert!(selector.iter().all(|(label, value)| template["metadata"]["labels"][label] == *value));
    }
    let shipped = |path: &str| fs::read_to_string(root().join("manifests/observability").join(path)).unwrap();
    let object = |kind: &str, name: &str| &all[&(kind.to_owned(), "oke-node-manager".to_owned(), name.to_owned())];
    let rules: Value = serde_yaml_ng::from_str(&shipped("alerts.yaml")).unwrap();
    assert_eq!(object("PrometheusRule", "oke-node-manager")["spec"], rules);
    let dashboard = &object("ConfigMap", "oke-node-manager-dashboard")["data"]["oke-node-manager.json"];
    assert_eq!(dashboard.as_str().unwrap(), shipped("dashboard.json"));
}

#[test]
fn runbooks_of_alerts_lead_to_the_chosen_place() {
    let chosen = "monitoring.alerts=true,monitoring.runbooks=https://wiki.example/oke/";
    for (values, place) in [
        ("monitoring.alerts=true", concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/")),
        (chosen, "https://wiki.example/oke/"),
    ] {
        let all = objects(&template(&["--set", values]).unwrap());
        let rules = named(&all, "PrometheusRule", "oke-node-manager")["spec"].to_string();
        let urls: Vec<&str> = rules.split("\"runbook_url\":\"").skip(1).collect();
        assert!(
            urls.len() > 20 && urls.iter().all(|url| url.starts_with(&format!("{place}docs/troubleshoot.md#"))),
            "{place}"
        );
    }
}

/// Such as the alert that no controller leads, which would fire forever.
#[test]
fn alerts_about_the_controller_need_a_controller() {
    let groups = |values: &str| -> Vec<String> {
        let all = objects(&template(&["--set", &format!("monitoring.alerts=true,{values}")]).unwrap());
        let name = "oke-node-manager".to_owned();
        let rules = &all[&("PrometheusRule".to_owned(), name.clone(), name)];
        let groups = rules["spec"]["groups"].as_array().unwrap();
        assert!(groups.iter().all(|group| !group["rules"].as_array().unwrap().is_empty()), "{groups:?}");
        groups.iter().map(|group| group["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(groups("controller.enabled=true"), ["oke-node-agent", "oke-node-controller"]);
    assert_eq!(groups("controller.enabled=false"), ["oke-node-agent"]);
    let file = fs::read_to_string(root().join("manifests/observability/alerts.yaml")).unwrap();
    let agents = file.split("  - name: oke-node-controller").next().unwrap();
    assert!(!agents.contains("oke_node_controller_"), "the agents' group needs no controller");
}

#[test]
fn tls_monitoring_mounts_the_secret_and_requires_client_certificate() {
    let values = "monitoring.podMonitors=true,monitoring.tlsSecret=servers,monitoring.clientSecret=prometheus";
    let all = objects(&template(&["--set", values]).unwrap());
    let named = |kind: &str, name: &str| &all[&(kind.to_owned(), "oke-node-manager".to_owned(), name.to_owned())];
    for (program, kind) in [("agent", "DaemonSet"), ("controller", "Deployment")] {
        let name = format!("oke-node-{program}");
        assert!(file_of(&all, program).contains("METRICS_TLS_DIR=/etc/oke-node-metrics\n"));
        let pod = &named(kind, &name)["spec"]["template"]["spec"];
        let volume = json!({ "name": "metrics-tls", "secret": { "secretName": "servers" } });
        assert!(pod["volumes"].as_array().unwrap().contains(&volume));
        let mount = json!({ "name": "metrics-tls", "mountPath": "/etc/oke-node-metrics", "readOnly": true });
        assert!(pod["containers"][0]["volumeMounts"].as_array().unwrap().contains(&mount));
        let endpoint = &named("PodMonitor", &name)["spec"]["podMetricsEndpoints"][0];
        assert_eq!(
            (&endpoint["scheme"], &endpoint["tlsConfig"]["keySecret"]["name"]),
            (&json!("https"), &json!("prometheus"))
        );
    }
    let without = template(&["--set", "monitoring.podMonitors=true,monitoring.tlsSecret=servers"]).unwrap_err();
    assert!(without.contains("needs monitoring.clientSecret"), "{without}");
}

#[test]
fn pods_get_the_chosen_nodes_resources_and_privileges() {
    let values =
        "agent.nodeSelector.pool=a,agent.resources.limits.memory=1Gi,agent.kernelLog=true,agent.hpcPlugins=true";
    let all = objects(&template(&["--set-string", values]).unwrap());
    let pod = |kind: &str, name: &str| {
        all[&(kind.to_owned(), "oke-node-manager".to_owned(), name.to_owned())]["spec"]["template"]["spec"].clone()
    };
    let agent = pod("DaemonSet", "oke-node-agent");
    assert_eq!(agent["nodeSelector"], json!({ "kubernetes.io/os": "linux", "pool": "a" }));
    assert_eq!(agent["containers"][0]["resources"], json!({ "limits": { "memory": "1Gi" } }));
    let granted = agent["containers"][0]["securityContext"]["capabilities"]["add"].as_array().unwrap();
    assert_eq!(granted.last(), Some(&json!("SYSLOG")));
    let last = |list: &Value| list.as_array().unwrap().last().cloned().unwrap();
    let mount = json!({ "name": "oci-hpc", "mountPath": "/host/run/oci-hpc", "readOnly": true });
    assert_eq!(last(&agent["containers"][0]["volumeMounts"]), mount);
    let folder = json!({ "path": "/run/oci-hpc", "type": "DirectoryOrCreate" });
    assert_eq!(last(&agent["volumes"]), json!({ "name": "oci-hpc", "hostPath": folder }));
    assert_eq!(pod("Deployment", "oke-node-controller")["nodeSelector"], json!({ "kubernetes.io/os": "linux" }));
}

/// The nodes of a DaemonSet: its selector, and the expressions of its affinity's only term.
fn nodes(set: &Value) -> (Value, Value) {
    let pod = &set["spec"]["template"]["spec"];
    let required = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = required["nodeSelectorTerms"].as_array().unwrap();
    assert_eq!(terms.len(), 1);
    (pod["nodeSelector"].clone(), terms[0]["matchExpressions"].clone())
}

#[test]
fn each_pool_has_agents_of_its_own() {
    let (label, os) = ("oke-node-manager/pool", "kubernetes.io/os");
    let values = "agent.settings.POD_MTU=1500,agent.settings.LOG_LEVEL=warn,agent.kernelLog=true,\
                  pools.pilot.settings.CNI_TAKEOVER=true,pools.pilot.settings.LOG_LEVEL=debug,pools.pilot.kernelLog=false,\
                  pools.gpu.value=BM.GPU.H100.8,pools.gpu.hpcPlugins=true,monitoring.podMonitors=true";
    let all = objects(&template(&["--set", values]).unwrap());
    let set_of = |name: &str| named(&all, "DaemonSet", name);
    let released = json!({ "key": "oke-node-manager/release", "operator": "DoesNotExist" });
    let others = json!({ "key": label, "operator": "NotIn", "values": ["BM.GPU.H100.8", "pilot"] });
    assert_eq!(nodes(set_of("oke-node-agent")), (json!({ os: "linux" }), json!([released, others])));
    for (pool, value) in [("pilot", "pilot"), ("gpu", "BM.GPU.H100.8")] {
        let name = format!("oke-node-agent-{pool}");
        let set = set_of(&name);
        assert_eq!(nodes(set), (json!({ os: "linux", label: value }), json!([released])));
        // Agents are found by the first label, and each DaemonSet selects its own.
        let selector = json!({ "app.kubernetes.io/name": "oke-node-agent", label: value });
        assert_eq!(set["spec"]["selector"]["matchLabels"], selector);
        let labels = &set["spec"]["template"]["metadata"]["labels"];
        assert_eq!((&labels[label], &labels["app.kubernetes.io/name"]), (&json!(value), &json!("oke-node-agent")));
        let pod = &set["spec"]["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], "oke-node-agent", "rights and policies are by account");
        let volumes = pod["volumes"].as_array().unwrap();
        assert!(volumes.iter().any(|volume| volume["configMap"]["name"] == *name), "{volumes:?}");
    }
    // A pool's settings override those of all agents, also with false.
    assert_eq!(set(&file_of(&all, "agent")), ["LOG_LEVEL=warn", "METRICS_PORT=9808", "POD_MTU=1500"]);
    assert_eq!(set(&file_of(&all, "agent-pilot")), ["LOG_LEVEL=debug", "METRICS_PORT=9808", "POD_MTU=1500"]);
    let granted = |name: &str| {
        let container = &set_of(name)["spec"]["template"]["spec"]["containers"][0];
        container["securityContext"]["capabilities"]["add"].as_array().unwrap().contains(&json!("SYSLOG"))
    };
    assert_eq!(["", "-gpu", "-pilot"].map(|pool| granted(&format!("oke-node-agent{pool}"))), [true, true, false]);
    let monitored = &named(&all, "PodMonitor", "oke-node-agent")["spec"]["selector"]["matchLabels"];
    assert_eq!(*monitored, json!({ "app.kubernetes.io/name": "oke-node-agent" }));
}

#[test]
fn takeover_follows_the_setting_of_each_pool() {
    for (values, expected) in [
        ("cluster=,pools.a.settings.CNI_TAKEOVER=true", [false, true]),
        ("cluster=oke-vcn-native,pools.a.settings.CNI_TAKEOVER=false", [true, false]),
        ("cluster=oke-vcn-native,agent.settings.CNI_TAKEOVER=false,pools.a.settings.CNI_TAKEOVER=true", [false, true]),
        ("agent.settings.CNI_TAKEOVER=true,pools.a=null", [true, true]),
    ] {
        let all = objects(&template(&["--set", values]).unwrap());
        let takes_over = |name: &str| {
            let pod = named(&all, "DaemonSet", name)["spec"]["template"]["spec"].to_string();
            let mounts = pod.contains("/var/lib/cni") && pod.contains("/dev/shm/oci-cni");
            assert_eq!(pod.contains("CNI_TAKEOVER"), mounts, "it needs both mounts");
            mounts
        };
        assert_eq!(["oke-node-agent", "oke-node-agent-a"].map(takes_over), expected, "{values}");
        assert!(!set(&file_of(&all, "agent-a")).iter().any(|line| line.starts_with("CNI_TAKEOVER")));
    }
}

#[test]
fn agents_can_be_in_pools_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("configurations.json");
    let pools = json!({ "a": { "settings": { "RESYNC_SECONDS": "17" } } }).to_string();
    let configurations = [json!({ "key": "pools", "value": pools }), json!({ "key": "agents", "value": "false" })];
    fs::write(&file, json!({ "configurations": configurations }).to_string()).unwrap();
    let all = objects(&template(&["-f", file.to_str().unwrap()]).unwrap());
    let sets: Vec<&str> = all.keys().filter(|(kind, ..)| kind == "DaemonSet").map(|(.., name)| name.as_str()).collect();
    assert_eq!(sets, ["oke-node-agent-a"]);
    assert_eq!(set(&file_of(&all, "agent-a")), ["RESYNC_SECONDS=17"]);
}

/// The add-on's form is a string, which values.schema.json cannot look into.
#[test]
fn wrong_pools_of_the_addon_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (pools, complaint) in [
        ("{", "pools is not JSON"),
        ("[1]", "pools is not a map"),
        (r#"{"a": 5}"#, "pools.a is not a map"),
        (r#"{"a": {"takeover": true}}"#, "there is no field takeover"),
        (r#"{"a": {"settings": {"POD_NETWORKS": "none"}}}"#, "there is no setting POD_NETWORKS"),
        (r#"{"a": {"settings": {"POD_NETWORK": "flannel"}}}"#, "pools.a.settings.POD_NETWORK is not valid: flannel"),
        (r#"{"a": {"settings": {"RESYNC_SECONDS": "soon"}}}"#, "pools.a.settings.RESYNC_SECONDS is not valid: soon"),
        (r#"{"a": {"settings": {"LOG_LEVEL": "debug\nPOD_NETWORK=none"}}}"#, "pools.a.settings.LOG_LEVEL is not valid"),
    ] {
        let file = folder.path().join("configurations.json");
        fs::write(&file, json!({ "configurations": [{ "key": "pools", "value": pools }] }).to_string()).unwrap();
        let error = template(&["-f", file.to_str().unwrap()]).unwrap_err();
        assert!(error.contains(complaint), "{pools}: {error}");
    }
}
