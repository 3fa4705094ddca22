//! Which stamped objects go, and when. Whatever cannot be told apart from a mishap keeps its VNICs: a Node or a profile that
//! is absent or younger than its VNICs, a profile or an annotation that cannot be read. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use api::VnicAttachment;
use tokio::time::Instant;

use crate::cluster::store::NodeView;
use crate::profile::plan::state::is_terminated;
use crate::profile::select::from_template::profile_of;
use crate::profile::select::observed::AttachmentIndex;
use crate::profile::select::selection::{MADE_ANEW, NodeProblem, Selections, is_leaving};

/// Since when objects are wanted no more, by their profiles or for their nodes, by name. Lost with the process: then the grace
/// begins again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unwanted(BTreeMap<String, Instant>);

impl FromIterator<(String, Instant)> for Unwanted {
    fn from_iter<I: IntoIterator<Item = (String, Instant)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

/// How long an object must be unwanted before it is deleted, because a Node, a label or a template may come back.
#[derive(Clone, Copy, Debug)]
pub struct Grace<'a> {
    /// The objects that were unwanted before, and since when.
    pub unwanted: &'a Unwanted,
    /// The time.
    pub period: Duration,
    /// The present.
    pub now: Instant,
}

/// Why an object goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Its profile is being deleted.
    ProfileDeleted(String),
    /// Its profile has no such VNIC any more, and the grace is over.
    NotInProfile(String),
    /// Its profile is not for its node any more, and the grace is over.
    NotForNode {
        /// The profile.
        profile: String,
        /// The node.
        node: String,
    },
    /// Its instance is terminated, and the Node is gone.
    InstanceTerminated,
}

/// What goes now, what is left for a while, and when to look again.
#[derive(Debug, Default)]
pub struct Removals<'a> {
    /// Objects with the reason.
    pub now: Vec<(&'a VnicAttachment, Why)>,
    /// Objects whose grace is not over, with the reason.
    pub later: Vec<(&'a VnicAttachment, Why)>,
    /// What stays although its node does not ask for it, for somebody to see to.
    pub problems: Vec<NodeProblem<'a>>,
    /// What to remember for the next time.
    pub unwanted: Unwanted,
    /// When the first grace ends.
    pub next: Option<Instant>,
}

/// Decides for all that are there and that no profile wants (`is_wanted` answers that by the object's name).
#[must_use]
pub fn removals<'a>(
    there: &AttachmentIndex<'a>,
    selections: &Selections<'a>,
    is_wanted: impl Fn(&str) -> bool,
    grace: Grace<'_>,
) -> Removals<'a> {
    let mut removals = Removals::default();
    for (name, object) in &there.objects {
        if is_wanted(name) || object.metadata.deletion_timestamp.is_some() {
            continue;
        }
        match fate(object, selections) {
            Fate::Stays => {}
            Fate::StaysForNow { profile, node } => removals.problems.push(made_anew(name, profile, node)),
            Fate::Goes(why) => removals.now.push((object, why)),
            Fate::GoesLater(why) => {
                let since = grace.unwanted.0.get(*name).copied().unwrap_or(grace.now);
                removals.unwanted.0.insert((*name).to_owned(), since);
                let ends = since + grace.period;
                if grace.now >= ends {
                    removals.now.push((object, why));
                } else {
                    removals.next = Some(removals.next.map_or(ends, |next| next.min(ends)));
                    removals.later.push((object, why));
                }
            }
        }
    }
    removals
}

/// What becomes of an object that no profile wants.
pub(in crate::profile) enum Fate<'a> {
    /// It stays.
    Stays,
    /// It stays until somebody says what is meant: its Node was made after it, and may have lost what it asked with.
    StaysForNow {
        /// The profile that it was made from.
        profile: &'a str,
        /// The Node.
        node: &'a NodeView,
    },
    /// It goes.
    Goes(Why),
    /// It goes when it was unwanted for a while.
    GoesLater(Why),
}

/// Decides for one.
pub(in crate::profile) fn fate<'a>(object: &'a VnicAttachment, selections: &Selections<'a>) -> Fate<'a> {
    let Some(profile) = profile_of(object) else { return Fate::Stays };
    // One that was deleted is there until its objects are gone: it has our finalizer.
    let Some(selection) = selections.profiles.get(profile) else { return Fate::Stays };
    if is_leaving(selection.profile) {
        return Fate::Goes(Why::ProfileDeleted(profile.to_owned()));
    }
    if selections.is_held(profile) {
        return Fate::Stays;
    }
    let mut templates = selection.profile.spec.attachments.iter();
    if !templates.any(|template| template.name == object.spec.vnic.name) {
        return Fate::GoesLater(Why::NotInProfile(profile.to_owned()));
    }
    let instance = &object.spec.instance_id;
    match selections.instances.get(instance) {
        _ if selection.undecided.contains(instance) => Fate::Stays,
        None if is_terminated(object) => Fate::Goes(Why::InstanceTerminated),
        // It may come back: a reboot, a Node made anew by another name.
        None => Fate::Stays,
        Some(_) if selection.nodes.contains_key(instance) => Fate::Stays,
        Some(node) if is_younger(node, object) => Fate::StaysForNow { profile, node },
        Some(node) => Fate::GoesLater(Why::NotForNode { profile: profile.to_owned(), node: node.name.clone() }),
    }
}

/// `kubectl delete node` and a kubelet that registers again: the instance is the same, labels and annotations that somebody
/// gave are gone. Nobody took the request back.
fn is_younger(node: &NodeView, object: &VnicAttachment) -> bool {
    let object = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
    node.created.zip(object).is_some_and(|(node, object)| node > object)
}

fn made_anew<'a>(object: &str, profile: &str, node: &'a NodeView) -> NodeProblem<'a> {
    let note = format!(
        "VnicAttachment {object} stays: this Node was made after it, and VnicProfile {profile} is not for it now. Give the \
         Node its label or annotation back, or delete the VnicAttachment"
    );
    NodeProblem { node: &node.name, reason: MADE_ANEW, note }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ProfileDeleted(profile) => write!(f, "VnicProfile {profile} is being deleted"),
            Self::NotInProfile(profile) => write!(f, "VnicProfile {profile} no longer has this VNIC"),
            Self::NotForNode { profile, node } => write!(f, "VnicProfile {profile} no longer selects node {node}"),
            Self::InstanceTerminated => f.write_str("its instance is terminated and its Node is gone"),
        }
    }
}
