//! What libcni refuses (containernetworking/cni 1.3: libcni/conf.go, pkg/types/types.go), so that a file is judged here as runtimes
//! judge it. Go decodes a list's own keys into a map, so their names match exactly. It decodes an entry into a struct, so there they
//! match in any case, and null is not a value. `golden/libcni.txt` has libcni's own verdicts.

use serde_json::Value;
use vcn::excerpt;

/// The key of a list's plugins.
pub(crate) const PLUGINS: &str = "plugins";

/// Of a quoted value, in characters.
const QUOTED: usize = 60;

/// The type of a Go value.
enum Shape {
    Text,
    Flag,
    List(&'static Self),
    /// Any keys; all values have one shape, or any.
    Map(Option<&'static Self>),
    /// Fields of a struct; other keys are ignored.
    Struct(&'static [(&'static str, Self)]),
}

const ENTRY: Shape = Shape::Struct(&[
    ("cniVersion", Shape::Text),
    ("name", Shape::Text),
    ("type", Shape::Text),
    ("capabilities", Shape::Map(Some(&Shape::Flag))),
    ("ipam", Shape::Struct(&[("type", Shape::Text)])),
    (
        "dns",
        Shape::Struct(&[
            ("nameservers", Shape::List(&Shape::Text)),
            ("domain", Shape::Text),
            ("search", Shape::List(&Shape::Text)),
            ("options", Shape::List(&Shape::Text)),
        ]),
    ),
    ("prevResult", Shape::Map(None)),
    (
        "cni.dev/valid-attachments",
        Shape::List(&Shape::Struct(&[("containerID", Shape::Text), ("ifname", Shape::Text)])),
    ),
]);

/// A plugin's type. Go finds a key in any case, sorts keys and takes the last that is not null; an empty type is none.
pub(crate) fn kind(plugin: &Value) -> Option<&str> {
    let types = plugin.as_object()?.iter().filter(|(key, value)| names_field(key, "type") && !value.is_null());
    types.max_by_key(|(key, _)| *key)?.1.as_str().filter(|kind| !kind.is_empty())
}

/// Why libcni refuses a plugin's entry, or the document of a single plugin.
pub(crate) fn entry_fault(entry: &Value) -> Option<String> {
    let missing = || kind(entry).is_none().then(|| "a plugin has no type".to_owned());
    ENTRY.fault("a plugin", entry).or_else(missing)
}

/// Why libcni refuses a list for one of its own keys.
pub(crate) fn key_fault(key: &str, value: &Value) -> Option<String> {
    let expected = match (key, value) {
        ("name" | "cniVersion", Value::String(_)) => return None,
        ("disableCheck" | "disableGC" | "loadOnlyInlinedPlugins", _) if flag(value).is_some() => return None,
        ("cniVersions", Value::Array(versions)) if versions.iter().all(is_version) => return None,
        ("name" | "cniVersion", _) => "a text",
        ("disableCheck" | "disableGC" | "loadOnlyInlinedPlugins", _) => "true or false",
        ("cniVersions", _) => "a list of versions",
        _ => return None,
    };
    Some(wrong(key, value, expected))
}

/// Why libcni refuses a list, but for the files of its folder.
pub(crate) fn list_fault(document: &Value) -> Option<String> {
    let Some(list) = document.as_object() else { return Some("it is not an object".to_owned()) };
    if !list.contains_key("name") {
        return Some("it has no name".to_owned());
    }
    if let Some(fault) = list.iter().find_map(|(key, value)| key_fault(key, value)) {
        return Some(fault);
    }
    let version = list.get("cniVersion").filter(|version| list.contains_key("cniVersions") && !is_version(version));
    if let Some(version) = version {
        return Some(wrong("cniVersion", version, "a version"));
    }
    match list.get(PLUGINS) {
        None if loads_inline_only(document) => Some("loadOnlyInlinedPlugins is set, and it has no plugins".to_owned()),
        None => None,
        Some(Value::Array(plugins)) if plugins.is_empty() => Some("its list of plugins is empty".to_owned()),
        Some(Value::Array(plugins)) => plugins.iter().find_map(entry_fault),
        Some(other) => Some(wrong(PLUGINS, other, "a list")),
    }
}

/// Whether plugins in the folder of a list's network are not loaded.
pub(crate) fn loads_inline_only(document: &Value) -> bool {
    document.get("loadOnlyInlinedPlugins").and_then(flag) == Some(true)
}

/// Whether Go decodes a key of JSON into a field: case does not matter, and two letters fold to an ASCII one.
fn names_field(key: &str, field: &str) -> bool {
    let folded = |letter| match letter {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    key.chars().map(folded).eq(field.chars().map(folded))
}

impl Shape {
    /// What in a value does not have this shape.
    fn fault(&self, path: &str, value: &Value) -> Option<String> {
        let expected = match (self, value) {
            (_, Value::Null) | (Self::Text, Value::String(_)) | (Self::Flag, Value::Bool(_)) => return None,
            (Self::List(shape), Value::Array(items)) => return items.iter().find_map(|item| shape.fault(path, item)),
            (Self::Map(shape), Value::Object(items)) => {
                let shape = shape.as_ref()?;
                return items.iter().find_map(|(key, item)| shape.fault(&format!("{path}.{key}"), item));
            }
            (Self::Struct(fields), Value::Object(items)) => {
                return items.iter().find_map(|(key, item)| {
                    let (name, shape) = fields.iter().find(|(name, _)| names_field(key, name))?;
                    shape.fault(name, item)
                });
            }
            (Self::Text, _) => "a text",
            (Self::Flag, _) => "true or false",
            (Self::List(_), _) => "a list",
            (Self::Map(_) | Self::Struct(_), _) => "an object",
        };
        Some(wrong(path, value, expected))
    }
}

fn wrong(path: &str, value: &Value, expected: &str) -> String {
    let (path, value) = (excerpt(path, QUOTED).into_owned(), value.to_string());
    format!("{path} is {}, which must be {expected}", excerpt(&value, QUOTED))
}

/// A flag of a list, which may be a text.
fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) => text.to_ascii_lowercase().parse().ok(),
        _ => None,
    }
}

/// Whether libcni can compare it (version.ParseVersion): up to three numbers, or nothing, which is 0.1.0.
fn is_version(value: &Value) -> bool {
    let parts = |text: &str| text.split('.').count() < 4 && text.split('.').all(|part| part.parse::<i64>().is_ok());
    value.as_str().is_some_and(|text| text.is_empty() || parts(text))
}
