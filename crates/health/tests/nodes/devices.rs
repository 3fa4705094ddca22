//! Devices by address: a check for each that is faulty, the table of all, and what outlives the right to read messages.

use std::fs;

use health::hardware::device::{Device, reasons};
use health::summary::{Check, SUMMARY_MAX};
use health::{Area, Report, Summary, Verdict};

use crate::accelerated::pci;
use crate::faults::names;
use crate::hardware_faults::{log, state};
use crate::node::{Node, with};

const XID_79: &str = "NVRM: Xid (PCI:0000:5b:00): 79, pid=1, name=x, GPU has fallen off the bus.";

/// The boot of the built node, in milliseconds since 1970.
const BOOTED: u64 = 1_763_000_000_000;

fn summary(report: &Report) -> Summary {
    Summary::default().with(report).bounded()
}

/// As the controller receives it, a check for each device.
fn received(report: &Report) -> Vec<Check> {
    let sent = serde_json::to_vec(&summary(report)).unwrap();
    let read: Summary = serde_json::from_slice(&sent).unwrap();
    read.checks.iter().filter(|check| check.verdict == Verdict::Problem).flat_map(Check::per_device).collect()
}

#[test]
fn each_faulty_device_is_a_check_with_reason_and_time() {
    let mut node = Node::h100();
    log(&node, XID_79);
    let found = received(&node.sample());
    let [check] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((check.name.as_str(), check.subject.as_deref()), ("XidNodeReboot", Some("0000:5b:00.0")));
    assert_eq!((check.area, check.since_unix_millis), (Area::Accelerators, BOOTED + 864_210_000));
    assert!(check.message.contains("Xid 79: drain the node and reboot it"), "{}", check.message);
    let known: Vec<String> = reasons().map(|(reason, _)| reason).collect();
    assert!(known.contains(&check.name));
}

#[test]
fn all_devices_that_fail_at_once_fit_into_a_summary() {
    let mut node = Node::h100();
    node.sample();
    let addresses = |class: &str| -> Vec<String> {
        let folder = fs::read_dir(node.path("sys/bus/pci/devices")).unwrap().map(Result::unwrap);
        let is_it = |address: &String| fs::read_to_string(node.path(&pci(address, "class"))).unwrap().trim() == class;
        folder.map(|entry| entry.file_name().into_string().unwrap()).filter(is_it).collect()
    };
    let gpus = addresses("0x030200");
    let lines =
        gpus.iter().map(|at| format!("<4>[864210.0] NVRM: Xid (PCI:{}): 79, pid=1, x\n", at.trim_end_matches(".0")));
    node.write("kernel.log", &lines.collect::<String>());
    for port in addresses("0x020000") {
        let device = fs::read_dir(node.path(&pci(&port, "infiniband"))).unwrap().next().unwrap().unwrap();
        fs::write(device.path().join("ports/1/state"), "1: DOWN\n").unwrap();
        fs::write(device.path().join("ports/1/phys_state"), "3: Disabled\n").unwrap();
    }
    let mut report = node.sample();
    (0..3).for_each(|_| report = node.sample());
    let (summary, checks) = (summary(&report), received(&report));
    let length = serde_json::to_vec(&summary).unwrap().len();
    assert!(length <= SUMMARY_MAX && summary.left_out == 0, "{length} bytes, {} left out", summary.left_out);
    let count = |name: &str| checks.iter().filter(|check| check.name == name).count();
    assert_eq!((count("XidNodeReboot"), count("rdma_ports_down"), checks.len()), (8, 16, 24));
    println!("8 GPUs and 16 ports: {length} bytes");
}

#[test]
fn version_of_a_summary_changes_with_its_devices() {
    let (mut one, mut two) = (Node::h100(), Node::h100());
    log(&one, XID_79);
    two.write("kernel.log", &format!("<4>[864210.000001] {XID_79}\n<4>[864211.0] {}\n", XID_79.replace("5b", "89")));
    let etag = |node: &mut Node| Summary::default().with(&node.sample()).etag();
    assert_ne!(etag(&mut one), etag(&mut two));
}

#[test]
fn table_has_slots_names_and_the_last_message_of_each_device() {
    let mut node = Node::h100();
    log(&node, "NVRM: Xid (PCI:0000:2d:00): 13, pid=1, name=x, Graphics Exception");
    let devices = node.sample().devices;
    let (gpus, ports): (Vec<&Device>, Vec<&Device>) = devices.iter().partition(|device| device.is_gpu);
    assert_eq!((gpus.len(), ports.len()), (8, 16));
    let second = Device {
        address: "0000:2d:00.0".to_owned(),
        is_gpu: true,
        slot: Some(1),
        uuid: Some("GPU-00000000-0000-4000-8000-000000000001".to_owned()),
        numa: Some(0),
        last_event: Some("Xid 13".to_owned()),
        last_event_unix_millis: Some(BOOTED + 864_210_000),
        ..Device::default()
    };
    assert_eq!(*gpus[1], second);
    let port = (ports[1].names.as_deref(), ports[1].port_state.as_deref(), ports[1].slot);
    assert_eq!(port, (Some("mlx5_1 rdma1"), Some("ACTIVE, LinkUp, 200 Gb/sec"), Some(1)));
}

#[test]
fn open_problem_outlives_the_right_to_read_messages() {
    let mut before = Node::h100();
    log(&before, XID_79);
    before.sample();
    // An agent that was restarted without SYSLOG has only the file.
    let mut after = Node::h100();
    let file = "accelerator-events.json";
    fs::copy(before.path(file), after.path(file)).unwrap();
    for node in [&mut before, &mut after] {
        node.refuse_kernel_log();
        let report = node.sample();
        assert_eq!(with(&report, Verdict::Problem), names(&["gpus_need_reboot"]));
        let gap = state(&report, "gpus_need_reboot").not_measured.unwrap();
        assert_eq!(gap.reason, "kernel messages are not read: set agent.kernelLog");
        assert_eq!(gap.since_unix_millis, BOOTED + 864_210_000);
        assert_eq!(state(&report, "gpus_need_reset").verdict, Verdict::NotApplicable);
        let summary = summary(&report);
        assert!(!summary.accelerators.unwrap().kernel_messages && summary.checks[0].not_measured.is_some());
    }
}

#[test]
fn ports_of_an_unknown_shape_are_judged_by_the_link_they_had() {
    let mut node = Node::h100();
    node.facts.shape = Some("BM.GPU.X1.8".to_owned());
    let mut report = node.sample();
    (0..4).for_each(|_| report = node.sample());
    assert_eq!(with(&report, Verdict::Problem), names(&[]));
    let missing = state(&report, "rdma_ports_missing").detail;
    assert!(missing.contains("of 18 adapters, 17 that had a link since boot are judged"), "{missing}");
    let opened = node.opened(|node| drop(node.sample()));
    assert!(!opened.iter().any(|path| path.contains("hw_counters/")), "counters of functions that are on no list");
    node.write(&pci("0000:2a:00.1", "infiniband/mlx5_4/ports/1/state"), "1: DOWN\n");
    (0..4).for_each(|_| report = node.sample());
    assert_eq!(with(&report, Verdict::Problem), names(&["rdma_ports_down"]));
    assert_eq!(state(&report, "rdma_ports_down").devices[0].address, "0000:2a:00.1");
}

#[test]
fn malformed_file_of_the_driver_hides_no_other_gpu() {
    let mut node = Node::h100();
    let information = |address: &str| format!("proc/driver/nvidia/gpus/{address}/information");
    node.write(&information("0000:0f:00.0"), "no colon\n:\nGPU UUID:\n\u{1}\u{fffd}: x\n");
    node.write(&information("0000:2d:00.0"), "GPU Excluded\nGPU Excluded:\nGPU Excluded:\t Yes\n");
    let report = node.sample();
    let excluded: Vec<String> =
        state(&report, "gpus_excluded").devices.into_iter().map(|device| device.address).collect();
    assert_eq!(excluded, ["0000:2d:00.0"]);
    assert_eq!(report.devices.iter().filter(|device| device.uuid.is_some()).count(), 6);
}
