//! How the VnicAttachments of this instance are watched, and read.

use std::time::Duration;

use api::{Received, VnicAttachment};
use backoff::Backoff;
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
    type Object = Received<VnicAttachment>;
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
    use api::UnreadableObject;
    use serde_json::json;

    use super::*;

    fn attachment(name: &str, mtu: u16) -> VnicAttachment {
        let spec = json!({ "instanceId": "ocid1.instance.oc1.iad.node", "subnetId": "ocid1.subnet.oc1.iad.s", "name": name,
            "purpose": "Host", "mtu": mtu });
        VnicAttachment::new(name, serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn hostile_status_hides_no_object_of_the_instance() {
        let instance: Ocid = "ocid1.instance.oc1.iad.node".parse().unwrap();
        let with = |name: &str, status: serde_json::Value| {
            let mut object = serde_json::to_value(attachment(name, 1500)).unwrap();
            object["status"] = status;
            object
        };
        let vnic = "ocid1.vnic.oc1.iad.a";
        let list = json!([
            with("a", json!({ "vnicId": vnic, "node": { "configured": true, "inUse": 1_000_000_000_000_000_u64 } })),
            with("b", json!({ "vnicId": vnic, "conditions": [{ "lastTransitionTime": "9999-12-31T23:59:59Z" }] })),
            with("c", json!({ "vnicId": vnic, "podAddresses": ["10.0.0.5", 7, "x"] })),
        ]);
        let vnics = |attachments: &[VnicAttachment]| {
            attachments
                .iter()
                .map(|it| it.status.as_ref()?.vnic_id.as_ref().map(ToString::to_string))
                .collect::<Vec<_>>()
        };
        let all = vec![Some(vnic.to_owned()); 3];
        let listed = OwnAttachments::read(&instance, serde_json::from_value(list.clone()).unwrap(), None);
        assert_eq!((vnics(&listed.value.unwrap()), listed.unreadable), (all.clone(), None));
        // And of the cached copy, with one that a later version wrote.
        let directory = tempfile::tempdir().unwrap();
        let mut copy = CachedCopy::new(directory.path(), "copy.json");
        let mut objects = list.as_array().unwrap().clone();
        objects.push(json!({ "metadata": { "name": "d" }, "spec": { "purpose": "Moon" } }));
        copy.store(Some(&objects), std::time::SystemTime::now()).unwrap();
        let (read, _) = read_copy(&copy, &instance).unwrap().unwrap();
        assert_eq!(vnics(&read), all);
    }

    #[test]
    fn object_of_a_later_version_stays_as_it_was_known() {
        let instance = "ocid1.instance.oc1.iad.node".parse().unwrap();
        let later = |name: &str| {
            let metadata = attachment(name, 1500).metadata;
            Received(Err(UnreadableObject {
                error: "unknown purpose".to_owned(),
                metadata,
                status: serde_json::Value::Null,
            }))
        };
        let before = Some(vec![attachment("a", 1500), attachment("b", 1500)]);
        let objects = vec![later("a"), Received(Ok(attachment("b", 9000))), later("c")];
        let listed = OwnAttachments::read(&instance, objects, before);
        assert_eq!(listed.value, Some(vec![attachment("a", 1500), attachment("b", 9000)]));
        let error = listed.unreadable.unwrap();
        assert!(error.contains("VnicAttachment a cannot be read: unknown purpose; VnicAttachment c"), "{error}");
    }
}
