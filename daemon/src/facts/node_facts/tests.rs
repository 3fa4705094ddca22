//! What is kept of an incomplete list of VNICs, and for how long.

use imds::{IncompleteVnic, VnicList};
use vcn::SubnetAddressing;

use super::*;
use crate::fixture::{self, vm_vnics};

const GRACE: Duration = Duration::from_secs(30);

/// Facts, and the time at which they begin.
struct Scene {
    facts: NodeFacts,
    start: Instant,
}

/// What the metadata service lists, and when.
#[derive(Clone, Copy)]
struct List<'a> {
    second: u64,
    vnics: &'a [Vnic],
}

impl Scene {
    /// Everything is known but the VNICs.
    fn new() -> Self {
        let (mut facts, start) = (NodeFacts::default(), Instant::now());
        facts.instance.absorb(Ok(fixture::instance()), start);
        facts.npn.absorb(Ok(Some(fixture::npn("SUCCESS"))), start);
        Self { facts, start }
    }

    /// After a list in second 0.
    fn listing(vnics: &[Vnic]) -> Self {
        let mut scene = Self::new();
        scene.list(List { second: 0, vnics }, |_| false);
        scene
    }

    /// After a start with the cached copy, a minute old.
    fn recalling(vnics: &[Vnic]) -> Self {
        let start = Instant::now();
        let facts = NodeFacts::recall(Some(fixture::instance()), vnics.to_vec(), 2 * GRACE, start);
        Self { facts, start }
    }

    fn answer(&mut self, second: u64, answer: Result<VnicList, String>, is_held: impl Fn(ExpectedItem<'_>) -> bool) {
        self.facts.absorb_vnics(answer, GRACE, self.start + Duration::from_secs(second), is_held);
    }

    fn list(&mut self, list: List<'_>, is_held: impl Fn(ExpectedItem<'_>) -> bool) -> &[Vnic] {
        self.answer(list.second, Ok(list.vnics.to_vec().into()), is_held);
        self.facts.vnics()
    }

    /// The VNICs after a list of which nothing is held.
    fn at(&mut self, second: u64, vnics: &[Vnic]) -> &[Vnic] {
        self.list(List { second, vnics }, |_| false)
    }
}

fn alone() -> Vec<Vnic> {
    vm_vnics()[..1].to_vec()
}

#[test]
fn last_good_answer_stays_and_ages_when_the_service_fails() {
    let mut scene = Scene::listing(&vm_vnics());
    scene.answer(100, Err("status 503".into()), |_| false);
    let Scene { facts, start } = scene;
    assert_eq!(facts.vnics(), vm_vnics());
    assert_eq!(facts.vnics.age(start + Duration::from_secs(100)), Some(Duration::from_secs(100)));
    assert_eq!(facts.vnics.error.as_deref(), Some("status 503"));
}

#[test]
fn unlisted_vnic_family_or_address_goes_after_grace_which_restarts_when_listed() {
    for (whole, lacking) in
        [(vm_vnics(), alone()), (with_ipv6(&["7"]), vm_vnics()), (with_ipv6(&["7", "8"]), with_ipv6(&["8"]))]
    {
        let mut scene = Scene::listing(&whole);
        let before = scene.facts.clone();
        assert!(before.is_settled());
        for second in [10, 20, 39] {
            assert_eq!(scene.at(second, &lacking), whole);
            assert!(
                scene.facts.says_the_same(&before) && !scene.facts.is_settled(),
                "the next answer may have it again"
            );
        }
        assert_eq!(scene.at(39, &whole), whole);
        for second in [40, 69] {
            assert_eq!(scene.at(second, &lacking), whole, "with its full grace again");
        }
        assert_eq!(scene.at(70, &lacking), lacking);
        let awaits_vnic = lacking.len() < whole.len();
        assert_eq!(scene.facts.is_settled(), !awaits_vnic, "the NativePodNetwork names a VNIC that is not listed");
        assert_eq!(scene.list(List { second: 71, vnics: &lacking }, |_| true), lacking, "it is no longer known");
    }
}

#[test]
fn unlisted_vnic_or_family_is_kept_while_held_and_reported_after_grace() {
    let reported = |facts: &NodeFacts| (facts.held().count(), facts.held_families().cloned().collect::<Vec<_>>());
    let ipv6 = (vm_vnics()[1].id.clone(), Family::Ipv6);
    for (whole, lacking, after_grace) in
        [(vm_vnics(), alone(), (1, vec![])), (with_ipv6(&["7"]), vm_vnics(), (0, vec![ipv6]))]
    {
        let mut scene = Scene::listing(&whole);
        let mut held = |second, vnics: &[Vnic], is_held: bool| {
            let before = scene.facts.clone();
            let known = scene.list(List { second, vnics }, |_| is_held).to_vec();
            (known, reported(&scene.facts), !scene.facts.says_the_same(&before))
        };
        assert_eq!(held(0, &lacking, true), (whole.clone(), (0, vec![]), false), "in its grace");
        assert_eq!(held(30, &lacking, true), (whole.clone(), after_grace.clone(), true));
        assert_eq!(held(60, &whole, true), (whole.clone(), (0, vec![]), true), "it is listed again");
        assert_eq!(held(90, &lacking, true), (whole.clone(), (0, vec![]), false), "with its full grace");
        assert_eq!(held(150, &lacking, true), (whole.clone(), after_grace, true));
        assert_eq!(held(150, &lacking, false), (lacking, (0, vec![]), true), "what held it went as well");
    }
}

#[test]
fn unusable_entry_keeps_known_vnic_and_adds_no_new_one() {
    let mut scene = Scene::listing(&vm_vnics());
    let before = scene.facts.clone();
    let entry = |place, id: &Ocid| UnusableVnic { place, id: Some(id.clone()), reason: "a field is missing".into() };
    let unusable = vec![entry(1, &vm_vnics()[1].id), entry(2, &fixture::vnic("new", 0x0c, "10.0.34").id)];
    for second in [10, 4000] {
        scene.answer(second, Ok(VnicList { unusable: unusable.clone(), ..alone().into() }), |_| false);
    }
    assert_eq!((scene.facts.vnics(), scene.facts.held().count()), (&vm_vnics()[..], 0));
    assert!(!scene.facts.says_the_same(&before) && !scene.facts.is_settled());
    scene.at(5000, &vm_vnics());
    assert!(scene.facts.says_the_same(&before));
}

#[test]
fn list_with_unusable_primary_entry_makes_no_secondary_vnic_the_primary() {
    let entry = UnusableVnic { place: 0, id: None, reason: "[0].macAddr is missing".into() };
    let list = || VnicList { unusable: vec![entry.clone()], ..vm_vnics()[1..].to_vec().into() };
    let mut scene = Scene::new();
    scene.answer(0, Ok(list()), |_| false);
    assert_eq!((scene.facts.vnics(), scene.facts.primary(), &scene.facts.vnics.error), (&[][..], None, &None));
    assert_eq!(scene.facts.unusable, std::slice::from_ref(&entry));
    scene.at(1, &vm_vnics());
    scene.answer(4000, Ok(list()), |_| false);
    assert_eq!(scene.facts.vnics(), vm_vnics());
}

#[test]
fn shape_decides_whether_a_port_index_counts() {
    let mut vnics = vm_vnics();
    (vnics[1].nic_index, vnics[1].vlan_tag) = (Some(0), vcn::VlanTag::new(7).ok());
    for (shape, expected) in [("VM.Standard.E5.Flex", &vm_vnics()), ("BM.Standard.E5.192", &vnics)] {
        let mut scene = Scene::new();
        scene.facts.instance.value.as_mut().unwrap().shape = shape.into();
        assert_eq!(scene.at(0, &vnics), *expected, "{shape}");
        let ignored = IncompleteVnic {
            id: vnics[1].id.clone(),
            reason: "nicIndex 0 is ignored, because VM.Standard.E5.Flex is the shape of a virtual machine".into(),
        };
        assert_eq!(scene.facts.incomplete, if shape.starts_with("VM") { vec![ignored] } else { vec![] });
    }
}

#[test]
fn cached_copy_counts_with_its_age_until_the_first_list() {
    let mut scene = Scene::recalling(&vm_vnics());
    scene.answer(0, Err("status 503".into()), |_| false);
    let (facts, now) = (&scene.facts, scene.start);
    assert_eq!((facts.vnics(), facts.primary()), (&vm_vnics()[..], Some(&vm_vnics()[0].id)));
    assert_eq!((facts.vnics.age(now), facts.instance.age(now)), (Some(2 * GRACE), Some(2 * GRACE)));
    assert!(facts.is_recalled() && facts.vnics.error.is_some() && facts.instance.error.is_some());
    let changed = vec![vm_vnics()[0].clone(), Vnic { mac: fixture::mac(0x55), ..vm_vnics()[1].clone() }];
    for (vnics, is_held, known) in
        [(alone(), false, alone()), (alone(), true, vm_vnics()), (changed.clone(), true, changed)]
    {
        let mut scene = Scene::recalling(&vm_vnics());
        assert_eq!(scene.list(List { second: 0, vnics: &vnics }, |_| is_held), known);
        assert_eq!((scene.facts.is_recalled(), scene.facts.vnics.age(scene.start)), (false, Some(Duration::ZERO)));
    }
    let mut scene = Scene::recalling(&vm_vnics());
    assert_eq!(scene.at(0, &alone()), alone());
    assert_eq!(scene.list(List { second: 1, vnics: &alone() }, |_| true), vm_vnics(), "its device came late");
}

#[test]
fn primary_vnic_stays_the_same_whatever_is_listed() {
    let mut scene = Scene::listing(&vm_vnics());
    let reversed: Vec<Vnic> = vm_vnics().into_iter().rev().collect();
    for (second, vnics) in [(1, &vm_vnics()[1..]), (40, &vm_vnics()[1..]), (4000, &vm_vnics()[1..]), (5000, &reversed)]
    {
        assert_eq!(scene.at(second, vnics), vm_vnics());
    }
    assert!(scene.facts.is_settled());
}

#[test]
fn facts_settle_when_the_native_pod_network_has_succeeded() {
    let mut scene = Scene::listing(&vm_vnics());
    let mut settles = |npn: Result<Option<NativePodNetwork>, String>| {
        scene.facts.npn.absorb(npn, scene.start);
        scene.facts.is_settled()
    };
    assert!(!settles(Ok(None)) && !settles(Ok(Some(fixture::npn("BACKOFF")))));
    assert!(settles(Ok(Some(fixture::npn("SUCCESS")))));
    assert!(!settles(Err("gone".into())));
}

#[test]
fn refused_own_address_is_removed_and_what_was_known_stays() {
    let mut refused = vm_vnics();
    refused[1].addressing.ipv4.as_mut().unwrap().address = "169.254.169.254".parse().unwrap();
    let ipv4 = |facts: &NodeFacts| facts.vnics()[1].addressing.ipv4.as_ref().map(|at| at.address.to_string());
    let scene = Scene::listing(&refused);
    assert_eq!((ipv4(&scene.facts), scene.facts.refused.len()), (None, 1));
    let mut scene = Scene::listing(&vm_vnics());
    let before = scene.facts.clone();
    scene.at(0, &refused);
    assert_eq!(ipv4(&scene.facts).as_deref(), Some("10.0.33.7"), "pods depend on it");
    assert!(!scene.facts.says_the_same(&before), "it is news");
    scene.at(0, &vm_vnics());
    assert!(scene.facts.says_the_same(&before));
    assert_eq!(ipv4(&Scene::recalling(&refused).facts), None);
}

#[test]
fn native_pod_network_is_admitted_without_refused_addresses() {
    let mut facts = Scene::listing(&vm_vnics()).facts;
    let mut npn = fixture::npn("SUCCESS");
    assert_eq!((facts.admitted().0.npn(), facts.admitted().1.len()), (Some(&npn), 0));
    npn.vnics[0].addressing.ipv4.as_mut().unwrap().pods.push("169.254.169.254/32".parse().unwrap());
    facts.npn.absorb(Ok(Some(npn)), Instant::now());
    let (admitted, refused) = facts.admitted();
    assert_eq!((admitted.npn(), refused.len()), (Some(&fixture::npn("SUCCESS")), 1));
    assert_eq!(admitted.vnics(), facts.vnics());
}

#[test]
fn signals_come_from_metadata_native_pod_network_and_daemonset() {
    let (mut facts, set) = (NodeFacts::default(), Signals::default());
    assert_eq!(facts.signals(&set), set);
    facts.npn.absorb(Ok(None), Instant::now());
    facts.instance.absorb(Ok(fixture::instance()), Instant::now());
    let signals = facts.signals(&set);
    assert_eq!((signals.native_pod_network, signals.instance_metadata.as_deref()), (Presence::Absent, Some("true")));
    let mut npn = fixture::npn("SUCCESS");
    for (resource, expected) in [(None, Presence::Unknown), (Some("storage".to_owned()), Presence::Present)] {
        npn.vnics[0].application_resources.extend(resource);
        facts.npn.absorb(Ok(Some(npn.clone())), Instant::now());
        assert_eq!(facts.signals(&set).application_resources, expected);
    }
    let before = facts.clone();
    facts.oke_daemonset = Presence::Present;
    assert!(!facts.says_the_same(&before), "it is news");
    for (set, expected) in [
        (Presence::Unknown, Presence::Present),
        (Presence::Absent, Presence::Absent),
        (Presence::Present, Presence::Present),
    ] {
        let mut signals = Signals::default();
        signals.set.oke_daemonset = set;
        assert_eq!(facts.signals(&signals).set.oke_daemonset, expected);
    }
}

#[test]
fn failure_to_write_a_copy_is_news() {
    let copy_errors = vec![("native-pod-network copy", "no space".into())];
    let facts = NodeFacts { copy_errors, ..NodeFacts::default() };
    assert!(!facts.says_the_same(&NodeFacts::default()) && facts.says_the_same(&facts.clone()));
}

/// The VNICs; the second has IPv6 addresses that end so.
fn with_ipv6(last: &[&str]) -> Vec<Vnic> {
    let mut addresses = last.iter().map(|last| format!("2603:c020::{last}").parse().unwrap());
    let (subnet, router) = ("2603:c020::/64".parse().unwrap(), "fe80::1".parse().unwrap());
    let (address, others) = (addresses.next().unwrap(), addresses.collect());
    let mut vnics = vm_vnics();
    vnics[1].addressing.ipv6 = Some(SubnetAddressing { subnet, router, address, others });
    vnics
}

fn is_ipv6(item: ExpectedItem<'_>) -> bool {
    item == ExpectedItem::Family(&vm_vnics()[1].id, Family::Ipv6)
}

#[test]
fn family_of_cached_copy_is_restored_only_while_held() {
    for (at_first, later) in [(true, true), (false, true), (false, false)] {
        let mut scene = Scene::recalling(&with_ipv6(&["7"]));
        for (second, is_held) in [(0, at_first), (60, later)] {
            let known = scene.list(List { second, vnics: &vm_vnics() }, |item| is_held && is_ipv6(item));
            assert_eq!(known[1].addressing.ipv6.is_some(), is_held);
        }
    }
}

#[test]
fn order_of_addresses_is_no_news_and_other_addresses_are() {
    let known = with_ipv6(&["7", "8", "9"]);
    let before = Scene::listing(&known).facts;
    for mut scene in [Scene::listing(&known), Scene::recalling(&known)] {
        for last in [["9", "8", "7"], ["8", "7", "9"]] {
            assert_eq!(scene.at(0, &with_ipv6(&last)), known);
        }
    }
    let mut moved = with_ipv6(&["9", "8", "7"]);
    moved[1].addressing.ipv6.as_mut().unwrap().subnet = "2603:c020::/56".parse().unwrap();
    for other in [with_ipv6(&["9", "8", "7", "6"]), moved] {
        let mut scene = Scene::listing(&known);
        assert_eq!(scene.at(0, &other), other);
        assert!(!scene.facts.says_the_same(&before));
    }
}
