//! docs/resources.md has every field and every reason as the code has them.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::condition::Reason;
use crate::condition::reason::{AttachmentReason, PolicyReason, ProfileReason, TaskReason};
use crate::crd;

fn holds(part: &str, table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/resources.md");
    assert_eq!(documents::compare(&path, part, table), Ok(()));
}

// One test: several that write the same file would lose each other's parts.
#[test]
fn the_fields_and_the_reasons_are_documented() {
    for crd in crd::all() {
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
        let schema = &schema["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            let mut table = "| field | type | meaning |\n|---|---|---|\n".to_owned();
            rows("", &schema[part], &mut table);
            holds(&format!("{} {part}", crd.spec.names.kind), &table);
        }
    }
    holds("VnicAttachment reasons", &reasons(AttachmentReason::ALL));
    holds("VnicProfile reasons", &reasons(ProfileReason::ALL));
    holds("NodePolicy reasons", &reasons(PolicyReason::ALL));
    holds("NodeTask reasons", &reasons(TaskReason::ALL));
}

#[test]
fn optional_field_documents_its_default() {
    for crd in crd::all() {
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
        let spec = &schema["openAPIV3Schema"]["properties"]["spec"];
        let required: Vec<&Value> = spec["required"].as_array().unwrap().iter().collect();
        for (name, field) in spec["properties"].as_object().unwrap() {
            let meaning = field["description"].as_str().unwrap();
            let says = meaning.contains("if absent") || required.contains(&&Value::from(name.clone()));
            assert!(says, "{}.{name}: {meaning}", crd.spec.names.kind);
        }
    }
}

fn rows(path: &str, schema: &Value, table: &mut String) {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let must = if required.contains(&name.as_str()) { ", required" } else { "" };
        let meaning = field["description"].as_str().unwrap_or_default().replace('\n', " ");
        writeln!(table, "| `{path}` | {}{must} | {meaning} |", holding(field)).unwrap();
        // Kubernetes' own type, and one that another table lists.
        let known = matches!(name.as_str(), "nodeSelector" | "attachments") || path.ends_with("stable.settings");
        if !known {
            rows(&path, field, table);
            rows(&format!("{path}[]"), &field["items"], table);
        }
    }
}

/// A schema's type and bounds in words.
fn holding(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "number or percentage".to_owned();
    }
    let number = |name: &str| schema[name].as_f64().map(|number| number.to_string());
    match schema["type"].as_str().unwrap() {
        "integer" => match (number("minimum"), number("maximum")) {
            (Some(min), Some(max)) => format!("{min} to {max}"),
            _ => "number".to_owned(),
        },
        "boolean" => "true or false".to_owned(),
        "string" if schema["enum"].is_array() => {
            let words: Vec<String> =
                schema["enum"].as_array().unwrap().iter().map(|word| format!("`{}`", word.as_str().unwrap())).collect();
            words.join(" or ")
        }
        "string" if schema["format"] == "date-time" => "time".to_owned(),
        "string" => format!("text of up to {}", number("maxLength").unwrap()),
        "array" => {
            let least = number("minItems").unwrap_or_else(|| "0".to_owned());
            let most = number("maxItems").unwrap();
            format!("{least} to {most}: {}", holding(&schema["items"]))
        }
        "object" if schema["additionalProperties"].is_object() => {
            format!("0 to {}: {}", number("maxProperties").unwrap(), holding(&schema["additionalProperties"]))
        }
        _ => "object".to_owned(),
    }
}

fn reasons<R: Reason>(all: &[R]) -> String {
    let mut table = "| reason | on | status | meaning | what to do |\n|---|---|---|---|---|\n".to_owned();
    for reason in all {
        let on: Vec<&str> = reason.on().iter().map(|kind| kind.as_str()).collect();
        let (word, status) = (reason.as_str(), reason.status());
        writeln!(table, "| {word} | {} | {status} | {} | {} |", on.join(", "), reason.meaning(), reason.to_do())
            .unwrap();
    }
    table
}
