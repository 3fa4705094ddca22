//! The steps that bring the VnicAttachments in line with the VnicProfiles. Pure: the same state gives the same plan.

pub(crate) mod removal;
pub(crate) mod rollout;
pub(crate) mod state;
pub mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use api::{AttachmentReason, ConditionType, PROFILE_FINALIZER, VnicAttachment, VnicProfile, condition};
use kube::ResourceExt;
use tokio::time::Instant;

use crate::profile::plan::removal::{DeletionGrace, Removals, UnwantedObjects, removals};
use crate::profile::plan::rollout::Rollout;
use crate::profile::plan::state::{State, VnicProblem};
use crate::profile::plan::step::{Profile, Step, Target};
use crate::profile::select::claims::{Claim, claims, stamps};
use crate::profile::select::from_template::{Difference, TemplateObject, profile_of};
use crate::profile::select::observed::{AttachmentIndex, Observed};
use crate::profile::select::selection::{
    InactiveReason, NAME_CONFLICT, NodeProblem, PRIVATE_IP_IGNORED, Selection, Selections, Unconfirmed, is_leaving,
};

/// The steps, and the state of the profiles.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub steps: Vec<Step>,
    /// The steps after the grace period, if nothing changes.
    pub later: Vec<Step>,
    /// The progress of each profile, by name.
    pub reports: BTreeMap<&'a str, Report<'a>>,
    /// Problems of nodes that a person must solve.
    pub problems: Vec<NodeProblem<'a>>,
    /// How many objects have a profile that is missing: they stay, and nothing serves them.
    pub abandoned: usize,
    /// What the next plan needs to know.
    pub unwanted: UnwantedObjects,
    /// When to plan again without a change.
    pub next: Option<Instant>,
}

/// The progress of a profile.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub profile: &'a VnicProfile,
    /// Why nothing is done.
    pub hold: Option<&'a InactiveReason>,
    /// Its nodes, by name.
    pub nodes: BTreeMap<&'a str, State>,
    /// Objects that are still to be replaced, and what the next replacement waits for.
    pub replacing: Option<(usize, Option<String>)>,
    /// Of a profile that is being deleted and has objects: what it waits for.
    pub leaving: Option<String>,
}

/// Plans. `grace` holds what was unwanted before, the grace period and the time.
pub(crate) fn plan<'a>(observed: &'a Observed, selections: &'a Selections<'a>, grace: DeletionGrace<'_>) -> Plan<'a> {
    let there = AttachmentIndex::of(observed);
    let stamps = stamps(selections);
    let requested: BTreeSet<&str> = stamps.iter().map(|stamp| stamp.name.as_str()).collect();
    let Removals { steps, later, problems, unwanted, next } = removals(&there, selections, &requested, grace);
    let mut plan = Plan {
        steps,
        later,
        reports: reports(selections, &there),
        problems: selections.problems.iter().cloned().chain(problems).collect(),
        abandoned: there.objects.values().filter(|object| is_abandoned(object, selections)).count(),
        unwanted,
        next,
    };
    plan.steps.extend(selections.profiles.values().filter_map(|selection| finalizer(selection, &there)));
    let mut rollouts: BTreeMap<&str, Rollout> = BTreeMap::new();
    for (stamp, claim) in stamps.iter().zip(claims(&stamps, &there, selections)) {
        let rollout = rollouts.entry(&stamp.profile).or_default();
        let (state, step) = compare(stamp, &claim, rollout);
        plan.add_state(stamp, &state, selections);
        plan.add_ignored_address(stamp, &claim, selections);
        let may_start = |step: &Step| {
            !matches!(step, Step::Create(_))
                || is_finalizer_set(selections, &stamp.profile)
                    && selections.is_confirmed(&stamp.profile, &stamp.instance)
        };
        plan.steps.extend(step.filter(may_start).filter(|_| !selections.is_held(&stamp.profile)));
    }
    for (profile, rollout) in rollouts {
        if let Some(report) = plan.reports.get_mut(profile) {
            report.replacing = rollout.standing();
        }
        plan.steps.extend(rollout.next().filter(|_| !selections.is_held(profile)));
    }
    plan.problems.sort();
    plan
}

/// A profile's finalizer is set before its first object and removed after its last.
fn finalizer(selection: &Selection<'_>, there: &AttachmentIndex<'_>) -> Option<Step> {
    let profile = || Profile::of(selection.profile);
    let has_finalizer = has_finalizer(selection.profile);
    if !is_leaving(selection.profile) {
        return (!has_finalizer && selection.hold.is_none()).then(|| Step::AddFinalizer(profile()));
    }
    let left = has_objects(selection.profile, there);
    (has_finalizer && !left).then(|| Step::RemoveFinalizer(profile()))
}

fn is_abandoned(object: &VnicAttachment, selections: &Selections<'_>) -> bool {
    profile_of(object)
        .is_some_and(|profile| !selections.profiles.contains_key(profile) && !selections.unreadable.contains(profile))
}

fn is_finalizer_set(selections: &Selections<'_>, profile: &str) -> bool {
    selections.profiles.get(profile).is_some_and(|selection| has_finalizer(selection.profile))
}

fn has_finalizer(profile: &VnicProfile) -> bool {
    profile.finalizers().iter().any(|finalizer| finalizer == PROFILE_FINALIZER)
}

/// The state of a stamp's VNIC, and the step towards it. A replacement is left to the rollout.
fn compare(stamp: &TemplateObject, claim: &Claim<'_>, rollout: &mut Rollout) -> (State, Option<Step>) {
    let (state, step) = match claim {
        Claim::Taken(by) => return (State::in_conflict(by.clone()), None),
        Claim::Waits => (State::ABSENT, None),
        Claim::Free => (State::ABSENT, Some(Step::Create(stamp.clone()))),
        Claim::Held(object) => {
            let state = State::of(object);
            let is_ready = state.ready;
            match stamp.difference(object) {
                _ if object.metadata.deletion_timestamp.is_some() => (state, None),
                Difference::None if is_ready => return (state, None),
                Difference::None => (state, None),
                Difference::Changeable(fields) => {
                    let stamp = stamp.with_address_of(object);
                    (State { ready: false, ..state }, Some(Step::Update { stamp, fields }))
                }
                Difference::Fixed(fields) => {
                    let step = Step::Replace { object: Target::of(object), fields, stamp: stamp.clone() };
                    rollout.replace(is_ready, step);
                    return (State { ready: false, ..state }, None);
                }
            }
        }
    };
    rollout.wait_for(&stamp.name);
    (state, step)
}

fn reports<'a>(selections: &'a Selections<'a>, there: &AttachmentIndex<'a>) -> BTreeMap<&'a str, Report<'a>> {
    let report = |selection: &'a Selection<'a>| {
        let without_instance = selection.without_instance.iter().map(|node| (*node, State::ABSENT));
        let unconfirmed = selection.unconfirmed.iter().filter(|(instance, _)| !selection.nodes.contains_key(*instance));
        let unconfirmed = unconfirmed.map(|(_, Unconfirmed { node, error })| {
            (node.name.as_str(), error.clone().map_or(State::ABSENT, State::failing))
        });
        let excluded = selection.excluded.iter().map(|(node, why)| (*node, State::excluded(why.clone())));
        Report {
            profile: selection.profile,
            hold: selection.hold.as_ref(),
            nodes: without_instance.chain(unconfirmed).chain(excluded).collect(),
            replacing: None,
            leaving: deletion_waits_for(selection.profile, there),
        }
    };
    selections.profiles.iter().map(|(name, selection)| (*name, report(selection))).collect()
}

/// What the deletion of a profile waits for: the first VnicAttachment of it that cannot be deleted now, or all. No counts: they would
/// be written again and again.
fn deletion_waits_for(profile: &VnicProfile, there: &AttachmentIndex<'_>) -> Option<String> {
    use AttachmentReason::{Attaching, Detaching, InstanceBusy, Pending, Ready};
    if !is_leaving(profile) || !has_objects(profile, there) {
        return None;
    }
    let mut objects = there.objects.iter().filter(|(_, object)| profile_of(object) == profile.metadata.name.as_deref());
    let blocked = objects.find_map(|(name, object)| {
        let ready = condition::find(&object.status.as_ref()?.conditions, ConditionType::Ready)?;
        let is_passing = AttachmentReason::from_word(&ready.reason)
            .is_none_or(|reason| matches!(reason, Attaching | Detaching | InstanceBusy | Pending | Ready));
        (!is_passing).then(|| {
            let why = format!("VnicAttachment {name}: {}: {}", ready.reason, ready.message);
            why.trim_end_matches(": ").to_owned()
        })
    });
    Some(blocked.unwrap_or_else(|| "its VnicAttachments are being deleted".to_owned()))
}

fn has_objects(profile: &VnicProfile, there: &AttachmentIndex<'_>) -> bool {
    let name = profile.metadata.name.as_deref();
    // An unreadable object may belong to it, by its name.
    let own = format!("{}.", name.unwrap_or_default());
    there.objects.values().any(|object| profile_of(object) == name)
        || there.unreadable.iter().any(|name| name.starts_with(&own))
}

impl<'a> Plan<'a> {
    /// Adds the state of a node's VNIC to the profile's report, and a conflict to the node's problems.
    fn add_state(&mut self, stamp: &TemplateObject, state: &State, selections: &'a Selections<'a>) {
        let Some(node) = selections.node_of(&stamp.profile, &stamp.instance) else { return };
        if let Some(report) = self.reports.get_mut(stamp.profile.as_str()) {
            let before = report.nodes.remove(node).unwrap_or(State::READY);
            report.nodes.insert(node, before.and(state.clone()));
        }
        if let Some(VnicProblem::Conflict(by)) = &state.trouble {
            let note = format!("VnicProfile {}: {by}", stamp.profile);
            self.problems.push(NodeProblem { node, reason: NAME_CONFLICT, note });
        }
    }

    /// Adds to the node's problems that a VNIC was created before its template had an address.
    fn add_ignored_address(&mut self, stamp: &TemplateObject, claim: &Claim<'_>, selections: &'a Selections<'a>) {
        let Claim::Held(object) = claim else { return };
        let Some(node) = selections.node_of(&stamp.profile, &stamp.instance) else { return };
        if let Some(address) = stamp.ignored_address(object) {
            let note = format!(
                "VnicProfile {}: privateIp {address} is ignored, because VNIC {} exists. Delete VnicAttachment {} to get a \
                 VNIC with this address",
                stamp.profile, stamp.template.name, stamp.name
            );
            self.problems.push(NodeProblem { node, reason: PRIVATE_IP_IGNORED, note });
        }
    }
}
