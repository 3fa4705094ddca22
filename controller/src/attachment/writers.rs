//! Who wrote which field of a VnicAttachment: `managedFields`, which the API server keeps in the object and counts as its bytes.
//! Pure.
//!
//! Once somebody has *applied* an object, the list is what their next apply is judged by, and has to stay. Of an object that
//! nobody applied it says nothing that anybody reads: it is emptied, and the API server begins no other until somebody does.

use api::{FIELD_MANAGER, VnicAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use serde_json::Value;

use crate::profile::stamp::profile_of;

/// What the API server notes of the write that adds our finalizer: to none, or to others'.
const FINALIZER: [&str; 2] = [
    r#"{"f:metadata":{"f:finalizers":{".":{},"v:\"oke.oraclecloud.com/vnic\"":{}}}}"#,
    r#"{"f:metadata":{"f:finalizers":{"v:\"oke.oraclecloud.com/vnic\"":{}}}}"#,
];

/// Keeps of the list what is asked for here: fields as texts, for as maps they take twenty times the memory. Nothing of what
/// a profile made.
pub fn compact(object: &mut VnicAttachment) {
    if profile_of(object).is_some() {
        object.metadata.managed_fields = None;
    }
    for entry in object.metadata.managed_fields.iter_mut().flatten() {
        entry.fields_v1 = entry.fields_v1.take().map(|fields| FieldsV1(Value::String(text(&fields))));
    }
}

/// Whether somebody applied it: they own what they wrote.
#[must_use]
pub fn is_applied(object: &VnicAttachment) -> bool {
    entries(object).iter().any(|entry| entry.operation.as_deref() == Some("Apply"))
}

/// Where the note of our finalizer's write stands in the list, and that note's fields. Nobody misses it: what keeps a
/// finalizer in its place is that no other writer's apply has it.
#[must_use]
pub fn finalizer_note(object: &VnicAttachment) -> Option<(usize, &'static str)> {
    let mut all = entries(object).iter().enumerate();
    all.find_map(|(place, entry)| {
        let own = entry.manager.as_deref() == Some(FIELD_MANAGER) && entry.subresource.is_none();
        let fields = text(entry.fields_v1.as_ref()?);
        let known = FINALIZER.iter().find(|known| **known == fields)?;
        own.then_some((place, *known))
    })
}

pub(super) fn entries(object: &VnicAttachment) -> &[ManagedFieldsEntry] {
    object.metadata.managed_fields.as_deref().unwrap_or_default()
}

/// As the API server sent them, or as kept.
pub(super) fn text(fields: &FieldsV1) -> String {
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

    fn entry(manager: &str, operation: &str, subresource: Option<&str>, fields: &Value) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            manager: Some(manager.to_owned()),
            operation: Some(operation.to_owned()),
            subresource: subresource.map(str::to_owned),
            fields_v1: Some(FieldsV1(fields.clone())),
            ..ManagedFieldsEntry::default()
        }
    }

    fn written_by(entries: Vec<ManagedFieldsEntry>) -> VnicAttachment {
        let mut object = attachment("a", 1);
        object.metadata.managed_fields = Some(entries);
        object
    }

    fn finalizer() -> Value {
        serde_json::from_str(FINALIZER[0]).unwrap()
    }

    #[test]
    fn what_is_kept_of_the_list_tells_the_same_as_the_list() {
        let spec = entry("kubectl", "Apply", None, &json!({ "f:spec": {} }));
        let whole = written_by(vec![spec, entry(FIELD_MANAGER, "Update", None, &finalizer())]);
        let mut kept = whole.clone();
        compact(&mut kept);
        assert_ne!(kept, whole);
        for object in [&whole, &kept] {
            assert_eq!((is_applied(object), finalizer_note(object)), (true, Some((1, FINALIZER[0]))));
        }
    }

    #[test]
    fn a_note_of_other_fields_or_by_others_is_not_the_finalizers() {
        let more =
            json!({ "f:metadata": { "f:finalizers": { "v:\"oke.oraclecloud.com/vnic\"": {}, "v:\"a.b/c\"": {} } } });
        let others = written_by(vec![
            entry("somebody", "Update", None, &finalizer()),
            entry(FIELD_MANAGER, "Update", Some("status"), &finalizer()),
            entry(FIELD_MANAGER, "Update", None, &more),
        ]);
        assert_eq!((finalizer_note(&others), is_applied(&others)), (None, false));
    }
}
