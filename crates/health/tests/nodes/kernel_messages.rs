//! Kernel messages of real machines, with the right verdict each, and what several of them mean together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use health::hardware::device::{reason, reasons};
use health::hardware::events::{Events, Problem};
use health::hardware::messages::{Advice, FaultLevel, Finding, Reader};
use health::kernel_log::{Record, records};
use serde_json::{Value, json};

/// Long after boot: links have settled.
const LATE: &str = "[100000.000000]";

/// A message that an entry's own one refers to, which its note describes.
const EARLIER: &[(&str, &str)] =
    &[("{7}[Hardware Error]:   error_type: 3, multi-bit ECC", "{7}[Hardware Error]:   fru_text: B2")];

fn corpus() -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recorded/kernel-log.jsonl");
    fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A line as syslog(2) gives it, from the form of dmesg, syslog, journal or /dev/kmsg in which it was published.
fn as_read(line: &str) -> String {
    if line.starts_with('<') {
        return line.to_owned();
    }
    if let Some((head, text)) = line.split_once(";")
        && let [level, _, micros, _] = head.split(',').collect::<Vec<_>>()[..]
    {
        return format!("<{level}>[{:.6}] {text}", micros.parse::<f64>().unwrap() / 1e6);
    }
    let text = line.split_once("kernel: ").filter(|(head, _)| head.is_empty() || head.ends_with(' '));
    let text = text.map_or(line, |(_, text)| text);
    let facility = text.strip_prefix("kern ").and_then(|rest| rest.split_once(": ")?.1.split_once(' '));
    let text = facility.map_or(text, |(_, text)| text);
    let (inside, rest) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).unwrap_or(("", text));
    if inside.trim().parse::<f64>().is_ok() {
        format!("<4>{text}")
    } else if inside.contains(':') {
        format!("<4>{LATE}{rest}")
    } else {
        format!("<4>{LATE} {text}")
    }
}

fn read(line: &str) -> Vec<Record> {
    records(&line.lines().map(as_read).collect::<Vec<_>>().join("\n"))
}

fn finding(line: &str) -> Option<Finding> {
    let mut reader = Reader::default();
    for (_, earlier) in EARLIER.iter().filter(|(text, _)| line.ends_with(text)) {
        read(earlier).iter().for_each(|record| drop(reader.read(record)));
    }
    read(line).iter().map(|record| reader.read(record)).next_back()
}

fn verdict(finding: Option<Finding>) -> Value {
    let not_kernel = json!({"fault": false, "code": "", "device": "", "severity": "info", "action": "NOT_KERNEL"});
    finding.map_or(not_kernel, |finding| {
        let Finding { code, device, level, advice, is_fault, .. } = finding;
        json!({"fault": is_fault, "code": code, "device": device, "severity": level, "action": advice.as_str()})
    })
}

#[test]
fn every_message_of_the_corpus_has_its_verdict() {
    let entries = corpus();
    let mut wrong = Vec::new();
    for entry in &entries {
        let line = entry["line"].as_str().unwrap();
        let mut expected = entry["expect"].clone();
        // A question mark is the collector's doubt about the word, which NVIDIA uses for the next step.
        expected["action"] = json!(expected["action"].as_str().unwrap().trim_end_matches('?'));
        let found = verdict(finding(line));
        if found != expected {
            wrong.push(format!("{line}\n  expected {expected}\n  found    {found}"));
        }
    }
    println!("kernel messages: {} of {} right", entries.len() - wrong.len(), entries.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(entries.len() >= 131);
}

#[test]
fn every_fault_of_the_corpus_is_one_problem_of_its_device() {
    for entry in corpus() {
        let line = entry["line"].as_str().unwrap();
        let mut events = Events::of_boot("a");
        let earlier = EARLIER.iter().filter(|(text, _)| line.ends_with(text)).flat_map(|(_, earlier)| read(earlier));
        events.take(&earlier.chain(read(line)).collect::<Vec<_>>());
        let found: Vec<String> = events.problems().into_iter().map(|problem| problem.device).collect();
        let expected = entry["expect"]["fault"].as_bool().unwrap().then(|| entry["expect"]["device"].as_str().unwrap());
        assert_eq!(found, Vec::from_iter(expected), "{line}");
    }
}

#[test]
fn every_fault_of_the_corpus_has_a_reason_that_is_explained() {
    let known: BTreeSet<String> = reasons().map(|(reason, _)| reason).collect();
    let mut used = BTreeSet::new();
    for entry in corpus().into_iter().filter(|entry| entry["expect"]["fault"] == true) {
        let mut events = Events::of_boot("a");
        events.take(&read(entry["line"].as_str().unwrap()));
        used.extend(events.problems().iter().map(reason));
    }
    assert!(used.is_subset(&known), "{used:?}");
    let expected = ["XidGpuReset", "XidNodeReboot", "XidWarning", "SxidFabricReset", "AmdHostReplacement"];
    assert!(expected.iter().all(|reason| used.contains(*reason)), "{used:?}");
}

#[test]
fn corpus_read_as_one_log_has_one_problem_per_device() {
    let faults = corpus().into_iter().filter(|entry| entry["expect"]["fault"] == true);
    let mut devices: BTreeMap<String, usize> = BTreeMap::new();
    let mut events = Events::of_boot("a");
    let (mut log, mut expected) = (Vec::new(), BTreeMap::new());
    for (number, entry) in faults.enumerate() {
        expected.insert(entry["expect"]["device"].as_str().unwrap().to_owned(), 1);
        let line = entry["line"].as_str().unwrap();
        log.extend(read(line).into_iter().map(|record| Record { at: Some(10_000.0 + number as f64), ..record }));
    }
    events.take(&log);
    for problem in events.problems() {
        *devices.entry(problem.device).or_default() += 1;
    }
    // Without a device they are companions; the module's name is in an earlier message.
    expected.remove("");
    expected.remove("B2");
    assert_eq!(devices, expected);
}

/// Problems of a log in which each line is a second later.
fn problems(lines: &[&str]) -> Vec<Problem> {
    let mut events = Events::of_boot("a");
    let record = |(number, line): (usize, &&str)| Record { at: Some(5000.0 + number as f64), text: (*line).to_owned() };
    events.take(&lines.iter().enumerate().map(record).collect::<Vec<_>>());
    events.problems()
}

fn in_short(problems: &[Problem]) -> Vec<(&str, &str, Advice)> {
    problems.iter().map(|problem| (problem.device.as_str(), problem.codes[0].as_str(), problem.advice)).collect()
}

const XID_48: &str = "NVRM: Xid (PCI:0000:55:00): 48, An uncorrectable double bit error (DBE) has been detected on GPU";
const XID_171: &str = "NVRM: Xid (PCI:0000:55:00): 171, GDDR, Uncorrectable DRAM error in FBPA 3 subpartition 0";
const XID_63: &str = "NVRM: Xid (PCI:0000:55:00): 63, Row Remapper: New row (0x000000e9b9107e00) marked for remapping";
const XID_154_RESET: &str =
    "NVRM: Xid (PCI:0000:55:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)";
const XID_154_REBOOT: &str =
    "NVRM: Xid (PCI:0000:55:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x2 (OS Reboot)";
const XID_154_NONE: &str =
    "NVRM: Xid (PCI:0000:55:00): 154, GPU recovery action changed from 0x2 (OS Reboot) to 0x0 (None)";
const XID_79: &str = "NVRM: Xid (PCI:0000:55:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.";

#[test]
fn chain_is_one_problem_whose_advice_is_the_drivers_verdict() {
    let chain = [XID_48, XID_171, XID_48, XID_63, XID_154_RESET];
    assert_eq!(in_short(&problems(&chain)), [("0000:55:00.0", "48", Advice::ResetGpu)]);
    let reboot = [XID_48, XID_154_RESET, XID_154_REBOOT];
    assert_eq!(in_short(&problems(&reboot)), [("0000:55:00.0", "154", Advice::NodeReboot)]);
    assert_eq!(problems(&[XID_48, XID_171, XID_154_REBOOT, XID_154_NONE]), []);
}

#[test]
fn markers_end_what_came_before_and_nothing_after() {
    const SXID: &str = "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20034, Fatal, Link 30 LTSSM Fault Up";
    const PROBING: &str = "nvidia-nvswitch: Probing device 0000:c3:00.0, Vendor Id = 0x10de, Device Id = 0x22a3";
    const LOADING: &str = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.144.03";
    const RAS: &str = "amdgpu 0000:c3:00.0: amdgpu: 2 uncorrectable hardware errors detected in umc block";
    const RESET: &str = "amdgpu 0000:c3:00.0: amdgpu: GPU reset succeeded, trying to resume";
    const NVME: &str = "nvme nvme2: Removing after probe failure status: -19";
    for (fault, marker) in [(SXID, PROBING), (XID_79, LOADING), (SXID, LOADING), (RAS, RESET)] {
        assert_eq!(problems(&[fault, marker]), [], "{marker}");
        assert_eq!(problems(&[marker, fault]).len(), 1, "{marker}");
        assert_eq!(problems(&[NVME, fault, marker]).len(), 1, "{marker}");
    }
}

#[test]
fn floods_of_follow_up_errors_open_nothing() {
    let line = |number: usize| {
        format!("NVRM: Xid (PCI:0000:{:02x}:00): 45, pid=1, name=python, Ch 0000000{}", number % 8, number % 7)
    };
    let lines: Vec<String> = (0..20_000).map(line).collect();
    let mut events = Events::of_boot("a");
    let record = |(number, text): (usize, String)| Record { at: Some(5000.0 + number as f64 / 1e3), text };
    events.take(&lines.into_iter().enumerate().map(record).collect::<Vec<_>>());
    assert_eq!((events.problems(), events.all().len()), (Vec::new(), 8));
}

#[test]
fn companions_without_a_device_belong_to_the_known_one() {
    const MARKED: &str = "NVRM: nvAssertFailedNoLog: Assertion failed: Back to back GSP RPC timeout detected! GPU marked for reset @ a.c:1";
    const XID_119: &str =
        "NVRM: Xid (PCI:0000:9b:00): 119, pid=1, name=nvidia-smi, Timeout after 6s of waiting for RPC response";
    const LIMITED: &str =
        "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:9b:00 (printing 1 of every 30).";
    let mut events = Events::of_boot("a");
    let texts = [XID_119, LIMITED, XID_119, XID_119, MARKED].iter().enumerate();
    events.take(
        &texts
            .map(|(number, text)| Record { at: Some(5000.0 + number as f64 * 4.0), text: (*text).to_owned() })
            .collect::<Vec<_>>(),
    );
    assert_eq!(in_short(&events.problems()), [("0000:9b:00.0", "119", Advice::ResetGpu)]);
    assert_eq!(events.all().iter().find(|event| event.code == "119").map(|event| event.count), Some(3));
    assert_eq!(problems(&[MARKED]).len(), 1, "alone it is the only sign");
}

#[test]
fn names_of_processes_decide_nothing() {
    for (line, level) in [
        ("NVRM: Xid (PCI:0000:9b:00): 45, pid=1, name=a, 79, b, Ch 8", FaultLevel::Info),
        ("NVRM: Xid (PCI:0000:9b:00): 31, pid=1, name=to 0x2 (OS, Ch 8", FaultLevel::Info),
        (
            "NVRM: Xid (PCI:0000:9b:00): 145, pid=1, name=X Fatal XC1 i, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)",
            FaultLevel::Info,
        ),
        ("NVRM: Xid (PCI:[123]: segfault at 0 ip 1 sp 2 error 4 in libnccl.so.2[1]", FaultLevel::Info),
    ] {
        assert_eq!(finding(line).unwrap().level, level, "{line}");
    }
}

#[test]
fn unknown_codes_are_shown_and_not_judged() {
    let found = finding("NVRM: Xid (PCI:0000:9b:00): 166, something new").unwrap();
    assert_eq!((found.code.as_str(), found.is_fault, found.level), ("166", false, FaultLevel::Info));
    let mut events = Events::of_boot("a");
    events.take(&read("NVRM: Xid (PCI:0000:9b:00): 9999, something new"));
    assert_eq!((events.all().len(), events.problems().len()), (1, 0));
}

#[test]
fn links_that_go_down_after_a_change_of_mode_are_no_problem() {
    const MODE: &str = "mlx5_core 0000:01:00.0: E-Switch: Enable: mode(OFFLOADS), nvfs(2), active vports(3)";
    const DOWN: &str = "mlx5_core 0000:01:00.0 enp1s0f0np0: Link down";
    const OTHER: &str = "mlx5_core 0000:02:00.0 enp2s0f0np0: Link down";
    assert_eq!(problems(&[MODE, DOWN]), []);
    assert_eq!(problems(&[MODE, OTHER]).len(), 1);
    assert_eq!(problems(&[DOWN, MODE]).len(), 1);
}

#[test]
fn events_outlive_the_log_and_the_agent_but_not_the_boot() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("events.json");
    let mut events = Events::load(&file, "first");
    events.take(&read(XID_79));
    events.save(&file).unwrap();
    let mut later = Events::load(&file, "first");
    assert_eq!(later, events);
    // The same message again, and a day with other messages only.
    later.take(&[read(XID_79), vec![Record { at: Some(300_000.0), text: "other".to_owned() }]].concat());
    assert_eq!((later.all()[0].count, later.problems().len()), (1, 1));
    assert_eq!(Events::load(&file, "second").all(), []);
    fs::write(&file, "damaged").unwrap();
    assert_eq!(Events::load(&file, "first").all(), []);
}

#[test]
fn warnings_end_after_a_day_and_events_are_bounded() {
    let mut events = Events::of_boot("a");
    events.take(&read("NVRM: Xid (PCI:0000:0f:00): 94, pid=1, name=python3, Ch 00000008"));
    let at = |at| vec![Record { at: Some(at), text: "other".to_owned() }];
    events.take(&at(180_000.0));
    assert_eq!(events.problems().len(), 1);
    events.take(&at(190_000.0));
    assert_eq!(events.problems(), []);
    let texts = (0..1000).map(|number| {
        format!("amdgpu 0000:{:02x}:{:02x}.0: amdgpu: ring a timeout, signaled", number / 32 + 1, number % 32)
    });
    let record = |(number, text): (usize, String)| Record { at: Some(200_000.0 + number as f64), text };
    events.take(&texts.enumerate().map(record).collect::<Vec<_>>());
    assert_eq!(events.all().len(), 128);
}
