//! Probes for network tests: sent from the host's namespace as the controller requests, within the bounds of
//! [`nettest::probe::bounds`]. Each task takes seconds, on a thread of its own; it changes nothing on the host and keeps nothing.
//!
//! ```text
//!   Handler ─▶ perform ─┬─ send   target (resolved, then checked) ─▶ route ─▶ icmp, tcp, udp, http (tls), dns, throughput ─▶ tally
//!                       ├─ watch  counts the packets of a flow
//!                       ├─ open   one packet of the flow in the other direction
//!                       └─ throughput (receive)   takes the data of another agent
//!                          tap, host_state: what this host's links and kernel show meanwhile
//! ```

mod dns;
mod flow_tap;
mod handler;
mod host_state;
mod http;
mod icmp;
mod open;
mod packet;
pub(crate) mod pod;
mod send;
mod series;
mod socket;
mod target;
mod tcp;
mod throughput;
mod tls;
mod udp;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use nettest::probe::{PROBE_VERSION, ProbeError, ProbeReport, ProbeRequest, Task, WatchTask, bounds};
use thiserror::Error;
use vcn::Family;

pub(crate) use handler::ProbeHandler;

use flow_tap::FlowTap;

/// What probes need to know about the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeEnvironment {
    /// Where the kernel's counters of the calling thread's namespace are: `/proc`.
    pub proc: PathBuf,
    /// The address of the API server, for probes to it.
    pub api_server: Option<SocketAddr>,
}

/// Why a task was not carried out.
#[derive(Debug, Error)]
pub enum TaskError {
    /// It exceeds a bound.
    #[error(transparent)]
    Refused(#[from] ProbeError),
    /// An address from which only others may send.
    #[error("{0} is not an address of this node: probes are not sent from it")]
    ForeignSource(IpAddr),
    /// A name has no usable address.
    #[error("resolve {name}: {cause}")]
    Resolve {
        /// The name, or the service.
        name: String,
        /// The reason why it has no address.
        cause: String,
    },
    /// This host could not prepare it.
    #[error("prepare the probe: {0}")]
    Prepare(String),
}

impl ProbeEnvironment {
    /// Those of this process.
    pub fn of_this_process() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let host = resident::api_server::address();
        let port = variable("KUBERNETES_SERVICE_PORT").and_then(|port| port.parse::<u16>().ok());
        let api_server = host.zip(port).map(SocketAddr::from);
        Self { proc: PathBuf::from("/proc"), api_server }
    }
}

/// Carries a task out, in the calling thread's network namespace; takes as long as the task says.
/// An error if the task exceeds a bound, or cannot be prepared. Lost probes are not an error.
pub fn perform(request: &ProbeRequest, surroundings: &ProbeEnvironment) -> Result<ProbeReport, TaskError> {
    request.check()?;
    let own = match &request.task {
        Task::Send(task) => task.source,
        Task::Open(flow) => Some(flow.target),
        Task::Receive(task) => Some(task.address),
        Task::Watch(_) => None,
    };
    if let Some(own) = own {
        check_own(own)?;
    }
    match &request.task {
        Task::Send(task) => send::send(task, surroundings),
        Task::Watch(task) => Ok(watch(task, surroundings)),
        Task::Open(flow) => open::open(flow).map(|()| empty()).map_err(|error| TaskError::Prepare(error.to_string())),
        Task::Receive(task) => {
            let listen = SocketAddr::new(task.address, task.port);
            let prepare = |error| TaskError::Prepare(format!("listen on {listen}: {error}"));
            let received = throughput::receive(task).map_err(prepare)?;
            Ok(ProbeReport { received: Some(received), ..empty() })
        }
    }
}

/// Checks that this host has an address, whatever the controller says: packets of another one would be taken for another program's.
fn check_own(address: IpAddr) -> Result<(), TaskError> {
    bounds::allowed(address)?;
    let addresses = netlink::Socket::open().and_then(|mut kernel| kernel.addresses(None));
    let addresses = addresses.map_err(|error| TaskError::Prepare(error.to_string()))?;
    let is_own = addresses.iter().any(|held| held.address.ip() == address);
    if is_own { Ok(()) } else { Err(TaskError::ForeignSource(address)) }
}

/// Counts the packets of a flow.
fn watch(task: &WatchTask, surroundings: &ProbeEnvironment) -> ProbeReport {
    let (device, link_subnets) = socket::link_of(task.flow.target).unwrap_or_default();
    let state = || host_state::read(&surroundings.proc, &device, Family::of(task.flow.target));
    let before = state();
    let tap = FlowTap::start(task.flow);
    std::thread::sleep(Duration::from_millis(task.for_ms.into()));
    let (seen, _) = tap.stop();
    let taps = seen.of_target();
    ProbeReport { taps, link_subnets, before, after: state(), ..empty() }
}

fn empty() -> ProbeReport {
    ProbeReport { version: PROBE_VERSION, ..ProbeReport::default() }
}

/// The error number's name, for a report.
fn errno(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => format!("{:?}", nix::errno::Errno::from_raw(number)),
        None => error.to_string(),
    }
}
