//! The command line of the bench.

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;

/// Races the pod path against the reference plugins, in namespaces of its own. Needs root.
#[derive(Clone, Debug, Parser)]
#[command(name = "pod-path-bench")]
pub struct Args {
    /// Rounds; in each, every contender has its turn
    #[arg(long, default_value_t = 200)]
    pub rounds: usize,
    /// Rounds before those that count
    #[arg(long, default_value_t = 10)]
    pub warm_up: usize,
    /// Bursts of each contender
    #[arg(long, default_value_t = 5)]
    pub bursts: usize,
    /// Pods in a burst
    #[arg(long, default_value_t = 110)]
    pub pods: usize,
    /// Pods that are on the node already
    #[arg(long, default_value_t = 30)]
    pub held: usize,
    /// Where our programs are
    #[arg(long, default_value = ".build/bin", value_name = "DIR")]
    pub bin_dir: PathBuf,
    /// Where the reference plugins are
    #[arg(long, default_value = "/usr/lib/cni", value_name = "DIR")]
    pub reference: PathBuf,
    /// Pods in the burst that the agent is measured through
    #[arg(long, default_value_t = 250)]
    pub agent_pods: usize,
    /// For how long the agent is watched when nothing happens
    #[arg(long, default_value_t = 60)]
    pub idle_seconds: u64,
    /// Measure nothing but the agent on a node with eight GPUs
    #[arg(long)]
    pub accelerated_only: bool,
}

impl Args {
    /// A program of the folder, `as-plugin/bare-floor`.
    pub(crate) fn program(&self, name: &str) -> anyhow::Result<PathBuf> {
        let program = self.bin_dir.join(name);
        program.canonicalize().with_context(|| format!("find {} (`make bench` builds it)", program.display()))
    }
}
