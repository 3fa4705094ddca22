//! Sources and targets, as the status names them.

use std::fmt;
use std::net::IpAddr;

use api::TargetService;

use super::{SelectedSource, SelectedTarget};

impl fmt::Display for SelectedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pod {
            Some(pod) => pod.fmt(f),
            None if self.is_pod_network => write!(f, "pod network of {}", self.node),
            None => f.write_str(&at(&self.node, self.address)),
        }
    }
}

impl fmt::Display for SelectedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name, address) => f.write_str(&at(name, *address)),
            Self::Pod(pod, address) if pod.addresses.first() != Some(address) => write!(f, "{pod}/{address}"),
            Self::Pod(pod, _) => pod.fmt(f),
            Self::Address(address) => address.fmt(f),
            Self::Host(host) => f.write_str(host),
            Self::Url(url) => f.write_str(url),
            Self::Service(service) => f.write_str(match service {
                TargetService::Gateway => "gateway",
                TargetService::Imds => "imds",
                TargetService::Dns => "dns",
                TargetService::ApiServer => "apiserver",
                TargetService::OciServices => "oci-services",
                TargetService::Peers => "peers",
            }),
        }
    }
}

/// A node with an address of it; OKE names Nodes by their address.
pub(super) fn at(node: &str, address: Option<IpAddr>) -> String {
    let address = address.map(|address| address.to_string()).filter(|address| address != node);
    address.map_or_else(|| node.to_owned(), |address| format!("{node}/{address}"))
}
