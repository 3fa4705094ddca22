//! Which part of a new status becomes an Event, compared with the previous status.

use api::AttachmentReason as Reason;
use api::condition::{ConditionType, find};
use api::{ConditionStatus, Reason as _, VnicAttachment, VnicAttachmentStatus};
use k8s_openapi::api::core::v1::ObjectReference;

use crate::attachment::observe::forgotten::is_about;
use crate::attachment::refusal;
use crate::attachment::report::attachment_status::{AttachmentStatus, Facts, StatusReason};
use crate::cluster::events::{EventContent, Level};

/// The Event: a reason that was not reported before.
#[must_use]
pub fn of(
    regarding: ObjectReference,
    before: Option<&VnicAttachmentStatus>,
    verdict: &AttachmentStatus,
) -> Option<EventContent> {
    let said = verdict.ready.as_ref().unwrap_or(&verdict.attached);
    let conditions = before.map(|status| status.conditions.as_slice()).unwrap_or_default();
    if find(conditions, ConditionType::Ready).is_some_and(|before| before.reason == said.reason.as_str()) {
        return None;
    }
    Some(EventContent {
        regarding,
        level: level(said.reason),
        reason: said.reason.as_str(),
        action: "Attach",
        note: note(said),
    })
}

/// Whether an object matched its spec, in its present generation.
#[must_use]
pub fn is_settled(object: &VnicAttachment, status: Option<&VnicAttachmentStatus>) -> bool {
    object.metadata.deletion_timestamp.is_none()
        && status.is_some_and(|status| {
            status.observed_generation == object.metadata.generation
                && find(&status.conditions, ConditionType::Ready).is_some_and(|ready| {
                    // In the cloud it is as asked.
                    ready.is_true() || ready.reason == Reason::NotConfigured.as_str()
                })
        })
}

/// Whether an object was tried in its present generation and its status has the cause of the failure: nothing is in progress.
#[must_use]
pub fn is_tried(object: &VnicAttachment, status: Option<&VnicAttachmentStatus>) -> bool {
    told_now(object, status).is_some_and(|reason| match reason {
        Reason::Attached | Reason::Ready | Reason::Configured | Reason::NotReported | Reason::Pending => false,
        // In progress, or next after another operation.
        Reason::Attaching | Reason::InstanceBusy | Reason::Detaching | Reason::DetachedOutOfBand => false,
        Reason::AddressesPending | Reason::ChangePending => false,
        // OKE finishes in a minute or two.
        Reason::PodNetworkPending => false,
        Reason::AttachFailed | Reason::DetachFailed | Reason::InUse | Reason::NotConfigured => true,
        Reason::PodNetworkUnknown | Reason::PodNetworkUnanswered | Reason::UsedByPods => true,
        Reason::ShapeCapacity | Reason::LimitReached | Reason::SubnetFull | Reason::AddressTaken => true,
        Reason::InvalidSpec | Reason::NameTaken | Reason::NodeGone | Reason::InstanceForgotten => true,
        Reason::Forbidden | Reason::NotAuthorizedOrNotFound | Reason::NotAuthenticated => true,
        Reason::Throttled | Reason::OciUnavailable => true,
    })
}

/// Whether the instance was seen TERMINATED, which is final.
#[must_use]
pub fn is_gone(status: Option<&VnicAttachmentStatus>) -> bool {
    let attached = status.and_then(|status| find(&status.conditions, ConditionType::Attached));
    attached.is_some_and(|attached| Reason::from_word(&attached.reason) == Some(Reason::NodeGone))
}

/// How much an answer of OCI reveals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Something about the object.
    Given,
    /// Nothing: there was none, or a 429.
    Missing,
    /// Nothing, for the same cause as before.
    MissingAgain,
}

/// Whether a status stays as it is after a failed read. A missing answer does not replace an answer, and replaces progress
/// only when it happens twice: otherwise it would be written and reverted at the next reconcile.
#[must_use]
pub fn stays_unread(object: &VnicAttachment, status: Option<&VnicAttachmentStatus>, answer: Answer) -> bool {
    let stays = match answer {
        Answer::Given => false,
        Answer::Missing => is_told_of_now(object, status),
        Answer::MissingAgain => is_answered(object, status),
    };
    let attached = status.and_then(|status| find(&status.conditions, ConditionType::Attached));
    let is_forgotten =
        attached.is_some_and(|attached| Reason::from_word(&attached.reason) == Some(Reason::InstanceForgotten));
    is_settled(object, status) || is_gone(status) || stays || (answer != Answer::Given && is_forgotten)
}

/// Whether an object's status has an answer of OCI or OKE that blocks it, in its present generation.
#[must_use]
pub fn is_answered(object: &VnicAttachment, status: Option<&VnicAttachmentStatus>) -> bool {
    told_now(object, status).is_some_and(|reason| {
        let is_known = reason == Reason::PodNetworkPending || is_tried(object, status);
        is_known && !refusal::is_no_answer(reason)
    })
}

/// Whether the status of an object reports a problem in its present generation.
fn is_told_of_now(object: &VnicAttachment, status: Option<&VnicAttachmentStatus>) -> bool {
    told_now(object, status).is_some_and(|reason| reason.status() != ConditionStatus::True)
}

/// The reason of Ready, in the object's present generation.
fn told_now(object: &VnicAttachment, status: Option<&VnicAttachmentStatus>) -> Option<Reason> {
    let status = status.filter(|status| status.observed_generation == object.metadata.generation);
    let ready = status.and_then(|status| find(&status.conditions, ConditionType::Ready));
    ready.and_then(|ready| Reason::from_word(&ready.reason))
}

/// Whether its end was seen, and not inferred because OCI forgot it.
#[must_use]
pub fn was_seen_terminated(status: Option<&VnicAttachmentStatus>) -> bool {
    let mut conditions = status.into_iter().flat_map(|status| &status.conditions);
    is_gone(status) && !conditions.any(|condition| is_about(&condition.message))
}

/// The planned status that a written one represents, to add a failure to.
#[must_use]
pub fn last(status: Option<&VnicAttachmentStatus>) -> AttachmentStatus {
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let attached = find(conditions, ConditionType::Attached).filter(|attached| attached.is_true());
    let attached = match attached {
        Some(attached) => StatusReason::new(Reason::Attached, attached.message.clone()),
        None => StatusReason::new(Reason::Pending, ""),
    };
    AttachmentStatus { attached, ready: None, facts: facts(status) }
}

/// A planned status with a failure. A detach by another program is reported first, with the cause that blocks the repair.
#[must_use]
pub fn refused(told: Option<&VnicAttachmentStatus>, verdict: AttachmentStatus, said: StatusReason) -> AttachmentStatus {
    let reason = Reason::DetachedOutOfBand;
    let before = told.and_then(|told| find(&told.conditions, ConditionType::Attached));
    let is_told = before.is_some_and(|before| before.reason == reason.as_str());
    if verdict.attached.reason != reason || is_told {
        return verdict.failed(said);
    }
    let message = format!("the VNIC was detached outside the controller; a new one is refused: {}", said.message);
    AttachmentStatus { attached: StatusReason { reason, message, ..said }, ..verdict }
}

fn facts(status: Option<&VnicAttachmentStatus>) -> Facts {
    let VnicAttachmentStatus { vnic_id, own_addresses, pod_addresses, .. } = status.cloned().unwrap_or_default();
    Facts { vnic_id, own_addresses, pod_addresses, ..Facts::default() }
}

fn level(reason: Reason) -> Level {
    match reason {
        // In progress.
        Reason::Attaching | Reason::Detaching | Reason::AddressesPending | Reason::ChangePending => Level::Normal,
        Reason::InstanceBusy | Reason::PodNetworkPending => Level::Normal,
        reason if reason.status() == ConditionStatus::True => Level::Normal,
        _ => Level::Warning,
    }
}

fn note(said: &StatusReason) -> String {
    let id = said.request_id.as_ref().map_or_else(String::new, |id| format!(" (opc-request-id {id})"));
    format!("{}{id}. {}", said.message.trim_end_matches('.'), said.reason.to_do())
}
