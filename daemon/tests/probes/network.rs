//! Faults of the network between two hosts.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::time::Duration;

use api::probe::ProbeKind;
use nettest::{Case, Cause, Label, Tap};
use sandbox::{DeniedAt, DeniedTraffic, Noise, PathMtu, Policy};
use vcn::Family;

use crate::hosts::run;
use crate::lab::{Lab, PORT};

pub(crate) fn denied(at: DeniedAt) -> DeniedTraffic {
    DeniedTraffic { at, tcp_port: Some(PORT), except: BTreeSet::new() }
}

#[test]
fn pair_without_fault_is_reachable_by_every_probe() {
    let lab = Lab::new();
    let kinds = [
        (ProbeKind::Icmp, 0),
        (ProbeKind::Tcp, PORT),
        (ProbeKind::Udp, 4789),
        (ProbeKind::PathMtu, 0),
        (ProbeKind::Route, 0),
    ];
    for (kind, port) in kinds {
        assert_eq!(lab.named(lab.case(kind, port)), (Label::Reachable, vec![]), "{kind:?}");
        assert_eq!(lab.named(lab.case_v6(kind, port)), (Label::Reachable, vec![]), "{kind:?} by IPv6");
    }
}

#[test]
fn security_list_and_group_are_named_by_ipv6_too() {
    let lab = Lab::new();
    let list = denied(DeniedAt::SubnetIngress("back".into()));
    lab.vcn.set_policy(Policy { denied: vec![list], ..Policy::default() }).unwrap();
    assert_eq!(lab.named(lab.case_v6(ProbeKind::Tcp, PORT)), (Label::Likely, vec![Cause::SecurityList]));
    let address = |node: &str| lab.vcn.node(node).unwrap().address(Family::Ipv6).unwrap();
    let mut group = denied(DeniedAt::VnicIngress(address("back-1")));
    group.except.insert(address("front-2"));
    lab.vcn.set_policy(Policy { denied: vec![group], ..Policy::default() }).unwrap();
    assert_eq!(lab.named(lab.case_v6(ProbeKind::Tcp, PORT)), (Label::Likely, vec![Cause::SecurityGroup]));
}

#[test]
fn network_that_no_subnet_reaches_leaves_gateway_and_route_table() {
    let lab = Lab::new();
    let unrouted = ["front", "third"].map(|subnet| (subnet.to_owned(), "10.0.20.0/24".parse().unwrap()));
    lab.vcn.set_policy(Policy { unrouted: unrouted.into(), ..Policy::default() }).unwrap();
    let left = vec![Cause::Gateway, Cause::RouteTable];
    assert_eq!(lab.named(lab.case(ProbeKind::Tcp, PORT)), (Label::OneOf, left));
}

#[test]
fn security_list_of_the_targets_subnet_is_named() {
    let lab = Lab::new();
    let list = denied(DeniedAt::SubnetIngress("back".into()));
    lab.vcn.set_policy(Policy { denied: vec![list], ..Policy::default() }).unwrap();
    assert_eq!(lab.named(lab.case(ProbeKind::Tcp, PORT)), (Label::Likely, vec![Cause::SecurityList]));
}

#[test]
fn security_group_that_admits_a_neighbour_is_named() {
    let lab = Lab::new();
    let mut group = denied(DeniedAt::VnicIngress(lab.address("back-1")));
    group.except.insert(lab.address("front-2"));
    lab.vcn.set_policy(Policy { denied: vec![group], ..Policy::default() }).unwrap();
    assert_eq!(lab.named(lab.case(ProbeKind::Tcp, PORT)), (Label::Likely, vec![Cause::SecurityGroup]));
}

#[test]
fn neighbours_that_disagree_leave_list_and_group() {
    let neighbours = ["front-2", "front-3", "front-4"];
    let lab = Lab::with(&neighbours[1..]);
    let (list, group) = (Cause::SecurityList, Cause::SecurityGroup);
    for (admitted, label, causes) in [
        (0, Label::Likely, vec![list]),
        (1, Label::OneOf, vec![list, group]),
        (2, Label::OneOf, vec![list, group]),
        (3, Label::Likely, vec![group]),
    ] {
        let except = neighbours[..admitted].iter().map(|node| lab.address(node)).collect();
        let denied = DeniedTraffic { except, ..denied(DeniedAt::VnicIngress(lab.address("back-1"))) };
        lab.vcn.set_policy(Policy { denied: vec![denied], ..Policy::default() }).unwrap();
        let others = lab.compared(neighbours.into_iter().chain(["third-1"]));
        let case = Case { others, ..lab.case(ProbeKind::Tcp, PORT) };
        assert_eq!(lab.named(case), (label, causes), "{admitted} of 3 are admitted");
    }
}

/// Stateless rules: the target answers, and its answers are lost.
#[test]
fn stateless_security_list_that_drops_answers_is_named() {
    let lab = Lab::new();
    let list = denied(DeniedAt::SubnetAnswers("back".into()));
    lab.vcn.set_policy(Policy { denied: vec![list], ..Policy::default() }).unwrap();
    let verdict = lab.investigate(lab.case(ProbeKind::Tcp, PORT));
    assert_eq!((verdict.label, verdict.causes), (Label::Likely, vec![Cause::SecurityList]));
    assert_eq!(verdict.last_tap, Some(Tap::TargetOut));
}

/// The cloud's table: new flows are lost, an old one lives, and the host's own table has room.
#[test]
fn full_connection_table_of_a_vnic_is_listed() {
    let lab = Lab::new();
    let noise = Noise { delay: Duration::ZERO, lost_of: u32::MAX };
    lab.vcn.set_policy(Policy { noise: Some(noise), ..Policy::default() }).unwrap();
    let target = lab.address("back-1");
    let flow = || lab.on("front-1", || UdpSocket::bind("0.0.0.0:0").unwrap());
    // Answered by the server on the target.
    let passes = |socket: &UdpSocket| {
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        (0..5).any(|_| socket.send_to(b"x", (target, PORT)).is_ok() && socket.recv(&mut [0; 8]).is_ok())
    };
    let old = flow();
    assert!(passes(&old));
    lab.on("front-1", || {
        run("nft add table inet tracked");
        run("nft add chain inet tracked output { type filter hook output priority 0 ; }");
        run("nft add rule inet tracked output ct state invalid drop");
        // More than the smallest shape's VNIC would let pass, on the loopback link.
        let socket = UdpSocket::bind("127.0.0.1:9000").unwrap();
        (10_000..20_500).for_each(|port| drop(socket.send_to(b"x", ("127.0.0.1", port))));
    });
    let full_vnic = Some(lab.address("front-1"));
    lab.vcn.set_policy(Policy { full_vnic, ..Policy::default() }).unwrap();
    let verdict = lab.investigate(lab.case(ProbeKind::Tcp, PORT));
    let left = vec![Cause::SecurityList, Cause::SecurityGroup, Cause::RouteTable, Cause::Gateway, Cause::VnicConntrack];
    assert_eq!((verdict.label, verdict.causes), (Label::OneOf, left), "{}", verdict.after);
    assert!(verdict.fix.contains("VnicConntrackIsFull"), "{}", verdict.fix);
    assert_eq!((passes(&old), passes(&flow())), (true, false));
}

#[test]
fn list_and_group_are_both_left_without_a_neighbour() {
    let lab = Lab::new();
    let list = denied(DeniedAt::SubnetIngress("back".into()));
    lab.vcn.set_policy(Policy { denied: vec![list], ..Policy::default() }).unwrap();
    let mut case = lab.case(ProbeKind::Tcp, PORT);
    case.others.retain(|other| other.node != "front-2");
    assert_eq!(lab.named(case), (Label::OneOf, vec![Cause::SecurityList, Cause::SecurityGroup]));
}

#[test]
fn missing_route_of_the_sources_subnet_is_named() {
    let lab = Lab::new();
    let unrouted = ["10.0.20.0/24", "2603:c020:0:2::/64"].map(|to| ("front".to_owned(), to.parse().unwrap())).into();
    lab.vcn.set_policy(Policy { unrouted, ..Policy::default() }).unwrap();
    assert_eq!(lab.named(lab.case(ProbeKind::Tcp, PORT)), (Label::Likely, vec![Cause::RouteTable]));
    assert_eq!(lab.named(lab.case_v6(ProbeKind::Tcp, PORT)), (Label::Likely, vec![Cause::RouteTable]), "by IPv6");
}

#[test]
fn missing_return_route_leaves_gateway_and_route_table() {
    let lab = Lab::new();
    let unrouted = vec![
        ("back".to_owned(), "10.0.10.0/24".parse().unwrap()),
        ("back".to_owned(), "10.0.30.0/24".parse().unwrap()),
    ];
    lab.vcn.set_policy(Policy { unrouted, ..Policy::default() }).unwrap();
    let left = vec![Cause::Gateway, Cause::RouteTable, Cause::SecurityList, Cause::SecurityGroup];
    assert_eq!(lab.named(lab.case(ProbeKind::Tcp, PORT)), (Label::OneOf, left));
}

#[test]
fn path_that_swallows_or_reports_large_packets_is_named() {
    let lab = Lab::new();
    for reported in [false, true] {
        let path_mtu = Some(PathMtu { bytes: 1500, reported });
        lab.vcn.set_policy(Policy { path_mtu, ..Policy::default() }).unwrap();
        let verdict = lab.investigate(lab.case(ProbeKind::PathMtu, 0));
        assert_eq!((verdict.label, verdict.causes), (Label::Proven, vec![Cause::PathMtu]));
        assert_eq!(verdict.failure.contains("10.0.10.1 allows 1500 bytes"), reported, "{}", verdict.failure);
        let verdict = lab.investigate(lab.case_v6(ProbeKind::PathMtu, 0));
        assert_eq!((verdict.label, verdict.causes), (Label::Proven, vec![Cause::PathMtu]), "by IPv6");
        let router = verdict.failure.contains("lost, fe80::") && verdict.failure.contains(" allows 1500 bytes");
        assert_eq!(router, reported, "{}", verdict.failure);
    }
}

#[test]
fn source_dest_check_of_a_vnic_is_named() {
    let lab = Lab::new();
    let mut case = lab.case(ProbeKind::Icmp, 0);
    case.send.source = Some("10.244.1.7".parse().unwrap());
    assert_eq!(lab.named(case), (Label::Proven, vec![Cause::SourceDestCheck]));
}
