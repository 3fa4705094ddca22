//! The OKE add-on's flat keys and the chart's values, generated from the settings of the programs: manifests/addon/schema.json,
//! manifests/chart/values.schema.json and the table of docs/addon.md.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use k8s_openapi::api::core::v1::Container;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tests::built::bin_dir;

use super::{deployed, only, pod, root};

const DRAFT: &str = "http://json-schema.org/draft-07/schema#";

/// Values of the chart that are not settings of a program: add-on key, path in values.yaml, allowed values, meaning.
struct Switch {
    key: &'static str,
    path: &'static str,
    values: &'static [&'static str],
    meaning: &'static str,
}

/// Probes use the address of LISTEN: it is fixed in the manifests. The others come with rights, by `tasks`, `reboot`, `hostFiles`
/// and `hostCode`.
const OF_MANIFESTS: [&str; 5] = ["LISTEN", "TASKS", "TASK_REBOOTS", "HOST_FILES", "HOST_CODE"];

const BOOL: &[&str] = &["true", "false"];
const SWITCHES: [Switch; 18] = [
    Switch {
        key: "cluster",
        path: "cluster",
        values: &["", "oke-vcn-native", "oke-flannel", "self-managed"],
        meaning: "The kind of cluster: an overlay of manifests/overlays; empty leaves the pod network to OKE's own CNI",
    },
    Switch {
        key: "imageRepository",
        path: "image.repository",
        values: &[],
        meaning: "The image, with its registry's host: required, because no registry publishes it",
    },
    Switch {
        key: "imageTag",
        path: "image.tag",
        values: &[],
        meaning: "The image's tag, perhaps with a digest: VERSION@sha256:…",
    },
    Switch {
        key: "agents",
        path: "agent.enabled",
        values: BOOL,
        meaning: "Whether nodes outside the pools get an agent",
    },
    Switch {
        key: "pools",
        path: "pools",
        values: &[],
        meaning: "One DaemonSet of agents per pool of nodes, as JSON: {\"NAME\": {\"settings\": {\"KEY\": \"value\"}}} (docs/pilot.md)",
    },
    Switch {
        key: "poolLabel",
        path: "poolLabel",
        values: &[],
        meaning: "The node label whose value names the pool, by default oke-node-manager/pool",
    },
    Switch {
        key: "controller",
        path: "controller.enabled",
        values: BOOL,
        meaning: "Whether the controller runs; without it no VNIC is attached on request",
    },
    Switch {
        key: "healthRules",
        path: "agent.healthRules",
        values: &[],
        meaning: "Rules of health signals and repairs that override the shipped ones, as JSON (docs/signals.md)",
    },
    Switch {
        key: "kernelLog",
        path: "agent.kernelLog",
        values: BOOL,
        meaning: "The capability SYSLOG for the agent, which then reads the kernel's log (docs/signals.md)",
    },
    Switch {
        key: "hpcPlugins",
        path: "agent.hpcPlugins",
        values: BOOL,
        meaning: "A mount of /run/oci-hpc: whether the cloud agent has configured RDMA (docs/signals.md)",
    },
    Switch {
        key: "tunables",
        path: "agent.tunables",
        values: BOOL,
        meaning: "Mounts of the settings vm.*, fs.inotify.* and transparent huge pages, which NodePolicies then may set (docs/node-policies.md)",
    },
    Switch {
        key: "tasks",
        path: "tasks",
        values: BOOL,
        meaning: "Runs NodeTasks: restart a unit, grow the root disk, capture (docs/node-tasks.md); sets captures to headers if absent; false refuses each task",
    },
    Switch {
        key: "reboot",
        path: "reboot",
        values: BOOL,
        meaning: "Also lets NodeTasks reboot nodes; the controller may then cordon Nodes and evict Pods (docs/node-tasks.md)",
    },
    Switch {
        key: "hostFiles",
        path: "hostFiles",
        values: BOOL,
        meaning: "Lets NodePolicies have files that configure programs of the host, such as sysctl.d (docs/node-policies.md)",
    },
    Switch {
        key: "hostCode",
        path: "hostCode",
        values: BOOL,
        meaning: "Lets NodePolicies have files that run programs as root, such as drop-ins of systemd, and kubelet reservations (docs/node-policies.md)",
    },
    Switch {
        key: "podMonitors",
        path: "monitoring.podMonitors",
        values: BOOL,
        meaning: "PodMonitors of the Prometheus Operator; opens /metrics on the node's address",
    },
    Switch { key: "alerts", path: "monitoring.alerts", values: BOOL, meaning: "The alert rules as a PrometheusRule" },
    Switch {
        key: "dashboard",
        path: "monitoring.dashboard",
        values: BOOL,
        meaning: "The dashboard as a ConfigMap for Grafana",
    },
];

/// A key, as `config --explain -o json` prints it.
#[derive(Debug, Deserialize)]
pub(super) struct Setting {
    pub(super) key: String,
    unit: String,
    #[serde(default)]
    values: Vec<String>,
    default: Option<String>,
    meaning: String,
}

impl Setting {
    fn choices(&self) -> Vec<String> {
        match self.unit.as_str() {
            "true|false" => BOOL.iter().map(ToString::to_string).collect(),
            _ => self.values.clone(),
        }
    }

    /// The JSON schema of its value as text.
    fn schema(&self) -> Map<String, Value> {
        let mut schema =
            Map::from_iter([("type".to_owned(), json!("string")), ("description".to_owned(), json!(self.meaning))]);
        schema.extend(self.default.as_ref().map(|text| ("default".to_owned(), json!(text))));
        let choices = self.choices();
        let number = ["SECONDS", "NUMBER", "BYTES", "PORT"].contains(&self.unit.as_str());
        match (choices.is_empty(), number) {
            (false, _) => schema.insert("enum".to_owned(), json!(choices)),
            (_, true) => schema.insert("pattern".to_owned(), json!("^[0-9]+([.][0-9]+)?$")),
            _ => schema.insert("pattern".to_owned(), json!("^[^\n]*$")),
        };
        schema
    }

    /// The same for values.yaml, where numbers and booleans need no quotes.
    fn value_schema(&self) -> Value {
        let mut schema = self.schema();
        schema.insert("type".to_owned(), json!(["string", "number", "boolean"]));
        if let Some(Value::Array(choices)) = schema.get_mut("enum")
            && choices.iter().any(|it| it == "true")
        {
            choices.extend([json!(true), json!(false)]);
        }
        Value::Object(schema)
    }

    /// `POD_NETWORK` is `podNetwork`, and of the controller `controllerPodNetwork`.
    fn addon_key(&self, program: &str) -> String {
        let words = self.key.split('_').map(str::to_lowercase);
        let prefix = (program == "controller").then(|| program.to_owned());
        let camel = |(place, word): (usize, String)| match place {
            0 => word,
            _ => word[..1].to_uppercase() + &word[1..],
        };
        prefix.into_iter().chain(words).enumerate().map(camel).collect()
    }
}

/// The settings of a program that an operator may choose: not directories and files, which the manifest mounts, and not what its
/// environment sets.
pub(super) fn settings(program: &str) -> Vec<Setting> {
    let (name, container): (_, Container) = match program {
        "agent" => ("oke-node-agent", only(pod().containers)),
        _ => ("oke-node-controller", deployed().containers.into_iter().next().unwrap()),
    };
    let arguments = ["config", "--explain", "-o", "json"];
    let output = Command::new(bin_dir().join(name)).args(arguments).env_clear().output().unwrap();
    let all: Vec<Setting> = serde_json::from_slice(&output.stdout).unwrap();
    let set: BTreeSet<String> = container.env.unwrap().into_iter().map(|variable| variable.name).collect();
    let is_choice = |setting: &Setting| {
        let is_of_manifest = set.contains(&setting.key) || OF_MANIFESTS.contains(&setting.key.as_str());
        !["DIR", "FILE"].contains(&setting.unit.as_str()) && !is_of_manifest
    };
    all.into_iter().filter(is_choice).collect()
}

/// The add-on's keys in their order, each with its schema.
fn keys() -> Vec<(String, Map<String, Value>)> {
    let mut keys: Vec<(String, Map<String, Value>)> = Vec::new();
    for Switch { key, path, values, meaning } in SWITCHES {
        let mut schema =
            Map::from_iter([("type".to_owned(), json!("string")), ("description".to_owned(), json!(meaning))]);
        if !values.is_empty() {
            schema.insert("enum".to_owned(), json!(values));
        }
        schema.insert("x-chart-value".to_owned(), json!(path));
        keys.push((key.to_owned(), schema));
    }
    for program in ["agent", "controller"] {
        for setting in settings(program) {
            let mut schema = setting.schema();
            schema.insert("x-chart-value".to_owned(), json!(format!("{program}.settings.{}", setting.key)));
            keys.push((setting.addon_key(program), schema));
        }
    }
    keys
}

fn object(properties: Value) -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn addon_schema() -> Value {
    let mut schema = object(Value::Object(keys().into_iter().map(|(key, it)| (key, Value::Object(it))).collect()));
    schema["$schema"] = json!(DRAFT);
    schema["title"] = json!("Configuration of the OKE add-on: flat keys, all values are strings");
    schema
}

fn values_schema() -> Value {
    let of = |program: &str| -> Value {
        object(settings(program).iter().map(|it| (it.key.clone(), it.value_schema())).collect::<Map<_, _>>().into())
    };
    let known: Vec<String> = keys().into_iter().map(|(key, _)| key).collect();
    let each = |(key, mut schema): (String, Map<String, Value>)| {
        schema.remove("description");
        json!({ "if": { "properties": { "key": { "const": key } } }, "then": { "properties": { "value": schema } } })
    };
    let conditions: Vec<Value> = keys().into_iter().map(each).collect();
    let (text, boolean) =
        (json!({ "type": "string" }), json!({ "type": ["boolean", "string"], "enum": [true, false, "true", "false"] }));
    let labels = json!({ "type": "object", "additionalProperties": text });
    let agent = json!({
        "settings": of("agent"), "healthRules": { "type": ["object", "string"] },
        "kernelLog": boolean, "hpcPlugins": boolean, "tunables": boolean, "nodeSelector": labels, "resources": { "type": "object" },
    });
    let with = |name: &str, schema: &Value| {
        let mut properties = agent.clone();
        properties[name] = schema.clone();
        object(properties)
    };
    let mut pool = with("value", &text);
    pool["type"] = json!(["object", "null"]);
    let mut schema = object(json!({
        "global": {},
        "cluster": { "type": "string", "enum": SWITCHES[0].values },
        "image": object(json!({ "repository": text, "tag": text })),
        "agent": with("enabled", &boolean),
        "pools": { "type": ["object", "string"], "additionalProperties": pool },
        "poolLabel": text,
        "controller": object(json!({
            "enabled": boolean, "settings": of("controller"), "healthRules": { "type": ["object", "string"] }, "nodeSelector": labels, "resources": { "type": "object" },
        })),
        "tasks": boolean, "reboot": boolean, "hostFiles": boolean, "hostCode": boolean,
        "monitoring": object(json!({
            "podMonitors": boolean, "alerts": boolean, "dashboard": boolean,
            "tlsSecret": text, "clientSecret": text, "labels": labels, "runbooks": text,
        })),
        "configurations": { "type": "array", "items": {
            "type": "object", "additionalProperties": false, "required": ["key", "value"],
            "properties": { "key": { "type": "string", "enum": known }, "value": text },
            "allOf": conditions,
        } },
    }));
    schema["$schema"] = json!(DRAFT);
    schema
}

fn table() -> String {
    let mut table = String::from("| key | values, default | meaning |\n|---|---|---|\n");
    for (key, schema) in keys() {
        let choices = |values: &Vec<Value>| {
            let texts = values.iter().map(|it| it.as_str().unwrap_or_default()).filter(|it| !it.is_empty());
            texts.collect::<Vec<_>>().join(" \\| ")
        };
        let values = schema.get("enum").and_then(Value::as_array).map(choices).unwrap_or_default();
        let default = schema.get("default").map(|it| format!("`{}`", it.as_str().unwrap())).unwrap_or_default();
        let between = if values.is_empty() || default.is_empty() { "" } else { "<br>" };
        let meaning = schema["description"].as_str().unwrap();
        let _ = writeln!(table, "| `{key}` | {values}{between}{default} | {meaning} |");
    }
    table
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap() + "\n"
}

#[test]
fn addon_schema_and_values_schema_follow_the_settings() {
    for (path, schema) in
        [("manifests/addon/schema.json", addon_schema()), ("manifests/chart/values.schema.json", values_schema())]
    {
        assert_eq!(documents::compare_file(&root().join(path), &pretty(&schema)), Ok(()));
    }
    assert_eq!(documents::compare(&root().join("docs/addon.md"), "keys", &table()), Ok(()));
}

#[test]
fn addon_keys_are_unique_and_switch_each_part() {
    let keys = keys();
    let unique: BTreeSet<&String> = keys.iter().map(|(key, _)| key).collect();
    assert_eq!(unique.len(), keys.len());
    for part in [
        "podNetwork",
        "hostNetworking",
        "vnicAttach",
        "controller",
        "health",
        "repairs",
        "healthRules",
        "controllerNetworkTestTargets",
        "metricsPort",
        "controllerMetricsPort",
    ] {
        assert!(unique.contains(&part.to_owned()), "{part}: {unique:?}");
    }
    let values: Value =
        serde_yaml_ng::from_str(&fs::read_to_string(root().join("manifests/chart/values.yaml")).unwrap()).unwrap();
    for (key, schema) in &keys {
        let pointer = format!("/{}", schema["x-chart-value"].as_str().unwrap().replace('.', "/"));
        let of_program = pointer.rsplit_once("/settings/").map_or(pointer.as_str(), |(program, _)| program);
        assert!(values.pointer(of_program).is_some(), "{key} sets {pointer}, which values.yaml lacks");
    }
}
