//! The command line, as typed.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

/// An emulated Oracle Cloud network on one machine: nodes, a strict fabric, the metadata service, the OCI API.
///
/// Needs no root. Nothing of the machine's own network is touched, and nothing is left behind.
#[derive(Debug, Parser)]
#[command(name = "oke-sandbox", version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Subcommand {
    /// Start a VCN of two nodes, describe it, and run a program on one node or wait for Ctrl-C.
    Up(Up),
    /// Show the main job: the real agent sets up two nodes, the real plugin a dozen pods, packets prove it; then VNICs on
    /// request, by a real API server and the controller.
    Demo(Demo),
    /// Start the VCN of a test cluster: a control plane and two nodes. Write how to enter them into a folder, and wait for a
    /// signal. `make cluster` calls it.
    Cluster(Cluster),
    /// End the demo that `demo --keep` left up.
    Down,
}

/// Options of `demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// The folder of oke-node-agent and vcn-native.
    #[arg(long, value_name = "DIR", default_value = ".build/bin")]
    pub(crate) bin_dir: PathBuf,
    /// Leave everything up, in the background, and print how to look inside.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Leave out the API server and the controller: needs no Go, and less memory.
    #[arg(long)]
    pub(crate) without_kubernetes: bool,
    /// Set for the process in the background.
    #[arg(long, hide = true)]
    pub(crate) in_background: bool,
}

/// Options of `up`.
#[derive(Debug, clap::Args)]
pub(crate) struct Up {
    /// Bare-metal nodes (the kernel needs 802.1Q) instead of virtual machines.
    #[arg(long)]
    pub(crate) bm: bool,
    /// The node that the program runs on.
    #[arg(long, value_name = "NODE", default_value = "node-a")]
    pub(crate) on: String,
    /// The program and its arguments; its exit code becomes this one's.
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Options of `cluster`.
#[derive(Debug, clap::Args)]
pub(crate) struct Cluster {
    /// The folder, which must exist. The file `ready` appears in it last.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}
