//! What a failed call to the cloud means to people: a reason and words that stay the same while nothing changes.

use api::AttachmentReason as Reason;
use oci::{Error, Kind};

use super::step::Action;
use super::verdict::Said;

/// Of a request's number, the part that we chose; the service appends as much again, twice.
const REQUEST_ID: usize = 32;

/// A failure of reading or of a step.
#[must_use]
pub fn said(error: &Error, action: Option<&Action>) -> Said {
    let reason = match (error.kind(), action) {
        (Kind::Throttled, _) => Reason::Throttled,
        (Kind::Limit, _) => Reason::LimitReached,
        (Kind::Invalid | Kind::Conflict, Some(Action::CreateAddress(_, Some(_)))) => Reason::AddressTaken,
        (Kind::Busy | Kind::Conflict | Kind::Changed, _) => Reason::InstanceBusy,
        (Kind::NotFoundOrForbidden | Kind::RelatedNotFoundOrForbidden, _) => Reason::NotAuthorizedOrNotFound,
        (Kind::Login, _) => Reason::NotAuthenticated,
        (Kind::Invalid, _) => Reason::InvalidSpec,
        (Kind::Unavailable, _) => Reason::OciUnavailable,
    };
    let message = match (error.refusal(), action) {
        (Some(refusal), Some(Action::CreateAddress(_, Some(address)))) => {
            format!("{address}: {} {}", refusal.code, refusal.message)
        }
        (Some(refusal), _) => format!("{} {}: {}", refusal.status, refusal.code, refusal.message),
        // What is wrong with a login or a connection has numbers and times in it; the log has it all.
        (None, _) => reason_alone(reason).to_owned(),
    };
    let request_id = error.request_id().map(|id| id.chars().take(REQUEST_ID).collect());
    Said { reason, message, request_id }
}

/// Whether a refusal is about what one object asks for: others' requests to the same instance may well be granted.
#[must_use]
pub const fn is_its_own(reason: Reason) -> bool {
    matches!(reason, Reason::LimitReached | Reason::SubnetFull | Reason::InvalidSpec | Reason::NotAuthorizedOrNotFound)
}

const fn reason_alone(reason: Reason) -> &'static str {
    match reason {
        Reason::NotAuthenticated => "nobody could log in; the controller's log says why",
        Reason::OciUnavailable => "the cloud's API gives no answer; the controller's log says more",
        _ => "the controller's log says more",
    }
}
