//! The arguments of `nettest`.

use std::net::IpAddr;

use super::types::{Output, node_name};
use crate::ends::Source;

/// Which pair, how it is probed, and how the result is printed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NetTestArgs {
    /// The Node that sends; NODE/ADDRESS from one of its addresses, such as a secondary VNIC's; or pod/NAMESPACE/NAME
    #[arg(value_parser = source, value_name = "FROM")]
    pub from: String,
    /// The target: service/NAMESPACE/NAME[:PORT], pod/NAMESPACE/NAME, a Node, NODE/ADDRESS, an address of a Node, or a service of
    /// nodes; with --external another address, a host name or a URL
    #[arg(value_name = "TO")]
    pub to: String,
    /// Connect to this port; without it, echo requests are sent
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..), value_name = "NUMBER")]
    pub port: Option<u16>,
    /// Send datagrams to the port
    #[arg(long, requires = "port")]
    pub udp: bool,
    /// Send packets of full size that no router may fragment
    #[arg(long, conflicts_with = "port")]
    pub mtu: bool,
    /// Send data for two seconds at this rate, to a Node's agent on port 5201 or the port given
    #[arg(long, conflicts_with_all = ["udp", "mtu", "external"], value_parser = clap::value_parser!(u16).range(1..=10_000), value_name = "MBIT/S")]
    pub throughput: Option<u16>,
    /// The target is outside the cluster; the controller must allow it (NETWORK_TEST_TARGETS)
    #[arg(long)]
    pub external: bool,
    /// The output format.
    #[command(flatten)]
    pub output: Output,
}

impl NetTestArgs {
    /// Whether the target is a URL.
    pub(crate) fn is_url(&self) -> bool {
        self.external && self.to.contains("://")
    }
}

fn source(text: &str) -> Result<String, String> {
    match Source::read(text)? {
        Source::Node(node) => node_and_address(&node),
        Source::Pod(_) => Ok(text.to_owned()),
    }
}

fn node_and_address(text: &str) -> Result<String, String> {
    let (node, address) = text.split_once('/').map_or((text, None), |(node, address)| (node, Some(address)));
    let is_address = address.is_none_or(|address| address.parse::<IpAddr>().is_ok());
    node_name(node)?;
    if is_address { Ok(text.to_owned()) } else { Err("expected NODE or NODE/ADDRESS".to_owned()) }
}
