//! The choice of addresses, as sentences.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use cni::{AttachmentKey, ContainerId, NetworkName};
use proptest::prelude::*;
use vcn::{IfName, Mtu, PerFamily, Purpose, TableId};

use super::{COOLDOWN, Request, TENTATIVE_LIFETIME};
use crate::{Allocations, BootId, BootTime, Error, FamilyPool, Pools, VnicPool};

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
        mtu: Mtu::VCN,
        table: TableId(1000 + u32::from(number)),
        purpose: Purpose::Pods,
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

fn request(id: &str) -> Request {
    Request { key: key(id), pod: None, host_link: IfName::new("vcn0").unwrap(), netns: None }
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
fn a_pod_gets_one_address_of_every_family_on_one_vnic() {
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
fn host_addresses_and_the_router_are_never_given_out() {
    let range = pools(vec![vnic(1, &["10.0.1.0/29"], &[])]);
    let mut held = none();
    let got: BTreeSet<_> = (0..6).flat_map(|id| add(&mut held, &range, &format!("p{id}"), START)).collect();
    assert_eq!(
        got.iter().map(String::as_str).collect::<Vec<_>>(),
        ["10.0.1.0", "10.0.1.2", "10.0.1.3", "10.0.1.4", "10.0.1.5", "10.0.1.6"]
    );
    assert!(matches!(held.reserve(&range, request("more"), START), Err(Error::Exhausted(_))));
}

#[test]
fn vnics_kept_for_other_purposes_are_left_alone() {
    let mut kept = vnic(1, &["10.0.1.8/32"], &[]);
    kept.purpose = Purpose::Attach;
    let error = none().reserve(&pools(vec![kept]), request("a"), START).unwrap_err();
    assert_eq!(error.to_string(), "no address is free: no VNIC of this node serves pods");
}

#[test]
fn the_oldest_freed_address_comes_first_after_those_never_used() {
    let three = pools(vec![vnic(1, &["10.0.1.8/32", "10.0.1.9/32", "10.0.1.10/32"], &[])]);
    let mut held = none();
    add(&mut held, &three, "a", START);
    add(&mut held, &three, "b", START);
    held.release(&key("b"), BootTime(1_000_100));
    held.release(&key("a"), BootTime(1_000_200));
    let later = BootTime(1_000_200).after(COOLDOWN);
    assert_eq!(add(&mut held, &three, "c", later), ["10.0.1.10"], "never used");
    assert_eq!(add(&mut held, &three, "d", later), ["10.0.1.9"], "freed first");
    assert_eq!(add(&mut held, &three, "e", later), ["10.0.1.8"]);
}

#[test]
fn a_cooling_address_is_taken_only_when_nothing_else_is_free_and_that_is_said() {
    let one = pools(vec![vnic(1, &["10.0.1.8/32"], &[])]);
    let mut held = none();
    add(&mut held, &one, "a", START);
    held.release(&key("a"), START);
    let early = held.reserve(&one, request("b"), START.after(Duration::from_secs(5))).unwrap();
    assert_eq!(early.rested, Some(Duration::from_secs(5)));

    let two = pools(vec![vnic(1, &["10.0.1.8/32"], &[]), vnic(2, &["10.0.2.8/32"], &[])]);
    let mut held = none();
    add(&mut held, &two, "a", START);
    held.release(&key("a"), START);
    assert_eq!(add(&mut held, &two, "b", START), ["10.0.2.8"], "another VNIC's rested address is preferred");
}

#[test]
fn an_add_that_never_finished_gives_its_address_back() {
    let one = pools(vec![vnic(1, &["10.0.1.8/32"], &[])]);
    let mut held = none();
    held.reserve(&one, request("a"), START).unwrap();
    assert!(held.reserve(&one, request("b"), START.after(TENTATIVE_LIFETIME / 2)).is_err());
    let after = held.reserve(&one, request("b"), START.after(TENTATIVE_LIFETIME)).unwrap();
    assert_eq!(after.rested, Some(Duration::ZERO), "it cools down like any other");
    assert!(held.commit(&key("a")).is_err(), "the late ADD learns that it lost");
}

#[test]
fn a_shortage_is_told_in_numbers_and_with_the_agents_reason() {
    let mut pools = pools(vec![vnic(1, &["10.0.1.8/32"], &[])]);
    pools.reason = Some("NativePodNetwork is BACKOFF: FailedToCreatePrivateIP".into());
    let mut held = none();
    add(&mut held, &pools, "a", START);
    assert_eq!(
        held.reserve(&pools, request("b"), START).unwrap_err().to_string(),
        "no address is free: 1 VNIC(s) serve pods (IPv4), 1 address(es) in use; NativePodNetwork is BACKOFF: \
         FailedToCreatePrivateIP"
    );
}

#[test]
fn an_ipv6_range_of_any_size_is_searched_lazily() {
    let huge = pools(vec![vnic(1, &[], &["2001:db8::/80"])]);
    let mut held = none();
    for id in 0..300 {
        add(&mut held, &huge, &format!("p{id}"), START);
    }
    assert_eq!(held.allocations.len(), 300);
}

#[test]
fn who_gets_an_address_that_was_used_is_told_to_flush_its_connections_until_somebody_has() {
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
    assert!(!held.forget(address, START), "somebody had it since then");
    assert!(held.forget(address, freed));
    assert_eq!(held.reserve(&one, request("c"), freed).unwrap().unforgotten, Vec::<IpAddr>::new());
    assert!(!held.forget(address, freed), "it is held");
    let expired = freed.after(TENTATIVE_LIFETIME);
    assert_eq!(held.reserve(&one, request("d"), expired).unwrap().unforgotten, [address], "an ADD that never finished");
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
