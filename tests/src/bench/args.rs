//! The command line of the bench.

use std::path::PathBuf;

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
    /// Our plugin, as it is shipped
    #[arg(long, default_value = ".build/bin/vcn-native", value_name = "PROGRAM")]
    pub plugin: PathBuf,
    /// Our plugin for extra interfaces, as it is shipped
    #[arg(long, default_value = ".build/bin/vnic-attach", value_name = "PROGRAM")]
    pub vnic_attach: PathBuf,
    /// Measure extra interfaces only
    #[arg(long)]
    pub only_extra: bool,
    /// Another build of our plugin, to see what a change brings. Once more with both in the other's place: the first has
    /// three lanes, which keeps it warm, and measures faster by a twentieth
    #[arg(long, value_name = "PROGRAM")]
    pub rival: Option<PathBuf>,
    /// The program that only makes the netlink calls, linked as ordinary programs are
    #[arg(long, default_value = ".build/bin/bare-floor", value_name = "PROGRAM")]
    pub floor: PathBuf,
    /// The same, linked against the plugin's C library
    #[arg(long, default_value = ".build/bin/as-plugin/bare-floor", value_name = "PROGRAM")]
    pub lean_floor: PathBuf,
    /// The program that does nothing, linked as ordinary programs are
    #[arg(long, default_value = ".build/bin/empty-main", value_name = "PROGRAM")]
    pub empty: PathBuf,
    /// Where the reference plugins are
    #[arg(long, default_value = "/usr/lib/cni", value_name = "DIR")]
    pub reference: PathBuf,
    /// The node agent, next to the plugin; its memory and processor time are not measured without
    #[arg(long, value_name = "PROGRAM")]
    pub agent: Option<PathBuf>,
    /// Pods in the burst that the agent is measured through
    #[arg(long, default_value_t = 250)]
    pub agent_pods: usize,
    /// For how long the agent is watched when nothing happens
    #[arg(long, default_value_t = 60)]
    pub idle_seconds: u64,
    /// Measure the agent only
    #[arg(long, requires = "agent")]
    pub only_agent: bool,
    /// Print every single time too
    #[arg(long)]
    pub raw: bool,
}
