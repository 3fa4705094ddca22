//! Properties of several kinds of objects: the version (ETag) and tags.

use std::collections::BTreeMap;

/// Free-form tags, by key.
pub type FreeformTags = BTreeMap<String, String>;

/// The version of an object: a change that names an old one is refused (412).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Etag(pub(crate) String);

/// An object and its version when it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionedObject<T> {
    /// The object as it was read.
    pub value: T,
    /// Its version, where the service sent one.
    pub etag: Option<Etag>,
}

impl From<&str> for Etag {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl Etag {
    /// The tag as the service sent it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
