//! Throughput between two hosts, with and without a fault.

use std::io::Write as _;
use std::net::{IpAddr, TcpListener};
use std::time::{Duration, Instant};

use nettest::probe::{Failure, ProbeKind, ProbeRequest, ReceiveTask, THROUGHPUT_PORT, Task};
use nettest::{Cause, Label};
use sandbox::{DeniedAt, DeniedTraffic, PathMtu, Policy, Traffic};
use vcn::Family;

use crate::hosts::run;
use crate::lab::{Lab, PORT, at_once, denied};

fn receive(lab: &Lab, port: u16, from: IpAddr) -> ProbeRequest {
    ProbeRequest::new(Task::Receive(ReceiveTask { address: lab.address("back-1"), port, from, for_ms: 1_000 }))
}

#[test]
fn path_without_fault_carries_what_is_sent() {
    let lab = Lab::new();
    let mut case = lab.case(ProbeKind::Throughput, THROUGHPUT_PORT);
    // The emulated network shares the processors with other tests.
    case.send.mbits = Some(20);
    assert_eq!(lab.named(case), (Label::Reachable, vec![]));
    let mut case = lab.case_v6(ProbeKind::Throughput, THROUGHPUT_PORT);
    case.send.mbits = Some(20);
    case.send.source = lab.vcn.node("front-1").unwrap().address(Family::Ipv6);
    assert_eq!(lab.named(case), (Label::Reachable, vec![]), "by IPv6");
}

#[test]
fn slow_link_is_named_with_what_it_carries() {
    let lab = Lab::new();
    lab.on("front-1", || run("tc qdisc add dev ens3 root tbf rate 10mbit burst 32kb latency 50ms"));
    let verdict = lab.investigate(lab.case(ProbeKind::Throughput, THROUGHPUT_PORT));
    assert_eq!((verdict.label, &verdict.causes[..]), (Label::Likely, &[Cause::Bandwidth][..]));
    let carried: u32 = verdict.failure.split(' ').next().unwrap().parse().unwrap();
    assert!((5..=15).contains(&carried), "{}", verdict.failure);
}

/// Brings a fault about.
type Inject = fn(&Lab);

#[test]
fn lost_or_reset_packets_are_named() {
    let faults: [(Inject, Cause); 3] = [
        // Those of full size.
        (
            |lab| {
                let silent = PathMtu { bytes: 1500, reported: false };
                lab.set(Policy { path_mtu: Some(silent), ..Policy::default() });
            },
            Cause::PathMtu,
        ),
        // A list without the port.
        (
            |lab| {
                let list = denied(DeniedAt::SubnetIngress("back".into()));
                lab.deny(DeniedTraffic { traffic: Traffic::TcpPort(THROUGHPUT_PORT), ..list });
            },
            Cause::SecurityList,
        ),
        (|lab| lab.filter("back-1", "input", "tcp dport 5201 reject with tcp reset"), Cause::HostFirewall),
    ];
    at_once(faults, |lab, (inject, cause)| {
        inject(lab);
        assert_eq!(lab.named(lab.case(ProbeKind::Throughput, THROUGHPUT_PORT)), (Label::Likely, vec![cause]));
    });
}

#[test]
fn other_programs_on_the_port_are_sent_nothing() {
    let lab = Lab::new();
    let used = lab.probe("back-1", &receive(&lab, PORT, lab.address("front-1"))).unwrap_err().to_string();
    assert_eq!(used, "prepare the probe: listen on 10.0.20.2:8443: Address already in use (os error 98)");
    let report =
        lab.probe("front-1", &ProbeRequest::new(Task::Send(lab.case(ProbeKind::Throughput, PORT).send))).unwrap();
    let other = Failure::Invalid("the program on the port is not a receiver of a network test".to_owned());
    assert_eq!((report.tally.received, report.tally.failure), (0, Some(other)));
}

#[test]
fn receiver_accepts_the_named_sender_only() {
    let lab = Lab::new();
    let request = receive(&lab, THROUGHPUT_PORT, lab.address("front-2"));
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| lab.probe("back-1", &request).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        let send = Task::Send(lab.case(ProbeKind::Throughput, THROUGHPUT_PORT).send);
        let report = lab.probe("front-1", &ProbeRequest::new(send)).unwrap();
        assert_eq!(report.tally.received, 0);
        let received = receiver.join().unwrap().received.unwrap();
        assert_eq!((received.from, received.bytes), (Some(lab.address("front-1")), 0));
    });
}

/// It greets with one byte after the other, each just within the timeout.
#[test]
fn slow_greeting_ends_within_the_bound_of_the_task() {
    let lab = Lab::new();
    let listener = lab.on("back-1", || TcpListener::bind(("::", THROUGHPUT_PORT)).unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            while stream.write_all(b"o").is_ok() {
                std::thread::sleep(Duration::from_millis(300));
            }
        }
    });
    let send = lab.case(ProbeKind::Throughput, THROUGHPUT_PORT).send;
    let (bound, began) = (Duration::from_millis(send.longest_ms().into()), Instant::now());
    let report = lab.probe("front-1", &ProbeRequest::new(Task::Send(send))).unwrap();
    assert!(began.elapsed() <= bound, "{:?}", began.elapsed());
    assert_eq!(report.tally.received, 0);
}
