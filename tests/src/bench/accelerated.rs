//! The agent on a node with eight GPUs and 16 RDMA ports: memory and processor time when nothing happens. Its /sys and the driver's
//! files of /proc are those of `tests/recorded/accelerators`; VNICs, cgroups and the kernel's log are real.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use host_harness::write_accelerators;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use sandbox::{Agent, NodeSpec, SubnetSpec, Vcn, VnicSpec};

use super::agent::{Interval, Process, SETTLE_TIME, cluster};
use super::controller::{Controller, with_channel};

/// Where the container has the tree until it covers the machine's own files.
const TREE: &str = "/recorded";

/// What is covered by the tree, after what stays visible in it.
const KEPT: [&str; 3] = ["/sys/class/net", "/sys/devices/virtual", "/sys/fs"];
const COVERED: [&str; 2] = ["/sys", "/proc/driver"];

/// All collectors have run at least once after this.
const SETTLED: Duration = Duration::from_secs(75);

/// Measures the agent of a directory.
pub(crate) fn measure(bin_dir: &Path, over: Duration) -> anyhow::Result<Interval> {
    let bin_dir =
        &bin_dir.canonicalize().with_context(|| format!("find {} (`make bench` builds it)", bin_dir.display()))?;
    let tree = tempfile::tempdir_in("/dev/shm")?;
    write_accelerators("bm-gpu-h100-8", tree.path());
    for path in KEPT {
        let place = tree.path().join(path.trim_start_matches('/'));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(place)?;
    }
    let spec = NodeSpec::virtual_machine("node", "nodes").shape("BM.GPU.H100.8", 24);
    let spec = spec.metadata("oke-native-pod-networking", "true").vnic(VnicSpec::for_pods("pods", 31));
    let vcn = Vcn::builder()
        .subnet(SubnetSpec::new("nodes", &["10.0.0.0/24", "2603:c020:0:1::/64"]))
        .subnet(SubnetSpec::new("pods", &["10.0.32.0/20", "2603:c020:0:2::/64"]))
        .node(spec)
        .start()?;
    let node = vcn.node("node")?;
    let (container, server) = cluster(&vcn, &node)?;
    // As the overlay for nodes with GPUs has it.
    let container = container.with_capability("SYSLOG").with_volume(tree.path(), Path::new(TREE));
    let (container, identity) = with_channel(container, &node)?;
    let mut agent = Agent::start_in(&container, &node, bin_dir)?;
    cover(agent.id())?;
    agent.wait_ready(&node)?;
    let controller = Controller::of(identity, &node, &server)?;
    let process = Process::of(&agent)?;
    std::thread::sleep(SETTLE_TIME + SETTLED);
    let wait = || {
        std::thread::sleep(over / 2);
        let summary = controller.poll(&node)?;
        std::thread::sleep(over / 2);
        Ok(summary)
    };
    let (idle, summary) = process.during(Duration::ZERO, wait)?;
    let has_accelerators = summary.get("accelerators").is_some_and(|it| !it.is_null());
    ensure!(has_accelerators, "the agent saw no accelerators: {summary}");
    agent.stop()?;
    Ok(idle)
}

/// Puts the tree in place of the machine's files in a process's mount namespace.
fn cover(process: u32) -> anyhow::Result<()> {
    let namespace = File::open(format!("/proc/{process}/ns/mnt"))?;
    let cover = move || -> nix::Result<()> {
        // A thread that shares its folder with others may not change namespaces.
        unshare(CloneFlags::CLONE_FS)?;
        setns(namespace, CloneFlags::CLONE_NEWNS)?;
        let bind = |from: &str, to: &str| {
            mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
        };
        KEPT.iter().try_for_each(|path| bind(path, &format!("{TREE}{path}")))?;
        COVERED.iter().try_for_each(|path| bind(&format!("{TREE}{path}"), path))
    };
    let done = std::thread::spawn(cover).join().map_err(|_| anyhow!("a thread panicked"))?;
    done.context("cover /sys of the agent's container")
}
