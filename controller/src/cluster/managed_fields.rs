//! `managedFields` of a VnicAttachment: who wrote which field, which the API server keeps in the object. Pure.
//!
//! Once an object was *applied*, the next apply is compared with the list, so the list stays. Without an apply nothing reads it:
//! it is emptied, and the API server starts no other until the first apply.

use api::VnicAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
use serde_json::Value;

use crate::cluster::stamp::profile_of;

/// Keeps the fields as text: as maps they take twenty times the memory. A profile's object keeps no list at all.
pub fn compact(object: &mut VnicAttachment) {
    if profile_of(object).is_some() {
        object.metadata.managed_fields = None;
    }
    for entry in object.metadata.managed_fields.iter_mut().flatten() {
        entry.fields_v1 = entry.fields_v1.take().map(|fields| FieldsV1(Value::String(text(&fields))));
    }
}

/// Whether the object was ever applied.
pub fn is_applied(object: &VnicAttachment) -> bool {
    object.metadata.managed_fields.iter().flatten().any(|entry| entry.operation.as_deref() == Some("Apply"))
}

fn text(fields: &FieldsV1) -> String {
    match &fields.0 {
        Value::String(text) => text.clone(),
        fields => fields.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::attachment::sample::attachment;

    #[test]
    fn compacted_managed_fields_still_show_an_apply() {
        let mut object = attachment("a", 1);
        let entry = json!([{ "manager": "kubectl", "operation": "Apply", "fieldsV1": { "f:spec": {} } }]);
        object.metadata.managed_fields = serde_json::from_value(entry).unwrap();
        let whole = object.clone();
        compact(&mut object);
        assert_ne!(object, whole);
        assert!(is_applied(&object) && !is_applied(&attachment("b", 1)));
    }
}
