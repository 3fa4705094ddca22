//! An object as an API server delivers it: one that cannot be read is known by its metadata, and hides no other of its list or
//! watch. Users, kubelets and agents write parts of objects, and the API server accepts more than our types. Of times alone, it
//! accepts those of the last day of the year 9999, and offsets such as +99:99.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object, or what is known of one that cannot be read.
#[derive(Clone, Debug)]
pub struct Received<K>(pub Result<K, UnreadableObject>);

/// An object that cannot be read.
#[derive(Clone, Debug)]
pub struct UnreadableObject {
    /// Why the object cannot be read, in the words of the parser.
    pub error: String,
    /// Its metadata; without labels, annotations and times if these cannot be read either.
    pub metadata: ObjectMeta,
    /// Its status, as it is.
    pub status: Value,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Received<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = Value::deserialize(deserializer)?;
        drop_times_of_writers(&mut object);
        Ok(Self(K::deserialize(&object).map_err(|error| UnreadableObject {
            error: error.to_string(),
            metadata: metadata(object.get("metadata").unwrap_or(&Value::Null)),
            status: object.get("status").cloned().unwrap_or_default(),
        })))
    }
}

/// Clients set the times in `managedFields` as they like, and nothing reads them.
fn drop_times_of_writers(object: &mut Value) {
    let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten().filter_map(Value::as_object_mut) {
        entry.remove("time");
    }
}

fn metadata(found: &Value) -> ObjectMeta {
    ObjectMeta::deserialize(found).unwrap_or_else(|_| {
        let text = |name: &str| found.get(name).and_then(Value::as_str).map(str::to_owned);
        ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        }
    })
}

impl<K: Resource> Resource for Received<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        match &self.0 {
            Ok(object) => object.meta(),
            Err(unreadable) => &unreadable.metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match &mut self.0 {
            Ok(object) => object.meta_mut(),
            Err(unreadable) => &mut unreadable.metadata,
        }
    }
}

/// A field of a status: its default if it cannot be read. For `deserialize_with`.
///
/// # Errors
/// Only if the document is not valid.
pub fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(T::deserialize(Value::deserialize(deserializer)?).unwrap_or_default())
}

/// A list of a status, without the elements that cannot be read. For `deserialize_with`.
///
/// # Errors
/// Only if the document is not valid.
pub fn lenient_list<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let Value::Array(elements) = Value::deserialize(deserializer)? else { return Ok(Vec::new()) };
    Ok(elements.into_iter().filter_map(|element| T::deserialize(element).ok()).collect())
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;
    use serde_json::json;

    use super::*;
    use crate::{NetworkTest, NodeReport, VnicAttachment, VnicAttachmentStatus, VnicProfile};

    const OCID: &str = "ocid1.vnic.oc1.iad.a";
    const LAST_DAY: &str = "9999-12-31T23:59:59Z";

    fn hostile() -> Vec<Value> {
        let huge = "x".repeat(1 << 20);
        let texts = [LAST_DAY, "NaN", "-1", "\u{1b}[2J", "2026-01-01T00:00:00+99:99", &huge];
        let mut values: Vec<Value> = texts.iter().map(|text| json!(text)).collect();
        values.extend([json!(null), json!(true), json!(-1), json!(1e15), json!(u64::MAX), json!(1e300), json!(0.5)]);
        values.extend([json!([]), json!([null, 7, [], {}, LAST_DAY]), json!({}), json!({ "a": { "b": 1e300 } })]);
        values
    }

    fn attachment(status: &Value) -> Received<VnicAttachment> {
        let spec = json!({ "instanceId": "ocid1.instance.oc1.iad.node", "subnetId": "ocid1.subnet.oc1.iad.s", "name": "a",
            "purpose": "Attach" });
        serde_json::from_value(json!({ "metadata": { "name": "a" }, "spec": spec, "status": status })).unwrap()
    }

    /// Any value in the place of any field: the object stays readable, and its other fields keep their values.
    #[test]
    fn hostile_field_of_a_status_spoils_only_itself() {
        let ready = json!({ "type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z" });
        let sound = json!({ "observedGeneration": 3, "conditions": [ready], "nodeName": "node", "vnicId": OCID,
            "ownAddresses": ["10.0.0.5"], "podAddresses": ["10.0.0.6"],
            "node": { "configured": true, "inUse": 2, "generation": 3 } });
        let fields: Vec<String> = sound.as_object().unwrap().keys().cloned().collect();
        for value in hostile() {
            for field in &fields {
                let mut status = sound.clone();
                status[field] = value.clone();
                let read = attachment(&status).0.unwrap().status.unwrap();
                let mut rest = serde_json::to_value(read).unwrap();
                let mut expected = sound.clone();
                for document in [&mut rest, &mut expected] {
                    document.as_object_mut().unwrap().remove(field);
                }
                assert_eq!(rest, expected, "{field}");
            }
            for field in ["configured", "reason", "inUse", "generation"] {
                let mut status = sound.clone();
                status["node"][field] = value.clone();
                assert_eq!(
                    attachment(&status).0.unwrap().status.unwrap().vnic_id,
                    Some(OCID.parse().unwrap()),
                    "{field}"
                );
            }
        }
    }

    #[test]
    fn one_unreadable_condition_hides_no_other() {
        let condition = |kind: &str, time: &str| json!({ "type": kind, "status": "True", "reason": "Ready", "lastTransitionTime": time });
        let conditions = json!([condition("Attached", LAST_DAY), condition("Ready", "2026-01-01T00:00:00Z"), 7]);
        let status = attachment(&json!({ "conditions": conditions })).0.unwrap().status.unwrap();
        let kinds: Vec<&str> = status.conditions.iter().map(|condition| condition.kind.as_str()).collect();
        assert_eq!(kinds, ["Ready"]);
    }

    #[test]
    fn report_with_a_number_out_of_range_is_no_report() {
        let node = |in_use: Value| {
            let status = json!({ "vnicId": OCID, "node": { "configured": true, "inUse": in_use } });
            attachment(&status).0.unwrap().status.unwrap()
        };
        let status = node(json!(1_000_000_000_000_000_u64));
        let expected = VnicAttachmentStatus { vnic_id: Some(OCID.parse().unwrap()), ..VnicAttachmentStatus::default() };
        assert_eq!(status, expected);
        let report = NodeReport { configured: true, in_use: u32::MAX, ..NodeReport::default() };
        assert_eq!(node(json!(u32::MAX)).node, Some(report));
    }

    #[test]
    fn hostile_status_of_any_kind_leaves_the_object_readable() {
        let profile = json!({ "nodeSelector": {}, "allNodes": true, "attachments": [] });
        let test =
            json!({ "sources": [{ "node": "a" }], "targets": [{ "node": "b" }], "probes": [{ "type": "ICMP" }] });
        for value in hostile() {
            for field in ["observedGeneration", "conditions", "summary", "failingNodes"] {
                let object = json!({ "metadata": { "name": "a" }, "spec": profile, "status": { field: value } });
                assert!(serde_json::from_value::<Received<VnicProfile>>(object).unwrap().0.is_ok(), "{field}");
            }
            for field in [
                "state",
                "message",
                "startedAt",
                "finishedAt",
                "counts",
                "latency",
                "throughput",
                "worstVerdict",
                "path",
                "worst",
            ] {
                let object = json!({ "metadata": { "name": "a" }, "spec": test, "status": { field: value } });
                assert!(serde_json::from_value::<Received<NetworkTest>>(object).unwrap().0.is_ok(), "{field}");
            }
        }
    }

    #[test]
    fn unreadable_object_is_known_by_its_metadata() {
        let object = |metadata: Value| {
            let object = json!({ "metadata": metadata, "spec": { "purpose": "Moon" } });
            serde_json::from_value::<Received<VnicAttachment>>(object).unwrap()
        };
        let read = object(json!({ "name": "a", "uid": "u", "resourceVersion": "7", "labels": { "a": "b" } }));
        assert_eq!((read.name_any().as_str(), read.labels().len()), ("a", 1));
        assert!(read.0.unwrap_err().error.contains("missing field"));
        let read = object(json!({ "name": "a", "uid": "u", "resourceVersion": "7", "creationTimestamp": LAST_DAY }));
        assert_eq!((read.name_any().as_str(), read.resource_version().as_deref()), ("a", Some("7")));
        for nothing in [json!(null), json!("x"), json!({ "name": 7 })] {
            assert_eq!(object(nothing).name_any(), "");
        }
    }

    #[test]
    fn time_of_a_writer_is_not_read() {
        let writers = json!([{ "manager": "kubectl", "operation": "Apply", "time": LAST_DAY, "fieldsV1": {} }]);
        let mut object = json!({ "metadata": { "name": "a", "managedFields": writers }, "spec": {
            "instanceId": "ocid1.instance.oc1.iad.node", "subnetId": "ocid1.subnet.oc1.iad.s", "name": "a", "purpose": "Host" } });
        let read = serde_json::from_value::<Received<VnicAttachment>>(object.clone()).unwrap().0.unwrap();
        assert_eq!(read.metadata.managed_fields.unwrap()[0].operation.as_deref(), Some("Apply"));
        object["metadata"]["managedFields"] = json!("x");
        assert!(serde_json::from_value::<Received<VnicAttachment>>(object).unwrap().0.is_err());
    }
}
