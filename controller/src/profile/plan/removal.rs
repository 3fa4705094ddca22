//! When stamped objects that no profile requests are deleted: after a grace period, or at once. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::store::NodeView;
use crate::profile::plan::step::{Step, Target};
use crate::profile::select::fate::{Fate, fate};
use crate::profile::select::observed::AttachmentIndex;
use crate::profile::select::selection::{NODE_RECREATED, NodeProblem, Selections};

/// Since when objects are unwanted, by their profiles or for their nodes, by name. Lost with the process: then the grace
/// period starts again.
pub(crate) type UnwantedObjects = BTreeMap<String, Instant>;

/// How long an object must be unwanted before it is deleted, because a Node, a label or a template may come back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeletionGrace<'a> {
    /// The objects that were unwanted before, and since when.
    pub unwanted: &'a UnwantedObjects,
    pub period: Duration,
    pub now: Instant,
}

/// What happens to the objects that no profile requests.
#[derive(Debug, Default)]
pub(super) struct Removals<'a> {
    pub(super) steps: Vec<Step>,
    /// The deletions after the grace period, if nothing changes.
    pub(super) later: Vec<Step>,
    /// Objects whose fate a person must decide.
    pub(super) problems: Vec<NodeProblem<'a>>,
    pub(super) unwanted: UnwantedObjects,
    /// When the next grace period ends.
    pub(super) next: Option<Instant>,
}

/// Plans what happens to all objects whose names are not `requested`.
pub(super) fn removals<'a>(
    there: &AttachmentIndex<'a>,
    selections: &Selections<'a>,
    requested: &BTreeSet<&str>,
    grace: DeletionGrace<'_>,
) -> Removals<'a> {
    let mut removals = Removals::default();
    for (name, object) in &there.objects {
        if requested.contains(name) || object.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let remove = |why| Step::Delete { object: Target::of(object), why };
        match fate(object, selections) {
            Fate::Stays => {}
            Fate::StaysForNow { profile, node } => removals.problems.push(recreated(name, profile, node)),
            Fate::Goes(why) => removals.steps.push(remove(why)),
            Fate::GoesLater(why) => {
                let since = grace.unwanted.get(*name).copied().unwrap_or(grace.now);
                removals.unwanted.insert((*name).to_owned(), since);
                let ends = since + grace.period;
                if grace.now >= ends {
                    removals.steps.push(remove(why));
                } else {
                    removals.next = Some(removals.next.map_or(ends, |next| next.min(ends)));
                    removals.later.push(remove(why));
                }
            }
        }
    }
    removals
}

fn recreated<'a>(object: &str, profile: &str, node: &'a NodeView) -> NodeProblem<'a> {
    let note = format!(
        "VnicAttachment {object} stays: this Node was created later, and VnicProfile {profile} no longer applies. Give the \
         Node its label or annotation back, or delete the VnicAttachment"
    );
    NodeProblem { node: &node.name, reason: NODE_RECREATED, note }
}
