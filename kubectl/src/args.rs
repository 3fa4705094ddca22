//! The command line as typed.

pub(crate) mod capture;
pub(crate) mod nettest;
pub(crate) mod task;
mod types;

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use hyper::Uri;

use capture::CaptureArgs;
use nettest::NetTestArgs;
use task::{GrowArgs, RebootArgs, RestartArgs, TaskArgs};
pub(crate) use types::{Format, Output};
use types::{node_name, object_name};

/// Shows what is wrong on which node of the OKE Node Manager, since when, and what to do. It changes nothing, except that `nettest`
/// creates a NetworkTest and deletes it, `stop` stops or resumes all rollouts, and `bundle` writes a file. `restart`, `grow` and
/// `reboot` create a NodeTask; `capture` does, too, and deletes it when it has written a file.
#[derive(Clone, Debug, Parser)]
#[command(name = "kubectl-oke_node", bin_name = "kubectl oke-node", version, after_help = AFTER)]
pub(crate) struct Args {
    /// The command
    #[command(subcommand)]
    pub command: Command,
    /// Which cluster to use.
    #[command(flatten)]
    pub target: Target,
}

const AFTER: &str = "\
Exit status:
  0  all that is shown is healthy (explain: the word is known; nettest: reachable)
  1  something that is shown is not healthy or not known, the controller is not reachable, or the command failed; nettest: not
     reachable
  2  wrong command line, a word that explain does not know, or a test that the API server or the controller refuses
  3  nettest: not decided. Some packets pass and several causes are left, an agent did not answer, the test timed out, or the
     command failed (no access, no controller). bundle: written, but incomplete

Examples:
  kubectl oke-node status --problems              nodes that are not healthy, the worst first
  kubectl oke-node node 10.0.0.2                  everything about one node, and what to do
  kubectl oke-node explain conntrack_use          what a name means, without a cluster";

/// Which cluster to use.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Target {
    /// The kubeconfig [default: $KUBECONFIG, ~/.kube/config, or the pod's service account]
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: its current context]
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// The namespace of the controller
    #[arg(short, long, global = true, default_value = "oke-node-manager", value_name = "NAME")]
    pub namespace: String,
    /// The leader's URL, such as http://localhost:9811 of a `kubectl port-forward` of yours, where a proxy refuses WebSockets
    #[arg(long, global = true, value_parser = view_url, value_name = "http://HOST:PORT")]
    pub view_url: Option<Uri>,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// Show all nodes, the worst first
    #[command(after_help = "\
Examples:
  kubectl oke-node status                         all nodes, and their number by state
  kubectl oke-node status --pool …xk7q2a          those of one node pool
  kubectl oke-node status --problems -o wide      those that are not healthy, with OCIDs, all problems and errors
  kubectl oke-node status -o json | jq '.counts'  for scripts")]
    Status(StatusArgs),
    /// Show everything about one node: why it is not ready, problems with the next step, VNICs, sources
    #[command(after_help = "\
Examples:
  kubectl oke-node node 10.0.0.2
  kubectl oke-node node 10.0.0.2 -o json | jq '.findings[].nextStep'")]
    Node(NodeArgs),
    /// Show GPUs and RDMA ports of all nodes: which device is wrong, since when, and what it needs
    #[command(after_help = "\
Examples:
  kubectl oke-node gpus                           nodes with GPUs or RDMA, the worst first, with each faulty device
  kubectl oke-node gpus -o json | jq '.nodes[].problems[].device'")]
    Gpus(GpusArgs),
    /// Show VnicAttachments with their instance, VNIC and state
    #[command(after_help = "\
Examples:
  kubectl oke-node vnics                          those of all nodes, the ones that are not ready first
  kubectl oke-node vnics --node 10.0.0.2 -o wide")]
    Vnics(VnicsArgs),
    /// Show NodePolicies, or the nodes of one with their revisions and problems
    #[command(after_help = "\
Examples:
  kubectl oke-node policy                         all policies, unfinished ones first
  kubectl oke-node policy web                     its nodes, and each setting that differs
  kubectl oke-node policy web -o json | jq '.nodes[] | select(.progress == \"Failed\")'")]
    Policy(PolicyArgs),
    /// Show NodeTasks, or the progress of one
    #[command(after_help = "\
Examples:
  kubectl oke-node task                           all tasks
  kubectl oke-node task restart-x7k2f             its nodes, what failed, and the next step")]
    Task(TaskArgs),
    /// Restart a unit of systemd on a node, or on nodes with labels: kubelet, crio, containerd, oracle-cloud-agent, chronyd
    #[command(after_help = "\
It creates a NodeTask, which the cluster must permit (docs/node-tasks.md), and waits for its end. A short-lived Pod reaches systemd of the
node, which equals root there for seconds. Untested with SELinux enforcing and on Oracle Linux 8.

Exit status: 0 succeeded; 1 failed; 2 wrong command line, or the task is refused.

Examples:
  kubectl oke-node restart 10.0.0.2 crio
  kubectl oke-node restart -l pool=web kubelet --concurrency 4 --max-failures 1")]
    Restart(RestartArgs),
    /// Grow the root disk of a node, or of nodes with labels, to its boot volume's size; this restarts the kubelet
    #[command(after_help = "\
It creates a NodeTask, which the cluster must permit (docs/node-tasks.md), and waits for its end. A short-lived Pod reaches systemd of the
node, which equals root there for seconds. Untested with SELinux enforcing and on Oracle Linux 8.

Exit status: 0 succeeded; 1 failed; 2 wrong command line, or the task is refused.

Examples:
  kubectl oke-node grow 10.0.0.2
  kubectl oke-node grow -l pool=web --concurrency 4")]
    Grow(GrowArgs),
    /// Reboot a node: cordon, drain, reset by OCI, proof, uncordon
    #[command(after_help = "\
It creates a NodeTask, which the cluster must permit (docs/node-tasks.md), and waits for its end. `kubectl delete nodetask NAME` cancels
it until the reset was requested.

Exit status: 0 succeeded; 1 failed; 2 wrong command line, or the task is refused.

Examples:
  kubectl oke-node reboot 10.0.0.2
  kubectl oke-node reboot 10.0.0.2 --drain-minutes 60 --no-wait")]
    Reboot(RebootArgs),
    /// Stop all rollouts of the cluster at once, including rollbacks, and further nodes of tasks; nodes keep their settings
    #[command(after_help = "\
Examples:
  kubectl oke-node stop nodes of pool web lose packets
  kubectl oke-node stop --off")]
    Stop(StopArgs),
    /// Test whether a pod or a node reaches a Service, a pod, a node or a service of nodes, and name the cause if not
    #[command(after_help = "\
Exit status: 0 reachable; 1 not reachable; 2 wrong command line, or the test is refused; 3 not decided, or the command failed.

Examples:
  kubectl oke-node nettest pod/shop/front-0 service/shop/cart:80
  kubectl oke-node nettest 10.0.10.2 10.0.20.3 --port 8443
  kubectl oke-node nettest 10.0.10.2 10.0.20.3 --mtu    packets of full size
  kubectl oke-node nettest 10.0.10.2/10.0.11.2 10.0.20.3    from the address of a secondary VNIC
  kubectl oke-node nettest 10.0.10.2 imds               a service: gateway, imds, dns, apiserver, oci-services")]
    Nettest(NetTestArgs),
    /// Write one tar for support, without secrets: the controller, the fleet, our objects, and the bundles of up to 20 nodes
    #[command(after_help = "\
Exit status: 0 complete; 1 failed, and no file was written; 2 wrong command line; 3 written, and something is missing (README.txt).

Examples:
  kubectl oke-node bundle --problems --file oke.tar    with the nodes that are not healthy, the worst first
  kubectl oke-node bundle --node 10.0.0.2 --node 10.0.0.3 --file oke.tar
  kubectl oke-node bundle --file - | gzip > oke.tar.gz    without nodes")]
    Bundle(BundleArgs),
    /// Capture state, packets or logs of one node into a tar; without such an option, its state
    #[command(after_help = "\
It creates a NodeTask, which the cluster must permit, and deletes it at the end, with what the node keeps. Packets have headers only,
unless --payload is given: payload cannot be redacted. Secrets in state and logs are replaced as far as they are recognized.

Exit status: 0 complete; 1 failed, and no file was written; 2 wrong command line.

Examples:
  kubectl oke-node capture 10.0.0.2 --packets 30 --host 10.0.1.7 --protocol tcp --port 443 --file out.tar
  kubectl oke-node capture 10.0.0.2 --state --packets 60 --interface ens5 --file out.tar
  kubectl oke-node capture 10.0.0.2 --logs kubelet,crio.service --hours 6 --file logs.tar
  tar -xOf out.tar capture/packets.pcap | tcpdump -nn -r -")]
    Capture(CaptureArgs),
    /// Explain an error code, a condition, a reason, a signal, a rule or an Xid, without a cluster
    #[command(after_help = "\
Examples:
  kubectl oke-node explain 102                    an error code of the CNI plugins
  kubectl oke-node explain SubnetFull             a reason of a VnicAttachment
  kubectl oke-node explain AddressesExhausted     a condition of the agent
  kubectl oke-node explain xid 79                 an Xid of NVIDIA's GPU driver, or an SXid of its NVSwitches
  kubectl oke-node explain                        all words")]
    Explain(ExplainArgs),
}

/// A part of the Nodes; all by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct NodeSelection {
    /// Only Nodes of this node pool: its OCID, or the last characters of it, at least 6
    #[arg(long, value_name = "OCID")]
    pub pool: Option<String>,
    /// Only Nodes with these labels, as kubectl selects them
    #[arg(short = 'l', long = "selector", value_name = "KEY=VALUE,...")]
    pub labels: Option<String>,
}

/// Which nodes, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Only nodes that are not healthy
    #[arg(long)]
    pub problems: bool,
    /// The selection.
    #[command(flatten)]
    pub selection: NodeSelection,
    /// The output format.
    #[command(flatten)]
    pub output: Output,
}

/// How the accelerators are printed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GpusArgs {
    /// The selection.
    #[command(flatten)]
    pub selection: NodeSelection,
    /// The output format.
    #[command(flatten)]
    pub output: Output,
}

/// Which nodes a bundle has, and where it goes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BundleArgs {
    /// The tar to write, readable by you only; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// With the bundle of this Node; may be repeated
    #[arg(long, value_parser = node_name, value_name = "NAME", conflicts_with_all = ["problems", "pool", "labels"])]
    pub node: Vec<String>,
    /// With the bundles of nodes that are not healthy, the worst first
    #[arg(long)]
    pub problems: bool,
    /// The selection.
    #[command(flatten)]
    pub selection: NodeSelection,
    /// The output format of the summary.
    #[command(flatten)]
    pub output: Output,
}

/// Which node, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NodeArgs {
    /// The Node's name
    #[arg(value_parser = node_name, value_name = "NAME")]
    pub name: String,
    /// The output format.
    #[command(flatten)]
    pub output: Output,
}

/// Which policy, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PolicyArgs {
    /// The NodePolicy's name; without it, all are listed
    #[arg(value_parser = object_name, value_name = "NAME")]
    pub name: Option<String>,
    /// The output format.
    #[command(flatten)]
    pub output: Output,
}

/// On or off.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StopArgs {
    /// Resume rollouts
    #[arg(long, conflicts_with = "reason")]
    pub off: bool,
    /// The reason, which `status` and `policy` show
    #[arg(value_name = "REASON", num_args = 0..)]
    pub reason: Vec<String>,
    /// The output format.
    #[command(flatten)]
    pub output: Output,
}

/// Whose VnicAttachments, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct VnicsArgs {
    /// Only those of this Node's instance
    #[arg(long, value_parser = node_name, value_name = "NAME", conflicts_with_all = ["pool", "labels"])]
    pub node: Option<String>,
    /// The selection.
    #[command(flatten)]
    pub selection: NodeSelection,
    /// The output format.
    #[command(flatten)]
    pub output: Output,
}

/// Which word, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The word: a code, a condition, a reason, a signal, a rule, `xid NUMBER` or `sxid NUMBER`; without it, all words are listed
    #[arg(value_name = "CODE|CONDITION|SIGNAL", num_args = 0..=2)]
    pub words: Vec<String>,
    /// The output format.
    #[command(flatten)]
    pub output: Output,
}

fn view_url(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|error| format!("{error}"))?;
    let is_valid = url.scheme_str() == Some("http") && url.host().is_some() && url.path() == "/";
    if is_valid { Ok(url) } else { Err("expected http://HOST:PORT".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_urls_that_are_not_valid_are_refused() {
        let parses = |words: &[&str]| Args::try_parse_from([&["x"], words].concat()).is_ok();
        assert!(parses(&["node", "10.0.0.2"]) && parses(&["status", "--view-url", "http://[::1]:9811"]));
        assert!(parses(&["nettest", "a/10.0.0.2", "b"]) && !parses(&["nettest", "a/b", "b"]));
        assert!(
            !parses(&["node", "../fleet"])
                && !parses(&["node", ".."])
                && !parses(&["node", "A"])
                && !parses(&["vnics", "--node", ""])
        );
        for url in ["https://localhost:1", "localhost:9811", "http://localhost:1/fleet"] {
            assert!(!parses(&["status", "--view-url", url]), "{url}");
        }
    }
}
