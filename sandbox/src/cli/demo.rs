//! `oke-sandbox demo`: the main job, end to end. Two emulated nodes are set up by the real agent, which runs the real
//! installer; a dozen pods get their addresses from the real plugin; packets prove that it works. Then a real API server joins,
//! where one can be had, and the controller manager attaches VNICs. All of it goes again.

mod kubectl;
mod kubernetes;
mod proof;
mod report;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube_harness::Assets;
use sandbox::{Agent, Attachment, Capabilities, Isolated, Node, NodeSpec, NpnShape, Pod, Runtime, Vcn};

use crate::cli::args::Demo;
use crate::cli::vcn::{block_signals, builder, worker};
use kubernetes::Cluster;

const PODS_PER_NODE: usize = 6;
/// Small enough that the dozen pods use several VNICs.
const PODS_PER_VNIC: u32 = 8;
const PROGRAMS: [&str; 5] = ["oke-node-agent", "oke-cni-installer", "oke-node-controller", "vcn-native", "vnic-attach"];
/// The node that runs no pods.
const CONTROL_PLANE: &str = "control-plane";

struct Running {
    node: Arc<Node>,
    pod: Pod,
    attachment: Attachment,
}

pub(crate) fn run(options: &Demo) -> Result<ExitCode> {
    let bin_dir =
        options.bin_dir.canonicalize().with_context(|| format!("cannot find {}", options.bin_dir.display()))?;
    for program in PROGRAMS {
        if !bin_dir.join(program).is_file() {
            bail!("{program} is not in {}; `make build` makes it", bin_dir.display());
        }
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&paths).any(|directory| directory.join("ping").is_file()) {
        bail!("ping is not in PATH; `make setup` installs it");
    }
    // It needs the machine's network, and minutes the first time.
    let building = if options.without_kubernetes { None } else { Some(Assets::build()?) };
    let isolated = sandbox::isolate().context("cannot isolate the sandbox")?;
    let kernel = Capabilities::probe().context("cannot try what this kernel can")?;
    let vcn = start(kernel).context("cannot start the emulated VCN")?;
    let control_plane = vcn.node(CONTROL_PLANE)?;
    let nodes: Vec<Arc<Node>> = kubernetes::workers(&vcn, &control_plane).cloned().collect();
    let mut agents = set_up(&vcn, &nodes, &bin_dir)?;
    let pods = add_pods(&nodes)?;
    let failures = proof::prove(kernel, &nodes, &pods);
    let cluster = match building {
        Some(building) => kubernetes::set_up(building, &vcn, &control_plane, &bin_dir)?,
        None => None,
    };
    if let Some(cluster) = &cluster {
        agents = cluster.join(&nodes, agents, &bin_dir)?;
        cluster.profile(&vcn, &nodes)?;
    }
    for drop in vcn.drops() {
        report::line(&format!("the fabric dropped {} frame(s) at {}: {}", drop.frames, drop.at, drop.reason));
    }
    if options.keep && failures == 0 {
        look_inside(&nodes, &pods, cluster.as_ref(), isolated);
        block_signals()?.wait()?;
        return Ok(ExitCode::SUCCESS);
    }
    take_down(&nodes, pods, agents)?;
    if let Some(cluster) = cluster {
        cluster.stop()?;
    }
    report::end(failures);
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn start(kernel: Capabilities) -> Result<Arc<Vcn>> {
    let started = Instant::now();
    let second = match kernel.vlan {
        true => NodeSpec::bare_metal("node-b", "nodes"),
        false => NodeSpec::virtual_machine("node-b", "nodes"),
    };
    let vcn = builder()
        .node(worker(NodeSpec::virtual_machine("node-a", "nodes"), PODS_PER_VNIC))
        .node(worker(second, PODS_PER_VNIC))
        .node(NodeSpec::virtual_machine(CONTROL_PLANE, "nodes"))
        .start()?;
    report::row("emulated VCN: fabric, metadata service, resolver", "up", started.elapsed());
    if !kernel.vlan {
        report::line("this kernel has no 802.1Q, so both nodes are virtual machines (else node-b is bare metal)");
    }
    for node in vcn.nodes() {
        report::line(&format!("{}: {}, {} VNICs", node.name(), node.kind(), node.vnics().len()));
    }
    Ok(Arc::new(vcn))
}

fn set_up(vcn: &Vcn, nodes: &[Arc<Node>], bin_dir: &Path) -> Result<Vec<Agent>> {
    report::title("oke-node-agent: installer, host network, pools");
    let mut agents = Vec::new();
    for node in nodes {
        sandbox::publish_native_pod_network(vcn, node, NpnShape::PerFamily)?;
        agents.push(Agent::start(node, bin_dir)?);
    }
    for (node, agent) in nodes.iter().zip(&mut agents) {
        let took = agent.wait_ready(node)?;
        report::row(&format!("{}: ready for pods", node.name()), "05-vcn-native.conflist in place", took);
    }
    Ok(agents)
}

fn add_pods(nodes: &[Arc<Node>]) -> Result<Vec<Running>> {
    report::title("vcn-native ADD, one pod after the other");
    let mut pods = Vec::new();
    for number in 0..PODS_PER_NODE * nodes.len() {
        let Some(node) = nodes.get(number % nodes.len()) else { continue };
        let pod = node.add_pod(&format!("pod-{number:02}"))?;
        let attachment = Runtime::of(node)?.add(&pod)?;
        let addresses: Vec<String> = attachment.addresses().map(|address| address.to_string()).collect();
        report::row(&format!("{} on {}", pod.name(), node.name()), &addresses.join(" "), attachment.took);
        pods.push(Running { node: Arc::clone(node), pod, attachment });
    }
    Ok(pods)
}

fn take_down(nodes: &[Arc<Node>], pods: Vec<Running>, agents: Vec<Agent>) -> Result<()> {
    report::title("taking it away");
    let mut took = Vec::new();
    for Running { node, pod, attachment } in pods {
        took.push(Runtime::of(&node)?.del(&pod, &attachment)?);
        pod.remove()?;
    }
    report::row(&format!("vcn-native DEL of {} pods, each", took.len()), "ok", median(&mut took));
    for node in nodes {
        let left = proof::left_over(node)?;
        if !left.is_empty() {
            bail!("{} still has: {}", node.name(), left.join(", "));
        }
    }
    report::row("links, rules and proxy neighbours of pods left on the nodes", "none", Duration::ZERO);
    for (node, agent) in nodes.iter().zip(agents) {
        report::row(&format!("{}: agent ended by SIGTERM", node.name()), "ok", agent.stop()?);
    }
    Ok(())
}

fn look_inside(nodes: &[Arc<Node>], pods: &[Running], cluster: Option<&Cluster>, isolated: Isolated) {
    report::title("left up; look inside");
    for node in nodes {
        let enter = node.enter_hint(isolated);
        let Some(pod) = pods.iter().find(|running| running.node.name() == node.name()) else { continue };
        report::line(&format!(
            "# {}: its rules, its pools, its agent's log; the network of {}",
            node.name(),
            pod.pod.name()
        ));
        report::line(&format!("{enter} ip rule"));
        report::line(&format!("{enter} cat /run/vcn-native/pools.json /run/oke-node-agent.log"));
        report::line(&format!("{enter} ip netns exec {} ip addr", pod.pod.name()));
    }
    if let Some(cluster) = cluster {
        report::line("# the cluster");
        let enter = cluster.node().enter_hint(isolated);
        report::line(&format!("{enter} env {}", cluster.hint()));
    }
    report::line("# take it away: Ctrl-C");
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
