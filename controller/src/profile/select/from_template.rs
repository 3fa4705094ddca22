//! A VnicAttachment as a profile's template makes it for a node, and how existing ones differ from it.

use std::net::Ipv4Addr;
use std::sync::Arc;

use api::{PROFILE_LABEL, VnicAttachment, VnicAttachmentSpec, VnicProfile, VnicTemplate};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use vcn::Ocid;

pub use crate::cluster::stamp::{object_name, profile_of};

/// A VnicAttachment that a profile wants on a node.
#[derive(Clone, Debug, PartialEq)]
pub struct TemplateObject {
    /// The name of the VnicAttachment.
    pub name: String,
    /// The name of the VnicProfile.
    pub profile: String,
    /// The node's name, for people: the object does not contain it.
    pub node: String,
    /// The instance that the node is.
    pub instance: Ocid,
    /// The VNIC: shared by all its stamps, of which each reconcile may have ten thousand.
    pub template: Arc<VnicTemplate>,
}

/// How an existing object compares with its stamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    None,
    /// These fields can be changed.
    Changeable(Vec<&'static str>),
    /// These fields cannot: it must be replaced.
    Fixed(Vec<&'static str>),
}

impl TemplateObject {
    /// A template's stamp for an instance.
    pub fn new(profile: &VnicProfile, template: &Arc<VnicTemplate>, instance: &Ocid, node: &str) -> Self {
        let profile = profile.name_any();
        Self {
            name: object_name(&profile, &template.name, instance),
            node: node.to_owned(),
            profile,
            instance: instance.clone(),
            template: Arc::clone(template),
        }
    }

    /// The object's whole spec.
    pub fn spec(&self) -> VnicAttachmentSpec {
        VnicAttachmentSpec {
            instance_id: self.instance.clone(),
            requested_addresses: Vec::new(),
            vnic: self.template.as_ref().clone(),
        }
    }

    /// The object to create. Its finalizer is added when its VNIC is requested, by a write that makes it smaller. It has no
    /// owner reference, which would be an eighth of its size; a finalizer on the profile is enough.
    pub fn object(&self) -> VnicAttachment {
        let mut object = VnicAttachment::new(&self.name, self.spec());
        object.metadata = ObjectMeta {
            name: Some(self.name.clone()),
            labels: Some([(PROFILE_LABEL.to_owned(), self.profile.clone())].into()),
            ..ObjectMeta::default()
        };
        object
    }

    /// The same for a VNIC that exists: its address cannot be changed.
    #[must_use]
    pub(crate) fn with_address_of(&self, object: &VnicAttachment) -> Self {
        let private_ip = object.spec.vnic.private_ip;
        if private_ip == self.template.private_ip {
            return self.clone();
        }
        Self { template: Arc::new(VnicTemplate { private_ip, ..self.template.as_ref().clone() }), ..self.clone() }
    }

    /// The requested address, if the object's VNIC was created without it.
    pub(crate) fn ignored_address(&self, object: &VnicAttachment) -> Option<Ipv4Addr> {
        self.template.private_ip.filter(|address| object.spec.vnic.private_ip != Some(*address) && has_vnic(object))
    }

    /// How an object of the same name differs.
    pub(crate) fn difference(&self, object: &VnicAttachment) -> Difference {
        let (there, template) = (&object.spec.vnic, self.template.as_ref());
        let fixed = [
            ("purpose", there.purpose != template.purpose),
            ("mode", there.mode != template.mode),
            ("subnetId", there.subnet_id != template.subnet_id),
            ("nicIndex", there.nic_index.unwrap_or(0) != template.nic_index.unwrap_or(0)),
            ("assignPublicIp", there.assign_public_ip != template.assign_public_ip),
            // A VNIC that exists keeps its address.
            ("privateIp", there.private_ip != template.private_ip && !has_vnic(object)),
        ];
        let fixed = names(&fixed);
        if !fixed.is_empty() {
            return Difference::Fixed(fixed);
        }
        let changeable = [
            ("nsgIds", there.nsg_ids != template.nsg_ids),
            ("ipv4Count", there.ipv4_count != template.ipv4_count),
            ("ipv6Count", there.ipv6_count != template.ipv6_count),
            ("allowedNamespaces", there.allowed_namespaces != template.allowed_namespaces),
            ("subnetRoute", there.subnet_route != template.subnet_route),
            ("routes", there.routes != template.routes),
            ("mtu", there.mtu != template.mtu),
            ("skipSourceDestCheck", there.skip_source_dest_check != template.skip_source_dest_check),
            ("displayName", there.display_name != template.display_name),
            ("freeformTags", there.freeform_tags != template.freeform_tags),
            ("onDelete", there.on_delete != template.on_delete),
            ("requestedAddresses", !object.spec.requested_addresses.is_empty()),
        ];
        let changeable = names(&changeable);
        // Destructured, nothing copied: a new field is a compile error here.
        let VnicAttachmentSpec { instance_id, requested_addresses, vnic } = &object.spec;
        let is_same_vnic = vnic == template || vnic == self.with_address_of(object).template.as_ref();
        let is_same = *instance_id == self.instance && requested_addresses.is_empty() && is_same_vnic;
        match (changeable.is_empty(), is_same) {
            (true, true) => Difference::None,
            // A field of a later version that this function does not know.
            (true, false) => Difference::Changeable(vec!["spec"]),
            (false, _) => Difference::Changeable(changeable),
        }
    }
}

fn has_vnic(object: &VnicAttachment) -> bool {
    object.status.as_ref().is_some_and(|status| status.vnic_id.is_some())
}

fn names(fields: &[(&'static str, bool)]) -> Vec<&'static str> {
    fields.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> VnicProfile {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "storage", "uid": "p-1"},
            "spec": {"nodeSelector": {}, "attachments": [
                {"name": "net1", "purpose": "Attach", "subnetId": "ocid1.subnet.oc1.iad.s", "ipv4Count": 2}
            ]}
        }))
        .unwrap()
    }

    fn stamp() -> TemplateObject {
        let profile = profile();
        let instance = "ocid1.instance.oc1.iad.anyhqlexample".parse().unwrap();
        TemplateObject::new(&profile, &Arc::new(profile.spec.attachments[0].clone()), &instance, "10.0.0.2")
    }

    #[test]
    fn a_stamped_object_has_its_label_only() {
        let expected = serde_json::json!({
            "apiVersion": "oke.oraclecloud.com/v1alpha1",
            "kind": "VnicAttachment",
            "metadata": {
                "name": "storage.net1.5ee60e236e20",
                "labels": {"oke.oraclecloud.com/profile": "storage"}
            },
            "spec": {
                "instanceId": "ocid1.instance.oc1.iad.anyhqlexample",
                "name": "net1", "purpose": "Attach", "subnetId": "ocid1.subnet.oc1.iad.s", "ipv4Count": 2
            }
        });
        let mut written = serde_json::to_value(stamp().object()).unwrap();
        written.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        assert_eq!(written, expected);
    }

    #[test]
    fn differences_name_immutable_fields_first() {
        let (stamp, mut object) = (stamp(), stamp().object());
        assert_eq!(stamp.difference(&object), Difference::None);
        object.metadata.labels.as_mut().unwrap().insert("mine".to_owned(), "kept".to_owned());
        assert_eq!(stamp.difference(&object), Difference::None, "foreign labels do not count");
        object.spec.vnic.ipv4_count = 3;
        object.spec.vnic.mtu = Some(1500);
        assert_eq!(stamp.difference(&object), Difference::Changeable(vec!["ipv4Count", "mtu"]));
        object.spec.vnic.nic_index = Some(0);
        assert_eq!(stamp.difference(&object), Difference::Changeable(vec!["ipv4Count", "mtu"]), "0 is the default");
        object.spec.vnic.nic_index = Some(1);
        object.spec.vnic.subnet_id = "ocid1.subnet.oc1.iad.other".parse().unwrap();
        assert_eq!(stamp.difference(&object), Difference::Fixed(vec!["subnetId", "nicIndex"]));
    }

    #[test]
    fn an_object_is_a_profiles_by_label_and_name() {
        let whole = stamp().object();
        assert_eq!(profile_of(&whole), Some("storage"));
        let (mut released, mut renamed, mut elsewhere) = (whole.clone(), whole.clone(), whole);
        released.metadata.labels = None;
        renamed.metadata.name = Some("mine".to_owned());
        elsewhere.metadata.labels.as_mut().unwrap().insert(PROFILE_LABEL.to_owned(), "other".to_owned());
        for object in [released, renamed, elsewhere] {
            assert_eq!(profile_of(&object), None, "{object:?}");
        }
    }
}
