//! One plugin of a chain, as a configuration lists it: our plugin, and those that settings may add after it.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Our plugin that gives a pod its address, the first of the chain.
pub(crate) const MAIN: &str = "vcn-native";

/// Our plugin that gives annotated pods further interfaces, chained after any pod network.
pub(crate) const VNIC_ATTACH: &str = "vnic-attach";

/// Our plugins: an entry with one of these names is always our plugin.
pub(crate) const OURS: [&str; 2] = [MAIN, VNIC_ATTACH];

/// Plugins that a name alone configures.
const KNOWN: [&str; 4] = ["portmap", "bandwidth", "tuning", VNIC_ATTACH];

/// A plugin's entry in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PluginEntry {
    kind: String,
    rest: Map<String, Value>,
}

impl PluginEntry {
    /// A plugin by its name, with defaults; `None` if the name alone does not say how to configure it.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let rest = match name {
            // A pod that connects to a host port of its own node needs the source rewritten.
            "portmap" => json!({"capabilities": {"portMappings": true}, "snat": true}),
            "bandwidth" => json!({"capabilities": {"bandwidth": true}}),
            "tuning" => json!({"capabilities": {"mac": true}}),
            // The runtime passes the pod's annotations, which say what it requests, so that no API is asked.
            VNIC_ATTACH => json!({"capabilities": {"io.kubernetes.cri.pod-annotations": true}}),
            _ => return None,
        };
        let Value::Object(rest) = rest else { return None };
        Some(Self { kind: name.to_owned(), rest })
    }

    /// Our plugin's, which limits pods' MTU.
    pub(crate) fn main(mtu: Option<u32>) -> Self {
        let rest = mtu.map(|mtu| ("mtu".to_owned(), mtu.into())).into_iter().collect();
        Self { kind: MAIN.to_owned(), rest }
    }

    /// Reads a setting: names with commas between them, or a JSON array of names and objects. The error says what is wrong with
    /// it: an unknown name, an entry without a type, the same plugin twice.
    pub(crate) fn list(text: &str) -> Result<Vec<Self>, String> {
        let text = text.trim();
        let entries: Vec<Self> = if text.starts_with('[') {
            let elements: Vec<Value> =
                serde_json::from_str(text).map_err(|error| format!("it is not a JSON array: {error}"))?;
            elements
                .into_iter()
                .enumerate()
                .map(|(at, element)| Self::element(at, element))
                .collect::<Result<_, _>>()?
        } else {
            let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
            names.map(Self::known).collect::<Result<_, _>>()?
        };
        let mut kinds = BTreeSet::from([MAIN]);
        match entries.iter().find(|entry| !kinds.insert(&entry.kind)) {
            Some(twice) => Err(format!("{} is listed twice, or is in it anyway", twice.kind)),
            None => Ok(entries),
        }
    }

    fn known(name: &str) -> Result<Self, String> {
        let known = KNOWN.join(", ");
        let refused =
            || format!("{name:?} is none of {known}; another plugin is given as JSON, [{{\"type\": {name:?}, …}}]");
        Self::named(name).ok_or_else(refused)
    }

    fn element(at: usize, element: Value) -> Result<Self, String> {
        let refused = || format!("its element {at} is neither a name nor an object with a \"type\"");
        match element {
            Value::String(name) => Self::known(&name),
            Value::Object(mut rest) => match rest.shift_remove("type") {
                Some(Value::String(kind)) if !kind.is_empty() => Ok(Self { kind, rest }),
                _ => Err(refused()),
            },
            _ => Err(refused()),
        }
    }

    /// The name of the plugin's binary.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// The JSON entry, the type first.
    pub(crate) fn to_json(&self) -> Value {
        let kind = ("type".to_owned(), Value::from(self.kind.as_str()));
        Value::Object([kind].into_iter().chain(self.rest.clone()).collect())
    }
}
