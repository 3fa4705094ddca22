//! Events from the real kernel.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ipnetwork::IpNetwork;
use netlink::{Address, Change, Event, LinkKind, Monitor, Netns, NewLink, Peer, Route, Rule, Socket, Sysctls};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use vcn::{Family, IfName, Priority, TableId};

const DEADLINE: Duration = Duration::from_secs(60);

fn wait_for(monitor: &mut Monitor, is_expected: impl Fn(&Event) -> bool) -> Event {
    let end = Instant::now() + DEADLINE;
    while Instant::now() < end {
        let events = monitor.drain().unwrap();
        if let Some(event) = events.into_iter().find(&is_expected) {
            return event;
        }
        let mut descriptors = [PollFd::new(monitor.as_fd(), PollFlags::POLLIN)];
        poll(&mut descriptors, PollTimeout::from(200_u8)).unwrap();
    }
    panic!("no such event within {DEADLINE:?}");
}

#[test]
fn monitor_reports_creation_and_deletion_of_each_object_type() {
    let netns = Netns::create().unwrap();
    let mut socket = Socket::open_in(&netns).unwrap();
    let mut monitor = netns.run(Monitor::open).unwrap().unwrap();
    assert_eq!(monitor.drain().unwrap(), [], "nothing happened yet");

    let name = IfName::new("br0").unwrap();
    let link = NewLink { up: true, index: Some(10), ..NewLink::new(name.clone(), LinkKind::Bridge) };
    socket.add_link(&link).unwrap();
    wait_for(&mut monitor, |event| matches!(event, Event::Link(Change::Present, link) if link.name == name));

    let network: IpNetwork = "10.0.1.7/24".parse().unwrap();
    let address = Address::new(10, network);
    socket.add_address(&address).unwrap();
    wait_for(&mut monitor, |event| *event == Event::Address(Change::Present, address));

    let host = "10.0.1.9/32".parse().unwrap();
    let route = Route { scope_link: true, ..Route::new(host, 10, TableId(1001), 157) };
    socket.add_route(&route).unwrap();
    wait_for(&mut monitor, |event| *event == Event::Route(Change::Present, route.clone()));
    socket.delete_route(&route).unwrap();
    wait_for(&mut monitor, |event| *event == Event::Route(Change::Gone, route.clone()));

    let rule = Rule { from: Some(host), ..Rule::new(Family::Ipv4, Priority(1536), TableId(1001), 157) };
    socket.add_rule(&rule).unwrap();
    wait_for(&mut monitor, |event| *event == Event::Rule(Change::Present, rule.clone()));

    socket.delete_link_named(&name).unwrap();
    wait_for(&mut monitor, |event| matches!(event, Event::Link(Change::Gone, link) if link.name == name));
}

#[test]
fn monitor_reports_written_setting_but_not_initial_values() {
    let netns = Netns::create().unwrap();
    let mut monitor = netns.run(Monitor::open).unwrap().unwrap();
    let link = NewLink { up: true, index: Some(10), ..NewLink::new(IfName::new("br0").unwrap(), LinkKind::Bridge) };
    Socket::open_in(&netns).unwrap().add_link(&link).unwrap();
    let write = |key: &str, value: &str| {
        netns.run(|| Sysctls::new(Path::new("/proc/sys")).write(key, value).unwrap()).unwrap();
    };
    let settings =
        |monitor: &mut Monitor| monitor.drain().unwrap().iter().filter(|event| **event == Event::Setting).count();
    write("net/ipv4/conf/br0/rp_filter", "2");
    // All events until then, so also that of the link's creation.
    assert_eq!(settings(&mut monitor), 1);
    write("net/ipv6/conf/br0/proxy_ndp", "1");
    assert_eq!(settings(&mut monitor), 1);
    let now = netns.run(|| std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap()).unwrap();
    let other = 1 - now.trim().parse::<i32>().unwrap();
    write("net/ipv4/ip_forward", &other.to_string());
    assert!(settings(&mut monitor) > 0);
}

#[test]
fn port_leaving_its_bridge_is_not_reported_as_deleted() {
    let netns = Netns::create().unwrap();
    let mut socket = Socket::open_in(&netns).unwrap();
    let port = IfName::new("port").unwrap();
    let peer = Peer { name: IfName::new("other").unwrap(), mac: None, mtu: None, netns: None };
    socket.add_link(&NewLink::new(port.clone(), LinkKind::Veth(peer))).unwrap();
    let bridge = NewLink { index: Some(100), ..NewLink::new(IfName::new("br0").unwrap(), LinkKind::Bridge) };
    socket.add_link(&bridge).unwrap();
    let ip = |words: &str| netns.run(|| Command::new("ip").args(words.split(' ')).status()).unwrap().unwrap();
    assert!(ip("link set port master br0").success());
    let mut monitor = netns.run(Monitor::open).unwrap().unwrap();
    assert!(ip("link set port nomaster").success());
    let end = Instant::now() + DEADLINE;
    let mut events = Vec::new();
    let left = |event: &Event| matches!(event, Event::Link(Change::Present, link) if link.name == port && link.master.is_none());
    while !events.iter().any(left) {
        assert!(Instant::now() < end, "{events:?}");
        events.extend(monitor.drain().unwrap());
    }
    let gone = events.iter().any(|event| matches!(event, Event::Link(Change::Gone, _)));
    assert!(!gone, "{events:?}");
}

#[test]
fn lost_events_are_reported_as_one_overrun() {
    let netns = Netns::create().unwrap();
    let mut socket = Socket::open_in(&netns).unwrap();
    let link = NewLink { up: true, index: Some(10), ..NewLink::new(IfName::new("br0").unwrap(), LinkKind::Bridge) };
    socket.add_link(&link).unwrap();
    let mut monitor = netns.run(Monitor::open).unwrap().unwrap();
    let route = Route { scope_link: true, ..Route::new("10.9.9.9/32".parse().unwrap(), 10, TableId(1001), 157) };
    // More than any receive queue that the kernel's limits allow here would hold.
    for _ in 0..8_000 {
        socket.add_route(&route).unwrap();
        socket.delete_route(&route).unwrap();
    }
    let events = monitor.drain().unwrap();
    assert_eq!(events.iter().filter(|event| **event == Event::Overrun).count(), 1, "{} events", events.len());
    assert_eq!(monitor.drain().unwrap(), [], "and then it goes on as before");
}
