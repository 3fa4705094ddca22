//! Nodes, as far as VNICs are concerned: who they are, which instance, what they ask for. Of the tens of kilobytes that a
//! Node has, a few hundred bytes are kept.

use api::{AnnotationError, ProviderIdError, VNICS_ANNOTATION, instance_of, wanted_profiles};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::api::ObjectMeta;
use serde::Deserialize;
use vcn::Ocid;

/// A Node.
#[derive(Clone, Debug, PartialEq, Resource, Deserialize)]
#[resource(inherit = "k8s_openapi::api::core::v1::Node")]
pub struct Node {
    /// Name, uid, labels, annotations.
    pub metadata: ObjectMeta,
    /// What the cloud's manager wrote.
    #[serde(default)]
    pub spec: NodeSpec,
}

/// What of a Node's spec matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct NodeSpec {
    /// The instance, once the cloud's manager has got to the Node.
    #[serde(rename = "providerID", default)]
    pub provider_id: Option<String>,
}

impl Node {
    /// Forgets what nobody asks for. What is left changes seldom, so that heartbeats are no news.
    pub fn strip(&mut self) {
        let ObjectMeta { name, uid, labels, annotations, .. } = std::mem::take(&mut self.metadata);
        let annotations = annotations.and_then(|mut all| all.remove_entry(VNICS_ANNOTATION));
        let annotations = annotations.map(|entry| [entry].into());
        self.metadata = ObjectMeta { name, uid, labels, annotations, ..ObjectMeta::default() };
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its instance; none as long as the cloud's manager has not got to it.
    ///
    /// # Errors
    /// When it is something else than an OCI instance: a virtual node, another cloud's.
    pub fn instance(&self) -> Result<Option<Ocid>, ProviderIdError> {
        self.spec.provider_id.as_deref().filter(|id| !id.is_empty()).map(instance_of).transpose()
    }

    /// The VnicProfiles that its annotation names.
    ///
    /// # Errors
    /// When any part of the annotation is wrong.
    pub fn wanted_profiles(&self) -> Result<Vec<String>, AnnotationError> {
        let annotation = self.metadata.annotations.as_ref().and_then(|all| all.get(VNICS_ANNOTATION));
        annotation.map_or(Ok(Vec::new()), |text| wanted_profiles(text))
    }

    /// As events name it.
    #[must_use]
    pub fn reference(&self) -> ObjectReference {
        self.object_ref(&())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_matters_is_kept() {
        let mut node: Node = serde_json::from_str(
            r#"{"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": "10.0.0.2", "uid": "1-2", "resourceVersion": "7", "labels": {"pool": "a"},
                    "annotations": {"oke.oraclecloud.com/vnics": "storage", "other": "x"}, "managedFields": [{}]},
                "spec": {"providerID": "oci://ocid1.instance.oc1.iad.a", "podCIDR": "10.244.0.0/24"},
                "status": {"images": [{"names": ["a"], "sizeBytes": 1}]}}"#,
        )
        .unwrap();
        node.strip();
        let kept: Node = serde_json::from_str(
            r#"{"metadata": {"name": "10.0.0.2", "uid": "1-2", "labels": {"pool": "a"},
                    "annotations": {"oke.oraclecloud.com/vnics": "storage"}},
                "spec": {"providerID": "oci://ocid1.instance.oc1.iad.a"}}"#,
        )
        .unwrap();
        assert_eq!(node, kept);
        assert_eq!(node.instance().unwrap().unwrap().as_str(), "ocid1.instance.oc1.iad.a");
        assert_eq!(node.wanted_profiles().unwrap(), ["storage"]);
        let reference = node.reference();
        assert_eq!((reference.kind.as_deref(), reference.uid.as_deref()), (Some("Node"), Some("1-2")));
    }

    #[test]
    fn a_new_node_has_no_instance_and_asks_for_nothing() {
        let node: Node = serde_json::from_str(r#"{"metadata": {"name": "new"}}"#).unwrap();
        assert_eq!((node.instance(), node.wanted_profiles()), (Ok(None), Ok(Vec::new())));
        let virtual_node = r#"{"metadata": {"name": "v"}, "spec": {"providerID": "ocid1.virtualnode.oc1.iad.a"}}"#;
        assert!(serde_json::from_str::<Node>(virtual_node).unwrap().instance().is_err());
    }
}
