//! Faults of the network between two hosts.

use std::net::UdpSocket;
use std::time::Duration;

use nettest::probe::ProbeKind;
use nettest::{Cause, Label, Tap};
use sandbox::{DeniedAt, DeniedTraffic, Noise, PathMtu, Policy};
use vcn::Family;

use crate::hosts::run;
use crate::lab::{Lab, PORT, at_once, denied};

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

/// Routes that a subnet lacks.
fn unrouted(routes: &[(&str, &str)]) -> Policy {
    let unrouted = routes.iter().map(|(subnet, to)| ((*subnet).to_owned(), to.parse().unwrap())).collect();
    Policy { unrouted, ..Policy::default() }
}

/// A fault, and whether it is of IPv6.
type Fault = (fn(&Lab) -> Policy, bool, Label, &'static [Cause]);

fn list(_: &Lab) -> Policy {
    Policy { denied: vec![denied(DeniedAt::SubnetIngress("back".into()))], ..Policy::default() }
}

/// It admits a neighbour of the source.
fn group(lab: &Lab) -> Policy {
    let both = |node: &str| Family::ALL.map(|family| lab.vcn.node(node).unwrap().address(family).unwrap());
    let group = |at| DeniedTraffic { except: both("front-2").into(), ..denied(DeniedAt::VnicIngress(at)) };
    Policy { denied: both("back-1").map(group).into(), ..Policy::default() }
}

#[test]
fn missing_routes_and_security_rules_are_named_by_both_families() {
    let table: fn(&Lab) -> Policy = |_| unrouted(&[("front", "10.0.20.0/24"), ("front", "2603:c020:0:2::/64")]);
    let faults: [Fault; 7] = [
        (list, false, Label::Likely, &[Cause::SecurityList]),
        (list, true, Label::Likely, &[Cause::SecurityList]),
        (group, false, Label::Likely, &[Cause::SecurityGroup]),
        (group, true, Label::Likely, &[Cause::SecurityGroup]),
        (table, false, Label::Likely, &[Cause::RouteTable]),
        (table, true, Label::Likely, &[Cause::RouteTable]),
        // No subnet reaches the target's.
        (
            |_| unrouted(&[("front", "10.0.20.0/24"), ("third", "10.0.20.0/24")]),
            false,
            Label::OneOf,
            &[Cause::Gateway, Cause::RouteTable],
        ),
    ];
    at_once(faults, |lab, (fault, by_v6, label, causes)| {
        let policy = fault(lab);
        lab.set(policy.clone());
        let case = if by_v6 { lab.case_v6(ProbeKind::Tcp, PORT) } else { lab.case(ProbeKind::Tcp, PORT) };
        assert_eq!(lab.named(case), (label, causes.to_vec()), "{policy:?}, IPv6: {by_v6}");
    });
}

/// Stateless rules: the target answers, and its answers are lost.
#[test]
fn stateless_security_list_that_drops_answers_is_named() {
    let lab = Lab::new();
    let list = denied(DeniedAt::SubnetAnswers("back".into()));
    lab.deny(list);
    let verdict = lab.investigate(lab.case(ProbeKind::Tcp, PORT));
    assert_eq!((verdict.label, verdict.causes), (Label::Likely, vec![Cause::SecurityList]));
    assert_eq!(verdict.last_tap, Some(Tap::TargetOut));
}

/// The cloud's table: new flows are lost, an old one lives, and the host's own table has room.
#[test]
fn full_connection_table_of_a_vnic_is_listed() {
    let lab = Lab::new();
    let noise = Noise { delay: Duration::ZERO, lost_of: u32::MAX };
    lab.set(Policy { noise: Some(noise), ..Policy::default() });
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
    lab.set(Policy { full_vnic, ..Policy::default() });
    let verdict = lab.investigate(lab.case(ProbeKind::Tcp, PORT));
    let left = vec![Cause::SecurityList, Cause::SecurityGroup, Cause::RouteTable, Cause::Gateway, Cause::VnicConntrack];
    assert_eq!((verdict.label, verdict.causes), (Label::OneOf, left), "{}", verdict.after);
    assert!(verdict.fix.contains("VnicConntrackIsFull"), "{}", verdict.fix);
    assert_eq!((passes(&old), passes(&flow())), (true, false));
}

#[test]
fn path_that_swallows_or_reports_large_packets_is_named() {
    let lab = Lab::new();
    for reported in [false, true] {
        let path_mtu = Some(PathMtu { bytes: 1500, reported });
        lab.set(Policy { path_mtu, ..Policy::default() });
        let verdict = lab.investigate(lab.case(ProbeKind::PathMtu, 0));
        assert_eq!((verdict.label, verdict.causes), (Label::Proven, vec![Cause::PathMtu]));
        assert_eq!(verdict.failure.contains("10.0.10.1 allows 1500 bytes"), reported, "{}", verdict.failure);
        let verdict = lab.investigate(lab.case_v6(ProbeKind::PathMtu, 0));
        assert_eq!((verdict.label, verdict.causes), (Label::Proven, vec![Cause::PathMtu]), "by IPv6");
        let router = verdict.failure.contains("lost, fe80::") && verdict.failure.contains(" allows 1500 bytes");
        assert_eq!(router, reported, "{}", verdict.failure);
    }
}
