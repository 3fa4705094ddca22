//! The entries of a chain, as a configuration lists them: our plugin, and those that settings may add after it.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::libcni::{entry_fault, kind};

/// Our plugin that gives a pod its address, the first of the chain.
pub(crate) const MAIN: &str = "vcn-native";

/// Our plugin that gives annotated pods further interfaces, chained after any pod network.
pub(crate) const VNIC_ATTACH: &str = "vnic-attach";

/// Our plugins: an entry with one of these names is always our plugin.
pub(crate) const OURS: [&str; 2] = [MAIN, VNIC_ATTACH];

/// Plugins that a name alone configures.
const KNOWN: [&str; 4] = ["portmap", "bandwidth", "tuning", VNIC_ATTACH];

/// Our plugin's, which limits pods' MTU.
pub(crate) fn main_entry(mtu: Option<u32>) -> Value {
    mtu.map_or_else(|| json!({"type": MAIN}), |mtu| json!({"type": MAIN, "mtu": mtu}))
}

/// The one of `vnic-attach`. The runtime passes the pod's annotations, which say what it requests, so that no API is read.
pub(crate) fn vnic_attach_entry() -> Value {
    json!({"type": VNIC_ATTACH, "capabilities": {"io.kubernetes.cri.pod-annotations": true}})
}

/// Reads a setting: names with commas between them, or a JSON array of names and objects. The error says what is wrong with it:
/// an unknown name, an entry without a type, the same plugin twice.
pub(crate) fn entries(text: &str) -> Result<Vec<Value>, String> {
    let text = text.trim();
    let elements: Vec<Value> = if text.starts_with('[') {
        serde_json::from_str(text).map_err(|error| format!("it is not a JSON array: {error}"))?
    } else {
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Value::from).collect()
    };
    let entries: Vec<Value> =
        elements.into_iter().enumerate().map(|(at, element)| entry(at, element)).collect::<Result<_, _>>()?;
    let mut kinds = BTreeSet::from([MAIN]);
    match entries.iter().filter_map(kind).find(|kind| !kinds.insert(kind)) {
        Some(twice) => Err(format!("{twice} is listed twice, or is in it anyway")),
        None => Ok(entries),
    }
}

fn entry(at: usize, element: Value) -> Result<Value, String> {
    let refused = || format!("its element {at} is neither a name nor an object with a \"type\"");
    let mut rest = match element {
        Value::String(name) => return named(&name),
        Value::Object(rest) => rest,
        _ => return Err(refused()),
    };
    match rest.shift_remove_entry("type") {
        Some((key, Value::String(kind))) if !kind.is_empty() => {
            // The type first.
            let entry = Value::Object([(key, kind.into())].into_iter().chain(rest).collect());
            entry_fault(&entry).map_or(Ok(entry), |why| Err(format!("its element {at} is refused by runtimes: {why}")))
        }
        _ => Err(refused()),
    }
}

/// A plugin by its name, with defaults.
fn named(name: &str) -> Result<Value, String> {
    match name {
        // A pod that connects to a host port of its own node needs the source rewritten.
        "portmap" => Ok(json!({"type": name, "capabilities": {"portMappings": true}, "snat": true})),
        "bandwidth" => Ok(json!({"type": name, "capabilities": {"bandwidth": true}})),
        "tuning" => Ok(json!({"type": name, "capabilities": {"mac": true}})),
        VNIC_ATTACH => Ok(vnic_attach_entry()),
        _ => {
            let known = KNOWN.join(", ");
            Err(format!("{name:?} is none of {known}; another plugin is given as JSON, [{{\"type\": {name:?}, …}}]"))
        }
    }
}
