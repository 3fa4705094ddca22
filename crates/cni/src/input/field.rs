//! Fields of JSON objects, read so that a complaint says where: the path of the field, what it is and what it should be.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use vcn::excerpt;

use crate::error::QUOTED;
use crate::{Error, ErrorCode};

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

/// Strings; a missing field and `null` are none.
pub(crate) fn strings(path: &str, value: Option<&Value>) -> Result<Vec<String>, Error> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(Vec::new()) };
    Vec::deserialize(value).map_err(|error| wrong(path, &excerpt(&error.to_string(), 2 * QUOTED)))
}

/// Decodes a configuration, saying which field is the wrong one.
pub(crate) fn decode<T: DeserializeOwned>(document: &Value) -> Result<T, Error> {
    T::deserialize(document).map_err(|error| {
        let message = error.to_string();
        // serde's errors do not say. The field that fails alike alone is it.
        let fails_alike = |(key, value): &(&String, &Value)| {
            let alone = Map::from_iter([((*key).clone(), (*value).clone())]);
            T::deserialize(Value::Object(alone)).is_err_and(|error| error.to_string() == message)
        };
        let field = document.as_object().and_then(|fields| fields.iter().find(fails_alike));
        wrong(field.map_or("the configuration", |(key, _)| key), &excerpt(&message, 2 * QUOTED))
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
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct VnicConf {
        #[serde(rename = "mtu")]
        _mtu: Option<u32>,
        #[serde(default, rename = "ips")]
        _ips: Vec<std::net::IpAddr>,
    }

    #[test]
    fn the_wrong_field_is_named() {
        let complaint = |value: Value| decode::<VnicConf>(&value).unwrap_err().msg;
        assert_eq!(
            complaint(json!({"name": "n", "ips": [], "mtu": "9000"})),
            r#"mtu: invalid type: string "9000", expected u32; correct the network configuration"#
        );
        assert!(complaint(json!({"mtu": 1, "ips": ["::1", "x"]})).starts_with("ips: invalid IP address"));
        assert!(complaint(json!([1, 2, 3])).starts_with("the configuration: "));
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
