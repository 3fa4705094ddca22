//! Objects for tests.

use api::{VnicAttachment, VnicAttachmentSpec};
use kube::api::ObjectMeta;
use serde_json::json;
use vcn::Ocid;

pub(crate) fn instance(number: u32) -> Ocid {
    format!("ocid1.instance.oc1.iad.i{number}").parse().unwrap()
}

pub(crate) fn subnet() -> Ocid {
    "ocid1.subnet.oc1.iad.pods".parse().unwrap()
}

/// An object that requests a VNIC of its own name.
pub(crate) fn attachment(name: &str, number: u32) -> VnicAttachment {
    let spec = json!({
        "instanceId": instance(number), "subnetId": subnet(), "name": name, "purpose": "Pods",
    });
    let spec: VnicAttachmentSpec = serde_json::from_value(spec).unwrap();
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        uid: Some(format!("uid-{name}")),
        generation: Some(1),
        resource_version: Some("1".to_owned()),
        ..ObjectMeta::default()
    };
    VnicAttachment { metadata, spec, status: None }
}
