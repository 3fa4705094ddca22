//! The command line, as typed.

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
    /// Show the main job: the real agent sets up two nodes, the real plugin a dozen pods, packets prove it; then VNICs on
    /// request, by a real API server and the controller.
    Demo(Demo),
    /// Start the VCN of a test cluster: a control plane and two nodes. Write how to enter them into a folder, and wait for a
    /// signal. `make cluster` calls it.
    Cluster(Cluster),
}

/// Options of `demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Demo {
    /// The folder of oke-node-agent and vcn-native.
    #[arg(long, value_name = "DIR", default_value = ".build/bin")]
    pub(crate) bin_dir: PathBuf,
    /// Leave everything up until Ctrl-C, and print how to look inside.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Leave out the API server and the controller: needs no Go, and less memory.
    #[arg(long)]
    pub(crate) without_kubernetes: bool,
}

/// Options of `cluster`.
#[derive(Debug, clap::Args)]
pub(crate) struct Cluster {
    /// The folder, which must exist. The file `ready` appears in it last.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
}
