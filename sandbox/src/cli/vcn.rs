//! The VCN that the subcommands have in common: subnets `nodes` and `pods`, both families, and its worker nodes.

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};
use sandbox::{Builder, NodeSpec, SubnetSpec, Vcn, VnicSpec};

/// The subnets.
pub(crate) fn builder() -> Result<Builder> {
    Ok(Vcn::builder()
        .subnet(SubnetSpec::new("nodes", "10.0.0.0/24".parse()?).with("2603:c020:0:1::/64".parse()?))
        .subnet(SubnetSpec::new("pods", "10.0.32.0/22".parse()?).with("2603:c020:0:2::/64".parse()?)))
}

/// A node for pods, with so many secondary VNICs of so many pod addresses.
pub(crate) fn worker(node: NodeSpec, vnics: usize, pods_per_vnic: u32) -> NodeSpec {
    let node = node.metadata("oke-native-pod-networking", "true");
    (0..vnics).fold(node, |node, _| node.vnic(VnicSpec::for_pods("pods", pods_per_vnic)))
}

/// Blocks the signals that end a subcommand, and `others`, so that they can be waited for. To be called before any thread
/// starts: threads inherit the mask.
pub(crate) fn block_signals(others: &[Signal]) -> Result<SigSet> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].iter().chain(others) {
        signals.add(*signal);
    }
    signals.thread_block().context("cannot block signals")?;
    Ok(signals)
}
