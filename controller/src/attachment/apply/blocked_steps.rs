//! Which steps of an object are skipped after a failed one. Pure.

use api::AttachmentReason as Reason;
use vcn::Family;

use super::Failure;
use crate::attachment::plan::step::Action;
use crate::attachment::refusal::is_no_answer;

/// Whether `next` would fail or be wrong after `failed`.
pub(super) fn hinders(failed: &Action, failure: &Failure, next: &Action) -> bool {
    // A change of the VNIC and each family's addresses are independent. Everything else depends on the previous step.
    let (Some(part), Some(other)) = (Part::of(failed), Part::of(next)) else { return true };
    match failure {
        // Without an answer to this, there will be none to that.
        Failure::Kubernetes => true,
        Failure::Cloud(said) if is_no_answer(said.reason) => true,
        // One address in use elsewhere says nothing about another.
        Failure::Cloud(said) if said.reason == Reason::AddressTaken => false,
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use oci::{FreeformTags, RetryToken};

    use super::*;
    use crate::attachment::plan::step::{NewAddress, VnicVersion};
    use crate::attachment::report::attachment_status::StatusReason;

    fn vnic() -> vcn::Ocid {
        "ocid1.vnic.oc1.iad.v".parse().unwrap()
    }

    fn new(family: Family) -> NewAddress {
        NewAddress {
            vnic: vnic(),
            family,
            block: None,
            tags: FreeformTags::default(),
            token: RetryToken::derive(&["x"]),
        }
    }

    #[test]
    fn only_independent_steps_are_tried_after_a_failure() {
        let named: IpAddr = "10.0.0.7".parse().unwrap();
        let version = VnicVersion { id: vnic(), etag: None };
        let update = Action::Update(version, Box::default());
        let release = Action::DeleteAddress { family: Family::Ipv4, id: vnic(), address: named };
        let taken = Action::CreateAddress(new(Family::Ipv4), Some(named));
        let any = Action::CreateAddress(new(Family::Ipv4), None);
        let several = Action::CreateAddresses(new(Family::Ipv4), 9);
        let ipv6 = Action::CreateAddresses(new(Family::Ipv6), 2);
        let all = [&update, &release, &taken, &any, &several, &ipv6];
        let hindered = |failed: &Action, failure: Failure| all.map(|next| hinders(failed, &failure, next));
        let refused = |reason| Failure::Cloud(StatusReason::new(reason, ""));
        for (failed, failure, expected) in [
            (&update, refused(Reason::NotAuthorizedOrNotFound), [true, false, false, false, false, false]),
            (&update, Failure::Old(None), [true, false, false, false, false, false]),
            (&release, refused(Reason::InstanceBusy), [false, true, false, false, false, false]),
            (&taken, refused(Reason::AddressTaken), [false; 6]),
            (&taken, refused(Reason::LimitReached), [false, false, true, true, true, false]),
            (&any, refused(Reason::SubnetFull), [false, false, true, true, true, false]),
            (&ipv6, refused(Reason::InvalidSpec), [false, false, false, false, false, true]),
            (&update, refused(Reason::OciUnavailable), [true; 6]),
            (&taken, refused(Reason::Throttled), [true; 6]),
            (&release, refused(Reason::NotAuthenticated), [true; 6]),
            (&Action::AddFinalizer, Failure::Kubernetes, [true; 6]),
        ] {
            assert_eq!(hindered(failed, failure.clone()), expected, "{failed:?} {failure:?}");
        }
        let old = Failure::Old(None);
        assert!(hinders(&Action::Detach(vnic()), &old, &Action::RemoveFinalizer), "there would be no proof");
    }
}
