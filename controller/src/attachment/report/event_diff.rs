//! Which part of a new status becomes an Event, compared with the previous status.

use api::AttachmentReason as Reason;
use api::condition::{Condition, ConditionType, find};
use api::{ConditionStatus, Reason as _, VnicAttachment, VnicAttachmentStatus};
use kube::Resource;

use crate::attachment::report::attachment_status::{AttachmentStatus, Facts, StatusReason};
use crate::cluster::events::{EventContent, Level};
use crate::cluster::stamp::profile_of;

/// The Event: a reason that was not reported before.
pub(crate) fn of(object: &VnicAttachment, planned_status: &AttachmentStatus) -> Option<EventContent> {
    let cause = planned_status.ready.as_ref().unwrap_or(&planned_status.attached);
    if condition(object, ConditionType::Ready).is_some_and(|before| before.reason == cause.reason.as_str()) {
        return None;
    }
    Some(EventContent {
        regarding: object.object_ref(&()),
        level: level(cause.reason),
        reason: cause.reason.as_str(),
        action: "Attach",
        note: note(cause, profile_of(object)),
    })
}

/// Whether an object matched its spec, in its present generation.
pub(crate) fn is_settled(object: &VnicAttachment) -> bool {
    // The latter: in the cloud it is in sync.
    let is_ready = reason_now(object).is_some_and(|reason| matches!(reason, Reason::Ready | Reason::NotConfigured));
    is_ready && object.metadata.deletion_timestamp.is_none()
}

/// Whether an object's VNIC matched its spec in its present generation, missing or superfluous addresses apart.
pub(in crate::attachment) fn is_vnic_in_sync(object: &VnicAttachment) -> bool {
    let lacks_addresses = |reason| {
        use Reason::{AddressTaken, AddressesPending, InUse, LimitReached, SubnetFull};
        matches!(reason, AddressesPending | AddressTaken | SubnetFull | LimitReached | InUse)
    };
    is_settled(object) || reason_now(object).is_some_and(lacks_addresses)
}

/// Whether an object was tried in its present generation and its status has the cause of the failure: nothing is in progress.
pub(crate) fn is_tried(object: &VnicAttachment) -> bool {
    reason_now(object).is_some_and(|reason| match reason {
        Reason::Attached
        | Reason::Ready
        | Reason::NoRoutes
        | Reason::PrivateIpIgnored
        | Reason::Configured
        | Reason::NotReported
        | Reason::Pending => false,
        // In progress, or next after another operation.
        Reason::Attaching | Reason::InstanceBusy | Reason::Detaching | Reason::DetachedOutOfBand => false,
        Reason::AddressesPending | Reason::ChangePending => false,
        // OKE finishes in a minute or two.
        Reason::PodNetworkPending => false,
        Reason::AttachFailed | Reason::DetachFailed | Reason::InUse | Reason::NotConfigured => true,
        Reason::PodNetworkUnknown | Reason::PodNetworkUnanswered | Reason::UsedByPods => true,
        Reason::ShapeCapacity | Reason::LimitReached | Reason::SubnetFull | Reason::AddressTaken => true,
        Reason::InvalidSpec | Reason::NameTaken | Reason::NodeGone => true,
        Reason::Forbidden | Reason::NotAuthorizedOrNotFound | Reason::NotAuthenticated => true,
        Reason::Throttled | Reason::OciUnavailable => true,
    })
}

/// Whether the instance was seen TERMINATED, which is final.
pub(crate) fn is_gone(object: &VnicAttachment) -> bool {
    let attached = condition(object, ConditionType::Attached);
    attached.is_some_and(|attached| Reason::from_word(&attached.reason) == Some(Reason::NodeGone))
}

/// How much an answer of OCI reveals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Something about the object.
    Given,
    /// Nothing: there was none, or a 429.
    Missing,
    /// Nothing, for the same cause as before.
    MissingAgain,
}

/// Whether a status stays as it is after a failed read. A missing answer does not replace an answer, and replaces progress
/// only when it happens twice: otherwise it would be written and reverted at the next reconcile.
pub(crate) fn stays_unread(object: &VnicAttachment, answer: Answer) -> bool {
    let stays = match answer {
        Answer::Given => false,
        Answer::Missing => reason_now(object).is_some_and(|reason| reason.status() != ConditionStatus::True),
        Answer::MissingAgain => is_answered(object),
    };
    is_settled(object) || is_gone(object) || stays
}

/// Whether the answer was not about the request: OCI was busy, unavailable, or refused the login; or the API server was.
pub(crate) const fn is_no_answer(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::Throttled | Reason::OciUnavailable | Reason::NotAuthenticated | Reason::PodNetworkUnanswered
    )
}

/// Whether an object's status has an answer of OCI or OKE that blocks it, in its present generation.
pub(crate) fn is_answered(object: &VnicAttachment) -> bool {
    reason_now(object).is_some_and(|reason| {
        let is_known = reason == Reason::PodNetworkPending || is_tried(object);
        is_known && !is_no_answer(reason)
    })
}

/// The reason of Ready, in the object's present generation.
fn reason_now(object: &VnicAttachment) -> Option<Reason> {
    let is_current = object.status.as_ref()?.observed_generation == object.metadata.generation;
    let reported = condition(object, ConditionType::Ready).filter(|_| is_current);
    reported.and_then(|ready| Reason::from_word(&ready.reason)).map(Reason::planned)
}

/// A condition in the status.
pub(crate) fn condition(object: &VnicAttachment, kind: ConditionType) -> Option<&Condition> {
    find(&object.status.as_ref()?.conditions, kind)
}

/// The planned status that a written one represents, to add a failure to.
pub(crate) fn last(status: Option<&VnicAttachmentStatus>) -> AttachmentStatus {
    let conditions = status.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let attached = find(conditions, ConditionType::Attached).filter(|attached| attached.is_true());
    let attached = match attached {
        Some(attached) => StatusReason::new(Reason::Attached, attached.message.clone()),
        None => StatusReason::new(Reason::Pending, ""),
    };
    AttachmentStatus { attached, ready: None, facts: facts(status) }
}

/// A planned status with a failure. A detach by another program is reported first, with the cause that blocks the repair.
pub(crate) fn refused(
    reported: Option<&VnicAttachmentStatus>,
    planned_status: AttachmentStatus,
    cause: StatusReason,
) -> AttachmentStatus {
    let reason = Reason::DetachedOutOfBand;
    let before = reported.and_then(|reported| find(&reported.conditions, ConditionType::Attached));
    let is_reported = before.is_some_and(|before| before.reason == reason.as_str());
    if planned_status.attached.reason != reason || is_reported {
        return planned_status.failed(cause);
    }
    let message = format!("the VNIC was detached outside the controller; a new one is refused: {}", cause.message);
    AttachmentStatus { attached: StatusReason { reason, message, ..cause }, ..planned_status }
}

fn facts(status: Option<&VnicAttachmentStatus>) -> Facts {
    let VnicAttachmentStatus { vnic_id, own_addresses, pod_addresses, .. } = status.cloned().unwrap_or_default();
    Facts { vnic_id, own_addresses, pod_addresses }
}

fn level(reason: Reason) -> Level {
    match reason {
        // In progress.
        Reason::Attaching | Reason::Detaching | Reason::AddressesPending | Reason::ChangePending => Level::Normal,
        Reason::InstanceBusy | Reason::PodNetworkPending | Reason::NotReported => Level::Normal,
        reason if reason.status() == ConditionStatus::True => Level::Normal,
        _ => Level::Warning,
    }
}

/// Whether the next step changes the object's spec.
const fn is_of_spec(reason: Reason) -> bool {
    use Reason::{AddressTaken, InvalidSpec, LimitReached, NameTaken, ShapeCapacity, SubnetFull};
    matches!(reason, AddressTaken | InvalidSpec | LimitReached | NameTaken | ShapeCapacity | SubnetFull)
}

fn note(cause: &StatusReason, profile: Option<&str>) -> String {
    let id = cause.request_id.as_ref().map_or_else(String::new, |id| format!(" (opc-request-id {id})"));
    let message = format!("{}{id}.", cause.message.trim_end_matches('.'));
    // Nothing is to be done about what is as requested.
    if cause.reason.status() == ConditionStatus::True {
        return message;
    }
    let next = format!("{message} {}", cause.reason.to_do());
    match profile {
        Some(profile) if is_of_spec(cause.reason) => {
            format!(
                "{next} The object belongs to VnicProfile {profile}: change spec.attachments of the profile, because the controller reverts changes of the object."
            )
        }
        _ => next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_says_what_helps() {
        let of = |reason, profile| note(&StatusReason::new(reason, "the message"), profile);
        assert_eq!(of(Reason::Ready, None), "the message.");
        assert!(of(Reason::LimitReached, None).contains(" Request a higher limit, or lower ipv4Count and ipv6Count."));
        let of_profile = of(Reason::LimitReached, Some("storage"));
        assert!(of_profile.contains("VnicProfile storage: change spec.attachments of the profile"), "{of_profile}");
        assert!(!of(Reason::Throttled, Some("storage")).contains("VnicProfile"));
    }
}
