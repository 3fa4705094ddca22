//! Pairs without a fault are not accused, while packets are late, overtake each other, and one of many is lost.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use api::TargetService;
use nettest::probe::{Party, ProbeKind};
use nettest::{Case, Label};
use sandbox::{Noise, Policy};
use vcn::Family;

use crate::lab::{Lab, PORT, To as _};

const NODES: [&str; 5] = ["front-1", "front-2", "back-1", "back-2", "third-1"];
const AT_ONCE: usize = 4;
/// Runs, and those of SOAK=1.
const SAMPLE: usize = 54;
const ALL: usize = 1_000;

/// What a run probes.
#[derive(Clone, Copy, Debug)]
enum Probed {
    Node(ProbeKind, u16),
    Service(ProbeKind, TargetService),
}

const PROBED: [Probed; 9] = [
    Probed::Node(ProbeKind::Icmp, 0),
    Probed::Node(ProbeKind::Tcp, PORT),
    Probed::Node(ProbeKind::Udp, PORT),
    Probed::Node(ProbeKind::PathMtu, 0),
    Probed::Node(ProbeKind::Route, 0),
    Probed::Service(ProbeKind::Http, TargetService::Imds),
    Probed::Service(ProbeKind::Dns, TargetService::Dns),
    Probed::Service(ProbeKind::Icmp, TargetService::Gateway),
    Probed::Service(ProbeKind::Tcp, TargetService::ApiServer),
];

/// Each run has another pair, every second one is of IPv6.
fn case(lab: &Lab, run: usize) -> Case {
    let family = if run.is_multiple_of(2) { Family::Ipv4 } else { Family::Ipv6 };
    let address = |node: &str| lab.vcn.node(node).unwrap().address(family).unwrap();
    let from = NODES[run % 5];
    let to = NODES[(run + 1 + run / 5 % 4) % 5];
    let mut case = match PROBED[run % 9] {
        Probed::Node(kind, port) => {
            let target = Party { node: Some(to.to_owned()), address: None };
            Case { target, ..lab.case(kind, port) }.to(address(to))
        }
        Probed::Service(kind, service) => {
            let mut case = lab.service(kind, service);
            // The API server has an address of IPv4.
            case.send.source = (service != TargetService::ApiServer).then(|| address(from));
            case
        }
    };
    case.source = lab.party(from);
    case.others = lab.compared(NODES.into_iter().filter(|node| *node != from && *node != to));
    case.send.source_port = 20_000 + u16::try_from(run).unwrap();
    // A busy machine delays, too.
    (case.send.interval_ms, case.send.timeout_ms) = (10, 2_000);
    case
}

#[test]
fn pairs_without_fault_are_never_accused() {
    let runs = if std::env::var_os("SOAK").is_some() { ALL } else { SAMPLE };
    let lab = Lab::new();
    let noise = Noise { delay: Duration::from_millis(15), lost_of: 97 };
    lab.vcn.set_policy(Policy { noise: Some(noise), ..Policy::default() }).unwrap();
    let (next, findings) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(run) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|run| *run < runs) {
                    let case = case(&lab, run);
                    let (label, causes) = lab.named(case.clone());
                    if (label, causes.is_empty()) != (Label::Reachable, true) {
                        findings.lock().unwrap().push((run, label, causes, case.send));
                    }
                }
            });
        }
    });
    assert_eq!(findings.into_inner().unwrap(), []);
    let lost: u64 = lab
        .vcn
        .drops()
        .iter()
        .filter(|drop| drop.reason.to_string().contains("by chance"))
        .map(|drop| drop.frames)
        .sum();
    assert!(lost > 0, "the noise loses packets");
}
