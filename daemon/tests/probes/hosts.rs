//! Faults of the hosts.

use std::net::IpAddr;
use std::process::Command;

use nettest::probe::{ProbeKind, ProbeTarget};
use nettest::{Case, Cause, Label, Place};

use crate::lab::{Lab, PORT, at_once};

/// The second VNIC's link of a virtual machine in the sandbox.
const SECOND: &str = "ens5";

pub(crate) fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn set(path: &str, value: &str) {
    std::fs::write(format!("/proc/sys/{path}"), value).unwrap();
}

/// A case to the address of `back-1`'s second VNIC, which has an address and no rules: answers leave by the first one.
fn to_the_second_vnic(lab: &Lab, rp_filter: &str) -> Case {
    let vnics = lab.vcn.node("back-1").unwrap().vnics();
    let address = vnics[1].address.ipv4.unwrap();
    lab.on("back-1", || {
        run(&format!("ip link set {SECOND} up mtu 9000"));
        run(&format!("ip address add {address}/24 dev {SECOND}"));
        run(&format!("ip route add default via 10.0.30.1 dev {SECOND} metric 900"));
        // The gateway's MAC is known: a question for it would have the second VNIC's address, which the VCN does not answer.
        run("ping -c 1 10.0.20.1");
        set("net/ipv4/conf/all/rp_filter", "0");
        set(&format!("net/ipv4/conf/{SECOND}/rp_filter"), rp_filter);
    });
    let mut case = lab.case(ProbeKind::Tcp, PORT);
    case.target.address = Some(address);
    case.send.target = ProbeTarget::Address(address);
    case
}

#[test]
fn strict_reverse_path_filter_is_named() {
    let lab = Lab::new();
    let case = to_the_second_vnic(&lab, "1");
    let verdict = lab.investigate(case);
    assert_eq!((verdict.label, verdict.causes), (Label::Proven, vec![Cause::ReversePathFilter]));
    assert_eq!(verdict.place, Place::TargetHost);
}

#[test]
fn answer_by_another_vnic_is_named() {
    let lab = Lab::new();
    let case = to_the_second_vnic(&lab, "0");
    assert_eq!(lab.named(case), (Label::Proven, vec![Cause::AsymmetricRoute]));
}

#[test]
fn missing_rule_of_a_vnic_is_named_without_a_packet() {
    let lab = Lab::new();
    let source: IpAddr = lab.vcn.node("back-1").unwrap().vnics()[1].address.ipv4.unwrap();
    to_the_second_vnic(&lab, "2");
    let mut case = lab.case(ProbeKind::Route, 0);
    (case.source, case.target) = (case.target.clone(), case.source.clone());
    case.send.source = Some(source);
    case.send.target = ProbeTarget::Address(lab.address("front-1"));
    assert_eq!(lab.named(case), (Label::Proven, vec![Cause::HostRoute]));
}

#[test]
fn rejecting_firewall_is_proven_and_dropping_firewall_is_likely() {
    let rules = [("reject with icmp type host-prohibited", Label::Proven), ("drop", Label::Likely)];
    at_once(rules, |lab, (rule, label)| {
        lab.filter("back-1", "input", &format!("tcp dport {PORT} {rule}"));
        let verdict = lab.investigate(lab.case(ProbeKind::Tcp, PORT));
        assert_eq!((verdict.label, verdict.causes), (label, vec![Cause::HostFirewall]), "{rule}");
        assert_eq!(verdict.place, Place::TargetHost, "{rule}");
    });
}

#[test]
fn port_without_a_listener_is_named() {
    let lab = Lab::new();
    assert_eq!(lab.named(lab.case(ProbeKind::Tcp, PORT + 1)), (Label::Proven, vec![Cause::PortClosed]));
}
