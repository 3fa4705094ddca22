//! Recognizes our VNICs by the name of the attachment, which cannot be changed, and by two tags. The name alone counts while the
//! VNIC is being attached, when its tags cannot be read yet, and while the object of that name exists.

use api::{CLUSTER_TAG, NAME_TAG, RELEASED_TAG, TAG_PREFIX, UID_TAG};
use oci::{FreeformTags, RetryToken};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    cluster: String,
}

/// The uid of a VnicAttachment: the owner of a VNIC. Names can return, uids cannot.
pub(crate) type Uid = String;

impl Mark {
    /// The mark of the cluster with this name.
    pub(crate) fn new(cluster: impl Into<String>) -> Self {
        Self { cluster: cluster.into() }
    }

    /// The name of an object's attachment.
    pub(crate) fn attachment_name(&self, uid: &str) -> String {
        format!("{TAG_PREFIX}{uid}")
    }

    /// The object of an attachment, by its name.
    pub(crate) fn named(name: Option<&str>) -> Option<Uid> {
        name?.strip_prefix(TAG_PREFIX).filter(|uid| !uid.is_empty()).map(str::to_owned)
    }

    /// The tags of an object's VNIC, including the user's.
    pub(crate) fn tags(&self, uid: &str, name: &str, users: &FreeformTags) -> FreeformTags {
        let own = [(CLUSTER_TAG, self.cluster.as_str()), (UID_TAG, uid), (NAME_TAG, name)];
        let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
        users.clone().into_iter().chain(own).collect()
    }

    /// The tags of a released VNIC: the same without the controller's, and one that marks the release.
    pub(crate) fn released(tags: &FreeformTags, uid: &str) -> FreeformTags {
        Self::others(tags).chain([(RELEASED_TAG.to_owned(), uid.to_owned())]).collect()
    }

    /// Tags that the controller does not set.
    pub(crate) fn others(tags: &FreeformTags) -> impl Iterator<Item = (String, String)> {
        tags.iter().filter(|(key, _)| !key.starts_with(TAG_PREFIX)).map(|(key, value)| (key.clone(), value.clone()))
    }

    /// Whether a VNIC with these tags was released.
    pub(crate) fn is_released(tags: &FreeformTags) -> bool {
        tags.contains_key(RELEASED_TAG)
    }

    /// Whether an address of an object's VNIC was created for the object, under any cluster name.
    pub(crate) fn counts_for(tags: &FreeformTags, uid: &str) -> bool {
        tags.get(UID_TAG).is_some_and(|own| own == uid)
    }

    /// The object of a VNIC with these tags; `None` unless both tags match.
    pub(crate) fn owner(&self, tags: &FreeformTags) -> Option<Uid> {
        let ours = tags.get(CLUSTER_TAG).is_some_and(|cluster| *cluster == self.cluster);
        tags.get(UID_TAG).filter(|uid| ours && !uid.is_empty()).cloned()
    }

    /// The retry token of a request for an object: the same in every process.
    pub(crate) fn token(&self, what: &str, uid: &str, more: &[&str]) -> RetryToken {
        let parts: Vec<&str> = [what, &self.cluster, uid].into_iter().chain(more.iter().copied()).collect();
        RetryToken::derive(&parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vnic_is_owned_only_with_both_tags() {
        let mark = Mark::new("c1");
        let tags = mark.tags("u1", "storage", &FreeformTags::from([("team".to_owned(), "x".to_owned())]));
        assert_eq!(mark.owner(&tags).as_deref(), Some("u1"));
        assert_eq!(Mark::new("c2").owner(&tags), None, "another cluster's");
        let mut one = tags.clone();
        one.remove(CLUSTER_TAG);
        assert_eq!(mark.owner(&one), None);
        let left = [("team", "x"), (RELEASED_TAG, "u1")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(Mark::released(&tags, "u1"), FreeformTags::from(left));
    }

    #[test]
    fn an_attachment_is_identified_by_its_name() {
        let mark = Mark::new("c1");
        assert_eq!(Mark::named(Some(&mark.attachment_name("u1"))).as_deref(), Some("u1"));
        assert_eq!(
            (Mark::named(Some("oke-node-manager/")), Mark::named(Some("x")), Mark::named(None)),
            (None, None, None)
        );
    }
}
