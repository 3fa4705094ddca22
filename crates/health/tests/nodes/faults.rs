//! Recorded nodes are healthy, and each fault raises its signal alone.

use std::collections::BTreeSet;
use std::fs;

use health::facts::{ActiveCondition, InstalledPlugin, Topic};
use health::{Area, Report, Unit, Verdict};

use crate::hardware_faults::hardware_faults;
use crate::node::{Node, with};

pub(crate) fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn healthy_nodes_report_no_problem_and_nothing_unknown() {
    for (mut node, absent) in [
        (
            Node::virtual_machine(),
            &[
                "memory_pressure",
                "cloud_agent_version",
                "hpc_plugins_pending",
                "local_disks_missing",
                "memory_corrected_errors",
                "memory_uncorrected_errors",
            ][..],
        ),
        (
            Node::bare_metal(),
            &[
                "hpc_plugins_pending",
                "cloud_agent_version",
                "local_disks_missing",
                "memory_corrected_errors",
                "memory_uncorrected_errors",
            ],
        ),
    ] {
        let first = node.sample();
        let rates = |report: &Report| {
            let rates = report.signals.iter().filter(|state| state.detail == "a rate needs two samples");
            rates.map(|state| state.signal.clone()).collect::<BTreeSet<_>>()
        };
        assert_eq!((with(&first, Verdict::Problem), with(&first, Verdict::Unknown)), (names(&[]), rates(&first)));
        let mut report = first;
        (0..12).for_each(|_| report = node.sample());
        assert_eq!((with(&report, Verdict::Problem), with(&report, Verdict::Unknown)), (names(&[]), names(&[])));
        let is_of_accelerators = |name: &str| health::collectors::area(name) == Area::Accelerators;
        let judged = |state: &&health::SignalState| state.unit != Unit::Text && !is_of_accelerators(&state.signal);
        let found = report.signals.iter().filter(judged).filter(|state| state.verdict == Verdict::NotApplicable);
        assert_eq!(found.map(|state| state.signal.clone()).collect::<BTreeSet<_>>(), names(absent));
    }
}

#[test]
fn real_kernel_whose_gpu_works_has_no_problem_but_what_is_missing() {
    let mut node = Node::real_kernel();
    node.sample();
    node.advance();
    let mut report = node.sample();
    (0..12).for_each(|_| report = node.sample());
    let missing = ["clock_unsynchronized", "kubelet_healthy", "metadata_latency"];
    assert_eq!(with(&report, Verdict::Problem), names(&missing));
    let healthy = with(&report, Verdict::Healthy);
    let of_the_kernel = [
        "conntrack_drops",
        "conntrack_use",
        "disk_use",
        "kernel_io_errors",
        "link_down",
        "link_drops",
        "link_flaps",
        "memory_pressure",
        "neighbour_overflows",
        "neighbour_use",
        "oom_kills",
        "open_files",
        "pids",
        "softnet_drops",
        "tcp_retransmits",
    ];
    assert_eq!(&names(&of_the_kernel) - &healthy, names(&[]), "{report:?}");
}

pub(crate) struct Fault {
    pub(crate) node: fn() -> Node,
    /// Done before each sample.
    pub(crate) inject: fn(&mut Node),
    pub(crate) signals: &'static [&'static str],
    /// What the evidence of the first names.
    pub(crate) evidence: &'static str,
}

fn all_faults() -> impl Iterator<Item = Fault> {
    network_faults().into_iter().chain(host_faults()).chain(hardware_faults())
}

const VM: fn() -> Node = Node::virtual_machine;
const BM: fn() -> Node = Node::bare_metal;

fn condition(node: &mut Node, topic: Topic, message: &str) {
    let network = node.facts.network.as_mut().unwrap();
    network.conditions = vec![ActiveCondition { topic, message: message.to_owned() }];
}

fn pool(node: &mut Node, at: usize, [in_use, cooling, free]: [u64; 3]) {
    let pool = &mut node.facts.network.as_mut().unwrap().pools[at];
    (pool.in_use, pool.cooling, pool.free) = (in_use, cooling, free);
}

fn network_faults() -> Vec<Fault> {
    let fault = |node, signals, evidence, inject| Fault { node, inject, signals, evidence };
    vec![
        fault(VM, &["vnic_problems"], "ens5 has no link", |node| condition(node, Topic::Vnic, "ens5 has no link")),
        fault(VM, &["vnic_repairs"], "repairs since", |node| node.facts.network.as_mut().unwrap().repairs += 50),
        fault(VM, &["pool_free"], "31 of 31", |node| pool(node, 0, [31, 0, 0])),
        fault(BM, &["shared_vnic_free"], "storage (enp1s0vlan1), IPv4: 3 of 3", |node| pool(node, 1, [3, 0, 0])),
        fault(BM, &["pool_cooldown"], "20 cooling", |node| pool(node, 0, [1, 20, 10])),
        fault(VM, &["forwarding_rejected"], "FORWARD", |node| condition(node, Topic::Forwarding, "chain FORWARD")),
        fault(VM, &["manager_interference"], "ocid", |node| condition(node, Topic::NetworkManager, "ocid")),
        fault(BM, &["link_down"], "enp1s0vlan1 has no carrier", |node| {
            node.write("sys/class/net/enp1s0vlan1/carrier", "0\n")
        }),
        fault(VM, &["link_flaps"], "ens3", |node| node.add("sys/class/net/ens3/carrier_changes", 2)),
        fault(VM, &["link_errors"], "ens5", |node| node.add("sys/class/net/ens5/statistics/rx_errors", 100)),
        fault(VM, &["link_drops"], "ens5", |node| node.add("sys/class/net/ens5/statistics/rx_dropped", 5000)),
        fault(VM, &["mtu_mismatches"], "ens3 9000, ens5 1500", |node| node.write("sys/class/net/ens5/mtu", "1500\n")),
        fault(VM, &["rp_filter_strict"], "ens5", |node| node.write("proc/sys/net/ipv4/conf/ens5/rp_filter", "1\n")),
        fault(VM, &["conntrack_use"], "230000 of 262144", |node| {
            node.write("proc/sys/net/netfilter/nf_conntrack_count", "230000\n");
        }),
        fault(VM, &["conntrack_drops", "conntrack_use"], "dropped, of which", |node| {
            node.write("proc/sys/net/netfilter/nf_conntrack_count", "250000\n");
            grow_hex(node, "nf_conntrack", 10, 7);
        }),
        fault(VM, &["conntrack_insert_failures"], "since boot", |node| grow_hex(node, "nf_conntrack", 9, 999)),
        fault(VM, &["neighbour_use"], "ipv4: 1000 of 1024", |node| {
            let path = "proc/net/stat/arp_cache";
            let text = fs::read_to_string(node.path(path)).unwrap();
            node.write(path, &text.replace("0000002f 0000021a", "000003e8 0000021a"));
        }),
        fault(BM, &["neighbour_overflows"], "since boot", |node| grow_hex(node, "ndisc_cache", 12, 3)),
        fault(VM, &["softnet_drops"], "since boot", |node| {
            let text = fs::read_to_string(node.path("proc/net/softnet_stat")).unwrap();
            let row = text.lines().next().unwrap();
            let dropped = u32::from_str_radix(row.split(' ').nth(1).unwrap(), 16).unwrap();
            let more = row.replacen(&format!(" {dropped:08x}"), &format!(" {:08x}", dropped + 900), 1);
            node.write("proc/net/softnet_stat", &text.replacen(row, &more, 1));
        }),
        fault(VM, &["tcp_retransmits"], "segments a minute", |node| {
            let path = "proc/net/snmp";
            let text = fs::read_to_string(node.path(path)).unwrap();
            let row = text.lines().last().unwrap();
            let mut words: Vec<String> = row.split(' ').map(str::to_owned).collect();
            for (at, more) in [(11, 20_000), (12, 4000)] {
                words[at] = (words[at].parse::<u64>().unwrap() + more).to_string();
            }
            node.write(path, &text.replace(row, &words.join(" ")));
        }),
        fault(VM, &["node_ip_mismatch"], "10.0.32.5", |node| node.facts.node_ip = Some("10.0.32.5".parse().unwrap())),
        fault(VM, &["hostname_mismatch"], "worker-1", |node| node.facts.node_name = Some("worker-1".to_owned())),
        fault(VM, &["metadata_latency"], "no answer", |node| node.answer("/services/169.254.169.254:80", ())),
    ]
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn host_faults() -> Vec<Fault> {
    let fault = |node, signals, evidence, inject| Fault { node, inject, signals, evidence };
    vec![
        fault(VM, &["clock_unsynchronized"], "", |node| node.answer("/synchronized", false)),
        fault(VM, &["clock_error"], "", |node| node.answer("/estimatedErrorMicros", 900_000)),
        fault(VM, &["open_files"], "90 of 100", |node| node.write("proc/sys/fs/file-nr", "90 0 100\n")),
        fault(BM, &["pids"], "9120 of 10000", |node| node.write("proc/sys/kernel/threads-max", "10000\n")),
        fault(BM, &["memory_pressure"], "", |node| {
            node.write("proc/pressure/memory", "full avg10=2.10 avg60=31.20 avg300=8.00 total=171023\n");
        }),
        fault(VM, &["oom_kills"], "since boot", |node| {
            let text = fs::read_to_string(node.path("proc/vmstat")).unwrap();
            let kills: u64 = text.rsplit(' ').next().unwrap().trim().parse().unwrap();
            node.replace("proc/vmstat", &format!("oom_kill {kills}"), &format!("oom_kill {}", kills + 40));
        }),
        fault(VM, &["disk_use"], "/host/usr", |node| node.answer("/spaces/~1host~1usr/available", 1 << 30)),
        fault(VM, &["inode_use"], "/run/vcn-native", |node| node.answer("/spaces/~1run~1vcn-native/filesFree", 100)),
        fault(VM, &["root_disk_unused"], "of 200.0 GiB, 153.4 GiB are in no partition", |node| {
            let disk = "sys/dev/block/252:0/slaves/sda3/../size";
            node.write(disk, "419430400\n");
        }),
        fault(BM, &["root_disk_unused"], "141.9 GiB in no logical volume, 0.1 GiB in no file system", |node| {
            node.write("sys/dev/block/252:0/size", &format!("{}\n", 47 * 2 * 1024 * 1024));
            node.answer("/spaces/~1host~1usr/bytes", 50_357_862_400_u64);
            node.answer("/spaces/~1host~1usr/available", 40_357_862_400_u64);
        }),
        fault(BM, &["root_disk_unused"], "142.0 GiB in no file system", |node| {
            node.answer("/spaces/~1host~1usr/bytes", 50_357_862_400_u64);
            node.answer("/spaces/~1host~1usr/available", 40_357_862_400_u64);
        }),
        fault(VM, &["kernel_io_errors"], "dev sda, sector 88", |node| {
            let line = "<3>[864210.000001] blk_update_request: I/O error, dev sda, sector 88 op 0x1:(WRITE)\n";
            node.write("kernel.log", line);
        }),
        fault(VM, &["kernel_full_tables"], "neighbor table overflow", |node| {
            node.write("kernel.log", "<4>[864210.000001][  T811] neighbour: arp_cache: neighbor table overflow!\n");
        }),
        fault(VM, &["kubelet_healthy"], "connect refused", |node| {
            node.answer("/services/127.0.0.1:10248/status", 500);
            node.answer("/services/127.0.0.1:10248/body", "healthz check failed: connect refused");
        }),
        fault(VM, &["kubelet_latency"], "", |node| node.answer("/services/127.0.0.1:10248/millis", 2500)),
        fault(VM, &["kubelet_running"], "kubelet.service has no process", |node| {
            node.write("host/sys/fs/cgroup/system.slice/kubelet.service/cgroup.events", "populated 0\nfrozen 0\n");
        }),
        fault(BM, &["runtime_running"], "crio.service has no process", |node| {
            node.write("host/sys/fs/cgroup/pids/system.slice/crio.service/pids.current", "0\n");
        }),
        fault(BM, &["cloud_agent_running"], "oracle-cloud-agent.service", |node| {
            node.write("host/sys/fs/cgroup/pids/system.slice/oracle-cloud-agent.service/pids.current", "0\n");
        }),
        fault(VM, &["reserved_memory"], "0 MiB of 64000 MiB", |node| {
            node.write("host/sys/fs/cgroup/kubepods.slice/memory.max", "max\n");
        }),
        fault(BM, &["eviction_memory"], "2268560 MiB are allocatable", |node| {
            node.facts.allocatable_memory = Some((2_268_560 << 20) + 4096);
        }),
        fault(BM, &["cloud_agent_version", "hpc_plugins_pending"], "1.38.0", |node| {
            // Its devices are not in the table, so their absence here is not a fault.
            node.facts.shape = Some("BM.GPU.H100T.8".to_owned());
            let _ = fs::remove_dir_all(node.path("host/usr/share/doc"));
            node.write("host/snap/oracle-cloud-agent/current/meta/snap.yaml", "name: x\nversion: '1.38.0'\n");
            node.write("host/run/oci-hpc/oci-hpc-mlx-configure.json", r#"{"state": "COMPLETED"}"#);
            node.write("host/run/oci-hpc/oci-rdma-authentication.json", r#"{"state": "RUNNING"}"#);
        }),
        fault(VM, &["invalid_rules"], "there is no signal pidz", |node| {
            node.write("rules.json", r#"{"rules": [{"name": "pids-nearly-used-up", "signal": "pidz"}]}"#);
        }),
    ]
}

/// Adds to a hexadecimal column of the first CPU.
fn grow_hex(node: &Node, file: &str, column: usize, more: u32) {
    let path = format!("proc/net/stat/{file}");
    let text = fs::read_to_string(node.path(&path)).unwrap();
    let row = text.lines().nth(1).unwrap();
    let mut words: Vec<String> = row.split_whitespace().map(str::to_owned).collect();
    words[column] = format!("{:08x}", u32::from_str_radix(&words[column], 16).unwrap() + more);
    node.write(&path, &text.replacen(row, &words.join(" "), 1));
}

#[test]
fn each_judged_signal_has_a_fault() {
    let raised: BTreeSet<_> = all_faults().flat_map(|fault| names(fault.signals)).collect();
    let judged = health::collectors::signals().filter(|signal| signal.unit != Unit::Text);
    assert_eq!(raised, judged.map(|signal| signal.name.to_owned()).collect());
}

#[test]
fn each_fault_of_network_or_host_raises_its_signals_alone() {
    network_faults().into_iter().chain(host_faults()).for_each(assert_raised_alone);
}

/// Asserts that a fault raises its signals and no other one.
pub(crate) fn assert_raised_alone(Fault { node, inject, signals, evidence }: Fault) {
    let mut node = node();
    let healthy = node.sample();
    assert_eq!(with(&healthy, Verdict::Problem), names(&[]), "{signals:?} ({evidence})");
    let mut report = healthy;
    for _ in 0..12 {
        inject(&mut node);
        report = node.sample();
        if names(signals).is_subset(&with(&report, Verdict::Problem)) {
            break;
        }
    }
    assert_eq!(with(&report, Verdict::Problem), names(signals), "{signals:?} ({evidence}): {report:#?}");
    let state = report.signals.iter().find(|state| state.signal == signals[0]).unwrap();
    assert!(state.detail.contains(evidence), "{evidence}: {state:#?}");
    assert!(state.rule.is_some() && state.message.is_some() && state.bound.is_some(), "{state:#?}");
}

#[test]
fn rules_file_that_turns_unreadable_keeps_its_last_rules() {
    let mut node = Node::virtual_machine();
    node.write(
        "rules.json",
        r#"{"rules": [{"name": "pids-nearly-used-up", "bound": 0, "samples": {"bad": 1, "of": 1}}]}"#,
    );
    assert!(with(&node.sample(), Verdict::Problem).contains("pids"));
    fs::remove_file(node.path("rules.json")).unwrap();
    nix::unistd::mkfifo(&node.path("rules.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let report = node.sample();
    assert_eq!(with(&report, Verdict::Problem), names(&["invalid_rules", "pids"]));
    let state = report.signals.iter().find(|state| state.signal == "invalid_rules").unwrap();
    assert!(state.detail.ends_with("rules.json: not a regular file"), "{state:#?}");
    fs::remove_file(node.path("rules.json")).unwrap();
    assert_eq!(with(&node.sample(), Verdict::Problem), names(&[]), "without the file the shipped rules apply");
}

#[test]
fn version_of_a_plugin_is_known_while_the_installed_file_is_the_agents() {
    let mut node = Node::virtual_machine();
    let (shipped, installed) = (node.path("image/vcn-native"), node.path("opt/vcn-native"));
    node.facts.plugins = vec![InstalledPlugin { name: "vcn-native", shipped, installed }];
    let program = "x".repeat(100_000);
    node.write("image/vcn-native", &program);
    for (installed, verdict, detail) in [
        (None, Verdict::Unknown, "compare "),
        (Some(program.clone()), Verdict::NotApplicable, "0.1.0"),
        (Some(program.replacen('x', "y", 1)), Verdict::Unknown, "vcn-native is not the file of agent 0.1.0"),
        (Some(format!("{program}x")), Verdict::Unknown, "vcn-native is not the file of agent 0.1.0"),
    ] {
        if let Some(text) = installed {
            node.write("opt/vcn-native", &text);
        }
        let report = node.sample();
        let state = |signal| report.signals.iter().find(|state| state.signal == signal).unwrap();
        let plugin = state("version_plugin");
        assert!(plugin.verdict == verdict && plugin.detail.contains(detail), "{plugin:#?}");
        assert_eq!(state("version_attach_plugin").detail, "vnic-attach is not installed here");
    }
}

#[test]
fn newest_package_of_the_cloud_agent_counts() {
    let mut node = Node::bare_metal();
    node.write("host/usr/share/licenses/oracle-cloud-agent-1.100.0/LICENSE", "");
    let report = node.sample();
    let state = report.signals.iter().find(|state| state.signal == "cloud_agent_version").unwrap();
    assert_eq!(state.detail, "1.100.0");
}

#[test]
fn lines_that_programs_write_to_the_kernel_log_are_not_counted() {
    let mut node = Node::virtual_machine();
    node.write("kernel.log", "<11>[864210.000001] blk_update_request: I/O error, dev sda, sector 88 op 0x1:(WRITE)\n");
    let report = node.sample();
    let state = report.signals.iter().find(|state| state.signal == "kernel_io_errors").unwrap();
    assert_eq!((state.verdict, state.value), (Verdict::Healthy, Some(0.0)));
}

#[test]
fn signals_that_lack_a_privilege_are_unknown_with_the_reason() {
    let mut node = Node::virtual_machine();
    fs::remove_dir_all(node.path("host/sys")).unwrap();
    fs::write(node.path("kernel.log"), [0xff]).unwrap();
    let report = node.sample();
    for (signal, reason) in
        [("kubelet_running", "/sys/fs/cgroup is not mounted"), ("kernel_io_errors", "read the kernel's log:")]
    {
        let state = report.signals.iter().find(|state| state.signal == signal).unwrap();
        assert!(state.verdict == Verdict::Unknown && state.detail.contains(reason), "{state:#?}");
    }
}

#[test]
fn signals_whose_folder_is_not_mounted_do_not_apply() {
    let mut node = Node::bare_metal();
    node.facts.shape = Some("BM.GPU.H100.8".to_owned());
    let _ = fs::remove_dir_all(node.path("host/usr/share/doc"));
    let _ = fs::remove_dir_all(node.path("host/usr/share/licenses"));
    node.write("host/etc/systemd/system/snap.oracle-cloud-agent.oracle-cloud-agent.service", "");
    node.facts.allocatable_memory = None;
    node.system.refuse_log();
    let report = node.sample();
    for (signal, detail) in [
        ("kernel_io_errors", "not granted: the capability SYSLOG"),
        ("eviction_memory", "no controller has reported the Node"),
        ("hpc_plugins_pending", "not granted: "),
        ("cloud_agent_version", "not granted: "),
    ] {
        let state = report.signals.iter().find(|state| state.signal == signal).unwrap();
        assert!(state.verdict == Verdict::NotApplicable && state.detail.starts_with(detail), "{state:#?}");
    }
}
