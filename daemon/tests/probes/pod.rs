//! The probe of a probe Pod: the program itself, without any capability.

use std::process::Command;

use nettest::probe::{ProbeKind, ProbeReport, ProbeRequest, SendTask, Task};

use crate::hosts::set;
use crate::lab::{Lab, PORT};

/// The report of `oke-node-agent probe` on `front-1`, or the reason that it leaves instead.
fn probe(lab: &Lab, task: Task) -> Result<ProbeReport, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let request = serde_json::to_string(&ProbeRequest::new(task)).unwrap();
    let status = lab.on("front-1", || {
        let mut command = Command::new("setpriv");
        command.args([
            "--no-new-privs",
            "--inh-caps=-all",
            "--bounding-set=-all",
            env!("CARGO_BIN_EXE_oke-node-agent"),
        ]);
        command.args(["probe", "--message"]).arg(file.path()).env("PROBE_REQUEST", &request).status().unwrap()
    });
    let text = std::fs::read_to_string(file.path()).unwrap();
    if status.success() { Ok(serde_json::from_str(&text).unwrap()) } else { Err(text) }
}

#[test]
fn probe_of_a_pod_needs_no_capability() {
    let lab = Lab::new();
    // As the Pod's spec sets it, here for root's group.
    lab.on("front-1", || set("net/ipv4/ping_group_range", "0 0"));
    let cases = [
        lab.case(ProbeKind::Icmp, 0),
        lab.case_v6(ProbeKind::Icmp, 0),
        lab.case(ProbeKind::PathMtu, 0),
        lab.case(ProbeKind::Tcp, PORT),
    ];
    for case in cases {
        let kind = case.send.kind;
        let report = probe(&lab, Task::Send(case.send)).unwrap();
        assert_eq!((report.tally.received, report.tally.failure), (5, None), "{kind:?}");
        assert!(report.taps.incomplete, "{kind:?}: without NET_RAW there is no tap");
    }
}

#[test]
fn probe_of_a_pod_refuses_forbidden_targets_and_other_tasks() {
    let lab = Lab::new();
    let case = lab.case(ProbeKind::Tcp, PORT);
    let target = nettest::probe::ProbeTarget::Address("169.254.169.254".parse().unwrap());
    let refused = probe(&lab, Task::Send(SendTask { target, ..case.send.clone() })).unwrap_err();
    assert!(refused.contains("is never probed"), "{refused}");
    let flow = nettest::probe::Flow {
        protocol: nettest::probe::Transport::Tcp,
        source: lab.address("front-1"),
        target: lab.address("back-1"),
        source_port: 1,
        port: PORT,
    };
    let refused = probe(&lab, Task::Open(flow)).unwrap_err();
    assert!(refused.contains("sends probes only"), "{refused}");
}
