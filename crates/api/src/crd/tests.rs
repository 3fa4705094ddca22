//! The manifest is what the code says, and the schema is one that the API server takes.

use std::path::Path;

use serde_json::Value;

use super::all;

const HEADER: &str =
    "# The custom resources: docs/resources.md. Written by `UPDATE_DOCS=1 cargo test -p api crd`; not by hand.\n";

#[test]
fn the_manifest_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/base/crds.yaml");
    let documents =
        all().iter().map(|crd| format!("---\n{}", serde_yaml_ng::to_string(crd).unwrap())).collect::<String>();
    assert_eq!(documents::compare_file(&path, &format!("{HEADER}{documents}")), Ok(()));
}

/// Calls `look` with every schema below and at `schema`, and its path.
fn each(path: &str, schema: &Value, look: &mut impl FnMut(&str, &Value)) {
    look(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        each(&format!("{path}.{name}"), property, look);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            each(&format!("{path}[]"), &schema[inner], look);
        }
    }
}

fn schemas(mut look: impl FnMut(&str, &Value)) {
    for crd in all() {
        let name = crd.spec.names.kind.clone();
        for version in crd.spec.versions {
            let schema = serde_json::to_value(version.schema.unwrap().open_api_v3_schema).unwrap();
            for part in ["spec", "status"] {
                each(&format!("{name}.{part}"), &schema["properties"][part], &mut look);
            }
        }
    }
}

#[test]
fn every_list_and_text_has_a_bound() {
    let mut without = Vec::new();
    schemas(|path, schema| {
        let bounded = match schema["type"].as_str() {
            Some("array") => schema["maxItems"].is_u64(),
            Some("string") => {
                schema["maxLength"].is_u64() || schema["enum"].is_array() || schema["format"] == "date-time"
            }
            Some("object") => !schema["additionalProperties"].is_object() || schema["maxProperties"].is_u64(),
            _ => true,
        };
        if !bounded {
            without.push(path.to_owned());
        }
    });
    assert_eq!(without, Vec::<String>::new());
}

#[test]
fn schema_drops_unknown_fields_and_types_and_describes_every_field() {
    let mut lacking = Vec::new();
    schemas(|path, schema| {
        let selector = path.contains("nodeSelector.") || path.contains("pods.selector.");
        let element = path.ends_with("[]");
        let is_typed = schema["type"].is_string() || schema["x-kubernetes-int-or-string"] == true;
        if !is_typed || !(schema["description"].is_string() || selector || element) {
            lacking.push(path.to_owned());
        }
        let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true || schema["additionalProperties"] == true;
        assert!(!keeps, "{path}");
    });
    assert_eq!(lacking, Vec::<String>::new());
}

#[test]
fn ocid_accepted_by_schema_is_accepted_by_parser() {
    // The pattern: `ocid1.<kind>.`, then letters, digits, `.`, `_`, `-`, then a last part that is not empty.
    for text in
        ["ocid1.instance.oc1.iad.anyhqljt", "ocid1.instance..a", "ocid1.instance.oc1..A_b-9", "ocid1.instance..-"]
    {
        assert!(text.parse::<vcn::Ocid>().is_ok(), "{text}");
    }
}
