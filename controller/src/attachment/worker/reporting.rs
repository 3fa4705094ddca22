//! The end of a reconcile: statuses are written, and news become Events.

use std::sync::Arc;

use api::{AttachmentReason, VnicAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use resident::logging::chain;

use super::AttachmentWorker;
use crate::attachment::apply::objects::Objects;
use crate::attachment::apply::{Failure, Outcome};
use crate::attachment::observe::observed::ReadError;
use crate::attachment::plan::Plan;
use crate::attachment::report::attachment_status::AttachmentStatus;
use crate::attachment::report::event_diff;
use crate::attachment::report::event_diff::Answer;
use crate::attachment::report::node_report;
use crate::attachment::report::status::status;
use crate::attachment::state::instance_memory::InstanceMemory;
use crate::work::Pause;

impl<O: Objects> AttachmentWorker<O> {
    /// Writes the status and the Event, if there is one. Returns whether that succeeded.
    pub(super) async fn report(&self, object: &VnicAttachment, planned_status: &AttachmentStatus) -> bool {
        let (node, now) = (self.node_of(object), Timestamp::now());
        let planned_status = &node_report::with_report(object, planned_status.clone(), node.as_deref(), now);
        let Some(status) = status(object, planned_status, node.as_deref(), &Time(now)) else {
            return true;
        };
        let written = self.objects.write_status(object, &status).await;
        self.context.metrics.wrote("status", written.is_ok());
        match written {
            Ok(()) => {
                self.report_event(object, planned_status);
                true
            }
            Err(error) => {
                // On a conflict the watch delivers the new object, and it is reconciled again.
                if !error.is_conflict() {
                    tracing::warn!(event = "status.not_written", object = object.name_any(), error = chain(&error));
                }
                false
            }
        }
    }

    /// The Node of the object's instance.
    fn node_of(&self, object: &VnicAttachment) -> Option<String> {
        self.context.store.nodes().of(&object.spec.instance_id).map(|node| node.name.clone())
    }

    /// The time when a condition changes although no agent reports.
    pub(super) fn report_expected(&self, objects: &[Arc<VnicAttachment>], plan: &Plan) -> Option<Pause> {
        let left = |object: &Arc<VnicAttachment>| {
            let planned_status = plan.statuses.get(&object.name_any())?;
            node_report::expected_within(object, planned_status, self.node_of(object).as_deref(), Timestamp::now())
        };
        objects.iter().filter_map(left).min().map(|left| Pause { left, number: 1 })
    }

    fn report_event(&self, object: &VnicAttachment, planned_status: &AttachmentStatus) {
        let Some(event) = event_diff::of(object, planned_status) else { return };
        if event.reason == api::Reason::as_str(AttachmentReason::DetachedOutOfBand) {
            self.context.metrics.detached_behind.inc();
        }
        self.context.events.report(event);
    }

    /// The read failed. Objects in sync stay so, as do terminated and refused ones; the others report the cause.
    pub(super) async fn report_unreadable(
        &self,
        objects: &[Arc<VnicAttachment>],
        error: &ReadError,
        memory: &mut InstanceMemory,
    ) {
        let cause = error.status_reason();
        // A failed list resets the count of lists in a row.
        memory.forget_absences();
        // An outage concerns ten thousand instances every two minutes: each reports it once.
        let is_repeated = memory.unreadable.replace(cause.reason) == Some(cause.reason);
        if !is_repeated {
            tracing::warn!(
                event = "instance.unreadable",
                instance = objects.first().map(|object| object.spec.instance_id.as_str()),
                error = chain(error),
                request_id = error.request_id(),
            );
        }
        let answer = match error.is_unanswered() {
            false => Answer::Given,
            true if is_repeated => Answer::MissingAgain,
            true => Answer::Missing,
        };
        for object in objects {
            if !event_diff::stays_unread(object, answer) {
                let planned_status = event_diff::last(object.status.as_ref()).failed(cause.clone());
                self.report(object, &planned_status).await;
            }
        }
    }
}

/// The status of an object after a reconcile, if it is to be written. A missing answer does not replace an answer.
pub(super) fn planned_status(object: &VnicAttachment, plan: &Plan, outcome: &Outcome) -> Option<AttachmentStatus> {
    let planned_status = plan.statuses.get(&object.name_any())?.clone();
    match outcome.failed.get(&object.name_any()) {
        Some(Failure::Cloud(cause)) if event_diff::is_no_answer(cause.reason) && event_diff::is_answered(object) => {
            None
        }
        Some(Failure::Cloud(cause) | Failure::Old(Some(cause))) => {
            Some(event_diff::refused(object.status.as_ref(), planned_status, cause.clone()))
        }
        Some(Failure::Kubernetes | Failure::Old(None)) => None,
        None => Some(planned_status),
    }
}
