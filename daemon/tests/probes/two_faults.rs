//! Two faults at once: the verdict lists both, or names the first and says that another can be behind it.

use std::net::IpAddr;

use api::probe::{ProbeKind, ProbeTarget};
use nettest::{Cause, Label};
use sandbox::{DeniedAt, PathMtu, Policy};

use crate::hosts::run;
use crate::lab::{Lab, PORT, at_once, denied};

fn unrouted() -> Vec<(String, ipnetwork::IpNetwork)> {
    vec![("front".to_owned(), "10.0.20.0/24".parse().unwrap())]
}

#[test]
fn missing_route_and_fault_behind_it_are_both_left() {
    let list = denied(DeniedAt::SubnetIngress("back".into()));
    let path_mtu = Some(PathMtu { bytes: 1500, reported: false });
    let cases = [
        (
            Policy { denied: vec![list], unrouted: unrouted(), ..Policy::default() },
            ProbeKind::Tcp,
            PORT,
            Cause::SecurityList,
        ),
        (Policy { path_mtu, unrouted: unrouted(), ..Policy::default() }, ProbeKind::PathMtu, 0, Cause::PathMtu),
    ];
    at_once(cases, |lab, (policy, kind, port, second)| {
        lab.set(policy);
        let (label, causes) = lab.named(lab.case(kind, port));
        assert_eq!(label, Label::OneOf);
        assert!(causes.contains(&Cause::RouteTable) && causes.contains(&second), "{causes:?}");
    });
}

/// The group admits the neighbour, whose packets the host drops: without the target's tap it would look like a security list.
#[test]
fn security_group_and_firewall_behind_it_are_both_left() {
    let lab = Lab::new();
    let mut group = denied(DeniedAt::VnicIngress(lab.address("back-1")));
    group.except.insert(lab.address("front-2"));
    lab.deny(group);
    lab.filter("back-1", "input", &format!("tcp dport {PORT} drop"));
    let both = vec![Cause::SecurityGroup, Cause::HostFirewall];
    assert_eq!(lab.named(lab.case(ProbeKind::Tcp, PORT)), (Label::OneOf, both));
}

/// The host sends by the wrong VNIC, so that no packet meets the security list: the verdict says so, and the next run names it.
#[test]
fn security_list_behind_missing_rule_is_found_by_next_run() {
    let lab = Lab::new();
    let list = denied(DeniedAt::SubnetIngress("front".into()));
    lab.deny(list);
    let source: IpAddr = lab.vcn.node("back-1").unwrap().vnics()[1].address.ipv4.unwrap();
    lab.on("back-1", || {
        run("ip link set ens5 up mtu 9000");
        run(&format!("ip address add {source}/24 dev ens5"));
    });
    let case = || {
        let mut case = lab.case(ProbeKind::Tcp, PORT);
        (case.source, case.target) = (lab.party("back-1"), lab.party("front-1"));
        (case.send.source, case.send.target) = (Some(source), ProbeTarget::Address(lab.address("front-1")));
        case.others = lab.compared(["front-2", "third-1", "back-2"]);
        case
    };
    let verdict = lab.investigate(case());
    assert_eq!((verdict.label, &verdict.causes), (Label::Proven, &vec![Cause::HostRoute]));
    assert!(verdict.to_string().contains("faults behind this place cannot be seen yet"), "{verdict}");
    lab.on("back-1", || {
        run(&format!("ip rule add from {source} lookup 100"));
        run("ip route add default via 10.0.30.1 dev ens5 table 100");
        run("ip route add 10.0.30.0/24 dev ens5 table 100");
    });
    assert_eq!(lab.named(case()), (Label::Likely, vec![Cause::SecurityList]));
}
