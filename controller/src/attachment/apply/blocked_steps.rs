//! Which steps of an object are skipped after a failed one. Pure.

use api::AttachmentReason as Reason;
use vcn::Family;

use super::Failure;
use crate::attachment::report::event_diff::is_no_answer;
use crate::attachment::step::Action;

/// Whether `next` would fail or be wrong after `failed`.
pub(super) fn hinders(failed: &Action, failure: &Failure, next: &Action) -> bool {
    // A change of the VNIC and each family's addresses are independent. Everything else depends on the previous step.
    let (Some(part), Some(other)) = (Part::of(failed), Part::of(next)) else { return true };
    match failure {
        // Without an answer to this, there will be none to that.
        Failure::Kubernetes => true,
        Failure::Cloud(cause) if is_no_answer(cause.reason) => true,
        // One address in use elsewhere says nothing about another.
        Failure::Cloud(cause) if cause.reason == Reason::AddressTaken => false,
        // The same limit, or the same missing policy.
        Failure::Cloud(_) | Failure::Old(_) => part == other,
    }
}

/// The independent parts of an attached VNIC.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Itself,
    More(Family),
    Less(Family),
}

impl Part {
    const fn of(action: &Action) -> Option<Self> {
        match action {
            Action::Update(..) => Some(Self::Itself),
            Action::CreateAddress(new, _) | Action::CreateAddresses(new, _) => Some(Self::More(new.family)),
            Action::DeleteAddress { family, .. } => Some(Self::Less(*family)),
            Action::AddFinalizer
            | Action::RemoveFinalizer
            | Action::Attach(..)
            | Action::Detach(_)
            | Action::Disown(..) => None,
        }
    }
}
