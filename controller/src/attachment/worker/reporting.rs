//! The end of a reconcile: statuses are written, and news become Events.

use std::sync::Arc;

use api::{AttachmentReason, VnicAttachment, VnicAttachmentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use oci::Cloud;
use resident::logging::chain;
use tokio::time::Instant;

use super::{AttachmentWorker, Rounds};
use crate::attachment::apply::objects::Objects;
use crate::attachment::apply::{Failure, Outcome, Refusal};
use crate::attachment::observe::forgotten::is_about;
use crate::attachment::observe::observed::ReadError;
use crate::attachment::observe::pod_network::PodNetworks;
use crate::attachment::plan::Plan;
use crate::attachment::refusal;
use crate::attachment::report::attachment_status::{AttachmentStatus, StatusReason};
use crate::attachment::report::event_diff;
use crate::attachment::report::event_diff::Answer;
use crate::attachment::report::node_report;
use crate::attachment::report::status::status;
use crate::attachment::state::instance_memory::InstanceMemory;

impl<C: Cloud + 'static, O: Objects + PodNetworks> AttachmentWorker<C, O> {
    /// Writes the status and the Event, if there is one. Returns whether that succeeded.
    pub(super) async fn tell(
        &self,
        object: &VnicAttachment,
        verdict: &AttachmentStatus,
        memory: &mut InstanceMemory,
    ) -> bool {
        let verdict = &node_report::with_report(object, verdict.clone());
        let uid = object.uid().unwrap_or_default();
        let node = self.store.nodes().of(&object.spec.instance_id).map(|node| node.name.clone());
        let now = Instant::now();
        let before = memory.written(&uid, now).or(object.status.as_ref()).cloned();
        // The agent may have reported since.
        let before = before.map(|before| VnicAttachmentStatus { node: node_report::of(object).cloned(), ..before });
        let Some(status) = status(object, before.as_ref(), verdict, node.as_deref(), &Time(Timestamp::now())) else {
            return true;
        };
        let written = self.objects.write_status(object, &status).await;
        self.metrics.wrote("status", written.is_ok());
        match written {
            Ok(()) => {
                self.tell_news(object, before.as_ref(), verdict);
                memory.of(&uid).wrote(status, now);
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

    /// The status of an object after a reconcile, if it is to be written.
    pub(super) fn to_tell(
        &self,
        object: &VnicAttachment,
        rounds: &Rounds,
        memory: &InstanceMemory,
    ) -> Option<AttachmentStatus> {
        let Rounds { planned, outcome, stale, is_silent_again } = rounds;
        let verdict = planned.verdicts.get(&object.name_any())?;
        match outcome.failed.get(&object.name_any()) {
            Some(Failure::Cloud(said)) if !self.is_worth_telling(object, said, memory) => None,
            Some(Failure::Cloud(said)) => {
                Some(event_diff::refused(object.status.as_ref(), verdict.clone(), said.clone()))
            }
            // A whole reconcile did not help.
            Some(Failure::Old(Some(said))) if stale.contains(&object.name_any()) => {
                Some(event_diff::refused(object.status.as_ref(), verdict.clone(), said.clone()))
            }
            Some(Failure::Kubernetes | Failure::Old(_)) => None,
            None if self.is_left_unanswered(object, verdict, *is_silent_again, memory) => None,
            None => Some(in_line(object, verdict.clone(), planned, outcome)),
        }
    }

    /// Whether a step's failure is reported in a status: a missing answer does not replace an answer.
    pub(super) fn is_worth_telling(
        &self,
        object: &VnicAttachment,
        said: &StatusReason,
        memory: &InstanceMemory,
    ) -> bool {
        let known = memory.written(&object.uid().unwrap_or_default(), Instant::now()).or(object.status.as_ref());
        !(refusal::is_no_answer(said.reason) && event_diff::is_answered(object, known))
    }

    fn tell_news(&self, object: &VnicAttachment, before: Option<&VnicAttachmentStatus>, verdict: &AttachmentStatus) {
        let Some(news) = event_diff::of(object.object_ref(&()), before, verdict) else { return };
        if news.reason == api::Reason::as_str(AttachmentReason::DetachedOutOfBand) {
            self.metrics.detached_out_of_band();
        }
        let why = &verdict.attached.message;
        if news.reason == api::Reason::as_str(AttachmentReason::NodeGone) && is_about(why) {
            tracing::warn!(event = "instance.forgotten", object = object.name_any(), why);
            self.metrics.forgotten();
        }
        self.events.report(news);
    }

    /// The read failed. Objects in sync stay so, as do terminated, forgotten and refused ones; the others report the cause.
    pub(super) async fn tell_unreadable(
        &self,
        objects: &[Arc<VnicAttachment>],
        error: &ReadError,
        memory: &mut InstanceMemory,
    ) {
        let said = error.said();
        // A failed list resets the count of lists in a row.
        memory.forget_absences();
        // An outage concerns ten thousand instances every two minutes: each reports it once.
        let again = memory.unreadable.replace(said.reason) == Some(said.reason);
        if !again {
            tracing::warn!(
                event = "instance.unreadable",
                instance = objects.first().map(|object| object.spec.instance_id.as_str()),
                error = chain(error),
                request_id = error.request_id(),
            );
        }
        let answer = match error.is_unanswered() {
            false => Answer::Given,
            true if again => Answer::MissingAgain,
            true => Answer::Missing,
        };
        for object in objects {
            let known = memory.written(&object.uid().unwrap_or_default(), Instant::now()).or(object.status.as_ref());
            if !event_diff::stays_unread(object, known, answer) {
                let verdict = event_diff::last(known).failed(said.clone());
                self.tell(object, &verdict, memory).await;
            }
        }
    }
}

/// The status of an object that waits for its first attempt: behind which one, and why that one failed, if it did.
fn in_line(object: &VnicAttachment, said: AttachmentStatus, plan: &Plan, outcome: &Outcome) -> AttachmentStatus {
    let Some(Refusal { object: first, said: why, .. }) = &outcome.refused else { return said };
    let is_in_line = plan.in_line.contains(&object.name_any());
    if !is_in_line || said.attached.reason != AttachmentReason::InstanceBusy {
        return said;
    }
    let message = format!("queued behind {first}: {}", api::Reason::as_str(why.reason));
    AttachmentStatus { attached: StatusReason::new(AttachmentReason::InstanceBusy, message), ..said }
}
