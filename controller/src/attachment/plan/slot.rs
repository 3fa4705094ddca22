//! The one attach or detach that an instance takes at a time.

use api::AttachmentReason as Reason;
use oci::AttachmentState;

use super::{Case, Plan, Progress};
use crate::attachment::observe::observed::{Observed, ObservedAttachment};
use crate::attachment::report::attachment_status::StatusReason;

/// The one attach or detach that an instance takes at a time.
pub(super) struct Slot {
    /// What it is taken by, if it is.
    pub(super) taken_by: Option<&'static str>,
    /// Whether that is a step of the plan.
    by_step: bool,
}

impl Slot {
    pub(super) fn of(observed: &Observed) -> Self {
        let mut states = observed.attachments.iter().map(ObservedAttachment::state);
        let taken_by = states.find_map(|state| match state {
            AttachmentState::Attaching => Some("attached"),
            AttachmentState::Detaching => Some("detached"),
            _ => None,
        });
        Self { taken_by, by_step: false }
    }

    pub(super) fn take(&mut self, by: &'static str) {
        *self = Self { taken_by: Some(by), by_step: true };
    }

    /// By a request that OCI accepted and no list shows.
    pub(super) fn take_unlisted(&mut self, by: &'static str) {
        *self = Self { taken_by: Some(by), by_step: false };
    }

    /// The status of a waiting object: its last refusal, if there was one.
    pub(super) fn busy(&self, case: &Case<'_>, progress: &Progress, plan: &mut Plan) -> Option<StatusReason> {
        let other = self.taken_by?;
        if self.by_step {
            plan.queued = true;
        }
        if let Some(cause) = progress.refusals.get(&case.name) {
            return Some(cause.clone());
        }
        if case.state.refused.is_some() && case.is_reported_in_this_generation() {
            return case.as_reported().ready;
        }
        Some(StatusReason::new(Reason::InstanceBusy, format!("queued: another VNIC of the instance is being {other}")))
    }
}
