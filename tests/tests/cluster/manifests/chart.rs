//! The Helm chart renders what kustomize renders, and an add-on's configuration changes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tests::built::bin_dir;

use super::rendered::{FOLDERS, rendered};
use super::{documents, root};

const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tools/build");
/// Helm refuses to delete objects with this annotation.
const KEEP: &str = "helm.sh/resource-policy";

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

/// `helm template` with more arguments, for the oldest Kubernetes.
fn template(more: &[&str]) -> Result<String, String> {
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
    let name = format!("oke-node-{program}");
    let map = &objects[&("ConfigMap".to_owned(), "oke-node-manager".to_owned(), name)];
    map["data"][format!("{program}.conf")].as_str().unwrap().to_owned()
}

/// The lines of a configuration file that set something.
fn set(file: &str) -> Vec<&str> {
    file.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect()
}

#[test]
fn chart_renders_the_same_objects_as_kustomize() {
    for folder in FOLDERS {
        let cluster = folder.strip_prefix("overlays/").unwrap_or_default();
        let chart = objects(&template(&["--set", &format!("cluster={cluster}")]).unwrap());
        let kustomize = objects(&rendered(folder));
        assert!(chart.keys().eq(kustomize.keys()), "{folder}: {:?} {:?}", chart.keys(), kustomize.keys());
        for (name, object) in &kustomize {
            assert_eq!(chart[name], *object, "{folder}: {name:?}");
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
    let all = template(&["--set-string", "image.repository=iad.ocir.io/team/manager,image.tag=7"]).unwrap();
    assert_eq!(all.matches("image: iad.ocir.io/team/manager:7\n").count(), 2);
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
        ("cluster=oke-flannel,agent.settings.POD_NETWORK=auto", "has no effect"),
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
    let changed = objects(&template(&["-f", &example]).unwrap());
    let (agent, controller) = (file_of(&changed, "agent"), file_of(&changed, "controller"));
    assert_eq!(set(&agent), ["HOST_NETWORKING=report", "LOG_LEVEL=debug", "VNIC_ATTACH=on"]);
    assert_eq!(set(&controller), ["OCI_REGION=eu-frankfurt-1"]);
    let data = &changed[&("ConfigMap".to_owned(), "oke-node-manager".to_owned(), "oke-node-agent".to_owned())]["data"];
    let rules: Value = serde_json::from_str(data["health-rules.json"].as_str().unwrap()).unwrap();
    assert_eq!(rules["rules"][0]["action"], "repair");
    let folder = tempfile::tempdir().unwrap();
    assert!(is_valid("agent", &agent, folder.path()) && is_valid("controller", &controller, folder.path()));
    let agents = &changed[&("DaemonSet".to_owned(), "oke-node-manager".to_owned(), "oke-node-agent".to_owned())];
    let environment = &agents["spec"]["template"]["spec"]["containers"][0]["env"];
    assert_eq!(environment[0], json!({ "name": "POD_NETWORK", "value": "none" }), "the overlay of the example");
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
