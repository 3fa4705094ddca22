//! The node agent's memory and processor time: when nothing happens, through a burst of pods, and with those pods there.
//! It runs as it does on a node: in the container that its manifest describes, on a node of the sandbox.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use kube_harness::{ApiServer, Bound, ServiceAccount};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use sandbox::{Agent, Attachment, Container, Node, NodeSpec, NpnShape, Pod, Runtime, SubnetSpec, Vcn, VnicSpec};

use super::controller::{AGENT_POD, Controller, agent_pod, with_channel};

/// VNICs for pods; what one of them has for pods, so that all fit.
const VNICS: usize = 2;

/// Announcements are repeated after a second, and connections of freed addresses gathered for a moment: then a burst's
/// work is done.
pub(super) const SETTLE_TIME: Duration = Duration::from_secs(3);

/// What was found out.
#[derive(Debug)]
pub(crate) struct Footprint {
    pub(crate) pods: usize,
    /// Over which time "idle" was measured.
    pub(crate) over: Duration,
    pub(crate) idle: Interval,
    /// All ADDs at once.
    pub(crate) adds: Interval,
    /// With those pods there, and nothing else going on.
    pub(crate) loaded: Interval,
    /// All DELs at once.
    pub(crate) dels: Interval,
}

/// A stretch of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    /// How long the ADDs or DELs took; or the whole stretch.
    pub(crate) wall: Duration,
    /// The agent's processor time.
    pub(crate) cpu: Duration,
    /// The agent's resident memory at its end, in KiB.
    pub(crate) resident: u64,
    /// The most that it was.
    pub(crate) peak: u64,
}

/// Measures the agent of a directory that also holds the plugin.
pub(crate) fn measure(bin_dir: &Path, pods: usize, over: Duration) -> anyhow::Result<Footprint> {
    let bin_dir =
        &bin_dir.canonicalize().with_context(|| format!("find {} (`make bench` builds it)", bin_dir.display()))?;
    let vcn = vcn(pods)?;
    let node = vcn.node("node")?;
    let (container, server) = cluster(&vcn, &node)?;
    let (container, identity) = with_channel(container, &node)?;
    let mut agent = Agent::start_in(&container, &node, bin_dir)?;
    agent.wait_ready(&node)?;
    let controller = Controller::of(identity, &node, &server)?;
    let process = Process::of(&agent)?;
    // What a start needs is not what idling needs.
    std::thread::sleep(SETTLE_TIME);
    // Once in each, although the controller polls only once in four minutes.
    let wait = |time: Duration| {
        std::thread::sleep(time / 2);
        controller.poll(&node)?;
        std::thread::sleep(time / 2);
        Ok(())
    };
    let (idle, ()) = process.during(Duration::ZERO, || wait(over))?;
    let runtime = Runtime::of(&node)?;
    let names = (0..pods).map(|number| node.add_pod(&format!("bench-pod-{number}")));
    let added = names.collect::<Result<Vec<_>, _>>()?;
    let (adds, attachments) = process.during(SETTLE_TIME, || all_at_once(&added, |(_, pod)| Ok(runtime.add(pod)?)))?;
    let (loaded, ()) = process.during(Duration::ZERO, || wait(over))?;
    let (dels, _) = process
        .during(SETTLE_TIME, || all_at_once(&added, |(number, pod)| del(&runtime, pod, attachments.get(number))))?;
    agent.stop()?;
    Ok(Footprint { pods, over, idle, adds, loaded, dels })
}

fn vcn(pods: usize) -> anyhow::Result<Vcn> {
    let each = u32::try_from(pods.div_ceil(VNICS))?;
    let spec = NodeSpec::virtual_machine("node", "nodes").metadata("oke-native-pod-networking", "true");
    let spec = (0..VNICS).fold(spec, |spec, _| spec.vnic(VnicSpec::for_pods("pods", each)));
    let vcn = Vcn::builder()
        .subnet(SubnetSpec::new("nodes", &["10.0.0.0/24", "2603:c020:0:1::/64"]))
        .subnet(SubnetSpec::new("pods", &["10.0.32.0/20", "2603:c020:0:2::/64"]))
        .node(spec)
        .start()?;
    Ok(vcn)
}

/// The agent's container in a cluster of its own, with an API server on the node's loopback that it watches. Whether the
/// agent watches or reads a file makes a difference of some MiB, so there is no measurement without.
pub(super) fn cluster(vcn: &Vcn, node: &Node) -> anyhow::Result<(Container, ApiServer)> {
    const SECRETS: &str = "/run/bench-secrets";
    let object = vcn.native_pod_network(node.name(), NpnShape::PerFamily)?;
    let start = || {
        let server = ApiServer::start()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            server.apply(&ApiServer::native_pod_networks()).await?;
            for file in ["namespace.yaml", "daemonset.yaml", "admission.yaml"] {
                let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/base");
                server.apply(&manifests.join(file)).await?;
            }
            server.apply_object(object).await?;
            server.apply_object(agent_pod()).await?;
            let account = ServiceAccount::new("oke-node-manager", "oke-node-agent");
            let agent = server.token(&account, &Bound::Pod(AGENT_POD.to_owned())).await?;
            server.write_in_cluster(&agent, &account.namespace, Path::new(SECRETS))
        })?;
        anyhow::Ok(server)
    };
    let server = node.run(start)?.context("start the cluster's API server")?;
    let (host, port) = server.service();
    Ok((Container::node_agent()?.with_api_server(Path::new(SECRETS), &host, &port), server))
}

fn del(runtime: &Runtime<'_>, pod: &Pod, attachment: Option<&Attachment>) -> anyhow::Result<Duration> {
    Ok(runtime.del(pod, attachment.context("a pod without a result")?)?)
}

/// Does something to all pods, each on a thread of its own.
fn all_at_once<T: Send>(
    pods: &[Pod],
    act: impl Fn((usize, &Pod)) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = pods.iter().enumerate().map(|pod| scope.spawn(move || act(pod))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?).collect()
    })
}

/// The agent's process, from outside.
pub(super) struct Process {
    pid: Pid,
}

impl Process {
    pub(super) fn of(agent: &Agent) -> anyhow::Result<Self> {
        Ok(Self { pid: Pid::from_raw(agent.id().try_into()?) })
    }

    /// What the agent takes while something is done and for some time after.
    pub(super) fn during<T>(
        &self,
        after: Duration,
        act: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(Interval, T)> {
        // "5" is what makes the kernel take the peak to be what is resident now.
        fs::write(format!("/proc/{}/clear_refs", self.pid), "5").context("reset the peak of the agent's memory")?;
        let (begun, before) = (Instant::now(), self.cpu()?);
        let done = act()?;
        let wall = begun.elapsed();
        std::thread::sleep(after);
        let cpu = self.cpu()?.saturating_sub(before);
        Ok((Interval { wall, cpu, resident: self.memory("VmRSS:")?, peak: self.memory("VmHWM:")? }, done))
    }

    /// Of all threads that it has and had.
    fn cpu(&self) -> anyhow::Result<Duration> {
        Ok(clock_gettime(clock_getcpuclockid(self.pid)?)?.into())
    }

    fn memory(&self, key: &str) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let Some(value) = status.lines().find_map(|line| line.strip_prefix(key)) else { bail!("no {key} in {status}") };
        Ok(value.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Interval {
    /// Processor time as a share of one processor.
    pub(crate) fn share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64()
    }
}
