//! The setting DCGM_METRICS: the URL of this node's dcgm-exporter.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use health::hardware::dcgm::Exporter;

/// Stands for the node's address.
const NODE_IP: &str = "NODE_IP";

/// The default path and port of a URL.
const PATH: &str = "/metrics";
const PORT: u16 = 80;

/// Whether the agent reads an exporter, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DcgmMetrics {
    /// The agent reads none.
    #[default]
    Off,
    /// A URL with an address.
    Url {
        /// The address; none is the node's.
        host: Option<IpAddr>,
        /// The TCP port on loopback.
        port: u16,
        /// The path of the metrics.
        path: String,
    },
}

impl DcgmMetrics {
    /// The exporter of a node with an address; none if it is off, or at the node's unknown address.
    pub fn exporter(&self, node_ip: Option<IpAddr>) -> Option<Exporter> {
        let Self::Url { host, port, path } = self else { return None };
        let address = (*host).or(node_ip)?;
        let is_of_node = address.is_loopback() || Some(address) == node_ip;
        Some(Exporter { address: SocketAddr::new(address, *port), path: path.clone(), is_of_node })
    }

    /// Whether it needs the node's address.
    pub const fn needs_node_ip(&self) -> bool {
        matches!(self, Self::Url { host: None, .. })
    }
}

impl FromStr for DcgmMetrics {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let rest = text.strip_prefix("http://").ok_or("neither `off` nor a URL that begins with http://")?;
        let (authority, path) =
            rest.split_once('/').map_or((rest, PATH.to_owned()), |(authority, path)| (authority, format!("/{path}")));
        if path.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'#') {
            return Err("the path has a blank, a fragment, or characters that are not ASCII");
        }
        let (host, port) = host_and_port(authority).ok_or(
            "not an address with a port: use 127.0.0.1:9400, NODE_IP:9400 or the ClusterIP of a Service, never a name",
        )?;
        if host.is_some_and(is_unusable) {
            return Err("the address is not one of a machine or a Service");
        }
        Ok(Self::Url { host, port, path })
    }
}

/// None for the node's address.
fn host_and_port(text: &str) -> Option<(Option<IpAddr>, u16)> {
    if let Some(rest) = text.strip_prefix(NODE_IP) {
        let port = if rest.is_empty() { Some(PORT) } else { rest.strip_prefix(':')?.parse().ok() };
        return Some((None, port.filter(|port| *port != 0)?));
    }
    let without_port = || {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        Some(SocketAddr::new(bare.parse().ok()?, PORT))
    };
    let address: SocketAddr = text.parse().ok().or_else(without_port)?;
    (address.port() != 0).then_some((Some(address.ip()), address.port()))
}

/// The metadata service is one of these.
fn is_unusable(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address.to_ipv4_mapped().is_some(),
    };
    is_link_local || address.is_unspecified() || address.is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_node_or_a_service_are_accepted() {
        let node_ip: IpAddr = "10.0.10.7".parse().unwrap();
        let exporter = |text: &str| {
            let found = text.parse::<DcgmMetrics>().ok()?.exporter(Some(node_ip))?;
            Some((found.address.to_string() + &found.path, found.is_of_node))
        };
        for (text, expected, is_of_node) in [
            ("http://127.0.0.1:9400/metrics", "127.0.0.1:9400/metrics", true),
            ("http://[::1]:9400", "[::1]:9400/metrics", true),
            ("http://NODE_IP:9400/gpu?x=1", "10.0.10.7:9400/gpu?x=1", true),
            ("http://10.0.10.7:9400", "10.0.10.7:9400/metrics", true),
            ("http://10.96.7.7", "10.96.7.7:80/metrics", false),
            ("http://[fd00::7]", "[fd00::7]:80/metrics", false),
        ] {
            assert_eq!(exporter(text), Some((expected.to_owned(), is_of_node)), "{text}");
        }
        assert_eq!(exporter("off"), None);
        for text in [
            "",
            "on",
            "https://127.0.0.1:9400",
            "http://dcgm.gpu-operator:9400",
            "http://localhost:9400",
            "http://user@127.0.0.1:9400",
            "http://127.0.0.1:0",
            "http://127.0.0.1:99999",
            "http://NODE_IPX:9400",
            "http://127.0.0.1:9400/a b",
            "http://127.0.0.1:9400/\r\nX: y",
            "http://169.254.169.254/opc/v2",
            "http://[fe80::1]:9400",
            "http://[::ffff:169.254.169.254]",
            "http://0.0.0.0:9400",
            "http://224.0.0.1:9400",
        ] {
            assert!(text.parse::<DcgmMetrics>().is_err(), "{text}");
        }
    }

    #[test]
    fn url_of_the_node_needs_its_address() {
        let metrics: DcgmMetrics = "http://NODE_IP:9400".parse().unwrap();
        assert!(metrics.needs_node_ip() && metrics.exporter(None).is_none());
    }
}
