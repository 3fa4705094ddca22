//! How the VnicAttachments of this instance are watched, and read.

use std::time::Duration;

use api::VnicAttachment;
use backoff::Backoff;
use kube::core::DeserializeGuard;
use kube::{Api, ResourceExt};
use serde_json::value::to_raw_value;
use vcn::Ocid;

use super::read_copy;
use crate::sources::cached_copy::CachedCopy;
use crate::sources::instance_watch::{InstanceKind, ListResult};
use crate::sources::object_watch::{ObjectWatch, lasting};

/// The VnicAttachments of an instance.
#[derive(Debug)]
pub(crate) struct OwnAttachments;

impl InstanceKind for OwnAttachments {
    type Object = DeserializeGuard<VnicAttachment>;
    type Value = Vec<VnicAttachment>;
    const PREFIX: &'static str = "attachments";

    fn watch(instance: &Ocid) -> ObjectWatch<Self::Object> {
        ObjectWatch {
            field: "spec.instanceId",
            name: instance.to_string(),
            kind: "VnicAttachment",
            resource: (),
            api: Api::all,
            config: lasting(),
            deadline: Duration::from_secs(30),
            retry: Backoff { first: Duration::from_secs(1), cap: Duration::from_mins(2) },
            prefix: Self::PREFIX,
        }
    }

    /// An object that a later version wrote may not be readable: it stays as it was known.
    fn read(_: &Ocid, objects: Vec<Self::Object>, before: Option<Self::Value>) -> ListResult<Self::Value> {
        let (mut attachments, mut unreadable) = (Vec::with_capacity(objects.len()), Vec::new());
        for object in objects {
            let name = object.name_any();
            match object.0 {
                Ok(mut attachment) => {
                    // Half of it, and of no use here.
                    attachment.metadata.managed_fields = None;
                    attachments.push(attachment);
                }
                Err(error) => {
                    attachments.extend(before.iter().flatten().find(|old| old.name_any() == name).cloned());
                    unreadable.push(format!("VnicAttachment {name} cannot be read: {}", error.error));
                }
            }
        }
        // No value of it fails to be written as JSON.
        let document = (!attachments.is_empty()).then(|| to_raw_value(&attachments).ok()).flatten();
        let unreadable = (!unreadable.is_empty()).then(|| unreadable.join("; "));
        ListResult { value: Some(attachments), document, unreadable }
    }

    fn read_copy(copy: &CachedCopy, instance: &Ocid) -> anyhow::Result<Option<(Self::Value, Duration)>> {
        Ok(read_copy(copy, instance)?)
    }
}

#[cfg(test)]
mod tests {
    use kube::core::error_boundary::InvalidObject;
    use serde_json::json;

    use super::*;

    fn attachment(name: &str, mtu: u16) -> VnicAttachment {
        let spec = json!({ "instanceId": "ocid1.instance.oc1.iad.node", "subnetId": "ocid1.subnet.oc1.iad.s", "name": name,
            "purpose": "Host", "mtu": mtu });
        VnicAttachment::new(name, serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn object_of_a_later_version_stays_as_it_was_known() {
        let instance = "ocid1.instance.oc1.iad.node".parse().unwrap();
        let later = |name: &str| {
            let metadata = attachment(name, 1500).metadata;
            DeserializeGuard(Err(InvalidObject { error: "unknown purpose".to_owned(), metadata }))
        };
        let before = Some(vec![attachment("a", 1500), attachment("b", 1500)]);
        let objects = vec![later("a"), DeserializeGuard(Ok(attachment("b", 9000))), later("c")];
        let listed = OwnAttachments::read(&instance, objects, before);
        assert_eq!(listed.value, Some(vec![attachment("a", 1500), attachment("b", 9000)]));
        let error = listed.unreadable.unwrap();
        assert!(error.contains("VnicAttachment a cannot be read: unknown purpose; VnicAttachment c"), "{error}");
    }
}
