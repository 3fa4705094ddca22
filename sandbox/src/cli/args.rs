//! The command line, as typed.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Parser;
use serde::{Deserialize, Serialize};

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
    /// Inject a fault of the network or of the OCI API into such a VCN while it runs; faults add up. `.build/cluster/fault` calls
    /// it.
    Fault(FaultOptions),
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

/// Options of `fault`.
#[derive(Debug, clap::Args)]
pub(crate) struct FaultOptions {
    /// The folder of the cluster.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    #[command(subcommand)]
    pub(crate) fault: Fault,
}

/// A fault, or the end of all.
#[derive(Clone, Debug, PartialEq, Eq, clap::Subcommand, Serialize, Deserialize)]
pub(crate) enum Fault {
    /// Drop packets to a node's primary VNIC, as a missing rule of a security list or group does.
    Deny {
        /// The node.
        node: String,
        /// Only this port of TCP.
        #[arg(long, value_name = "PORT", conflicts_with = "udp")]
        tcp: Option<u16>,
        /// Only UDP.
        #[arg(long)]
        udp: bool,
    },
    /// Drop packets between subnets that are longer than this, without an ICMP error.
    PathMtu {
        /// In bytes, with the IP header.
        bytes: u16,
    },
    /// Let the VCN's resolver answer nothing.
    Resolver,
    /// Take the carrier of a VNIC's link away.
    Carrier {
        /// The node.
        node: String,
        /// The link.
        link: String,
    },
    /// Let the OCI API refuse requests.
    Oci {
        /// The HTTP status.
        status: u16,
        /// The error code, such as `TooManyRequests`.
        code: String,
        /// Only this operation, such as `AttachVnic`; `Federate` is the login.
        #[arg(long)]
        operation: Option<String>,
    },
    /// Let the OCI API refuse the session tokens that it issued, so that clients log in again.
    Tokens,
    /// Detach the VNIC that has this address, as another program does through the OCI API. `clear` does not undo it.
    Detach {
        /// The node.
        node: String,
        /// An address of the VNIC.
        address: IpAddr,
    },
    /// End all faults.
    Clear,
}
