//! The VCN that the subcommands have in common: subnets `nodes` and `pods`, both families, and its worker nodes.

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use sandbox::{Builder, NodeSpec, SubnetSpec, Vcn, VnicSpec};

pub(crate) fn builder() -> Builder {
    Vcn::builder()
        .subnet(SubnetSpec::new("nodes", &["10.0.0.0/24", "2603:c020:0:1::/64"]))
        .subnet(SubnetSpec::new("pods", &["10.0.32.0/22", "2603:c020:0:2::/64"]))
}

/// A node for pods, with two secondary VNICs of so many pod addresses.
pub(crate) fn worker(node: NodeSpec, pods_per_vnic: u32) -> NodeSpec {
    let vnic = || VnicSpec::for_pods("pods", pods_per_vnic);
    node.metadata("oke-native-pod-networking", "true").vnic(vnic()).vnic(vnic())
}

/// Blocks the signals that end a subcommand, so that they can be waited for. To be called before any thread starts: threads
/// inherit the mask.
pub(crate) fn block_signals() -> Result<SigSet> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block().context("cannot block signals")?;
    Ok(signals)
}
