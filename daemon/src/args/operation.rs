//! What the Pod of a NodeTask runs.

use std::path::PathBuf;

use api::capture::is_unit_name;
use api::node_task::NodeUnit;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand};

/// Where the system bus of a node is.
const BUS: &str = "/run/dbus/system_bus_socket";

pub(super) const AFTER: &str = "\
It runs as root without capabilities; the folder of systemd's bus is mounted. Not tested: SELinux in mode enforcing, and Oracle
Linux 8 (systemd 239).";

/// The operation, its bus and its report.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct OperationArgs {
    /// The operation
    #[command(subcommand)]
    pub operation: Operation,
    /// The socket of the system bus
    #[arg(long, global = true, default_value = BUS, value_name = "SOCKET")]
    pub bus: PathBuf,
    /// The file to write: the container's termination message
    #[arg(long, global = true, default_value = "/dev/termination-log", value_name = "FILE")]
    pub message: PathBuf,
}

/// The operations; nothing else can be run.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum Operation {
    /// Restart a unit; the proof is a new invocation that is active for 10 seconds
    RestartUnit {
        /// The unit
        #[arg(value_parser = units(), value_name = "UNIT")]
        unit: NodeUnit,
    },
    /// Grow the root disk by oci-growfs, and restart the kubelet
    GrowRootDisk,
    /// Write the host's files of NodePolicies from an order, and restart their units. If they do not stay active, or the order's hash
    /// does not appear in the file `confirmed`, the earlier files come back
    ApplyFiles(FilesArgs),
    /// Write the logs of units into a capture's folder, without the secrets that can be recognized
    Logs(LogsArgs),
}

/// Which logs, and where they are written.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct LogsArgs {
    /// How many hours back
    #[arg(long, default_value = "1", value_name = "HOURS", value_parser = clap::value_parser!(u8).range(1..=24))]
    pub hours: u8,
    /// The folder of the capture's logs
    #[arg(long, default_value = "/logs", value_name = "FOLDER")]
    pub folder: PathBuf,
    /// The units, at most 8
    #[arg(required = true, num_args = 1..=8, value_parser = unit_name, value_name = "UNIT")]
    pub units: Vec<String>,
}

/// The order, and where the host's files are.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub struct FilesArgs {
    /// The order's hash, which the leader names: an order of another hash is refused
    #[arg(long, value_name = "HASH")]
    pub sha256: String,
    /// What the cluster's owner permits
    #[arg(long, value_name = "GRANT", value_parser = ["hostFiles", "hostCode"])]
    pub grant: Vec<String>,
    /// The folder with the host's folders
    #[arg(long, default_value = "/host", value_name = "FOLDER")]
    pub root: PathBuf,
    /// The folder with the order, the record and copies of earlier files; the host must have it under the same path
    #[arg(long, default_value = "/var/lib/vcn-native/files", value_name = "FOLDER")]
    pub data: PathBuf,
}

fn unit_name(name: &str) -> Result<String, &'static str> {
    if is_unit_name(name) { Ok(name.to_owned()) } else { Err("not the name of a unit, such as kubelet.service") }
}

fn units() -> impl clap::builder::TypedValueParser<Value = NodeUnit> {
    PossibleValuesParser::new(NodeUnit::ALL.map(NodeUnit::as_str))
        .try_map(|word| NodeUnit::from_word(&word).ok_or("unknown unit"))
}
