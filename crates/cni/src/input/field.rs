//! Fields of JSON objects, read so that a complaint says where: the path of the field, what it is and what it should be.

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::excerpt::{QUOTED, excerpt};
use crate::{Error, ErrorCode};

/// How long the search for a wrong field may take; it is only for the message.
const SEARCH_TIME: Duration = Duration::from_millis(100);

/// A string; a missing field and `null` are none.
pub(crate) fn string<'a>(path: &str, value: Option<&'a Value>) -> Result<Option<&'a str>, Error> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(wrong_type(path, other, "a string")),
    }
}

/// An object; a missing field and `null` are none.
pub(crate) fn object<'a>(path: &str, value: Option<&'a Value>) -> Result<Option<&'a Map<String, Value>>, Error> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(map)) => Ok(Some(map)),
        Some(other) => Err(wrong_type(path, other, "an object")),
    }
}

/// A boolean, or one written as text: libcni takes both, so both are found. A missing field and `null` are false.
pub(crate) fn tolerant_bool(path: &str, value: Option<&Value>) -> Result<bool, Error> {
    match value {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(true),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(false),
        Some(other) => Err(wrong_type(path, other, "true or false")),
    }
}

/// Decodes the value at `path`, saying which field inside of it is the wrong one.
pub(crate) fn decode<T: DeserializeOwned>(path: &str, value: &Value) -> Result<T, Error> {
    T::deserialize(value).map_err(|error| {
        let message = error.to_string();
        let fails_alike =
            |candidate: &Value| T::deserialize(candidate).is_err_and(|error| error.to_string() == message);
        let inside = first_wrong(value, &fails_alike);
        wrong(&joined(path, &inside), &excerpt(&message, 2 * QUOTED))
    })
}

/// The complaint about one field.
pub(crate) fn wrong_type(path: &str, found: &Value, expected: &str) -> Error {
    wrong(path, &format!("it is {}, it must be {expected}", kind(found)))
}

/// What is wrong with a field, and who can correct it.
fn wrong(path: &str, what: &str) -> Error {
    let runtimes = ["prevResult", "runtimeConfig", "args", "cni.dev/"].iter().any(|key| path.starts_with(key));
    let next = if runtimes { "the runtime writes this field" } else { "correct the network configuration" };
    Error::new(ErrorCode::DECODING_FAILURE, format!("{}: {what}; {next}", excerpt(path, 2 * QUOTED)))
}

/// The path of the field that `fails_alike` stumbles over. serde's errors do not say: so parts of the value are added
/// one by one until the error is the one of the whole.
fn first_wrong(whole: &Value, fails_alike: &dyn Fn(&Value) -> bool) -> String {
    let until = Instant::now() + SEARCH_TIME;
    let mut path = String::new();
    let mut pointer = String::new();
    loop {
        let Some(here) = whole.pointer(&pointer) else { return path };
        let with_here = |part: Value| {
            let mut candidate = whole.clone();
            if let Some(place) = candidate.pointer_mut(&pointer) {
                *place = part;
            }
            fails_alike(&candidate)
        };
        let step = match here {
            Value::Object(fields) => {
                let mut part = Map::new();
                // An empty part that fails alike is a missing field: the container is the place.
                let missing = with_here(Value::Object(part.clone()));
                fields.iter().filter(|_| !missing).find_map(|(key, value)| {
                    part.insert(key.clone(), value.clone());
                    (Instant::now() < until && with_here(Value::Object(part.clone())))
                        .then(|| (key.clone(), key.replace('~', "~0").replace('/', "~1")))
                })
            }
            Value::Array(items) => {
                let mut part = Vec::new();
                let missing = with_here(Value::Array(Vec::new()));
                items.iter().enumerate().filter(|_| !missing).find_map(|(index, value)| {
                    part.push(value.clone());
                    (Instant::now() < until && with_here(Value::Array(part.clone())))
                        .then(|| (format!("[{index}]"), index.to_string()))
                })
            }
            _ => None,
        };
        let Some((name, reference)) = step else { return path };
        path = joined(&path, &name);
        pointer = format!("{pointer}/{reference}");
    }
}

fn joined(path: &str, inside: &str) -> String {
    match (path.is_empty(), inside.is_empty()) {
        (true, true) => "the configuration".to_owned(),
        (true, false) => inside.to_owned(),
        (false, true) => path.to_owned(),
        (false, false) if inside.starts_with('[') => format!("{path}{inside}"),
        (false, false) => format!("{path}.{inside}"),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct VnicConf {
        #[serde(rename = "mtu")]
        _mtu: Option<u32>,
        #[serde(rename = "vnic")]
        _vnic: String,
        #[serde(default, rename = "routes")]
        _routes: Vec<RouteConf>,
    }

    #[derive(Debug, Deserialize)]
    struct RouteConf {
        #[serde(rename = "table")]
        _table: u32,
    }

    fn complaint(value: &Value) -> String {
        decode::<VnicConf>("", value).unwrap_err().msg
    }

    #[test]
    fn the_wrong_field_is_named_with_its_path() {
        let wrong = json!({"name": "n", "vnic": "v", "mtu": "9000", "routes": []});
        assert_eq!(
            complaint(&wrong),
            r#"mtu: invalid type: string "9000", expected u32; correct the network configuration"#
        );
        let wrong = json!({"vnic": "v", "routes": [{"table": 1}, {"a/~": 1, "table": -1}]});
        assert!(complaint(&wrong).starts_with("routes[1].table: invalid value"), "{}", complaint(&wrong));
        let wrong = json!({"vnic": "v", "routes": [{"table": 1}, {}]});
        assert_eq!(complaint(&wrong), "routes[1]: missing field `table`; correct the network configuration");
        assert!(complaint(&json!({"mtu": 1})).starts_with("the configuration: missing field `vnic`;"));
        assert_eq!(
            decode::<RouteConf>("a.b", &json!({"table": true})).unwrap_err().msg.split(':').next(),
            Some("a.b.table")
        );
    }

    #[test]
    fn the_search_for_a_field_in_a_huge_value_ends() {
        let routes: Vec<_> =
            (0..20_000).map(|n| json!({"table": n, "pad": "x".repeat(50)})).chain([json!({})]).collect();
        let start = Instant::now();
        assert!(complaint(&json!({"vnic": "v", "routes": routes})).contains("missing field `table`"));
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }

    #[test]
    fn booleans_may_be_written_as_text() {
        for (value, expected) in
            [(json!(true), true), (json!("TRUE"), true), (json!("false"), false), (json!(null), false)]
        {
            assert_eq!(tolerant_bool("b", Some(&value)), Ok(expected));
        }
        let error = tolerant_bool("b", Some(&json!(1))).unwrap_err();
        assert!(error.msg.starts_with("b: it is a number, it must be true or false;"), "{error}");
    }
}
