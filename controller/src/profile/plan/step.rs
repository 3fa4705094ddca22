//! The steps from the present VnicAttachments to those that the VnicProfiles request, in an operator's words.

use std::fmt;

use api::{VnicAttachment, VnicProfile};
use kube::ResourceExt;

use crate::profile::select::fate::RemovalReason;
use crate::profile::select::from_template::TemplateObject;

/// One write. The order does not matter: each is about another object.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Deletes an object that no profile needs.
    Delete {
        /// The object to delete.
        object: Target,
        /// The reason for the deletion.
        why: RemovalReason,
    },
    /// Deletes an object that is to be created again: an immutable field of its template changed.
    Replace {
        /// The object to delete.
        object: Target,
        /// The fields that cannot be changed.
        fields: Vec<&'static str>,
        /// The content of the new object.
        stamp: TemplateObject,
    },
    /// Updates an object to the template of its profile.
    Update {
        /// The content that the object gets.
        stamp: TemplateObject,
        /// The fields that differ.
        fields: Vec<&'static str>,
    },
    /// Creates an object from the template of its profile.
    Create(TemplateObject),
    /// Sets the finalizer of a profile, before its first object is created.
    AddFinalizer(Profile),
    /// Removes the finalizer of a deleted profile.
    RemoveFinalizer(Profile),
}

/// The one object that a deletion means, as read: not another one of its name, nor one that a user has taken over since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The name of the object.
    pub name: String,
    /// The uid of the object that was read.
    pub uid: Option<String>,
    /// The resource version that was read.
    pub version: Option<String>,
}

/// A profile in the version that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The name of the profile.
    pub name: String,
    /// The resource version that was read.
    pub version: Option<String>,
    /// All finalizers of the profile.
    pub finalizers: Vec<String>,
}

impl Step {
    /// The name of the object.
    pub fn object(&self) -> &str {
        match self {
            Self::Create(stamp) | Self::Update { stamp, .. } => &stamp.name,
            Self::Delete { object, .. } | Self::Replace { object, .. } => &object.name,
            Self::AddFinalizer(profile) | Self::RemoveFinalizer(profile) => &profile.name,
        }
    }

    /// The step's name in metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Update { .. } => "update",
            Self::Replace { .. } => "replace",
            Self::Delete { .. } => "delete",
            Self::AddFinalizer(_) => "add_finalizer",
            Self::RemoveFinalizer(_) => "remove_finalizer",
        }
    }

    /// The profile, if the step is for one.
    pub fn profile(&self) -> Option<&str> {
        match self {
            Self::Create(stamp) | Self::Update { stamp, .. } | Self::Replace { stamp, .. } => Some(&stamp.profile),
            Self::Delete {
                why: RemovalReason::NotInProfile(profile) | RemovalReason::NotForNode { profile, .. },
                ..
            } => Some(profile),
            Self::AddFinalizer(profile) | Self::RemoveFinalizer(profile) => Some(&profile.name),
            Self::Delete { why: RemovalReason::ProfileDeleted(profile), .. } => Some(profile),
            Self::Delete { why: RemovalReason::InstanceTerminated, .. } => None,
        }
    }
}

impl Profile {
    pub(in crate::profile) fn of(profile: &VnicProfile) -> Self {
        Self {
            name: profile.name_any(),
            version: profile.resource_version(),
            finalizers: profile.finalizers().to_vec(),
        }
    }
}

impl Target {
    pub(in crate::profile) fn of(object: &VnicAttachment) -> Self {
        Self { name: object.name_any(), uid: object.uid(), version: object.resource_version() }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delete { object, why } => write!(f, "delete VnicAttachment {}: {why}", object.name),
            Self::Replace { object, fields, stamp } => write!(
                f,
                "replace VnicAttachment {}: {} cannot be changed ({})",
                object.name,
                fields.join(", "),
                Origin(stamp)
            ),
            Self::Update { stamp, fields } => {
                write!(f, "update VnicAttachment {}: {} ({})", stamp.name, fields.join(", "), Origin(stamp))
            }
            Self::Create(stamp) => write!(f, "create VnicAttachment {} ({})", stamp.name, Origin(stamp)),
            Self::AddFinalizer(profile) => write!(f, "add the finalizer to VnicProfile {}", profile.name),
            Self::RemoveFinalizer(profile) => {
                write!(f, "remove the finalizer from VnicProfile {}: no VnicAttachment of it is left", profile.name)
            }
        }
    }
}

/// The origin of a stamp, and its node.
struct Origin<'a>(&'a TemplateObject);

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VnicProfile {}, VNIC {} of node {}", self.0.profile, self.0.template.name, self.0.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::step::Action;

    #[test]
    fn finalizer_steps_have_the_kinds_of_attachments() {
        let profile = || Profile { name: "a".to_owned(), version: None, finalizers: Vec::new() };
        let kinds = [Step::AddFinalizer(profile()), Step::RemoveFinalizer(profile())].map(|step| step.kind());
        assert_eq!(kinds, [Action::AddFinalizer, Action::RemoveFinalizer].map(|action| action.kind()));
    }
}
