//! Who created an object.

use api::condition::cut;
use api::{CREATED_BY_ANNOTATION, FIELD_MANAGER};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The most bytes of a creator's name.
const CREATOR_MAX: usize = 64;

/// Who created an object: the user of the annotation, which only that user can write, or else the program that wrote the fields.
pub(crate) fn created_by(metadata: &ObjectMeta) -> String {
    let annotations = metadata.annotations.as_ref();
    if let Some(user) = annotations.and_then(|annotations| annotations.get(CREATED_BY_ANNOTATION)) {
        return cut(user, CREATOR_MAX);
    }
    let fields = metadata.managed_fields.iter().flatten();
    let of_users =
        fields.filter(|entry| entry.subresource.is_none() && entry.manager.as_deref() != Some(FIELD_MANAGER));
    let first = of_users.min_by_key(|entry| entry.time.as_ref().map(|time| time.0));
    let manager = first.and_then(|entry| entry.manager.as_deref());
    manager.map(|manager| cut(&format!("program {manager}"), CREATOR_MAX)).unwrap_or_default()
}
