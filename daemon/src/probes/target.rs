//! Where probes go. A name is resolved here, and the address is checked after that, so that no name leads to an address
//! that is never probed.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use api::TargetService;
use netlink::RoutedPacket;
use nettest::probe::{ProbeKind, ProbeTarget, SendTask, bounds};
use vcn::Family;

use super::{ProbeEnvironment, TaskError};

pub(super) const HTTP: u16 = 80;
pub(super) const HTTPS: u16 = 443;
const DNS: u16 = 53;
/// For a name. Together with the probe it must not exceed the longest task.
const RESOLUTION: Duration = Duration::from_secs(5);
/// Destinations outside any VCN (RFC 5737, RFC 3849): their route is the default route.
const OUTSIDE: [&str; 2] = ["203.0.113.157", "2001:db8:ffff::157"];

/// An address to probe, and what an HTTP request to it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    pub(super) address: SocketAddr,
    /// The name in an HTTP request.
    pub(super) host: String,
    /// The path of the service, if it is one.
    pub(super) path: Option<&'static str>,
    /// Whether it is the metadata service, which wants a header.
    pub(super) metadata: bool,
}

impl Destination {
    /// Resolves a target.
    /// An error if it has no address of the source's family, or one that is never probed.
    pub(super) fn of(task: &SendTask, surroundings: &ProbeEnvironment) -> Result<Self, TaskError> {
        let port = match (task.port, task.kind) {
            (0, ProbeKind::Http) => HTTP,
            (0, ProbeKind::Https) => HTTPS,
            (0, ProbeKind::Dns) => DNS,
            (port, _) => port,
        };
        match &task.target {
            ProbeTarget::Address(address) => {
                bounds::allowed(*address)?;
                Ok(Self::at(SocketAddr::new(*address, port), address.to_string()))
            }
            ProbeTarget::Host(host) => {
                let left = Duration::from_millis(bounds::TASK_MAX_MS.saturating_sub(task.longest_ms()).into());
                let address = resolve(host, port, task.source, left.min(RESOLUTION))?;
                bounds::allowed(address.ip())?;
                Ok(Self::at(address, host.clone()))
            }
            ProbeTarget::Service(service) => of_service(*service, task, surroundings),
        }
    }

    const fn at(address: SocketAddr, host: String) -> Self {
        Self { address, host, path: None, metadata: false }
    }
}

fn of_service(
    service: TargetService,
    task: &SendTask,
    surroundings: &ProbeEnvironment,
) -> Result<Destination, TaskError> {
    let is_v6 = task.source.is_some_and(|source| source.is_ipv6());
    let metadata: IpAddr = if is_v6 { vcn::METADATA_ADDRESS_V6.into() } else { vcn::METADATA_ADDRESS.into() };
    let missing = |name: &str, cause: &str| TaskError::Resolve { name: name.to_owned(), cause: cause.to_owned() };
    match service {
        TargetService::Imds => Ok(Destination {
            path: Some("/opc/v2/instance/id"),
            metadata: true,
            ..Destination::at(SocketAddr::new(metadata, HTTP), metadata.to_string())
        }),
        TargetService::Dns => Ok(Destination::at(SocketAddr::new(metadata, DNS), metadata.to_string())),
        TargetService::ApiServer => {
            let address = surroundings.api_server.ok_or_else(|| missing("apiserver", "the agent has none"))?;
            Ok(Destination::at(address, address.ip().to_string()))
        }
        TargetService::Gateway => {
            let gateway = gateway(task.source).ok_or_else(|| missing("gateway", "the host has no default route"))?;
            Ok(Destination::at(SocketAddr::new(gateway, task.port), gateway.to_string()))
        }
        TargetService::Peers | TargetService::OciServices => Err(bounds::ProbeError::Unfit("service").into()),
    }
}

/// The next hop of the default route for a source.
fn gateway(source: Option<IpAddr>) -> Option<IpAddr> {
    let mut kernel = netlink::Socket::open().ok()?;
    let family = source.map_or(Family::Ipv4, Family::of);
    let outside = OUTSIDE.iter().filter_map(|text| text.parse::<IpAddr>().ok());
    let to = outside.into_iter().find(|address| Family::of(*address) == family)?;
    kernel.route_of(&RoutedPacket { by: None, from: source, to }).ok()?.gateway
}

/// The C library has no deadline for it: the thread ends when the resolvers answered, or it gave up on them.
fn resolve(host: &str, port: u16, source: Option<IpAddr>, within: Duration) -> Result<SocketAddr, TaskError> {
    let failed = |cause: String| TaskError::Resolve { name: host.to_owned(), cause };
    let (done, result) = mpsc::channel();
    let name = host.to_owned();
    let resolving = move || {
        let found = (name.as_str(), port).to_socket_addrs().map(Vec::from_iter);
        let _ = done.send(found.map_err(|error| error.to_string()));
    };
    thread::Builder::new()
        .name("resolve".to_owned())
        .spawn(resolving)
        .map_err(|error| TaskError::Prepare(error.to_string()))?;
    let found = result.recv_timeout(within).unwrap_or_else(|_| Err(format!("no answer within {within:?}")));
    let fits = |address: &SocketAddr| source.is_none_or(|source| source.is_ipv4() == address.is_ipv4());
    let found = found.map_err(failed)?.into_iter().find(fits);
    found.ok_or_else(|| failed("no address of the source's family".to_owned()))
}
