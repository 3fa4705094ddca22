//! One plugin of a chain, as a configuration lists it: our plugin, and those that settings may add after it.

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};
use thiserror::Error;

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

/// Why a list of plugins is refused.
#[expect(missing_docs, reason = "the message names each field")]
#[derive(Debug, Error)]
pub enum PluginListError {
    /// A name alone does not say how to configure this plugin.
    #[error(
        "{name:?} is none of {}; another plugin is given as JSON, [{{\"type\": {name:?}, …}}]",
        KNOWN.join(", ")
    )]
    Unknown { name: String },
    /// It begins like JSON.
    #[error("it is not a JSON array")]
    Json(#[source] serde_json::Error),
    /// An element of the array is neither a name nor an object with a type.
    #[error("its element {0} is neither a name nor an object with a \"type\"")]
    Element(usize),
    /// The same plugin twice, or our plugin, which is always in it.
    #[error("{0} is listed twice, or is in it anyway")]
    Twice(String),
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

    /// Our plugin's.
    pub(crate) fn main() -> Self {
        Self { kind: MAIN.to_owned(), rest: Map::new() }
    }

    /// Reads a setting: names with commas between them, or a JSON array of names and objects.
    ///
    /// # Errors
    /// Unknown names, entries without a type, the same plugin twice.
    pub(crate) fn list(text: &str) -> Result<Vec<Self>, PluginListError> {
        let text = text.trim();
        let entries: Vec<Self> = if text.starts_with('[') {
            let elements: Vec<Value> = serde_json::from_str(text).map_err(PluginListError::Json)?;
            let elements = elements.into_iter().enumerate();
            elements.map(|(at, element)| Self::element(at, element)).collect::<Result<_, _>>()?
        } else {
            let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
            names.map(Self::known).collect::<Result<_, _>>()?
        };
        for (at, entry) in entries.iter().enumerate() {
            if entry.kind == MAIN || entries.iter().take(at).any(|other| other.kind == entry.kind) {
                return Err(PluginListError::Twice(entry.kind.clone()));
            }
        }
        Ok(entries)
    }

    fn known(name: &str) -> Result<Self, PluginListError> {
        Self::named(name).ok_or_else(|| PluginListError::Unknown { name: name.to_owned() })
    }

    fn element(at: usize, element: Value) -> Result<Self, PluginListError> {
        match element {
            Value::String(name) => Self::known(&name),
            Value::Object(mut rest) => match rest.shift_remove("type") {
                Some(Value::String(kind)) if !kind.is_empty() => Ok(Self { kind, rest }),
                _ => Err(PluginListError::Element(at)),
            },
            _ => Err(PluginListError::Element(at)),
        }
    }

    /// The name of the plugin's binary.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// Adds a key.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.rest.insert(key.to_owned(), value.into());
        self
    }

    /// The JSON entry, the type first.
    pub(crate) fn to_json(&self) -> Value {
        let kind = ("type".to_owned(), Value::from(self.kind.as_str()));
        Value::Object([kind].into_iter().chain(self.rest.clone()).collect())
    }
}
