//! Objects without what could be secret: only members that a pattern names, and URLs without user and query.

use serde_json::{Map, Value, json};

/// The prefixes of annotations that are kept; those of other programs may have anything.
const ANNOTATIONS: [&str; 2] = ["oke.oraclecloud.com/", "oci.oraclecloud.com/"];

/// An object of a kind, reduced.
pub(super) fn reduced(kind: &str, object: &Value) -> Value {
    let mut reduced = picked(object, &pattern(kind));
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
    let ours =
        annotations.into_iter().flatten().filter(|(key, _)| ANNOTATIONS.iter().any(|ours| key.starts_with(ours)));
    let ours: Map<String, Value> = ours.map(|(key, value)| (key.clone(), value.clone())).collect();
    if let Some(metadata) = reduced.get_mut("metadata").and_then(Value::as_object_mut).filter(|_| !ours.is_empty()) {
        metadata.insert("annotations".to_owned(), ours.into());
    }
    without_secrets_in_urls(&mut reduced);
    reduced
}

/// What is kept: `true` is a whole value, an object names members; of an array, members of each item.
fn pattern(kind: &str) -> Value {
    let container = json!({ "name": true, "image": true, "resources": true });
    let containers = json!({ "containers": container, "initContainers": container, "nodeName": true, "nodeSelector": true,
        "affinity": true, "tolerations": true, "priorityClassName": true, "serviceAccountName": true });
    let (spec, status) = match kind {
        "Node" => (
            json!({ "providerID": true, "taints": true, "unschedulable": true, "podCIDRs": true }),
            json!({ "conditions": true, "nodeInfo": true, "allocatable": true, "capacity": true, "addresses": true }),
        ),
        "Pod" => (containers, json!(true)),
        "DaemonSet" | "Deployment" => {
            (json!({ "replicas": true, "updateStrategy": true, "template": { "spec": containers } }), json!(true))
        }
        _ => (json!(true), json!(true)),
    };
    let metadata = json!({ "name": true, "namespace": true, "uid": true, "labels": true, "generation": true,
        "creationTimestamp": true, "deletionTimestamp": true, "resourceVersion": true, "finalizers": true,
        "ownerReferences": { "kind": true, "name": true } });
    let mut pattern = json!({ "metadata": metadata, "spec": spec, "status": status });
    if let Some(members) = pattern.as_object_mut().filter(|_| kind == "Event") {
        let event =
            ["reason", "note", "type", "action", "regarding", "related", "reportingController", "reportingInstance"];
        let times = ["eventTime", "series", "deprecatedCount", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"];
        members.extend(event.iter().chain(&times).map(|name| ((*name).to_owned(), json!(true))));
    }
    pattern
}

fn picked(value: &Value, pattern: &Value) -> Value {
    let Value::Object(members) = pattern else { return value.clone() };
    match value {
        Value::Array(items) => items.iter().map(|item| picked(item, pattern)).collect(),
        Value::Object(found) => {
            let named =
                members.iter().filter_map(|(name, below)| Some((name.clone(), picked(found.get(name)?, below))));
            Value::Object(named.collect())
        }
        _ => Value::Null,
    }
}

fn without_secrets_in_urls(value: &mut Value) {
    match value {
        Value::String(text) if text.contains("://") => *text = cleaned(text),
        Value::Array(items) => items.iter_mut().for_each(without_secrets_in_urls),
        Value::Object(members) => members.iter_mut().for_each(|(name, value)| match value {
            Value::Object(tags) if name == "freeformTags" => *value = tags.keys().cloned().collect(),
            Value::String(path) if name == "path" => path.truncate(path.find('?').unwrap_or(path.len())),
            value => without_secrets_in_urls(value),
        }),
        _ => {}
    }
}

/// A text whose URLs have neither user nor query, also where one is the path of another.
fn cleaned(text: &str) -> String {
    let (mut cleaned, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("://") {
        let is_end = |letter: char| letter.is_whitespace() || "\"'<>".contains(letter);
        let (url, later) = after.split_at(after.find(is_end).unwrap_or(after.len()));
        let (part, inner) = url.split_at(url.find("://").unwrap_or(url.len()));
        let query = part.find(['?', '#']);
        let (path, next) = match query.and_then(|at| part.get(..at)) {
            Some(path) => (path, later),
            None => (part, after.get(part.len()..).filter(|_| !inner.is_empty()).unwrap_or(later)),
        };
        let (host, path) = path.split_at(path.find('/').unwrap_or(path.len()));
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        cleaned.extend([before, "://", host, path, if query.is_some() { "?…" } else { "" }]);
        rest = next;
    }
    cleaned + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_secret_is_left_out() {
        let env = json!([{ "name": "TOKEN", "value": "hunter2" }]);
        let container = json!({ "name": "a", "image": "b", "env": env, "args": ["--token=hunter2"] });
        let metadata = json!({ "name": "x", "managedFields": ["hunter2"], "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "hunter2", "example.org/key": "hunter2",
            "oke.oraclecloud.com/vnics": "storage" } });
        let template = json!({ "metadata": metadata, "spec": { "containers": [container], "volumes": ["hunter2"] } });
        for (kind, spec) in [
            ("Pod", json!({ "containers": [container], "volumes": ["hunter2"] })),
            ("DaemonSet", json!({ "template": template, "selector": "hunter2" })),
            ("Node", json!({ "providerID": "oci://a", "configSource": "hunter2" })),
            (
                "NetworkTest",
                json!({ "targets": [{ "url": "https://me:hunter2@b.org/c?token=hunter2#hunter2" }],
                "probes": [{ "path": "/a?hunter2" }] }),
            ),
            ("VnicAttachment", json!({ "vnic": { "freeformTags": { "key": "hunter2" } } })),
        ] {
            let object = json!({ "metadata": metadata, "spec": spec, "status": { "conditions": [{ "type": "Ready" }] },
                "data": "hunter2" });
            let reduced = reduced(kind, &object);
            assert!(!reduced.to_string().contains("hunter2"), "{kind}: {reduced}");
            assert_eq!(
                reduced["metadata"],
                json!({ "name": "x", "annotations": { "oke.oraclecloud.com/vnics": "storage" } })
            );
            assert_eq!(reduced["status"]["conditions"][0]["type"], "Ready", "{kind}");
        }
        let of_pod = reduced("Pod", &json!({ "metadata": metadata, "spec": { "containers": [container] } }));
        assert_eq!(of_pod["spec"]["containers"], json!([{ "name": "a", "image": "b" }]));
    }

    #[test]
    fn urls_keep_host_and_path() {
        for (text, expected) in [
            ("GET https://u:p@h:1/a/b?x=y failed, http://i/", "GET https://h:1/a/b?… failed, http://i/"),
            ("oci://ocid1.instance.oc1.iad.a", "oci://ocid1.instance.oc1.iad.a"),
            ("a://b@c://d@e", "a://c://e"),
            ("https://proxy/https://u:p@h/a?b=https://x@y z", "https://proxy/https://h/a?… z"),
            ("://", "://"),
        ] {
            assert_eq!(cleaned(text), expected);
        }
    }
}
