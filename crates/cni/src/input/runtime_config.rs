//! `runtimeConfig`: what the runtime knows about this container, by capability.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::field;
use crate::Error;

/// The capability under which CRI-O (1.29 and later) and containerd hand a pod's annotations to plugins.
const POD_ANNOTATIONS: &str = "io.kubernetes.cri.pod-annotations";

/// The capabilities that the runtime filled in. Only those that the configuration declares in `capabilities` arrive.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuntimeConfig {
    fields: Map<String, Value>,
}

impl RuntimeConfig {
    pub(crate) fn of(fields: Option<&Map<String, Value>>) -> Self {
        Self { fields: fields.cloned().unwrap_or_default() }
    }

    /// A capability as it came.
    pub fn get(&self, capability: &str) -> Option<&Value> {
        self.fields.get(capability).filter(|value| !value.is_null())
    }

    /// A capability decoded; none when the runtime did not fill it in.
    ///
    /// # Errors
    /// When it is not of that form; the message has the field's path.
    pub fn decode<T: DeserializeOwned>(&self, capability: &str) -> Result<Option<T>, Error> {
        self.get(capability).map(|value| field::decode(&format!("runtimeConfig.{capability}"), value)).transpose()
    }

    /// The pod's annotations; none when the runtime does not tell them or the configuration did not ask for them.
    ///
    /// # Errors
    /// When they are no object.
    pub fn pod_annotations(&self) -> Result<Option<&Map<String, Value>>, Error> {
        field::object(&format!("runtimeConfig.{POD_ANNOTATIONS}"), self.fields.get(POD_ANNOTATIONS))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn annotations_and_capabilities_are_read_with_their_path() {
        let value = json!({POD_ANNOTATIONS: {"a": "b"}, "mac": 7, "ips": null});
        let config = RuntimeConfig::of(value.as_object());
        assert_eq!(config.pod_annotations().unwrap().map(|all| &all["a"]), Some(&json!("b")));
        assert_eq!(config.decode::<Vec<String>>("ips"), Ok(None));
        assert!(config.decode::<String>("mac").unwrap_err().msg.starts_with("runtimeConfig.mac: invalid type"));
        let wrong = json!({POD_ANNOTATIONS: []});
        let error = RuntimeConfig::of(wrong.as_object()).pod_annotations().unwrap_err();
        assert_eq!(
            error.msg,
            format!(
                "runtimeConfig.{POD_ANNOTATIONS}: it is an array, it must be an object; the runtime writes this field"
            )
        );
        assert_eq!(RuntimeConfig::default().pod_annotations(), Ok(None));
    }
}
