//! The options of `capture`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::ValueEnum;

use api::capture::is_unit_name;

use super::types::{Output, node_name};

/// Which node, and what of it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CaptureArgs {
    /// The Node's name
    #[arg(value_parser = node_name, value_name = "NODE")]
    pub node: String,
    /// The tar to write, readable by you only; `-` is standard output
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// The node's part of a support bundle
    #[arg(long)]
    pub state: bool,
    /// Packets of the host and its pods, for this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..=300))]
    pub packets: Option<u16>,
    /// The largest size of the packet file, in MiB [default: 16]
    #[arg(long, value_name = "MIB", requires = "packets", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub size: Option<u8>,
    /// Only packets of this protocol
    #[arg(long, value_enum, value_name = "NAME", requires = "packets")]
    pub protocol: Option<Protocol>,
    /// Only packets from or to this address
    #[arg(long, value_name = "ADDRESS", requires = "packets")]
    pub host: Option<IpAddr>,
    /// Only packets from or to this port of the protocol
    #[arg(long, value_name = "NUMBER", requires = "protocol", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Only packets on this link of the host
    #[arg(long, value_name = "LINK", requires = "packets")]
    pub interface: Option<String>,
    /// Packets with their payload, which may contain secrets; this needs the verb capture-payload
    #[arg(long, requires = "packets")]
    pub payload: bool,
    /// Logs of these units of systemd, at most 8, comma-separated
    #[arg(long, value_name = "UNIT", value_delimiter = ',', num_args = 1, value_parser = unit)]
    pub logs: Vec<String>,
    /// How many hours of logs [default: 1]
    #[arg(long, value_name = "HOURS", requires = "logs", value_parser = clap::value_parser!(u8).range(1..=24))]
    pub hours: Option<u8>,
    /// The output format of the summary.
    #[command(flatten)]
    pub output: Output,
}

/// A protocol of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    /// ARP.
    Arp,
}

/// A unit of systemd; a service if no type is named.
fn unit(name: &str) -> Result<String, String> {
    let whole = if name.contains('.') { name.to_owned() } else { format!("{name}.service") };
    if is_unit_name(&whole) {
        Ok(whole)
    } else {
        Err("not the name of a unit, such as kubelet or docker.socket".to_owned())
    }
}
