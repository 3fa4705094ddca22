//! Right verdicts on what other nodes had: stacks of disks, cgroups of both versions, kernel messages, races for NAT ports.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use health::rules::Severity;
use health::{Report, SignalState, Verdict};
use serde_json::json;

use crate::node::Node;

fn state<'a>(report: &'a Report, signal: &str) -> &'a SignalState {
    report.signals.iter().find(|state| state.signal == signal).unwrap()
}

fn result(report: &Report, signal: &str) -> (Verdict, Option<Severity>) {
    let state = state(report, signal);
    (state.verdict, state.severity)
}

const HEALTHY: (Verdict, Option<Severity>) = (Verdict::Healthy, None);
const UNKNOWN: (Verdict, Option<Severity>) = (Verdict::Unknown, None);
const NOT_APPLICABLE: (Verdict, Option<Severity>) = (Verdict::NotApplicable, None);
const WARNING: (Verdict, Option<Severity>) = (Verdict::Problem, Some(Severity::Warning));
const CRITICAL: (Verdict, Option<Severity>) = (Verdict::Problem, Some(Severity::Critical));

/// The last of some samples.
fn samples(node: &mut Node, count: usize) -> Report {
    (1..count).for_each(|_| drop(node.sample()));
    node.sample()
}

#[test]
fn units_count_in_any_slice_whatever_the_pid_namespace() {
    let mut node = Node::bare_metal();
    let (pids, named) = ("host/sys/fs/cgroup/pids", "host/sys/fs/cgroup/systemd");
    assert_eq!(result(&node.sample(), "kubelet_running"), HEALTHY, "cgroup.procs is empty in a container");
    fs::remove_dir_all(node.path(&format!("{pids}/system.slice/kubelet.service"))).unwrap();
    fs::remove_dir_all(node.path(&format!("{named}/system.slice/kubelet.service"))).unwrap();
    node.write(&format!("{pids}/kube.slice/kube-node.slice/kubelet.service/pids.current"), "31\n");
    node.write(&format!("{named}/kube.slice/kube-node.slice/kubelet.service/cgroup.procs"), "");
    assert_eq!(result(&node.sample(), "kubelet_running"), HEALTHY, "a slice of kubespray");
    fs::remove_dir_all(node.path(pids)).unwrap();
    assert_eq!(result(&node.sample(), "kubelet_running"), UNKNOWN, "nothing shows whether it has processes");
    let unified = "host/sys/fs/cgroup/unified/kube.slice/kube-node.slice/kubelet.service/cgroup.events";
    node.write(unified, "populated 1\n");
    assert_eq!(result(&node.sample(), "kubelet_running"), HEALTHY, "systemd's own hierarchy of version 2");
    fs::remove_dir_all(node.path(&format!("{named}/kube.slice"))).unwrap();
    fs::remove_dir_all(node.path("host/sys/fs/cgroup/unified")).unwrap();
    assert_eq!(result(&samples(&mut node, 2), "kubelet_running"), CRITICAL, "it has no cgroup");

    let mut node = Node::virtual_machine();
    let of = |slice: &str| format!("host/sys/fs/cgroup/{slice}/kubelet.service/cgroup.events");
    fs::remove_dir_all(node.path("host/sys/fs/cgroup/system.slice/kubelet.service")).unwrap();
    node.write(&of("kubepods.slice/kubepods-pod1.slice"), "populated 1\n");
    assert_eq!(result(&samples(&mut node, 2), "kubelet_running"), CRITICAL, "a pod's kubelet is not the node's");
    node.write(&of("kube.slice"), "populated 1\n");
    assert_eq!(result(&samples(&mut node, 3), "kubelet_running"), HEALTHY);

    let mut node = Node::virtual_machine();
    fs::remove_dir_all(node.path("host/sys/fs/cgroup/system.slice")).unwrap();
    assert_eq!(result(&samples(&mut node, 2), "kubelet_running"), UNKNOWN, "systemd's slices are elsewhere");
}

#[test]
fn runtime_is_the_one_that_the_node_reports() {
    let mut node = Node::virtual_machine();
    node.write("host/usr/lib/systemd/system/containerd.service", "");
    node.write("host/usr/lib/systemd/system/docker.service", "");
    node.write("host/sys/fs/cgroup/system.slice/containerd.service/cgroup.events", "populated 1\n");
    node.write("host/sys/fs/cgroup/system.slice/docker.service/cgroup.events", "populated 1\n");
    node.write("host/sys/fs/cgroup/system.slice/crio.service/cgroup.events", "populated 0\n");
    let report = samples(&mut node, 2);
    assert_eq!(result(&report, "runtime_running"), CRITICAL);
    assert_eq!(state(&report, "runtime_running").detail, "crio.service has no process");
    for (runtime, expected) in [("containerd", HEALTHY), ("docker", HEALTHY), ("gvisor", NOT_APPLICABLE)] {
        node.facts.runtime = Some(runtime.to_owned());
        assert_eq!(result(&samples(&mut node, 3), "runtime_running"), expected, "{runtime}");
    }
    node.facts.runtime = None;
    assert_eq!(result(&node.sample(), "runtime_running"), UNKNOWN, "one of several runs");
}

#[test]
fn bound_on_processes_is_the_hosts() {
    let mut node = Node::virtual_machine();
    node.write("proc/sys/kernel/osrelease", "6.18.44\n");
    node.write("proc/sys/kernel/pid_max", "4194304\n");
    node.write("proc/sys/kernel/threads-max", "510000\n");
    node.write("proc/loadavg", "0.10 0.20 0.30 2/25000 12345\n");
    fs::create_dir_all(node.path("proc/self/ns")).unwrap();
    symlink("pid:[4026532181]", node.path("proc/self/ns/pid")).unwrap();
    assert_eq!(result(&node.sample(), "pids"), UNKNOWN, "only the agent's own bound is known");
    node.write("host/sys/fs/cgroup/kubepods.slice/pids.max", "32768\n");
    let report = samples(&mut node, 2);
    assert_eq!(result(&report, "pids"), CRITICAL);
    assert_eq!(state(&report, "pids").detail, "25000 of 32768 threads");
    fs::remove_file(node.path("proc/self/ns/pid")).unwrap();
    symlink("pid:[4026531836]", node.path("proc/self/ns/pid")).unwrap();
    assert_eq!(result(&samples(&mut node, 3), "pids"), HEALTHY, "the host's own namespace");
}

#[test]
fn races_for_nat_ports_are_no_full_table() {
    let recorded = |number| {
        let file = format!("../../tests/recorded/conntrack/nf_conntrack-snat-race-{number}.txt");
        fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
    };
    let mut node = Node::virtual_machine();
    let mut report = node.sample();
    for _ in 0..5 {
        for number in [1, 2] {
            node.write("proc/net/stat/nf_conntrack", &recorded(number));
            report = node.sample();
        }
    }
    assert_eq!((result(&report, "conntrack_drops"), result(&report, "conntrack_use")), (HEALTHY, HEALTHY));
    assert_eq!(state(&report, "conntrack_drops").value, Some(0.0));
}

#[test]
fn full_table_is_critical_only_while_connections_are_lost() {
    let mut node = Node::virtual_machine();
    fs::remove_file(node.path("proc/net/stat/nf_conntrack")).unwrap();
    let mut total = 0_u64;
    let mut results = |connections: u64, lost: u64, raced: u64| {
        node.write("proc/sys/net/netfilter/nf_conntrack_count", &format!("{connections}\n"));
        let mut report = Report::default();
        for _ in 0..6 {
            total += 1;
            let counts = json!([total * (lost + raced), 0, total * raced]);
            node.system.answers.lock().unwrap()["conntrack"] = counts;
            report = node.sample();
        }
        total *= 100;
        [result(&report, "conntrack_use"), result(&report, "conntrack_drops")]
    };
    assert_eq!(results(1000, 0, 50), [HEALTHY, HEALTHY], "the counts are netlink's");
    assert_eq!(results(262_000, 0, 50), [WARNING, HEALTHY], "full, and nothing is lost");
    assert_eq!(results(150_000, 5, 50), [HEALTHY, WARNING], "lost for another reason");
    assert_eq!(results(249_000, 5, 50), [WARNING, WARNING], "less than 95 % in use");
    assert_eq!(results(249_037, 5, 50), [WARNING, CRITICAL], "95 % in use");
    assert_eq!(results(258_000, 5, 50), [CRITICAL, CRITICAL], "98 % in use");
    assert_eq!(results(1000, 0, 50), [HEALTHY, HEALTHY]);
    node.system.answers.lock().unwrap().as_object_mut().unwrap().remove("conntrack");
    let report = node.sample();
    assert_eq!((result(&report, "conntrack_use"), result(&report, "conntrack_drops")), (HEALTHY, UNKNOWN));
}

#[test]
fn stacked_disks_are_examined_at_all_levels() {
    for (disks, percent, detail) in [
        ("vg-three-disks", 0.1, "of 557.9 GiB, 0.0 GiB are in no partition, 0.0 GiB in no logical volume, 0.4 GiB"),
        ("luks-lvm-grown", 38.9, "of 388.5 GiB, 150.0 GiB are in no partition, 0.0 GiB in no logical volume, 1.1 GiB"),
        ("multipath-grown", 76.7, "of 200.0 GiB, 0.0 GiB are in no partition, 153.4 GiB in no logical volume"),
        ("lvm-raid1-xfs", 1.2, "of 200.0 GiB, 0.0 GiB are in no partition, 2.0 GiB in no logical volume, 0.5 GiB"),
    ] {
        let mut node = Node::with_disks(disks);
        let report = node.sample();
        let state = state(&report, "root_disk_unused");
        assert!(
            (state.value.unwrap() - percent).abs() < 0.06 && state.detail.starts_with(detail),
            "{disks}: {state:#?}"
        );
        assert_eq!(state.verdict == Verdict::Problem, percent > 10.0, "{disks}");
    }
}

/// A device of a made-up tree, with its size in MiB.
fn device(node: &Node, path: &str, mebibytes: u64) {
    node.write(&format!("sys/devices/{path}/size"), &format!("{}\n", mebibytes * 2048));
}

fn stacked(node: &Node, upper: &str, lower: &str) {
    for (one, folder, other) in [(upper, "slaves", lower), (lower, "holders", upper)] {
        let folder = node.path(&format!("sys/devices/{one}/{folder}"));
        fs::create_dir_all(&folder).unwrap();
        let name = other.rsplit('/').next().unwrap();
        symlink(node.path(&format!("sys/devices/{other}")), folder.join(name)).unwrap();
    }
}

/// A root of 90 GiB on LUKS, on LVM, on a RAID of two partitions of 100 GiB; `disk` is the size of each disk.
fn raid_below_lvm_below_luks(disk: u64, array: u64) -> Node {
    let node = Node::virtual_machine();
    for folder in ["sys/dev", "sys/devices"] {
        fs::remove_dir_all(node.path(folder)).unwrap();
    }
    for (name, mebibytes) in [("dm-1", 92_160), ("dm-0", 92_176), ("md0", array)] {
        device(&node, name, mebibytes);
    }
    for disk_name in ["sda", "sdb"] {
        device(&node, disk_name, disk);
        device(&node, &format!("{disk_name}/{disk_name}1"), 102_398);
        node.write(&format!("sys/devices/{disk_name}/{disk_name}1/partition"), "1\n");
        stacked(&node, "md0", &format!("{disk_name}/{disk_name}1"));
    }
    stacked(&node, "dm-0", "md0");
    stacked(&node, "dm-1", "dm-0");
    fs::create_dir_all(node.path("sys/dev/block")).unwrap();
    symlink(node.path("sys/devices/dm-1"), node.path("sys/dev/block/252:0")).unwrap();
    node.answer("/spaces/~1host~1usr/bytes", 92_000_u64 << 20);
    node
}

#[test]
fn unused_room_is_found_below_every_level() {
    let unused = |disk, array| {
        let report = raid_below_lvm_below_luks(disk, array).sample();
        let state = state(&report, "root_disk_unused");
        (state.verdict, state.detail.clone())
    };
    let (verdict, detail) = unused(102_400, 102_390);
    assert_eq!(verdict, Verdict::Healthy, "{detail}");
    let (verdict, detail) = unused(204_800, 102_390);
    assert!(verdict == Verdict::Problem && detail.contains("of 400.0 GiB, 200.0 GiB are in no partition"), "{detail}");
    let (verdict, detail) = unused(102_400, 92_180);
    assert!(verdict == Verdict::Problem && detail.contains(" 20.0 GiB in no logical volume"), "{detail}");
}

#[test]
fn root_without_a_device_of_its_own_is_not_examined() {
    let mut node = Node::virtual_machine();
    node.replace("proc/self/mountinfo", "252:0 /usr /host/usr ro,relatime - xfs", "0:36 /usr /host/usr ro - btrfs");
    let report = node.sample();
    assert_eq!(result(&report, "root_disk_unused"), NOT_APPLICABLE);
    assert!(state(&report, "root_disk_unused").detail.starts_with("not examined: btrfs"), "{report:#?}");
    let report = Node::with_disks("composefs").sample();
    assert_eq!(result(&report, "disk_use"), HEALTHY, "an image without a free block is not full");
    assert_eq!(state(&report, "disk_use").detail, "/run/vcn-native");
    assert_eq!(result(&report, "root_disk_unused"), NOT_APPLICABLE);
}

#[test]
fn writable_file_system_without_a_free_block_is_full() {
    let mut node = Node::virtual_machine();
    node.answer("/spaces/~1host~1usr/available", 0);
    assert_eq!(result(&samples(&mut node, 2), "disk_use"), CRITICAL, "the container's mount of it is read-only");
    node.answer("/spaces/~1host~1usr", ());
    let report = node.sample();
    assert_eq!(result(&report, "disk_use"), CRITICAL, "it cannot be examined any more");
    assert!(state(&report, "disk_use").not_measured.is_some());
}

#[test]
fn only_the_roots_disk_is_critical() {
    const REPORTED: &str = "/host/usr ro,relatime - xfs /dev/mapper/root rw";
    let medium = "critical medium error, dev sdk, sector 130611915 op 0x0:(READ) flags 0x0";
    for (disks, message, expected, named) in [
        (
            "multipath-grown",
            "XFS (dm-4): I/O Error Detected. Shutting down filesystem",
            CRITICAL,
            "root's disk: XFS (dm-4)",
        ),
        ("multipath-grown", "I/O error, dev sdb, sector 8 op 0x1:(WRITE)", CRITICAL, "root's disk: I/O error, dev sdb"),
        ("multipath-grown", "XFS (dm-5): log I/O error -5", WARNING, "the disk dm-5: XFS (dm-5)"),
        ("multipath-grown", medium, WARNING, "the disk sdk: critical medium error"),
        ("luks-lvm-grown", "nvme nvme0: Removing after probe failure status: -19", CRITICAL, "root's disk: nvme nvme0"),
        ("luks-lvm-grown", "nvme nvme1: I/O 1 QID 2 timeout, reset controller", WARNING, "the disk nvme1: nvme nvme1"),
        ("multipath-grown", "XFS (loop1): Metadata corruption detected at xfs_dinode_verify", HEALTHY, ""),
    ] {
        let mut node = Node::with_disks(disks);
        node.sample();
        node.write("kernel.log", &format!("<3>[864210.000001] {message}\n"));
        let report = node.sample();
        assert_eq!(result(&report, "kernel_io_errors"), expected, "{message}");
        assert!(state(&report, "kernel_io_errors").detail.contains(named), "{report:#?}");
    }
    let mut node = Node::with_disks("multipath-grown");
    node.replace("proc/self/mountinfo", REPORTED, "/host/usr ro - btrfs /dev/sda2 rw");
    node.replace("proc/self/mountinfo", "252:4", "0:36");
    node.sample();
    node.write("kernel.log", "<3>[864210.000001] BTRFS: error (device sda2: state EA) in x:1: errno=-5 IO failure\n");
    assert_eq!(result(&node.sample(), "kernel_io_errors"), CRITICAL, "the root's disk is not known");
}

#[test]
fn critical_error_stays_when_another_disk_fails_later() {
    let mut node = Node::virtual_machine();
    node.sample();
    for (line, expected) in [
        ("<3>[864210.1] Buffer I/O error on dev sdp, logical block 145", WARNING),
        ("<3>[864211.1] I/O error, dev sda, sector 88 op 0x1:(WRITE)", CRITICAL),
        ("<3>[864212.1] Buffer I/O error on dev sdp, logical block 146", CRITICAL),
    ] {
        node.write("kernel.log", &format!("{line}\n"));
        assert_eq!(result(&node.sample(), "kernel_io_errors"), expected, "{line}");
    }
}

#[test]
fn newest_message_of_the_log_is_now() {
    let mut node = Node::virtual_machine();
    // The uptime is 864,210 s.
    node.write("kernel.log", "<3>[824973.57] I/O error, dev sda, sector 88\n<6>[825100.0] ens3: Link up\n");
    assert_eq!(result(&node.sample(), "kernel_io_errors"), CRITICAL);
    let mut node = Node::virtual_machine();
    node.write("kernel.log", "<3>[824973.57] I/O error, dev sda, sector 88\n<6>[864100.0] ens3: Link up\n");
    assert_eq!(result(&node.sample(), "kernel_io_errors"), HEALTHY, "hours ago");
    node.write("kernel.log", "<3>I/O error, dev sda, sector 88\n");
    assert_eq!(result(&node.sample(), "kernel_io_errors"), UNKNOWN, "a log without times");
}

#[test]
fn kubelet_that_listens_elsewhere_is_unknown_while_it_runs() {
    let mut node = Node::virtual_machine();
    node.answer("/services/127.0.0.1:10248", ());
    let report = samples(&mut node, 3);
    assert_eq!((result(&report, "kubelet_healthy"), result(&report, "kubelet_latency")), (UNKNOWN, UNKNOWN));
    node.facts.kubelet_port = 0;
    assert_eq!(result(&node.sample(), "kubelet_healthy"), NOT_APPLICABLE);
    node.facts.kubelet_port = 10248;
    node.write("host/sys/fs/cgroup/system.slice/kubelet.service/cgroup.events", "populated 0\n");
    assert_eq!(result(&samples(&mut node, 2), "kubelet_healthy"), CRITICAL);
}

#[test]
fn name_that_differs_from_the_start_is_no_problem() {
    let mut node = Node::virtual_machine();
    node.facts.node_name = Some("worker-1".to_owned());
    assert_eq!(result(&samples(&mut node, 3), "hostname_mismatch"), NOT_APPLICABLE);
    let mut node = Node::virtual_machine();
    node.sample();
    node.facts.node_name = Some("worker-1".to_owned());
    assert_eq!(result(&samples(&mut node, 2), "hostname_mismatch"), WARNING, "it was changed");
    node.write("host/etc/systemd/system/kubelet.service.d/10-oke.conf", "Environment=A=--hostname-override=worker-1\n");
    assert_eq!(result(&node.sample(), "hostname_mismatch"), NOT_APPLICABLE, "the option is set");
}

#[test]
fn link_without_a_carrier_file_is_unknown() {
    let mut node = Node::virtual_machine();
    fs::remove_file(node.path("sys/class/net/ens5/carrier")).unwrap();
    assert_eq!(result(&samples(&mut node, 2), "link_down"), UNKNOWN);
    node.write("sys/class/net/ens3/carrier", "0\n");
    assert_eq!(result(&samples(&mut node, 2), "link_down"), CRITICAL, "another one is down");
}

/// As the links of a node with free Exclusive VNICs, or with `HOST_NETWORKING=off`.
#[test]
fn link_of_others_that_is_down_is_judged_only_if_it_was_raised() {
    let mut node = Node::virtual_machine();
    let sys = tempfile::tempdir().unwrap();
    let run = |command: &str| {
        let words: Vec<&str> = command.split(' ').collect();
        assert!(Command::new(words[0]).args(&words[1..]).status().unwrap().success(), "{command}");
    };
    // A real link, because reading the carrier of one that is down fails.
    run(&format!("mount -t sysfs sysfs {}", sys.path().display()));
    run("ip link add judged0 type veth peer name judged1");
    fs::remove_file(node.path("sys/class/net/ens5/carrier")).unwrap();
    node.link("sys/class/net/ens5/carrier", &format!("{}/class/net/judged0/carrier", sys.path().display()));
    node.facts.links.iter_mut().for_each(|link| link.is_kept_up = link.name != "ens5");
    assert_eq!(result(&samples(&mut node, 3), "link_down"), HEALTHY);
    run("ip link set judged0 up");
    assert_eq!(result(&samples(&mut node, 3), "link_down"), CRITICAL, "it was raised and has no carrier");
    run("ip link set judged0 down");
    node.facts.links.iter_mut().for_each(|link| link.is_kept_up = true);
    assert_eq!(result(&samples(&mut node, 3), "link_down"), CRITICAL, "the agent keeps it up");
    run("ip link delete judged0");
    run(&format!("umount {}", sys.path().display()));
}
