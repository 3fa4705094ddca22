//! Each piece of evidence, each clock, and the messages.

use api::ConditionType;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

const RESYNC: Duration = Duration::from_mins(5);
const NOW: i64 = 1_000_000;
const DAY: i64 = 24 * 60 * 60;

fn whole() -> Evidence {
    let witness = "ocid1.vnic.oc1.iad.other".parse().ok();
    Evidence { no_node: true, no_vnic: true, subnet: true, compartments: Some(2), unlisted: true, witness }
}

fn told(reason: Reason, second: i64) -> Condition {
    Condition::new(ConditionType::Attached, reason, "", Time(Timestamp::from_second(second).unwrap()))
}

fn known(since: Duration) -> Result<EvidenceSummary, EvidenceGap> {
    Ok(EvidenceSummary { since, compartments: 2 })
}

fn after(told: &Condition, known: Result<EvidenceSummary, EvidenceGap>) -> Reason {
    said(Some(told), known, Clock { now: Timestamp::from_second(NOW).unwrap(), resync: RESYNC }).0
}

#[test]
fn each_piece_of_evidence_is_needed() {
    assert_eq!(whole().judge(), Ok(2));
    let without = [
        (Evidence { no_node: false, ..whole() }, EvidenceGap::Node),
        (Evidence { no_vnic: false, ..whole() }, EvidenceGap::Vnic),
        (Evidence { subnet: false, ..whole() }, EvidenceGap::Subnet),
        (Evidence { compartments: None, ..whole() }, EvidenceGap::NotListed),
        (Evidence { unlisted: false, ..whole() }, EvidenceGap::Listed),
        (Evidence { witness: None, ..whole() }, EvidenceGap::NoWitness),
    ];
    for (evidence, doubt) in without {
        assert_eq!(evidence.judge(), Err(doubt));
    }
    assert_eq!(Evidence::default().judge(), Err(EvidenceGap::Node), "missing evidence is a doubt");
}

#[test]
fn a_day_and_an_hour_in_one_process_are_needed() {
    let hour = RESYNC * LOOKS;
    let forgotten = |second| told(Reason::InstanceForgotten, second);
    assert_eq!(after(&forgotten(NOW - DAY), known(hour)), Reason::NodeGone);
    assert_eq!(after(&forgotten(NOW - DAY + 1), known(hour)), Reason::InstanceForgotten);
    assert_eq!(
        after(&forgotten(NOW - DAY), known(hour - Duration::from_secs(1))),
        Reason::InstanceForgotten,
        "a clock set"
    );
    assert_eq!(after(&forgotten(NOW + DAY), known(hour)), Reason::InstanceForgotten, "a clock set back");
}

#[test]
fn the_day_restarts_after_a_doubt() {
    let long = RESYNC * 1000;
    for (before, said) in [
        (Reason::Attached, Reason::NotAuthorizedOrNotFound),
        (Reason::Attaching, Reason::NotAuthorizedOrNotFound),
        (Reason::NotAuthorizedOrNotFound, Reason::InstanceForgotten),
    ] {
        assert_eq!(after(&told(before, 0), known(long)), said, "however old that status is");
    }
    let doubt = after(&told(Reason::InstanceForgotten, 0), Err(EvidenceGap::NotListed));
    assert_eq!(
        doubt,
        Reason::NotAuthorizedOrNotFound,
        "which is another status: the time of the transition is a new one"
    );
    use api::Reason as _;
    assert_ne!(Reason::NotAuthorizedOrNotFound.status(), Reason::InstanceForgotten.status());
}

#[test]
fn the_message_fits_an_object() {
    for known in [known(RESYNC * LOOKS), Err(EvidenceGap::NoWitness), Err(EvidenceGap::NotLooked)] {
        for before in [Reason::InstanceForgotten, Reason::NotAuthorizedOrNotFound] {
            let clock = Clock { now: Timestamp::from_second(NOW).unwrap(), resync: RESYNC };
            let (_, message) = said(Some(&told(before, 0)), known, clock);
            assert!(message.len() <= api::condition::MESSAGE_MAX, "{} {message}", message.len());
        }
    }
}
