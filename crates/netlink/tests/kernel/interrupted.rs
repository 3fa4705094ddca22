//! Lists that change while they are read: whole, or refused as worth another try; never silently short.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ipnetwork::IpNetwork;
use netlink::{Address, LinkKind, Netns, NewLink, Socket};
use vcn::IfName;

/// Enough that the kernel needs several messages' worth of buffer for a list.
const STABLE: u16 = 600;

/// A list so long that another thread runs while it is read, every time.
const LONG: u16 = 10 * STABLE;

fn stable(count: u16) -> BTreeSet<IpNetwork> {
    (0..count).map(|n| format!("10.{}.{}.1/32", n >> 8, n & 0xff).parse().unwrap()).collect()
}

/// On a machine with other things to do, one thread is hardly ever at it when a list is.
const CHANGERS: u8 = 4;

/// Runs `test` in a namespace of `count` addresses and of some that other threads add and remove, with `pause` between.
fn while_addresses_change(count: u16, pause: Duration, test: impl FnOnce(&mut Socket) + Send) {
    let netns = Netns::create().unwrap();
    let mut socket = Socket::open_in(&netns).unwrap();
    socket.add_link(&NewLink::new(IfName::new("br").unwrap(), LinkKind::Bridge)).unwrap();
    let index = socket.index_of(&IfName::new("br").unwrap()).unwrap();
    for address in stable(count) {
        socket.add_address(&Address::new(index, address)).unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for changer in 1..=CHANGERS {
            let (over, mut other) = (&over, Socket::open_in(&netns).unwrap());
            let come_and_go = Address::new(index, format!("192.0.2.{changer}/32").parse().unwrap());
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    other.add_address(&come_and_go).unwrap();
                    other.delete_address(&come_and_go).unwrap();
                    std::thread::sleep(pause);
                }
            });
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&mut socket)));
        over.store(true, Ordering::Relaxed);
        outcome.unwrap();
    });
}

#[test]
fn a_list_is_whole_however_the_kernel_was_interrupted() {
    while_addresses_change(STABLE, Duration::from_millis(2), |socket| {
        let mut whole = 0;
        let deadline = Instant::now() + Duration::from_secs(120);
        while whole < 100 {
            assert!(Instant::now() < deadline, "{whole}");
            match socket.addresses(None) {
                Ok(found) => {
                    let found: BTreeSet<IpNetwork> = found.iter().map(|address| address.address).collect();
                    assert!(found.is_superset(&stable(STABLE)), "{} of {STABLE}", found.len());
                    whole += 1;
                }
                Err(error) => assert!(error.is_retryable(), "{error}"),
            }
        }
    });
}

#[test]
fn a_list_that_never_stands_still_is_refused_as_retryable() {
    while_addresses_change(LONG, Duration::ZERO, |socket| {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            match socket.addresses(None) {
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    break;
                }
                Ok(_) => assert!(Instant::now() < deadline, "no list was ever interrupted too often"),
            }
        }
    });
}
