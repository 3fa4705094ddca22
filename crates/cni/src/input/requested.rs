//! Addresses and a MAC that a caller requests for the interface. Runtimes, Multus and people write them in several places, which are
//! read here alone, so that no plugin ignores one in silence.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use vcn::{excerpt, printable};

use crate::error::QUOTED;
use crate::{Args, Config, Error, ErrorCode};

/// A field that requests something for the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedField {
    /// The feature that the field requests.
    pub kind: RequestedKind,
    /// Its path, for messages.
    pub key: &'static str,
    /// Its value; never empty.
    pub value: Value,
}

/// What a field requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedKind {
    /// Certain addresses for the pod.
    Addresses,
    /// A MAC of this interface.
    Mac,
    /// A MAC in a place that each plugin of a chain gets: it may be meant for another one.
    SharedMac,
    /// Another plugin for the addresses.
    AddressPlugin,
}

/// Addresses as a user writes them: a list or a text with commas, each with or without a prefix length; null is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedAddresses(pub Vec<IpAddr>);

/// The fields of a call that request something.
pub fn requested_fields(args: &Args, config: &Config) -> Vec<RequestedField> {
    use RequestedKind::{AddressPlugin, Addresses, Mac, SharedMac};
    let in_args = |name: &str| config.args().and_then(|args| args.get(name)).cloned();
    let runtime = |capability: &str| config.runtime(capability).cloned();
    let ipam = config.raw().get("ipam");
    let plugin = ipam.and_then(|ipam| ipam.get("type")).filter(|plugin| says_something(plugin));
    let (ipam_key, ipam) = if plugin.is_some() { ("ipam.type", plugin) } else { ("ipam", ipam) };
    let fields = [
        (AddressPlugin, ipam_key, ipam.cloned()),
        (Addresses, "IP of CNI_ARGS", args.ip.clone().map(Value::from)),
        (Addresses, "args.cni.ips", in_args("ips")),
        (Addresses, "runtimeConfig.ips", runtime("ips")),
        (SharedMac, "MAC of CNI_ARGS", args.mac.clone().map(Value::from)),
        (SharedMac, "args.cni.mac", in_args("mac")),
        (Mac, "runtimeConfig.mac", runtime("mac")),
    ];
    let field = |(kind, key, value): (_, _, Option<Value>)| {
        Some(RequestedField { kind, key, value: value.filter(says_something)? })
    };
    fields.into_iter().filter_map(field).collect()
}

impl RequestedField {
    /// The addresses; the error is a complaint that shows the value.
    ///
    /// # Errors
    /// When it is not a list of addresses.
    pub fn addresses(&self) -> Result<RequestedAddresses, String> {
        RequestedAddresses::read(&self.value).map_err(|complaint| format!("{}: {complaint}", self.key))
    }

    /// The refusal of a plugin that cannot do it.
    #[must_use]
    pub fn refused(&self, plugin: &str, next: &str) -> Error {
        let msg = format!("{} is {}, which {plugin} cannot do; {next}", self.key, shown(&self.value));
        Error::new(ErrorCode::UNSUPPORTED_FIELD, msg)
    }
}

impl RequestedAddresses {
    fn read(value: &Value) -> Result<Self, String> {
        let texts: Vec<&str> = match value {
            Value::Null => Vec::new(),
            Value::String(text) => text.split(',').collect(),
            Value::Array(items) if items.iter().all(|item| item.is_string() || item.is_null()) => {
                items.iter().filter_map(Value::as_str).collect()
            }
            other => return Err(format!("it is {}, it must be a list of addresses", shown(other))),
        };
        let mut addresses = Vec::new();
        for text in texts.into_iter().map(str::trim).filter(|text| !text.is_empty()) {
            let network: Result<IpNetwork, _> = text.parse();
            let address = network.map_err(|_| format!("invalid IP address {}", shown(&text.into())))?.ip();
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(Self(addresses))
    }
}

impl<'de> Deserialize<'de> for RequestedAddresses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(&Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Whether anything in a value is not empty.
fn says_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.trim().is_empty(),
        Value::Array(items) => items.iter().any(says_something),
        Value::Object(fields) => fields.values().any(says_something),
        Value::Bool(_) | Value::Number(_) => true,
    }
}

/// The beginning of a value, on one line.
fn shown(value: &Value) -> String {
    printable(&excerpt(&value.to_string(), QUOTED)).into_owned()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use serde_json::json;

    use super::*;
    use crate::Verb;

    fn fields(args: &str, document: &Value) -> Vec<(&'static str, Value)> {
        let mut whole = json!({"cniVersion": "1.0.0", "name": "x", "type": "x"});
        whole.as_object_mut().unwrap().extend(document.as_object().unwrap().clone());
        let config = Config::read(whole, Verb::Add).unwrap();
        let fields = requested_fields(&Args::parse(OsStr::new(args)).unwrap(), &config);
        fields.into_iter().map(|field| (field.key, field.value)).collect()
    }

    #[test]
    fn each_place_is_read_and_empty_values_are_none() {
        let (ip, mac) = (json!("10.0.0.9"), json!("02:00:17:00:00:01"));
        let all = json!({
            "ipam": {"type": "static"},
            "args": {"cni": {"ips": [&ip], "mac": &mac}},
            "runtimeConfig": {"ips": [&ip], "mac": &mac},
        });
        let expected = [
            ("ipam.type", json!("static")),
            ("IP of CNI_ARGS", ip.clone()),
            ("args.cni.ips", json!([&ip])),
            ("runtimeConfig.ips", json!([&ip])),
            ("MAC of CNI_ARGS", mac.clone()),
            ("args.cni.mac", mac.clone()),
            ("runtimeConfig.mac", mac.clone()),
        ];
        assert_eq!(fields("IP=10.0.0.9;MAC=02:00:17:00:00:01", &all), expected);
        let routes = json!({"routes": [{"dst": "0.0.0.0/0"}]});
        assert_eq!(fields("", &json!({"ipam": &routes})), [("ipam", routes)]);
        for empty in [Value::Null, json!(""), json!(" "), json!([]), json!([""]), json!([null])] {
            let places = json!({"args": {"cni": {"ips": &empty, "mac": &empty}}, "ipam": {"type": &empty, "x": {}},
                "runtimeConfig": {"ips": &empty, "mac": &empty}});
            assert_eq!(fields("IP=;MAC=", &places), [], "{empty}");
        }
    }

    #[test]
    fn addresses_are_read_as_users_write_them() {
        let read = |value: Value| RequestedAddresses::read(&value).map(|addresses| addresses.0);
        let both: Vec<IpAddr> = ["10.0.0.9", "2001:db8::9"].map(|ip| ip.parse().unwrap()).to_vec();
        for value in [
            json!(["10.0.0.9", "2001:db8::9"]),
            json!(["10.0.0.9/24", "2001:db8::9/64", "10.0.0.9", null, ""]),
            json!("10.0.0.9, 2001:db8::9/64"),
        ] {
            assert_eq!(read(value), Ok(both.clone()));
        }
        for none in [Value::Null, json!([]), json!(""), json!([null])] {
            assert_eq!(read(none), Ok(vec![]));
        }
        for (value, complaint) in [
            (json!(["10.0.0.300"]), "invalid IP address \"10.0.0.300\""),
            (json!("10.0.0.9/33"), "invalid IP address \"10.0.0.9/33\""),
            (json!("10.0.0.9 10.0.0.10"), "invalid IP address \"10.0.0.9 10.0.0.10\""),
            (json!([7]), "it is [7], it must be a list of addresses"),
            (json!({"ip": "10.0.0.9"}), "it is {\"ip\":\"10.0.0.9\"}, it must be"),
            (json!("\u{1b}[2J"), "invalid IP address \"\\u001b[2J\""),
        ] {
            assert!(read(value.clone()).unwrap_err().starts_with(complaint), "{value}: {:?}", read(value.clone()));
        }
        assert!(read(json!("9".repeat(9000))).unwrap_err().len() < 200);
    }
}
