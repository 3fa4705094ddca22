//! Which steps of an object a failed one keeps from being tried. Pure.

use api::AttachmentReason as Reason;
use vcn::Family;

use super::Failure;
use crate::attachment::plan::step::Action;
use crate::attachment::refusal::is_no_answer;

/// Whether `next` is in vain, or wrong, after `failed` did not succeed.
pub(super) fn hinders(failed: &Action, failure: &Failure, next: &Action) -> bool {
    // A change of the VNIC and each family's addresses are had without the others. All else rests on what comes before it.
    let (Some(part), Some(other)) = (Part::of(failed), Part::of(next)) else { return true };
    match failure {
        // Who does not answer this does not answer that.
        Failure::Kubernetes => true,
        Failure::Cloud(said) if is_no_answer(said.reason) => true,
        // That one address is somebody else's says nothing of another.
        Failure::Cloud(said) if said.reason == Reason::AddressTaken => false,
        // The same limit, or the same policy that is missing.
        Failure::Cloud(_) | Failure::Old(_) => part == other,
    }
}

/// What of a VNIC that is there.
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
    fn what_stands_alone_is_tried_and_what_is_in_vain_is_not() {
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
