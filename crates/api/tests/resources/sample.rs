//! Objects that are in order, and others made from them.

use serde_json::{Value, json};

/// An OCID as long as real ones get: newer regions are named in full, the last part has 60 characters. Those end in its
/// number.
pub(crate) fn ocid(kind: &str, number: u32) -> String {
    format!("ocid1.{kind}.oc1.eu-frankfurt-1.anyhqljtqn6sucaczptn5sxbqhqrbmzb7mhgeuqkxg6qwtjp3a5y4wl{number:05}")
}

/// A VnicAttachment with all that must be there and no more.
pub(crate) fn attachment(name: &str) -> Value {
    json!({
        "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicAttachment", "metadata": { "name": name },
        "spec": {
            "instanceId": ocid("instance", 1), "subnetId": ocid("subnet", 1), "name": "storage", "purpose": "Host",
        },
    })
}

/// A VnicProfile with all that must be there and no more.
pub(crate) fn profile(name: &str) -> Value {
    json!({
        "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "VnicProfile", "metadata": { "name": name },
        "spec": {
            "nodeSelector": { "matchLabels": { "pool": "a" } },
            "attachments": [{ "subnetId": ocid("subnet", 1), "name": "storage", "purpose": "Host" }],
        },
    })
}

/// A NetworkTest with all that must be there and no more.
pub(crate) fn network_test(name: &str) -> Value {
    json!({
        "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NetworkTest", "metadata": { "name": name },
        "spec": {
            "sources": [{ "node": "10.0.10.2" }],
            "targets": [{ "node": "10.0.10.3" }],
            "probes": [{ "type": "TCP", "port": 10250 }],
        },
    })
}

/// A NodePolicy with all that must be there and no more.
pub(crate) fn node_policy(name: &str) -> Value {
    json!({
        "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodePolicy", "metadata": { "name": name },
        "spec": { "allNodes": true, "settings": { "sysctls": { "vm.max_map_count": "262144" } } },
    })
}

/// A NodeTask with all that must be there and no more.
pub(crate) fn node_task(name: &str) -> Value {
    json!({
        "apiVersion": "oke.oraclecloud.com/v1alpha1", "kind": "NodeTask", "metadata": { "name": name },
        "spec": { "node": "10.0.10.2", "action": { "restartUnit": { "unit": "crio.service" } } },
    })
}

/// The object with fields of its spec put in, or taken away where they are null.
pub(crate) fn with(mut object: Value, spec: Value) -> Value {
    let fields = object["spec"].as_object_mut().unwrap();
    for (field, value) in spec.as_object().unwrap() {
        if value.is_null() {
            fields.remove(field);
        } else {
            fields.insert(field.clone(), value.clone());
        }
    }
    object
}

/// The profile with fields of its one template put in.
pub(crate) fn with_template(mut profile: Value, template: Value) -> Value {
    let fields = profile["spec"]["attachments"][0].as_object_mut().unwrap();
    fields.extend(template.as_object().unwrap().clone());
    profile
}
