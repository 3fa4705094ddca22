//! Floods of sources that are unknown, have passed or have failed.

use std::net::Ipv4Addr;

use super::*;

fn source(number: u32) -> IpAddr {
    Ipv4Addr::from_bits(number).into()
}

fn admission(now: Instant) -> Admission {
    Admission::new(Limits::default(), now)
}

/// The places of a source that connects a hundred times in a second.
fn places(admission: &Admission, number: u32, now: Instant) -> Vec<ConnectionSlot> {
    (0..100).filter_map(|_| admission.admit(source(number), now)).collect()
}

#[test]
fn source_beyond_its_share_keeps_no_other_out() {
    let now = Instant::now();
    let admission = admission(now);
    let held = places(&admission, 1, now);
    assert_eq!((held.len(), places(&admission, 2, now).len()), (8, 8));
    assert!(places(&admission, 1, now + SECOND).is_empty(), "its connections are still open");
    drop(held);
    assert_eq!(places(&admission, 1, now + SECOND * 2).len(), 4, "they failed");
}

#[test]
fn strangers_together_are_bounded() {
    let now = Instant::now();
    let admission = admission(now);
    let at = |second: u32| now + SECOND * second;
    let connect =
        |second: u32| (0..1000).filter_map(|number| admission.admit(source(number), at(second))).collect::<Vec<_>>();
    let (first, rest) = (connect(0), (1..10).flat_map(connect).collect::<Vec<_>>());
    assert_eq!((first.len(), first.len() + rest.len()), (100, 192));
    drop(first);
    assert!(admission.admit(source(5000), at(20)).is_some());
}

#[test]
fn passed_source_has_a_place_whatever_strangers_do() {
    let now = Instant::now();
    let admission = admission(now);
    let at = |second: u32| now + SECOND * second;
    let pass = |second: u32| {
        let mut slot = admission.admit(source(1), at(second)).unwrap();
        slot.pass(at(second));
    };
    pass(0);
    let mut held = Vec::new();
    for second in 1..100 {
        held.extend((2..1000).filter_map(|number| admission.admit(source(number), at(second))));
        pass(second);
    }
    assert_eq!(places(&admission, 1, at(100)).len(), 32, "and its failed handshakes do not count against it");
    assert_eq!(places(&admission, 1, at(101)).len(), 32);
    drop(held);
    let later = now + SECOND * 102 + REMEMBERED;
    assert_eq!(places(&admission, 1, later).len(), 8, "an address may be another program's by now");
}

#[test]
fn failed_sources_leave_room_for_new_ones() {
    let now = Instant::now();
    let admission = admission(now);
    let (mut second, mut held) = (0, Vec::new());
    // They all fail, ninety of them in a second.
    for number in 0..900 {
        second = number / 90;
        drop(admission.admit(source(number), now + SECOND * second).unwrap());
    }
    for _ in 0..10 {
        second += 1;
        held.extend((0..900).filter_map(|number| admission.admit(source(number), now + SECOND * second)));
    }
    assert_eq!(held.len(), 128);
    assert_eq!(places(&admission, 5000, now + SECOND * (second + 1)).len(), 8);
}

#[test]
fn remembered_sources_are_bounded() {
    let now = Instant::now();
    let admission = admission(now);
    let mut passed = admission.admit(source(0), now).unwrap();
    passed.pass(now);
    for number in 1..20_000 {
        drop(admission.admit(source(number), now + SECOND * (number / 50)));
        assert!(admission.lock().known.len() <= SOURCES_MAX);
    }
    assert_eq!(admission.lock().known.get(&source(0)).map(|known| known.standing), Some(Standing::Passed));
}
