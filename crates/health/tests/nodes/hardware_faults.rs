//! Nodes with accelerators: healthy ones have no finding, each fault raises its signal alone, and reading makes nothing worse.

use std::collections::BTreeSet;
use std::fs;

use health::hardware::shapes::Shape;
use health::summary::SUMMARY_MAX;
use health::{Report, SignalState, Summary, Verdict};
use serde_json::json;

use crate::accelerated::pci;
use crate::dcgm::edited;
use crate::faults::{Fault, assert_raised_alone, names};
use crate::node::{Node, with};

const H100: fn() -> Node = Node::h100;
const MI300X: fn() -> Node = Node::mi300x;
const A10: fn() -> Node = Node::a10;
const DCGM: fn() -> Node = Node::h100_with_dcgm;
const EXPORTER: &str = "127.0.0.1:9400";

/// A GPU and an RDMA function of BM.GPU.H100.8, and a port of its front end that is down by design.
const GPU: &str = "0000:5b:00.0";
const ADAPTER: &str = "0000:2a:00.1";
const FRONT_END: &str = "0000:9a:00.0";

pub(crate) fn log(node: &Node, text: &str) {
    node.write("kernel.log", &format!("<4>[864210.000001] {text}\n"));
}

/// The path of a file that describes [`ADAPTER`]'s port.
fn port(name: &str) -> String {
    pci(ADAPTER, &format!("infiniband/mlx5_4/ports/1/{name}"))
}

#[expect(clippy::too_many_lines, reason = "a table")]
pub(crate) fn hardware_faults() -> Vec<Fault> {
    let fault = |node, signals, evidence, inject| Fault { node, inject, signals, evidence };
    vec![
        fault(H100, &["gpus_need_reset"], "0000:5b:00.0: Xid 119", |node| {
            log(
                node,
                "NVRM: Xid (PCI:0000:5b:00): 119, pid=1, name=nvidia-smi, Timeout after 6s of waiting for RPC response",
            );
        }),
        fault(H100, &["gpus_need_reboot"], "Xid 79, for 0 min: drain the node and reboot it", |node| {
            log(node, "NVRM: Xid (PCI:0000:5b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.");
        }),
        fault(H100, &["gpus_need_reboot"], "SXid 20034", |node| {
            log(node, "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up");
        }),
        fault(H100, &["gpus_need_reboot"], "AER_FATAL", |node| {
            log(
                node,
                "pcieport 0000:5a:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
            );
        }),
        fault(MI300X, &["gpus_need_replacement"], "AMD_BAD_PAGE_FAILED", |node| {
            log(node, "amdgpu 0000:5d:00.0: amdgpu: failed to reserve bad page 0x00012340");
        }),
        fault(A10, &["gpu_warnings"], "Xid 94, for 0 min: restart the program", |node| {
            log(node, "NVRM: Xid (PCI:0000:00:04): 94, pid=1, name=python3, Ch 00000008");
        }),
        fault(H100, &["rdma_adapters_failed"], "MLX5_CMD_TIMEOUT", |node| {
            log(
                node,
                "mlx5_core 0000:2a:00.1: wait_func:964:(pid 112): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource",
            );
        }),
        fault(H100, &["rdma_adapter_warnings"], "LINK_DOWN", |node| {
            log(node, "mlx5_core 0000:2a:00.1 rdma3: Link down")
        }),
        fault(H100, &["hardware_failed"], "CPU_SrcID#0_MC#0_Chan#1_DIMM#0: EDAC_UE", |node| {
            log(node, "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (xxx xxx)");
        }),
        fault(A10, &["hardware_warnings"], "SOFT_LOCKUP", |node| {
            log(node, "watchdog: BUG: soft lockup - CPU#0 stuck for 27s! [cuda-EvtHandlr:2255424]");
        }),
        fault(H100, &["memory_uncorrected_errors"], "mc1: 2 errors", |node| {
            node.write("sys/devices/system/edac/mc/mc1/ue_count", "2\n");
        }),
        fault(H100, &["memory_corrected_errors"], "since boot", |node| {
            node.add("sys/devices/system/edac/mc/mc2/ce_count", 500)
        }),
        fault(H100, &["local_disks_missing"], "15 of 16; not live: nvme2", |node| {
            node.write("sys/class/nvme/nvme2/state", "dead\n")
        }),
        fault(H100, &["gpus_missing"], "7 of 8; none at 0000:5b:00.0", |node| {
            let _ = fs::remove_file(node.path(&format!("sys/bus/pci/devices/{GPU}")));
            let _ = fs::remove_dir_all(node.path(&format!("proc/driver/nvidia/gpus/{GPU}")));
        }),
        fault(A10, &["gpus_missing"], "0 of 1", |node| {
            let _ = fs::remove_file(node.path("sys/bus/pci/devices/0000:00:04.0"));
        }),
        fault(MI300X, &["gpus_off_bus"], "0000:5d:00.0", |node| {
            fs::write(node.path(&pci("0000:5d:00.0", "config")), [0xff; 64]).unwrap();
        }),
        fault(H100, &["gpu_links_narrow"], "0000:5b:00.0: 8 of 16 lanes", |node| {
            node.write(&pci(GPU, "current_link_width"), "8\n");
        }),
        fault(H100, &["gpus_without_driver"], GPU, |node| {
            let _ = fs::remove_dir_all(node.path(&format!("proc/driver/nvidia/gpus/{GPU}")));
        }),
        fault(MI300X, &["gpus_without_driver"], "0000:5d:00.0", |node| {
            let _ = fs::remove_file(node.path(&pci("0000:5d:00.0", "driver")));
        }),
        fault(H100, &["gpus_excluded"], GPU, |node| {
            node.write(&format!("proc/driver/nvidia/gpus/{GPU}/information"), "GPU Excluded:\t Yes\n");
        }),
        fault(MI300X, &["amd_memory_errors"], "0000:5d:00.0: 2", |node| {
            node.write(&pci("0000:5d:00.0", "ras/umc_err_count"), "ue: 2\nce: 7\n");
        }),
        fault(MI300X, &["amd_bad_pages"], "0000:5d:00.0: 1", |node| {
            let text = "0x00012340 : 0x00001000 : R\n0x00012350 : 0x00001000 : P\n";
            node.write(&pci("0000:5d:00.0", "ras/gpu_vram_bad_pages"), text);
        }),
        fault(H100, &["pcie_errors"], "0000:29:01.0", |node| {
            node.write(&pci("0000:29:01.0", "aer_dev_nonfatal"), &format!("TOTAL_ERR_NONFATAL {}\n", grown(node)));
        }),
        fault(H100, &["pcie_corrected_errors"], GPU, |node| {
            node.write(&pci(GPU, "aer_dev_correctable"), &format!("RxErr 1\nTOTAL_ERR_COR {}\n", 10_000 * grown(node)));
        }),
        fault(H100, &["rdma_ports_missing"], "15 of 16; none at 0000:2a:00.1", |node| {
            let _ = fs::remove_dir_all(node.path(&pci(ADAPTER, "infiniband")));
        }),
        fault(MI300X, &["rdma_ports_missing"], "7 of 8", |node| {
            let _ = fs::remove_dir_all(node.path(&pci("0000:a5:00.0", "infiniband")));
        }),
        fault(H100, &["rdma_ports_down"], "0000:2a:00.1: mlx5_4 is 1: DOWN, 3: Disabled", |node| {
            node.write(&port("state"), "1: DOWN\n");
            node.write(&port("phys_state"), "3: Disabled\n");
        }),
        fault(H100, &["rdma_ports_slow"], "has 100 of 200 Gb/s", |node| {
            node.write(&port("rate"), "100 Gb/sec (2X HDR)\n")
        }),
        fault(H100, &["rdma_ports_without_verbs"], ADAPTER, |node| {
            let _ = fs::remove_dir_all(node.path(&pci(ADAPTER, "infiniband_verbs")));
        }),
        fault(H100, &["rdma_ports_without_address"], ADAPTER, |node| {
            let _ = fs::remove_file(node.path(&port("gids/3")));
        }),
        fault(H100, &["rdma_flaps"], ADAPTER, |node| node.add(&pci(ADAPTER, "net/rdma3/carrier_down_count"), 1)),
        fault(H100, &["rdma_errors"], ADAPTER, |node| node.add(&port("hw_counters/local_ack_timeout_err"), 5000)),
        fault(H100, &["rdma_adapters_unhealthy"], "0000:2a:00.1: fw_fatal: 1 errors", |node| {
            node.system.answers.lock().unwrap()["devlink"][6] = json!([ADAPTER, "fw_fatal", true]);
        }),
        fault(H100, &["gpus_not_allocatable"], "7 allocatable, 8 with a driver", |node| {
            node.facts.allocatable_gpus = Some(7);
        }),
        fault(DCGM, &["dcgm_failing_gpus"], "0000:5b:00.0: fails NVLINK DCGM_FR_OK", |node| {
            node.exports(EXPORTER, &edited("DCGM_EXP_GPU_HEALTH_STATUS", 3, "\"NVLINK\"} 0", "\"NVLINK\"} 20"));
        }),
        fault(DCGM, &["dcgm_remap_failures"], "0000:5b:00.0: could not replace a row", |node| {
            node.exports(EXPORTER, &edited("DCGM_FI_DEV_ROW_REMAP_FAILURE", 3, "} 0", "} 1"));
        }),
        fault(DCGM, &["dcgm_slowed_gpus"], "0000:5b:00.0: has clock event reasons 0x48", |node| {
            node.exports(EXPORTER, &edited("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 3, "} 1", "} 73"));
        }),
        fault(H100, &["slow_governors"], "powersave on 1 of 224", |node| {
            node.write("sys/devices/system/cpu/cpufreq/policy3/scaling_governor", "powersave\n");
        }),
        fault(H100, &["fabric_manager_running"], "has no process", |node| {
            node.write("host/sys/fs/cgroup/pids/system.slice/nvidia-fabricmanager.service/pids.current", "0\n");
        }),
    ]
}

/// A count that is higher at each call: the number of samples that were taken.
fn grown(node: &Node) -> usize {
    let file = node.path("grown");
    let count = fs::read_to_string(&file).map_or(0, |text| text.len()) + 1;
    fs::write(file, "x".repeat(count)).unwrap();
    count
}

pub(crate) fn state(report: &Report, signal: &str) -> SignalState {
    report.signals.iter().find(|state| state.signal == signal).unwrap().clone()
}

#[test]
fn each_hardware_fault_raises_its_signals_alone() {
    hardware_faults().into_iter().for_each(assert_raised_alone);
}

#[test]
fn healthy_nodes_with_accelerators_have_no_finding() {
    for (mut node, absent) in [
        (Node::h100(), &["amd_memory_errors", "amd_bad_pages"][..]),
        (
            Node::mi300x(),
            &[
                "gpus_excluded",
                "gpus_not_allocatable",
                "rdma_adapters_unhealthy",
                "rdma_ports_slow",
                "rdma_flaps",
                "rdma_errors",
                "fabric_manager_running",
            ],
        ),
        (Node::a10(), &[]),
    ] {
        let mut report = node.sample();
        (0..12).for_each(|_| report = node.sample());
        assert_eq!((with(&report, Verdict::Problem), with(&report, Verdict::Unknown)), (names(&[]), names(&[])));
        let healthy = with(&report, Verdict::Healthy);
        assert!(healthy.contains("gpus_missing") && healthy.contains("gpus_need_reset"), "{healthy:?}");
        if !absent.is_empty() {
            let of_hardware = |name: &&String| {
                ["gpu", "rdma", "amd", "fabric", "slow_", "pcie", "memory_c", "local"]
                    .iter()
                    .any(|word| name.starts_with(word))
            };
            let found: BTreeSet<String> =
                with(&report, Verdict::NotApplicable).iter().filter(of_hardware).cloned().collect();
            assert_eq!(found, names(absent));
        }
    }
}

/// Everything that can fail of each GPU and each port fails at once.
#[test]
fn summary_of_eight_gpus_and_sixteen_ports_that_fail_fits_the_bound() {
    let mut node = Node::h100_with_dcgm();
    let shape = Shape::of("BM.GPU.H100.8").unwrap();
    let gpus: Vec<String> = shape.gpus.as_ref().unwrap().at.iter().map(ToString::to_string).collect();
    let ports: Vec<String> = shape.rdma.as_ref().unwrap().functions().iter().map(ToString::to_string).collect();
    assert_eq!((gpus.len(), ports.len()), (8, 16));
    let xid = |gpu: &String| format!("<4>[864210.5] NVRM: Xid (PCI:{}): 119, pid=1, Timeout\n", &gpu[..10]);
    let hang = |port: &String| {
        format!(
            "<3>[864211.5] mlx5_core {port}: wait_func:964:(pid 1): ENABLE_HCA(0x104) timeout. Will cause a leak of a command resource\n"
        )
    };
    node.write("kernel.log", &gpus.iter().map(xid).chain(ports.iter().map(hang)).collect::<String>());
    for gpu in &gpus {
        fs::write(node.path(&pci(gpu, "config")), [0xff; 64]).unwrap();
        node.write(&pci(gpu, "current_link_width"), "4\n");
        let _ = fs::remove_dir_all(node.path(&format!("proc/driver/nvidia/gpus/{gpu}")));
    }
    for port in &ports {
        let device = fs::read_dir(node.path(&pci(port, "infiniband"))).unwrap().next().unwrap().unwrap().file_name();
        let file = |name: &str| pci(port, &format!("infiniband/{}/ports/1/{name}", device.to_str().unwrap()));
        node.write(&file("state"), "1: DOWN\n");
        node.write(&file("phys_state"), "3: Disabled\n");
        node.write(&file("rate"), "10 Gb/sec (4X SDR)\n");
        let _ = fs::remove_dir_all(node.path(&pci(port, "infiniband_verbs")));
        (0..4).for_each(|number| node.write(&file(&format!("gids/{number}")), "fe80::1\n"));
    }
    let report = (0..12).map(|_| node.sample()).last().unwrap();
    let problems = with(&report, Verdict::Problem);
    assert!(problems.len() >= 9, "{problems:?}");
    let name = || Some("x".repeat(63));
    let summary = Summary { node: "n".repeat(253), instance: name(), shape: name(), ..Summary::default() };
    let summary = summary.with(&report).bounded();
    let length = serde_json::to_vec(&summary).unwrap().len();
    println!("summary: {length} bytes, {} checks, {} left out", summary.checks.len(), summary.left_out);
    assert!(length <= SUMMARY_MAX);
    let kept: BTreeSet<String> = summary.checks.iter().map(|check| check.name.clone()).collect();
    assert!(problems.is_subset(&kept) && summary.left_out == 0, "{problems:?} {kept:?}");
    assert_eq!(summary.checks[0].devices.len(), 8, "the devices of the worst one");
}

#[test]
fn nodes_without_accelerators_have_no_result_of_them() {
    for mut node in [Node::virtual_machine(), Node::bare_metal()] {
        let report = node.sample();
        for signal in ["gpus_missing", "gpus_need_reset", "rdma_ports_down", "pcie_errors", "slow_governors"] {
            let state = state(&report, signal);
            let expected = (Verdict::NotApplicable, "this node has neither a GPU nor an RDMA network");
            assert_eq!((state.verdict, state.detail.as_str()), expected, "{signal}");
        }
    }
}

#[test]
fn real_gpu_in_a_virtual_machine_has_no_finding() {
    let mut node = Node::real_kernel();
    let report = node.sample();
    let healthy = with(&report, Verdict::Healthy);
    assert!(healthy.contains("gpus_without_driver") && healthy.contains("gpus_need_reset"), "{healthy:?}");
    let missing = state(&report, "gpus_missing");
    assert_eq!(missing.detail, "the shape VM.GPU.H100 is not in the table: 1 GPUs seen");
    assert_eq!(state(&report, "version_gpu_driver").detail, "nvidia 580.159.04");
}

#[test]
fn front_end_and_management_ports_are_not_judged() {
    let mut node = Node::h100();
    node.sample();
    node.add(&pci(FRONT_END, "net/eth1/carrier_down_count"), 50);
    log(&node, "mlx5_core 0000:9a:00.0 eth1: Link down");
    let report = node.sample();
    assert_eq!(with(&report, Verdict::Problem), names(&[]));
}

#[test]
fn problem_ends_with_a_marker_and_survives_a_full_log() {
    let mut node = Node::h100();
    log(&node, "NVRM: Xid (PCI:0000:5b:00): 119, pid=1, name=nvidia-smi, Timeout after 6s");
    assert_eq!(with(&node.sample(), Verdict::Problem), names(&["gpus_need_reset"]));
    node.write("kernel.log", "<6>[864300.5] something else\n");
    assert_eq!(with(&node.sample(), Verdict::Problem), names(&["gpus_need_reset"]));
    node.write("kernel.log", "<4>[864400.5] NVRM: Xid (PCI:0000:5b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)\n");
    assert_eq!(with(&node.sample(), Verdict::Problem), names(&[]));
}

#[test]
fn without_syslog_a_problem_of_messages_is_not_applicable_with_the_reason() {
    let mut node = Node::h100();
    node.refuse_kernel_log();
    let report = node.sample();
    for signal in ["gpus_need_reset", "rdma_adapters_failed", "hardware_failed"] {
        let state = state(&report, signal);
        assert_eq!(state.verdict, Verdict::NotApplicable);
        assert_eq!(state.detail, "kernel messages are not read: set agent.kernelLog");
    }
}

#[test]
fn counters_are_read_of_listed_functions_only() {
    let mut node = Node::h100();
    let opened = node.opened(|node| drop(node.sample()));
    let counters = opened.iter().filter(|path| path.contains("counters/") || path.contains("carrier_down_count"));
    let listed = ["0c", "2a", "41", "58", "86", "a5", "bd", "d5"];
    let unlisted: Vec<&String> =
        counters.clone().filter(|path| !listed.iter().any(|bus| path.contains(&format!("/0000:{bus}:00.")))).collect();
    assert_eq!((counters.count(), unlisted), (48, Vec::<&String>::new()));
    assert!(!opened.iter().any(|path| path.contains("/ports/1/counters/")), "some of them stop at 255");
}

#[test]
fn devices_that_sleep_are_left_alone() {
    for (mut node, gpus) in [(Node::h100(), "0x030200"), (Node::mi300x(), "0x120000")] {
        let mut sleeping = BTreeSet::new();
        for entry in fs::read_dir(node.path("sys/bus/pci/devices")).unwrap().map(Result::unwrap) {
            let address = entry.file_name().into_string().unwrap();
            if fs::read_to_string(entry.path().join("class")).unwrap().trim() == gpus {
                node.write(&pci(&address, "power/runtime_status"), "suspended\n");
                sleeping.insert(address);
            }
        }
        let opened = node.opened(|node| assert_eq!(with(&node.sample(), Verdict::Problem), names(&[])));
        let name = |path: &&String| {
            sleeping.iter().find_map(|address| Some(path.split_once(&format!("/{address}/"))?.1.to_owned()))
        };
        let names: BTreeSet<String> =
            opened.iter().filter(|path| path.starts_with("sys/")).filter_map(|path| name(&path)).collect();
        let harmless = [
            "aer_dev_correctable",
            "aer_dev_fatal",
            "aer_dev_nonfatal",
            "class",
            "device",
            "numa_node",
            "power/runtime_status",
            "vendor",
        ];
        assert_eq!(names, crate::faults::names(&harmless));
        assert_eq!(sleeping.len(), 8);
    }
}
