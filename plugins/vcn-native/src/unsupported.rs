//! What a configuration may ask of other plugins and not of this one: chosen addresses or a chosen MAC, another
//! plugin for the addresses. (`args.cni.mac` may be meant for a chained `tuning` and goes to every plugin.) To pass over it
//! in silence would give the pod something else than was asked for.

use cni::{Config, Error, ErrorCode};
use serde_json::Value;

/// Refuses an ADD that asks for what cannot be had here.
pub(crate) fn refuse(config: &Config) -> Result<(), Error> {
    let runtime = |capability: &str| config.runtime(capability);
    let argument = |name: &str| config.args().and_then(|args| args.get(name));
    let asked = [
        ("ipam.type", config.ipam().and_then(|ipam| ipam.get("type")), "addresses come from the VNICs: leave ipam out"),
        ("runtimeConfig.ips", runtime("ips"), "a pod gets any free address of its node: leave the capability out"),
        ("args.cni.ips", argument("ips"), "a pod gets any free address of its node: leave it out"),
        ("runtimeConfig.mac", runtime("mac"), "the MAC follows from the pod: chain the tuning plugin, or leave it out"),
    ];
    let says_something =
        |value: &&Value| !matches!(value, Value::Null) && **value != "" && **value != Value::Array(vec![]);
    match asked.into_iter().find_map(|(key, value, next)| Some((key, value.filter(says_something)?, next))) {
        None => Ok(()),
        Some((key, value, next)) => {
            let value: String = value.to_string().chars().take(100).collect();
            Err(Error::new(
                ErrorCode::UNSUPPORTED_FIELD,
                format!("{key} is {value}, which vcn-native cannot do; {next}"),
            ))
        }
    }
}
