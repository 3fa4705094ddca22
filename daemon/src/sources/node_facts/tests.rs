//! What is kept, and for how long.

use imds::VnicList;
use vcn::SubnetAddressing;

use super::*;
use crate::fixture::{self, vm_vnics};

const GRACE: Duration = Duration::from_secs(30);

fn listed(vnics: Vec<Vnic>) -> Result<VnicList, String> {
    Ok(vnics.into())
}

fn ids(facts: &NodeFacts) -> Vec<&str> {
    facts.vnics().iter().map(|vnic| vnic.id.unique_id()).collect()
}

#[test]
fn the_last_good_answer_stays_when_the_service_fails_and_ages() {
    let (mut facts, start) = (NodeFacts::default(), Instant::now());
    facts.absorb_vnics(listed(vm_vnics()), GRACE, start, |_| false);
    let later = start + Duration::from_secs(100);
    facts.absorb_vnics(Err("status 503".into()), GRACE, later, |_| false);
    assert_eq!(facts.vnics(), vm_vnics());
    assert_eq!(facts.vnics.age(later), Some(Duration::from_secs(100)));
    assert_eq!(facts.vnics.error.as_deref(), Some("status 503"));
}

#[test]
fn a_vnic_no_longer_listed_goes_after_the_grace_and_not_before() {
    let (mut facts, start) = (NodeFacts::default(), Instant::now());
    let alone = vm_vnics()[..1].to_vec();
    facts.absorb_vnics(listed(vm_vnics()), GRACE, start, |_| false);
    facts.absorb_vnics(listed(alone.clone()), GRACE, start + Duration::from_secs(10), |_| false);
    assert_eq!(ids(&facts), ["primary", "pods"]);
    facts.absorb_vnics(listed(alone.clone()), GRACE, start + Duration::from_secs(39), |_| false);
    assert_eq!(ids(&facts), ["primary", "pods"]);
    assert!(!facts.is_settled());
    facts.absorb_vnics(listed(alone), GRACE, start + Duration::from_secs(40), |_| false);
    assert_eq!(ids(&facts), ["primary"]);
}

#[test]
fn a_vnic_no_longer_listed_stays_while_it_is_held_and_is_told() {
    let (mut facts, start) = (NodeFacts::default(), Instant::now());
    let alone = || Ok(vm_vnics()[..1].to_vec());
    facts.absorb_vnics(listed(vm_vnics()), GRACE, start, |_| true);
    facts.absorb_vnics(alone().map(VnicList::from), GRACE, start, |_| true);
    assert_eq!((ids(&facts), facts.held().count()), (vec!["primary", "pods"], 0), "in its grace");
    let before = facts.clone();
    facts.absorb_vnics(alone().map(VnicList::from), GRACE, start + GRACE, |_| true);
    assert_eq!((ids(&facts), facts.held().count()), (vec!["primary", "pods"], 1));
    assert!(!facts.says_the_same(&before), "it is news");
    let mut listed_again = facts.clone();
    listed_again.absorb_vnics(listed(vm_vnics()), GRACE, start + 2 * GRACE, |_| true);
    assert_eq!((ids(&listed_again), listed_again.held().count()), (vec!["primary", "pods"], 0));
    facts.absorb_vnics(alone().map(VnicList::from), GRACE, start + 2 * GRACE, |_| false);
    assert_eq!((ids(&facts), facts.held().count()), (vec!["primary"], 0), "its device went, too");
}

#[test]
fn a_vnic_whose_entry_cannot_be_used_stays_as_it_was_known_and_nothing_is_made_of_one_never_known() {
    let (mut facts, start) = (NodeFacts::default(), Instant::now());
    facts.absorb_vnics(listed(vm_vnics()), GRACE, start, |_| false);
    let before = facts.clone();
    let entry = |place, id: &Ocid| Unusable { place, id: Some(id.clone()), reason: "a field is missing".into() };
    let unusable = vec![entry(1, &vm_vnics()[1].id), entry(2, &fixture::vnic("new", 0x0c, "10.0.34").id)];
    for second in [10, 4000] {
        let list = VnicList { vnics: vm_vnics()[..1].to_vec(), unusable: unusable.clone() };
        facts.absorb_vnics(Ok(list), GRACE, start + Duration::from_secs(second), |_| false);
    }
    assert_eq!(facts.vnics(), vm_vnics());
    assert_eq!(facts.held().count(), 0, "it is listed");
    assert!(!facts.says_the_same(&before) && !facts.is_settled());
    facts.absorb_vnics(listed(vm_vnics()), GRACE, start + 200 * GRACE, |_| false);
    assert!(facts.says_the_same(&before));
}

#[test]
fn what_an_agent_before_knew_counts_with_its_age_until_the_first_list() {
    let (alone, now) = (vm_vnics()[..1].to_vec(), Instant::now());
    let minute = Duration::from_secs(60);
    let recalling = || NodeFacts::recall(Some(fixture::instance()), vm_vnics(), minute, now);
    let mut facts = recalling();
    facts.absorb_vnics(Err("status 503".into()), GRACE, now, |_| false);
    assert_eq!((ids(&facts), facts.primary()), (vec!["primary", "pods"], Some(&vm_vnics()[0].id)));
    assert_eq!((facts.vnics.age(now), facts.instance.age(now)), (Some(minute), Some(minute)));
    assert_eq!(facts.vnics.error.as_deref(), Some("status 503"));
    assert!(facts.is_recalled() && facts.instance.error.is_some());
    let changed = vec![vm_vnics()[0].clone(), Vnic { mac: fixture::mac(0x55), ..vm_vnics()[1].clone() }];
    for (list, held, left) in
        [(alone.clone(), false, alone.clone()), (alone.clone(), true, vm_vnics()), (changed.clone(), true, changed)]
    {
        let mut facts = recalling();
        facts.absorb_vnics(listed(list), GRACE, now, |_| held);
        assert_eq!((facts.vnics(), facts.is_recalled()), (&left[..], false));
        assert_eq!(facts.vnics.age(now), Some(Duration::ZERO));
    }
    let mut facts = recalling();
    facts.absorb_vnics(listed(alone.clone()), GRACE, now, |_| false);
    facts.absorb_vnics(listed(alone), GRACE, now, |_| true);
    assert_eq!(ids(&facts), ["primary", "pods"], "its device came late");
}

#[test]
fn no_other_vnic_becomes_the_primary_one_whatever_is_listed() {
    let (mut facts, start) = (NodeFacts::default(), Instant::now());
    facts.absorb_vnics(listed(vm_vnics()), GRACE, start, |_| false);
    let without = vm_vnics()[1..].to_vec();
    for after in [1, 40, 4000] {
        facts.absorb_vnics(listed(without.clone()), GRACE, start + Duration::from_secs(after), |_| false);
        assert_eq!(ids(&facts), ["primary", "pods"]);
    }
    let turned = vm_vnics().into_iter().rev().collect();
    facts.absorb_vnics(listed(turned), GRACE, start + Duration::from_secs(5000), |_| false);
    assert_eq!(ids(&facts), ["primary", "pods"]);
    assert!(facts.missing.is_empty());
}

#[test]
fn a_vnic_listed_again_has_its_full_grace_again() {
    let (mut facts, start) = (NodeFacts::default(), Instant::now());
    let alone = vm_vnics()[..1].to_vec();
    facts.absorb_vnics(listed(vm_vnics()), GRACE, start, |_| false);
    facts.absorb_vnics(listed(alone.clone()), GRACE, start, |_| false);
    facts.absorb_vnics(listed(vm_vnics()), GRACE, start + Duration::from_secs(29), |_| false);
    facts.absorb_vnics(listed(alone), GRACE, start + Duration::from_secs(31), |_| false);
    assert_eq!(ids(&facts), ["primary", "pods"]);
}

#[test]
fn a_world_settles_when_the_native_pod_network_is_made_and_its_vnics_are_listed() {
    let (mut facts, now) = (NodeFacts::default(), Instant::now());
    facts.instance.absorb(Ok(fixture::instance()), now);
    facts.absorb_vnics(listed(vm_vnics()), GRACE, now, |_| false);
    facts.npn.absorb(Ok(None), now);
    assert!(!facts.is_settled());
    facts.npn.absorb(Ok(Some(fixture::npn("BACKOFF"))), now);
    assert!(!facts.is_settled());
    facts.npn.absorb(Ok(Some(fixture::npn("SUCCESS"))), now);
    assert!(facts.is_settled());
    facts.npn.absorb(Err("gone".into()), now);
    assert!(!facts.is_settled());
}

/// The VNICs, the second with another own IPv4 address.
fn with_own(address: &str) -> Vec<Vnic> {
    let mut vnics = vm_vnics();
    vnics[1].addressing.ipv4.as_mut().unwrap().address = address.parse().unwrap();
    vnics
}

#[test]
fn a_refused_own_address_is_no_vnics_whether_it_is_new_known_or_remembered() {
    let (start, foul) = (Instant::now(), with_own("169.254.169.254"));
    let ipv4 = |facts: &NodeFacts| facts.vnics()[1].addressing.ipv4.as_ref().map(|at| at.address.to_string());
    let mut facts = NodeFacts::default();
    facts.absorb_vnics(listed(foul.clone()), GRACE, start, |_| true);
    assert_eq!((ipv4(&facts), facts.refused.len()), (None, 1));
    let mut facts = NodeFacts::default();
    facts.absorb_vnics(listed(vm_vnics()), GRACE, start, |_| false);
    let whole = facts.clone();
    facts.absorb_vnics(listed(foul.clone()), GRACE, start, |_| false);
    assert_eq!(ipv4(&facts).as_deref(), Some("10.0.33.7"), "pods live by what was known");
    assert!(!facts.says_the_same(&whole), "it is news");
    facts.absorb_vnics(listed(vm_vnics()), GRACE, start, |_| false);
    assert!(facts.says_the_same(&whole));
    // As an older agent kept it.
    assert_eq!(ipv4(&NodeFacts::recall(None, foul.clone(), GRACE, start)), None);
}

#[test]
fn a_native_pod_network_is_admitted_without_refused_addresses() {
    let mut facts = NodeFacts::default();
    facts.absorb_vnics(listed(vm_vnics()), GRACE, Instant::now(), |_| false);
    let mut npn = fixture::npn("SUCCESS");
    facts.npn.absorb(Ok(Some(npn.clone())), Instant::now());
    assert_eq!((facts.admitted().0.npn(), facts.admitted().1.len()), (Some(&npn), 0));
    npn.vnics[0].addressing.ipv4.as_mut().unwrap().pods.push("169.254.169.254/32".parse().unwrap());
    facts.npn.absorb(Ok(Some(npn)), Instant::now());
    let (admitted, refused) = facts.admitted();
    assert_eq!((admitted.npn(), refused.len()), (Some(&fixture::npn("SUCCESS")), 1));
    assert_eq!(admitted.vnics(), facts.vnics());
}

#[test]
fn vnics_kept_for_application_resources_are_a_signal() {
    let (mut facts, mut npn) = (NodeFacts::default(), fixture::npn("SUCCESS"));
    let says = |facts: &NodeFacts| facts.signals(&Signals::default()).application_resources;
    facts.npn.absorb(Ok(Some(npn.clone())), Instant::now());
    assert_eq!(says(&facts), Seen::Unknown);
    npn.vnics[0].application_resources.push("storage".into());
    facts.npn.absorb(Ok(Some(npn)), Instant::now());
    assert_eq!(says(&facts), Seen::Present);
}

#[test]
fn signals_come_from_metadata_and_native_pod_network() {
    let mut facts = NodeFacts::default();
    let signals = |facts: &NodeFacts| facts.signals(&Signals::default());
    assert_eq!(signals(&facts), Signals::default());
    facts.npn.absorb(Ok(None), Instant::now());
    facts.instance.absorb(Ok(fixture::instance()), Instant::now());
    assert_eq!(signals(&facts).native_pod_network, Seen::Absent);
    assert_eq!(signals(&facts).instance_metadata.as_deref(), Some("true"));
}

#[test]
fn okes_daemonset_is_as_the_cluster_says_unless_it_was_set() {
    let facts = NodeFacts { oke_daemonset: Seen::Present, ..NodeFacts::default() };
    for (set, says) in [(Seen::Unknown, Seen::Present), (Seen::Absent, Seen::Absent), (Seen::Present, Seen::Present)] {
        assert_eq!(facts.signals(&Signals { oke_daemonset: set, ..Signals::default() }).oke_daemonset, says);
    }
    assert!(!facts.says_the_same(&NodeFacts::default()), "it is news");
}

#[test]
fn a_first_list_without_the_vnic_of_the_default_route_lacks_the_primary_one() {
    let all = vm_vnics();
    let [primary, pods] = [all[0].mac, all[1].mac];
    assert!(!lacks_primary(&all, primary, &[primary, pods]));
    assert!(lacks_primary(&all[1..], primary, &[primary, pods]));
    // Somebody leads the default route over a secondary VNIC: both are listed, and the list says which is first.
    assert!(!lacks_primary(&all, pods, &[primary, pods]));
    // Ports that have other addresses than the VNICs on them.
    let port = fixture::mac(0x77);
    assert!(!lacks_primary(&all, port, &[port]));
    assert!(!lacks_primary(&[], primary, &[primary]));
}

#[test]
fn that_a_copy_cannot_be_kept_is_news_and_so_is_that_it_is() {
    let copy_errors = CopyErrors { npn: Some("no space".into()), machine: None };
    let facts = NodeFacts { copy_errors, ..NodeFacts::default() };
    assert!(!facts.says_the_same(&NodeFacts::default()));
    assert!(facts.says_the_same(&facts.clone()));
}

/// The VNICs with IPv6, and without it again.
fn with_ipv6() -> Vec<Vnic> {
    let mut vnics = vm_vnics();
    vnics[1].addressing.ipv6 = Some(SubnetAddressing {
        subnet: "2603:c020::/64".parse().unwrap(),
        router: "fe80::1".parse().unwrap(),
        address: "2603:c020::7".parse().unwrap(),
        others: Vec::new(),
    });
    vnics
}

/// Whether that was the question.
fn is_ipv6(lacking: Lacking<'_>) -> bool {
    lacking == Lacking::Family(&vm_vnics()[1].id, Family::Ipv6)
}

#[test]
fn a_family_that_an_entry_lacks_stays_for_its_grace_and_then_goes() {
    let (mut facts, start) = (NodeFacts::default(), Instant::now());
    facts.npn.absorb(Ok(Some(fixture::npn("SUCCESS"))), start);
    facts.instance.absorb(Ok(fixture::instance()), start);
    facts.absorb_vnics(listed(with_ipv6()), GRACE, start, |_| false);
    assert!(facts.is_settled());
    let whole = facts.clone();
    for second in [10, 20, 39] {
        facts.absorb_vnics(listed(vm_vnics()), GRACE, start + Duration::from_secs(second), |_| false);
        assert!(facts.says_the_same(&whole) && facts.vnics() == with_ipv6(), "{second}");
        assert!(!facts.is_settled(), "the next answer may have it again");
    }
    facts.absorb_vnics(listed(vm_vnics()), GRACE, start + Duration::from_secs(40), |_| false);
    assert_eq!((facts.vnics(), facts.is_settled()), (&vm_vnics()[..], true));
    facts.absorb_vnics(listed(vm_vnics()), GRACE, start + Duration::from_secs(41), |_| true);
    assert_eq!(facts.vnics(), vm_vnics(), "it is known no longer");
}

#[test]
fn a_family_that_is_held_stays_for_as_long_as_that_lasts_and_is_named_beyond_the_grace() {
    let (mut facts, start) = (NodeFacts::default(), Instant::now());
    facts.absorb_vnics(listed(with_ipv6()), GRACE, start, |_| false);
    let mut at = |after: Duration, list: Vec<Vnic>, held: bool| {
        facts.absorb_vnics(listed(list), GRACE, start + after, |lacking| held && is_ipv6(lacking));
        let named = facts.held_families().cloned().collect::<Vec<_>>();
        (facts.vnics()[1].addressing.ipv6.is_some(), named)
    };
    let ipv6 = vec![(vm_vnics()[1].id.clone(), Family::Ipv6)];
    assert_eq!(at(Duration::ZERO, vm_vnics(), true), (true, vec![]), "in its grace");
    assert_eq!(at(GRACE, vm_vnics(), true), (true, ipv6.clone()));
    assert_eq!(at(2 * GRACE, with_ipv6(), true), (true, vec![]), "it is listed again");
    assert_eq!(at(3 * GRACE, vm_vnics(), true), (true, vec![]), "with its full grace");
    assert_eq!(at(5 * GRACE, vm_vnics(), true), (true, ipv6));
    assert_eq!(at(5 * GRACE, vm_vnics(), false), (false, vec![]));
}

#[test]
fn a_family_that_an_agent_before_knew_is_known_again_when_it_is_held() {
    let start = Instant::now();
    for (at_first, later) in [(true, true), (false, true), (false, false)] {
        let mut facts = NodeFacts::recall(None, with_ipv6(), GRACE, start);
        facts.absorb_vnics(listed(vm_vnics()), GRACE, start, |lacking| at_first && is_ipv6(lacking));
        assert_eq!(facts.vnics()[1].addressing.ipv6.is_some(), at_first);
        facts.absorb_vnics(listed(vm_vnics()), GRACE, start + 2 * GRACE, |lacking| later && is_ipv6(lacking));
        assert_eq!(facts.vnics()[1].addressing.ipv6.is_some(), later);
    }
}

/// The VNICs; the second has these IPv6 addresses.
fn with_addresses(lasts: &[&str]) -> Vec<Vnic> {
    let mut vnics = with_ipv6();
    let at = vnics[1].addressing.ipv6.as_mut().unwrap();
    let mut addresses = lasts.iter().map(|last| format!("2603:c020::{last}").parse().unwrap());
    at.address = addresses.next().unwrap();
    at.others = addresses.collect();
    vnics
}

#[test]
fn addresses_in_another_order_are_no_news_and_other_ones_are() {
    let (mut facts, now) = (NodeFacts::default(), Instant::now());
    facts.absorb_vnics(listed(with_addresses(&["7", "8", "9"])), GRACE, now, |_| false);
    let before = facts.clone();
    for permuted in [["9", "8", "7"], ["8", "7", "9"]] {
        facts.absorb_vnics(listed(with_addresses(&permuted)), GRACE, now, |_| false);
        assert!(facts.says_the_same(&before), "{permuted:?}");
    }
    let mut moved = with_addresses(&["9", "8", "7"]);
    moved[1].addressing.ipv6.as_mut().unwrap().subnet = "2603:c020::/56".parse().unwrap();
    for other in [with_addresses(&["9", "8", "7", "6"]), moved] {
        let mut facts = before.clone();
        facts.absorb_vnics(listed(other.clone()), GRACE, now, |_| false);
        assert_eq!(facts.vnics(), other);
    }
}

#[test]
fn the_order_that_an_agent_before_knew_stays() {
    let (now, known) = (Instant::now(), with_addresses(&["7", "8"]));
    let mut facts = NodeFacts::recall(None, known.clone(), Duration::ZERO, now);
    facts.absorb_vnics(listed(with_addresses(&["8", "7"])), GRACE, now, |_| false);
    assert_eq!(facts.vnics(), known);
}

#[test]
fn an_address_that_one_answer_lacks_stays_for_its_grace_and_then_goes() {
    let (mut facts, start) = (NodeFacts::default(), Instant::now());
    facts.npn.absorb(Ok(Some(fixture::npn("SUCCESS"))), start);
    facts.instance.absorb(Ok(fixture::instance()), start);
    let (both, one) = (with_addresses(&["7", "8"]), with_addresses(&["8"]));
    facts.absorb_vnics(listed(both.clone()), GRACE, start, |_| false);
    let whole = facts.clone();
    let mut at = |second: u64, list: &[Vnic]| {
        facts.absorb_vnics(listed(list.to_vec()), GRACE, start + Duration::from_secs(second), |_| false);
        (facts.vnics().to_vec(), facts.says_the_same(&whole), facts.is_settled())
    };
    for second in [10, 20, 39] {
        assert_eq!(at(second, &one), (both.clone(), true, false), "{second}: the next answer may have it again");
    }
    assert_eq!(at(39, &both), (both.clone(), true, true));
    for second in [40, 69] {
        assert_eq!(at(second, &one), (both.clone(), true, false), "{second}: with its full grace again");
    }
    assert_eq!(at(70, &one), (one.clone(), false, true));
}
