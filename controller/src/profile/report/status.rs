//! The status of a VnicProfile: counts of nodes, at most ten names, one reason. Pure. Nothing in it counts time or attempts,
//! so an idle profile is not written.

use api::condition::set;
use api::{Condition, ConditionType, ProfileReason, ProfileSummary, VnicProfileStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::profile::plan::Report;
use crate::profile::plan::state::{State, VnicProblem};
use crate::profile::select::selection::{InactiveReason, is_leaving};

/// The most names in a status.
const MAX_NAMES: usize = 10;

/// The new status, if it differs. The counts of a profile that is being deleted stay.
pub(crate) fn changed(report: &Report<'_>, now: Time) -> Option<VnicProfileStatus> {
    let before = report.profile.status.clone().unwrap_or_default();
    if is_leaving(report.profile) {
        let waits_for = report.leaving.as_ref()?;
        let mut status = before.clone();
        set(&mut status.conditions, Condition::new(ConditionType::Ready, ProfileReason::Deleting, waits_for, now));
        return (status != before).then_some(status);
    }
    let generation = report.profile.metadata.generation;
    let (reason, message) = reason(report);
    let mut status = VnicProfileStatus {
        observed_generation: generation,
        conditions: before.conditions.clone(),
        summary: Some(summary(report)),
        failing_nodes: failing(report).map(|(node, _)| node.to_owned()).take(MAX_NAMES).collect(),
    };
    set(&mut status.conditions, Condition::new(ConditionType::Ready, reason, &message, now));
    (status != before).then_some(status)
}

pub(crate) fn summary(report: &Report<'_>) -> ProfileSummary {
    let count = |fits: fn(&State) -> bool| {
        u32::try_from(report.nodes.values().filter(|state| fits(state)).count()).unwrap_or(u32::MAX)
    };
    ProfileSummary {
        matched: count(|_| true),
        attached: count(|state| state.attached),
        ready: count(|state| state.ready),
        failed: count(|state| state.trouble.is_some()),
    }
}

fn failing<'a>(report: &'a Report<'_>) -> impl Iterator<Item = (&'a str, &'a VnicProblem)> {
    report.nodes.iter().filter_map(|(node, state)| Some((*node, state.trouble.as_ref()?)))
}

fn reason(report: &Report<'_>) -> (ProfileReason, String) {
    let worst = failing(report).min_by_key(|(node, trouble)| (*trouble, *node));
    let mut served = report.nodes.iter().filter(|(_, state)| !state.is_excluded()).peekable();
    let none_served = served.peek().is_none();
    let waiting = served.find(|(_, state)| !state.ready);
    match (report.hold, worst, &report.replacing, waiting) {
        (Some(InactiveReason::InvalidSelector(why)), ..) => (ProfileReason::InvalidSelector, why.clone()),
        (Some(InactiveReason::InvalidSpec(why)), ..) => (ProfileReason::InvalidSpec, why.clone()),
        (Some(InactiveReason::Paused), ..) => {
            (ProfileReason::Paused, "spec.paused is true: nothing is created, changed or deleted".to_owned())
        }
        (None, Some((_, VnicProblem::Conflict(text))), ..) => (ProfileReason::Conflict, text.clone()),
        (None, Some((node, VnicProblem::Failing(text))), ..) => (ProfileReason::Failing, format!("{node}: {text}")),
        (None, _, Some((_, Some(blocker))), _) => {
            (ProfileReason::Replacing, format!("the next VNIC is replaced once {blocker} is ready"))
        }
        (None, _, Some((_, None)), _) => (ProfileReason::Replacing, "VNICs are being replaced one by one".to_owned()),
        (None, _, None, Some((node, _))) => {
            (ProfileReason::Progressing, format!("{node} does not have all its VNICs yet"))
        }
        (None, excluded, None, None) => {
            let text = match excluded {
                Some((node, VnicProblem::Excluded(why))) => format!("{node} gets no VNIC: {why}"),
                _ => String::new(),
            };
            (if none_served { ProfileReason::NoNodes } else { ProfileReason::Ready }, text)
        }
    }
}
