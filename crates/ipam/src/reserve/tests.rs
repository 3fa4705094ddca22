//! The choice of addresses, as sentences.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use cni::{AttachmentKey, ContainerId, NetworkName};
use proptest::prelude::*;
use vcn::{Family, IfName, Mtu, PerFamily, Purpose, TableId};

use super::{COOLDOWN, TENTATIVE_LIFETIME};
use crate::{Allocation, Allocations, BootId, BootTime, Error, FamilyPool, FreedAddress, Pools, VnicPool};

const START: BootTime = BootTime(1_000_000);

fn vnic(number: u8, ipv4: &[&str], ipv6: &[&str]) -> VnicPool {
    let pool = |router: String, addresses: &[&str]| {
        (!addresses.is_empty()).then(|| FamilyPool {
            router: router.parse().unwrap(),
            reserved: vec![format!("10.0.{number}.7").parse().unwrap()],
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        })
    };
    VnicPool {
        vnic_id: format!("ocid1.vnic.oc1.iad.{number}").parse().unwrap(),
        link: IfName::new(format!("ens{number}")).unwrap(),
        mac: format!("02:00:17:00:00:{number:02x}").parse().unwrap(),
        link_has_mac: true,
        mtu: Mtu::VCN,
        table: TableId(1000 + u32::from(number)),
        purpose: Purpose::Pods,
        attach: None,
        families: PerFamily { ipv4: pool(format!("10.0.{number}.1"), ipv4), ipv6: pool("fe80::1".into(), ipv6) },
    }
}

fn pools(vnics: Vec<VnicPool>) -> Pools {
    Pools::new(BootId::from_text("this"), vnics, None)
}

fn none() -> Allocations {
    Allocations::none(BootId::from_text("this"))
}

fn key(id: &str) -> AttachmentKey {
    AttachmentKey {
        network: NetworkName::new("vcn-native").unwrap(),
        container_id: ContainerId::new(id).unwrap(),
        ifname: IfName::new("eth0").unwrap(),
    }
}

fn request(id: &str) -> Allocation {
    Allocation::requested(key(id), IfName::new("vcn0").unwrap())
}

fn add(held: &mut Allocations, pools: &Pools, id: &str, now: BootTime) -> Vec<String> {
    let reservation = held.reserve(pools, request(id), now).unwrap();
    held.commit(&key(id)).unwrap();
    reservation.allocation.addresses.iter().map(|assigned| assigned.address.to_string()).collect()
}

#[test]
fn the_same_attachment_gets_the_same_address_again() {
    let (pools, mut held) = (pools(vec![vnic(1, &["10.0.1.8/32", "10.0.1.9/32"], &[])]), none());
    let first = held.reserve(&pools, request("a"), START).unwrap();
    let second = held.reserve(&pools, request("a"), START).unwrap();
    assert!(!first.existing && second.existing);
    assert_eq!(first.allocation, second.allocation);
    assert_eq!(held.allocations.len(), 1);
}

#[test]
fn pod_gets_one_address_per_family_from_one_vnic() {
    let mixed = pools(vec![vnic(1, &["10.0.1.8/32"], &[]), vnic(2, &["10.0.2.8/32"], &["2001:db8::/124"])]);
    assert_eq!(add(&mut none(), &mixed, "a", START), ["10.0.2.8", "2001:db8::"]);
}

#[test]
fn pods_spread_over_the_vnics() {
    let two = pools(vec![vnic(1, &["10.0.1.8/30"], &[]), vnic(2, &["10.0.2.8/30"], &[])]);
    let mut held = none();
    let got: Vec<_> = ["a", "b", "c", "d"].iter().flat_map(|id| add(&mut held, &two, id, START)).collect();
    assert_eq!(got, ["10.0.1.8", "10.0.2.8", "10.0.1.9", "10.0.2.9"]);
}

#[test]
fn vnic_with_absent_link_is_skipped_without_changing_families() {
    let two = pools(vec![vnic(1, &["10.0.1.8/32"], &[]), vnic(2, &["10.0.2.8/30"], &["2001:db8::/124"])]);
    let absent = |number: u8| [IfName::new(format!("ens{number}")).unwrap()];
    let mut held = none();
    let reserved = held.reserve_beside(&two, &absent(1), request("a"), START).unwrap();
    assert_eq!(reserved.allocation.addresses[0].vnic_link, absent(2)[0]);
    let error = held.reserve_beside(&two, &absent(2), request("b"), START).unwrap_err();
    assert!(matches!(&error, Error::Exhausted(shortage) if shortage.in_use.len() == 2), "{error}");
    assert_eq!(held.allocations.len(), 1);
}

/// The agent counts the same way: no message reports that 35 of 32 addresses are held.
#[test]
fn shortage_counts_the_addresses_of_its_pools_alone() {
    let attach = VnicPool { purpose: Purpose::Attach, ..vnic(3, &["10.0.3.8/30"], &[]) };
    let all = pools(vec![vnic(1, &["10.0.1.8/31"], &[]), attach]);
    let mut held = none();
    for id in ["a", "b"] {
        add(&mut held, &all, id, START);
    }
    // An extra interface, and a pod on a VNIC that is gone.
    for (id, address) in [("c", "10.0.3.8"), ("d", "10.0.9.8")] {
        let mut extra = held.allocations[0].clone();
        extra.key = key(id);
        extra.addresses[0].address = address.parse().unwrap();
        held.allocations.push(extra);
    }
    let Err(Error::Exhausted(shortage)) = held.reserve(&all, request("e"), START) else { panic!("it has an address") };
    assert_eq!(shortage.in_use, [(Family::Ipv4, 2)]);
}

/// By address and second of its release, in this order.
fn freed(frees: &[(&str, u64)]) -> Allocations {
    let at = |second| START.after(Duration::from_secs(second));
    let mut held = none();
    held.freed.extend(frees.iter().map(|(address, second)| FreedAddress {
        address: address.parse().unwrap(),
        at: at(*second),
        forgotten: true,
    }));
    held
}

#[test]
fn addresses_never_used_and_longest_freed_are_used_first() {
    let cooldown = COOLDOWN.as_secs();
    let one = |addresses: &[&str]| pools(vec![vnic(1, addresses, &[])]);
    let two = |prefix: u8| pools([1, 2].map(|n| vnic(n, &[&format!("10.0.{n}.8/{prefix}")], &[])).into());
    let by_vnics = [("10.0.2.9", 0), ("10.0.1.8", 1), ("10.0.2.8", 2), ("10.0.1.9", 3)];
    for (case, pools, frees, second, expected) in [
        (
            "those never used come first, then those freed first",
            one(&["10.0.1.8/32", "10.0.1.9/32", "10.0.1.10/32"]),
            &[("10.0.1.9", 100), ("10.0.1.8", 200)][..],
            200 + cooldown,
            vec![("10.0.1.10", None), ("10.0.1.9", None), ("10.0.1.8", None)],
        ),
        ("a cooling one is reported", one(&["10.0.1.8/32"]), &[("10.0.1.8", 0)], 5, vec![("10.0.1.8", Some(5))]),
        ("another VNIC's rested one is preferred", two(32), &[("10.0.1.8", 0)], 0, vec![("10.0.2.8", None)]),
        (
            "the longest cooling one, over all VNICs",
            two(32),
            &[("10.0.2.8", 0), ("10.0.1.8", 100)],
            101,
            vec![("10.0.2.8", Some(101)), ("10.0.1.8", Some(1))],
        ),
        (
            "the one freed longest ago, over all VNICs",
            two(31),
            &by_vnics,
            2 * cooldown,
            by_vnics.map(|(address, _)| (address, None)).to_vec(),
        ),
    ] {
        let mut held = freed(frees);
        for (number, (address, rested)) in expected.into_iter().enumerate() {
            let now = START.after(Duration::from_secs(second));
            let got = held.reserve(&pools, request(&format!("p{number}")), now).unwrap();
            let found = (got.allocation.addresses[0].address.to_string(), got.rested);
            assert_eq!(found, (address.to_owned(), rested.map(Duration::from_secs)), "{case}");
        }
    }
}

#[test]
fn unfinished_add_is_overdue_and_held_until_released() {
    let one = pools(vec![vnic(1, &["10.0.1.8/32"], &[])]);
    let mut held = none();
    held.reserve(&one, request("a"), START).unwrap();
    assert_eq!(held.overdue(START.after(TENTATIVE_LIFETIME / 2)).count(), 0);
    let late = START.after(TENTATIVE_LIFETIME);
    assert!(held.overdue(late).map(|it| &it.key).eq([&key("a")]));
    assert!(held.reserve(&one, request("b"), late).is_err(), "its network may be there");
    held.release(&key("a"), late);
    assert_eq!(held.reserve(&one, request("b"), late).unwrap().rested, Some(Duration::ZERO));
    held.commit(&key("b")).unwrap();
    assert_eq!(held.overdue(late.after(TENTATIVE_LIFETIME)).count(), 0, "it lasts");
}

#[test]
fn addresses_enter_cooldown_unless_they_are_held() {
    let one = pools(vec![vnic(1, &["10.0.1.8/31"], &[])]);
    let mut held = none();
    add(&mut held, &one, "a", START);
    held.rest(&["10.0.1.8".parse().unwrap(), "10.0.1.9".parse().unwrap()], START);
    assert!(held.freed.iter().map(|freed| freed.address.to_string()).eq(["10.0.1.9"]));
}

#[test]
fn shortage_error_has_counts_lacking_family_and_agents_reason() {
    for (ipv4, ipv6, text) in [
        ("10.0.1.8/32", &[][..], "1 IPv4 address(es) in use; BACKOFF"),
        ("10.0.1.8/29", &["2001:db8::8/128"], "1 IPv4 and 1 IPv6 address(es) in use, and no IPv6 is left; BACKOFF"),
    ] {
        let mut pools = pools(vec![vnic(1, &[ipv4], ipv6)]);
        pools.reason = Some("BACKOFF".into());
        let mut held = none();
        add(&mut held, &pools, "a", START);
        let found = held.reserve(&pools, request("b"), START).unwrap_err().to_string();
        assert_eq!(found, format!("no address is free: 1 VNIC(s) serve pods, {text}"));
    }
}

#[test]
fn address_is_reported_as_unforgotten_until_its_connections_are_flushed() {
    let one = pools(vec![vnic(1, &["10.0.1.8/32"], &[])]);
    let address: IpAddr = "10.0.1.8".parse().unwrap();
    let mut held = none();
    let fresh = held.reserve(&one, request("a"), START).unwrap();
    assert_eq!(fresh.unforgotten, Vec::<IpAddr>::new(), "never used in this boot");
    let again = held.reserve(&one, request("a"), START).unwrap();
    assert_eq!(again.unforgotten, [address], "the first ADD may have been killed before it flushed");
    held.commit(&key("a")).unwrap();
    let repeated = held.reserve(&one, request("a"), START).unwrap();
    assert_eq!(repeated.unforgotten, Vec::<IpAddr>::new(), "the pod runs: these connections are its own");

    held.release(&key("a"), START);
    assert_eq!(held.reserve(&one, request("b"), START).unwrap().unforgotten, [address]);
    let freed = START.after(Duration::from_secs(1));
    held.release(&key("b"), freed);
    assert!(!held.forget(address, START), "a pod had it since then");
    assert!(held.forget(address, freed));
    assert_eq!(held.reserve(&one, request("c"), freed).unwrap().unforgotten, Vec::<IpAddr>::new());
    assert!(!held.forget(address, freed), "it is held");
    held.release(&key("c"), freed);
    assert_eq!(held.reserve(&one, request("d"), freed).unwrap().unforgotten, [address], "an ADD that never finished");
}

#[test]
fn vnic_for_host_or_applications_is_never_used_for_pods() {
    let (mut host, mut kept) = (vnic(2, &["10.0.2.8/29"], &[]), vnic(3, &["10.0.3.8/29"], &["2001:db8::/64"]));
    (host.purpose, kept.purpose) = (Purpose::Host, Purpose::Attach);
    let mut pools = pools(vec![host, vnic(1, &["10.0.1.8/32"], &[]), kept]);
    let mut held = none();
    assert_eq!(
        add(&mut held, &pools, "a", START),
        ["10.0.1.8"],
        "and IPv6, which only the kept one has, is not requested"
    );
    assert!(matches!(held.reserve(&pools, request("b"), START), Err(Error::Exhausted(_))));
    pools.vnics.remove(1);
    let error = none().reserve(&pools, request("a"), START).unwrap_err();
    assert_eq!(error.to_string(), "no address is free: no VNIC of this node serves pods");
}

#[test]
fn range_gives_every_address_except_router_and_reserved() {
    let all = |pools: &Pools| {
        let mut held = none();
        let got = (0..).map_while(|id| held.reserve(pools, request(&format!("p{id}")), START).ok());
        got.map(|got| got.allocation.addresses[0].address.to_string()).collect::<Vec<_>>()
    };
    let with_router = pools(vec![vnic(1, &["10.0.1.0/29"], &[])]);
    assert_eq!(all(&with_router), ["10.0.1.0", "10.0.1.2", "10.0.1.3", "10.0.1.4", "10.0.1.5", "10.0.1.6"]);
    let mut block = pools(vec![vnic(1, &["10.0.1.8/30"], &[])]);
    assert_eq!(all(&block), ["10.0.1.8", "10.0.1.9", "10.0.1.10", "10.0.1.11"]);
    let reserved = ["10.0.1.8", "10.0.1.11"].map(|address| address.parse::<IpAddr>().unwrap());
    block.vnics[0].families.ipv4.as_mut().unwrap().reserved.extend(reserved);
    assert_eq!(all(&block), ["10.0.1.9", "10.0.1.10"]);
}

#[test]
fn shrunken_pool_keeps_held_addresses_and_assigns_only_listed_ones() {
    let wide = pools(vec![vnic(1, &["10.0.1.8/30"], &[]), vnic(2, &["10.0.2.8/31"], &[])]);
    let narrow = pools(vec![vnic(1, &["10.0.1.10/31"], &[])]);
    let mut held = none();
    let before: Vec<_> = (0..6).flat_map(|id| add(&mut held, &wide, &format!("p{id}"), START)).collect();
    assert!(held.reserve(&narrow, request("more"), START).is_err(), "those that are left are held");
    assert_eq!(held.allocations.len(), 6);
    let same = held.reserve(&narrow, request("p1"), START).unwrap();
    assert_eq!(same.allocation.addresses[0].address.to_string(), before[1], "also on the VNIC that is gone");
    let released: Vec<_> = (0..6).map(|id| held.release(&key(&format!("p{id}")), START).unwrap()).collect();
    assert!(released.iter().any(|gone| gone.addresses[0].vnic_link.as_str() == "ens2"), "enough to take it down");
    let later = START.after(COOLDOWN);
    let got: Vec<_> = ["x", "y"].iter().flat_map(|id| add(&mut held, &narrow, id, later)).collect();
    assert_eq!(got, ["10.0.1.10", "10.0.1.11"]);
    assert!(held.reserve(&narrow, request("z"), later).is_err());
    assert_eq!(held.freed, [], "those that left are remembered no longer than they cool down");
}

#[test]
fn address_keeps_cooldown_when_it_returns_to_the_pool() {
    let (there, gone) = (pools(vec![vnic(1, &["10.0.1.8/32"], &[])]), pools(vec![vnic(1, &["10.0.1.9/32"], &[])]));
    let mut held = none();
    add(&mut held, &there, "a", START);
    held.release(&key("a"), START);
    add(&mut held, &gone, "b", START.after(Duration::from_secs(3)));
    let early = held.reserve(&there, request("c"), START.after(Duration::from_secs(7))).unwrap();
    assert_eq!(early.rested, Some(Duration::from_secs(7)));
}

#[test]
fn backward_clock_ends_no_cooldown_or_lease() {
    let two = pools(vec![vnic(1, &["10.0.1.8/31"], &[])]);
    let mut held = none();
    add(&mut held, &two, "a", START);
    held.release(&key("a"), START);
    for before in [BootTime(0), BootTime(START.0 - 1)] {
        let mut held = held.clone();
        assert_eq!(add(&mut held, &two, "b", before), ["10.0.1.9"]);
        let cooling = held.reserve(&two, request("c"), before).unwrap();
        assert_eq!(cooling.rested, Some(Duration::ZERO));
        assert!(held.reserve(&two, request("d"), before).is_err(), "the lease lasts");
    }
    assert_eq!(BootTime(u64::MAX).after(COOLDOWN), BootTime(u64::MAX));
}

#[test]
fn large_ipv6_range_needs_bounded_time_and_memory() {
    let huge = pools(vec![vnic(1, &[], &["2001:db8::/64", "2001:db8:1::/48"])]);
    let (mut held, mut now) = (none(), START);
    for id in 0..3_000 {
        let key = key(&format!("p{id}"));
        held.reserve(&huge, request(&format!("p{id}")), now).unwrap();
        held.commit(&key).unwrap();
        let gone = held.release(&key, now).unwrap();
        let rested = now.after(COOLDOWN);
        // As the agent does, when the cooldown has ended.
        assert!(held.forget(gone.addresses[0].address, now));
        now = rested;
    }
    assert!(held.freed.len() < 600, "{} are remembered", held.freed.len());
    let far: IpAddr = "2001:db8:1:ffff::1".parse().unwrap();
    assert!(held.adopt(&huge, request("far"), &[far], now), "contained without walking there");
}

#[test]
fn unforgotten_addresses_are_bounded_without_an_agent() {
    let huge = pools(vec![vnic(1, &[], &["2001:db8::/64"])]);
    let mut held = none();
    let of = |number: u32| IpAddr::from(((0x2001_0db8_u128 << 96) + u128::from(number)).to_be_bytes());
    held.freed.extend((0..5_000).map(|number| FreedAddress { address: of(number), at: BootTime(1), forgotten: false }));
    held.reserve(&huge, request("a"), START).unwrap();
    assert_eq!(held.freed.len(), super::FREED_LIMIT);
}

#[test]
fn rebuilt_index_starts_cooldown_for_every_unknown_address() {
    let three = pools(vec![vnic(1, &["10.0.1.8/32", "10.0.1.9/32", "10.0.1.10/32"], &[])]);
    let mut held = none();
    let running: IpAddr = "10.0.1.9".parse().unwrap();
    held.rebuilt_at = Some(START);
    assert!(held.adopt(&three, request("a"), &[running], START));
    assert!(!held.adopt(&three, request("a"), &[running], START), "it is on record already");
    assert!(!held.adopt(&three, request("b"), &[running], START), "another pod has it");
    let elsewhere = "10.0.2.9".parse().unwrap();
    let free = "10.0.1.8".parse().unwrap();
    assert!(!held.adopt(&three, request("b"), &[free, elsewhere], START), "a part of it is in no pool");
    let early = held.reserve(&three, request("c"), START.after(Duration::from_secs(5))).unwrap();
    assert_eq!(early.rested, Some(Duration::from_secs(5)));
    assert_eq!(early.unforgotten, ["10.0.1.8".parse::<IpAddr>().unwrap()]);
    let rested = held.reserve(&three, request("d"), START.after(COOLDOWN)).unwrap();
    assert_eq!((rested.rested, rested.unforgotten.len()), (None, 1));
    held.lose(&[elsewhere], BootTime(1));
    assert_eq!(held.rebuilt_at, Some(START), "an older loss shortens no cooldown");
}

#[test]
fn missing_pod_family_is_an_error_until_vnic_has_it() {
    let mut two = pools(vec![vnic(1, &["10.0.1.8/31"], &[])]);
    two.pod_families = Some(vec![Family::Ipv4, Family::Ipv6]);
    two.reason = Some("LinkMissing".into());
    let error = none().reserve(&two, request("a"), START).unwrap_err();
    assert!(matches!(&error, Error::FamilyMissing { families, .. } if *families == [Family::Ipv6]), "{error}");
    assert_eq!(
        error.to_string(),
        "OKE assigned IPv6 pod addresses to this node, and no usable VNIC has one now; LinkMissing"
    );
    two.vnics[0] = vnic(1, &["10.0.1.8/31"], &["2001:db8::8/127"]);
    assert_eq!(none().reserve(&two, request("a"), START).unwrap().allocation.addresses.len(), 2);
    // An older agent's: as it is at the moment.
    two = pools(vec![vnic(1, &["10.0.1.8/31"], &[])]);
    assert_eq!(none().reserve(&two, request("a"), START).unwrap().allocation.addresses.len(), 1);
}

#[derive(Clone, Debug)]
enum Event {
    Add(u8),
    Del(u8),
    Wait(u16),
    Killed(u8),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let one = prop_oneof![
        (0..12_u8).prop_map(Event::Add),
        (0..12_u8).prop_map(Event::Del),
        (0..200_u16).prop_map(Event::Wait),
        (0..12_u8).prop_map(Event::Killed),
    ];
    proptest::collection::vec(one, 0..120)
}

proptest! {
    #[test]
    fn no_address_is_ever_held_twice_whatever_happens(events in events()) {
        let pools = pools(vec![vnic(1, &["10.0.1.8/30"], &[]), vnic(2, &["10.0.2.8/31"], &[])]);
        let (mut held, mut now) = (none(), START);
        for event in events {
            match event {
                Event::Add(id) => {
                    if held.reserve(&pools, request(&id.to_string()), now).is_ok() {
                        held.commit(&key(&id.to_string())).unwrap();
                    }
                }
                Event::Killed(id) => drop(held.reserve(&pools, request(&id.to_string()), now)),
                Event::Del(id) => drop(held.release(&key(&id.to_string()), now)),
                Event::Wait(seconds) => now = now.after(Duration::from_secs(seconds.into())),
            }
            let addresses: Vec<IpAddr> =
                held.allocations.iter().flat_map(|a| a.addresses.iter().map(|x| x.address)).collect();
            let distinct: BTreeSet<_> = addresses.iter().collect();
            prop_assert_eq!(distinct.len(), addresses.len());
            prop_assert!(held.freed.iter().all(|freed| !distinct.contains(&freed.address)));
            prop_assert!(addresses.len() <= 6);
        }
    }
}

/// The agent reports what an ADD would find.
#[test]
fn pools_are_exhausted_when_a_reservation_says_so() {
    let four = |number: u8, addresses: &[&str]| vnic(number, addresses, &[]);
    let dual = |number: u8, ipv4: &[&str]| vnic(number, ipv4, &["2001:db8::8/127"]);
    let mut attach = four(2, &["10.0.2.8/31"]);
    attach.purpose = Purpose::Attach;
    let mut missing = pools(vec![four(1, &["10.0.1.8/31"])]);
    missing.pod_families = Some(vec![Family::Ipv4, Family::Ipv6]);
    for (pools, fits) in [
        (pools(vec![four(1, &["10.0.1.8/31"])]), 2),
        (pools(vec![four(1, &["10.0.1.8/31"]), four(2, &["10.0.2.8/32"])]), 3),
        (pools(vec![four(1, &["10.0.1.8/31"]), attach]), 2),
        // IPv6 is left on each, and IPv4 on none; then the other way round.
        (pools(vec![dual(1, &["10.0.1.8/32"]), dual(2, &["10.0.2.8/32"])]), 2),
        (pools(vec![dual(1, &["10.0.1.0/28"])]), 2),
        // Both families are left, but not on one VNIC.
        (pools(vec![dual(1, &["10.0.1.8/32"]), four(2, &["10.0.2.8/31"])]), 1),
    ] {
        let mut held = none();
        let exhausted = |held: &Allocations| pools.are_exhausted(&held.in_use().collect());
        for pod in 0..fits {
            assert!(!exhausted(&held), "{pod} of {fits}: {pools:?}");
            add(&mut held, &pools, &pod.to_string(), START);
        }
        assert!(exhausted(&held), "{pools:?}");
        assert!(matches!(held.reserve(&pools, request("more"), START), Err(Error::Exhausted(_))));
        held.release(&key("0"), START);
        assert!(!exhausted(&held), "what cools down is given out before that");
        add(&mut held, &pools, "more", START);
    }
    for other in [missing, pools(vec![]), pools(vec![vnic(1, &[], &[])])] {
        assert!(!other.are_exhausted(&BTreeSet::new().into_iter().collect()), "another condition says why: {other:?}");
    }
}
