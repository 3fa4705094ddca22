//! Instances and shapes: whether a machine exists, and how many VNICs it may carry.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use vcn::Ocid;

use crate::agent_plugin::AgentConfig;
use crate::object::FreeformTags;
use crate::vnic::none_is_empty;

/// A compute instance, with the fields of the OCI API that we use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// The OCID of the instance.
    pub id: Ocid,
    /// Its compartment: attachments are listed by it.
    pub compartment_id: Ocid,
    /// The state of the instance.
    pub lifecycle_state: InstanceState,
    /// The name of its shape.
    pub shape: String,
    /// Its part of a flexible shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape_config: Option<ShapeConfig>,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Which plugins of the Oracle Cloud Agent are enabled; none in a form that this version does not know.
    #[serde(default, deserialize_with = "if_known", skip_serializing_if = "Option::is_none")]
    pub agent_config: Option<AgentConfig>,
    /// The OKE node pool that its metadata names. Nothing else of the metadata is kept: it holds user data.
    #[serde(default, rename = "metadata", with = "okes_metadata", skip_serializing_if = "Option::is_none")]
    pub node_pool: Option<Ocid>,
    /// The free-form tags of the instance.
    #[serde(default, deserialize_with = "none_is_empty")]
    pub freeform_tags: FreeformTags,
}

/// Attachments need no agent: what cannot be read of it must not fail them.
fn if_known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<AgentConfig>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

/// The part of the metadata that OKE writes.
mod okes_metadata {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::{Value, json};
    use vcn::Ocid;

    const NODE_POOL: &str = "oke-pool-id";

    /// Attachments need no node pool: metadata of another form names none.
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Ocid>, D::Error> {
        let metadata = Value::deserialize(deserializer)?;
        Ok(metadata.get(NODE_POOL).and_then(Value::as_str).and_then(|id| id.parse().ok()))
    }

    #[expect(clippy::ref_option, reason = "serde hands it by reference")]
    pub(super) fn serialize<S: Serializer>(pool: &Option<Ocid>, serializer: S) -> Result<S::Ok, S::Error> {
        json!({ NODE_POOL: pool }).serialize(serializer)
    }
}

/// The instance's part of a flexible shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShapeConfig {
    /// The number of OCPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ocpus: Option<f64>,
    /// The most VNICs, the primary one included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_vnic_attachments: Option<u32>,
}

// Numbers of OCPUs come as decimal text, never as NaN.
impl Eq for ShapeConfig {}

/// The state of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum InstanceState {
    /// It is being moved to another host.
    Moving,
    /// It is being created.
    Provisioning,
    /// It runs, or at least its machine does.
    Running,
    /// It is being started.
    Starting,
    /// It is being stopped.
    Stopping,
    /// It is stopped and keeps its VNICs.
    Stopped,
    /// An image of it is being created.
    CreatingImage,
    /// It is being terminated, and its VNICs with it.
    Terminating,
    /// It is gone, and so are its VNICs.
    Terminated,
    /// A state that this version does not know.
    #[serde(other)]
    Unknown,
}

/// A shape and its limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shape {
    /// The name of the shape.
    pub shape: String,
    /// The most VNICs, the primary one included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_vnic_attachments: Option<u32>,
    /// How that follows from the OCPUs of a flexible shape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_vnic_attachment_options: Option<VnicLimits>,
}

/// How many VNICs a flexible shape allows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VnicLimits {
    /// The number that each instance may have.
    #[serde(default)]
    pub min: Option<u32>,
    /// The number that no instance exceeds.
    #[serde(default)]
    pub max: Option<f64>,
    /// The number for each OCPU.
    #[serde(default)]
    pub default_per_ocpu: Option<f64>,
}

impl Shape {
    /// The most VNICs of an instance of this shape with so many OCPUs, where the shape has a limit.
    pub fn vnics_for(&self, ocpus: Option<f64>) -> Option<u32> {
        let flexible = self.max_vnic_attachment_options.as_ref().zip(ocpus).and_then(|(limits, ocpus)| {
            let least = f64::from(limits.min.unwrap_or(1));
            let most = limits.max.unwrap_or(f64::from(u32::MAX)).max(least);
            let vnics = (limits.default_per_ocpu? * ocpus).floor().clamp(least, most);
            // `as` saturates; the value is within u32 by the clamp.
            Some(vnics as u32)
        });
        flexible.or(self.max_vnic_attachments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flexible_shape_allows_a_vnic_per_ocpu() {
        let json = r#"{"shape":"VM.Standard.E5.Flex","maxVnicAttachments":24,
            "maxVnicAttachmentOptions":{"min":2,"max":24.0,"defaultPerOcpu":1.0},"ocpus":1.0}"#;
        let shape: Shape = serde_json::from_str(json).unwrap();
        let vnics = |ocpus: f64| shape.vnics_for(Some(ocpus));
        assert_eq!([vnics(1.0), vnics(2.0), vnics(8.0), vnics(94.0)], [Some(2), Some(2), Some(8), Some(24)]);
        assert_eq!(shape.vnics_for(None), Some(24));
    }

    #[test]
    fn an_instance_in_an_old_tenancy_is_read() {
        let root = "ocidv1:tenancy:oc1:phx:1460406592660:aaaaaaaab4faofrf";
        let json = format!(
            r#"{{"id":"ocid1.instance.oc1.phx.a","compartmentId":"{root}","lifecycleState":"RUNNING","shape":"VM.Standard2.1"}}"#
        );
        let instance: Instance = serde_json::from_str(&json).unwrap();
        assert_eq!(instance.compartment_id.as_str(), root);
    }

    #[test]
    fn an_instance_is_read_whatever_its_agent_config_is() {
        let enabled = |config: &str| {
            let json = format!(
                r#"{{"id":"ocid1.instance.oc1..a","compartmentId":"ocid1.compartment.oc1..a","lifecycleState":"RUNNING",
                    "shape":"BM.GPU.H100.8","agentConfig":{config}}}"#
            );
            let instance: Instance = serde_json::from_str(&json).unwrap();
            instance.agent_config.map(|config| config.enabled_plugins().map(str::to_owned).collect::<Vec<_>>())
        };
        let one = r#""pluginsConfig":[{"name":"A","desiredState":"ENABLED"},{"name":"B","desiredState":"DISABLED"},{"name":"C"}]"#;
        assert_eq!(enabled(&format!("{{{one}}}")), Some(vec!["A".to_owned()]));
        assert_eq!(enabled(&format!(r#"{{"areAllPluginsDisabled":true,{one}}}"#)), Some(Vec::new()));
        assert_eq!(enabled(r#"{"areAllPluginsDisabled":null,"pluginsConfig":null}"#), Some(Vec::new()));
        assert_eq!([enabled("null"), enabled("7")], [None, None]);
    }

    #[test]
    fn only_the_node_pool_is_kept_of_metadata() {
        let read = |metadata: &str| {
            let json = format!(
                r#"{{"id":"ocid1.instance.oc1..a","compartmentId":"ocid1.compartment.oc1..a","lifecycleState":"RUNNING",
                    "shape":"VM.Standard2.1","metadata":{metadata}}}"#
            );
            serde_json::from_str::<Instance>(&json).unwrap()
        };
        let pool = "ocid1.nodepool.oc1.iad.a";
        let instance = read(&format!(r#"{{"oke-pool-id":"{pool}","user_data":"c2VjcmV0"}}"#));
        assert_eq!(instance.node_pool.as_ref().map(Ocid::as_str), Some(pool));
        assert!(!format!("{instance:?}{}", serde_json::to_string(&instance).unwrap()).contains("c2VjcmV0"));
        for other in
            ["null", "7", "[]", "{}", r#"{"oke-pool-id":null}"#, r#"{"oke-pool-id":["a"]}"#, r#"{"oke-pool-id":"x"}"#]
        {
            assert_eq!(read(other).node_pool, None, "{other}");
        }
    }

    #[test]
    fn a_fixed_shape_has_one_limit() {
        let shape: Shape =
            serde_json::from_str(r#"{"shape":"BM.Standard.E4.128","maxVnicAttachments":256,"networkPorts":2}"#)
                .unwrap();
        assert_eq!(shape.vnics_for(Some(128.0)), Some(256));
    }
}
