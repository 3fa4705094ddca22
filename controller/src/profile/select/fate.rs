//! Which stamped objects are deleted, and why. In doubt the VNICs stay: a Node or profile that is absent or younger than its
//! VNICs, an unreadable profile or annotation. Pure.

use std::fmt;

use api::VnicAttachment;

use crate::attachment::report::event_diff::is_gone;
use crate::cluster::store::NodeView;
use crate::profile::select::from_template::profile_of;
use crate::profile::select::selection::{Selections, is_leaving};

/// Why an object is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    /// Its profile is being deleted.
    ProfileDeleted(String),
    /// Its profile no longer has this VNIC, and the grace period is over.
    NotInProfile(String),
    /// Its profile no longer selects its node, and the grace period is over.
    NotForNode {
        /// The profile that does not match the node.
        profile: String,
        /// The node of the object.
        node: String,
    },
    /// Its instance is terminated, and the Node is gone.
    InstanceTerminated,
}

/// The fate of an object that no profile wants.
pub(crate) enum Fate<'a> {
    Stays,
    /// It stays until a person decides: its Node was created later, and may have lost its label or annotation.
    StaysForNow {
        /// The profile that it was made from.
        profile: &'a str,
        node: &'a NodeView,
    },
    Goes(RemovalReason),
    /// It is deleted after its grace period.
    GoesLater(RemovalReason),
}

pub(crate) fn fate<'a>(object: &'a VnicAttachment, selections: &Selections<'a>) -> Fate<'a> {
    let Some(profile) = profile_of(object) else { return Fate::Stays };
    // A deleted profile exists until its objects are gone, because of our finalizer.
    let Some(selection) = selections.profiles.get(profile) else { return Fate::Stays };
    if is_leaving(selection.profile) {
        return Fate::Goes(RemovalReason::ProfileDeleted(profile.to_owned()));
    }
    if selections.is_held(profile) {
        return Fate::Stays;
    }
    let mut templates = selection.profile.spec.attachments.iter();
    if !templates.any(|template| template.name == object.spec.vnic.name) {
        return Fate::GoesLater(RemovalReason::NotInProfile(profile.to_owned()));
    }
    let instance = &object.spec.instance_id;
    match selections.instances.get(instance) {
        _ if selection.undecided.contains(instance) => Fate::Stays,
        None if is_gone(object) => Fate::Goes(RemovalReason::InstanceTerminated),
        // It may come back after a reboot, or as a Node of another name.
        None => Fate::Stays,
        Some(_) if selection.nodes.contains_key(instance) => Fate::Stays,
        Some(node) if is_younger(node, object) => Fate::StaysForNow { profile, node },
        Some(node) => {
            Fate::GoesLater(RemovalReason::NotForNode { profile: profile.to_owned(), node: node.name.clone() })
        }
    }
}

/// `kubectl delete node`, and the kubelet registers again: the instance is the same, but labels and annotations are lost. No
/// person withdrew the request.
fn is_younger(node: &NodeView, object: &VnicAttachment) -> bool {
    let object = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
    node.created.zip(object).is_some_and(|(node, object)| node > object)
}

impl fmt::Display for RemovalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ProfileDeleted(profile) => write!(f, "VnicProfile {profile} is being deleted"),
            Self::NotInProfile(profile) => write!(f, "VnicProfile {profile} no longer has this VNIC"),
            Self::NotForNode { profile, node } => write!(f, "VnicProfile {profile} no longer selects node {node}"),
            Self::InstanceTerminated => f.write_str("its instance is terminated and its Node is gone"),
        }
    }
}
