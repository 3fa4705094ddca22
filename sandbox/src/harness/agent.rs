//! The node agent in the sandbox, started as a node starts it: with default paths, from the instance's metadata and its
//! NativePodNetwork document.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vcn::CONFLIST_FILE;

use crate::container::{Container, Image};
use crate::error::{Error, ErrorContext, Result};
use crate::harness::NpnShape;
use crate::harness::probe::http_get;
use crate::network::Vcn;
use crate::node::Node;

const DOCUMENT: &str = "/var/lib/vcn-native/nativepodnetwork.json";
const LOG: &str = "/run/oke-node-agent.log";
/// VNICs of the sandbox are veths. No configuration of a node can say so.
const NIC_KIND: [&str; 2] = ["--test-nic-kind", "veth"];
/// Far more than it needs; a loaded machine is slow.
const READY_WITHIN: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(10);

/// A node agent that runs on a node.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    started: Instant,
}

/// Writes the NativePodNetwork document where the agent reads it, as the control plane would publish it.
pub fn publish_native_pod_network(vcn: &Vcn, node: &Node, shape: NpnShape) -> Result<()> {
    let document = vcn.native_pod_network(node.name(), shape)?.to_string();
    node.run(|| {
        fs::create_dir_all(Path::new(DOCUMENT).parent().unwrap_or(Path::new("/")))?;
        ipam::write_atomically(Path::new(DOCUMENT), document.as_bytes())
    })?
    .during(|| format!("write {DOCUMENT} on {}", node.name()))
}

impl Agent {
    /// Starts `oke-node-agent` of `bin_dir`, which also holds the plugins to install, under exactly what its DaemonSet's
    /// manifest gives it.
    pub fn start(node: &Node, bin_dir: &Path) -> Result<Self> {
        Self::start_in(&Container::node_agent()?, node, bin_dir)
    }

    /// The same in another container.
    pub fn start_in(container: &Container, node: &Node, bin_dir: &Path) -> Result<Self> {
        let command = node.container(container, &Image::of_programs(bin_dir))?.args(NIC_KIND);
        let log = node.run(|| File::create(LOG))?.during(|| format!("make {LOG} on {}", node.name()))?;
        let copy = log.try_clone().during(|| format!("share {LOG} of {}", node.name()))?;
        let child = command.stdout(copy).stderr(log).spawn()?;
        Ok(Self { child, started: Instant::now() })
    }

    /// Waits until the node can run pods: the CNI configuration is in place. Returns the time since the start.
    pub fn wait_ready(&mut self, node: &Node) -> Result<Duration> {
        let conflist = PathBuf::from("/etc/cni/net.d").join(CONFLIST_FILE);
        loop {
            if node.run(|| conflist.exists())? {
                return Ok(self.started.elapsed());
            }
            let ended = self.child.try_wait().during(|| "wait for the agent")?;
            if ended.is_some() || self.started.elapsed() > READY_WITHIN {
                let log = node.run(|| fs::read_to_string(LOG))?.unwrap_or_default();
                let how = ended.map_or_else(|| "is not ready in time".to_owned(), |status| format!("ended: {status}"));
                return Err(Error::Invalid(format!("the agent of {} {how}; its log:\n{log}", node.name())));
            }
            std::thread::sleep(POLL);
        }
    }

    /// The log of the agent.
    pub fn log(node: &Node) -> Result<String> {
        node.run(|| fs::read_to_string(LOG))?.during(|| format!("read {LOG} of {}", node.name()))
    }

    /// Its metrics, as Prometheus reads them.
    pub fn metrics(node: &Node) -> Result<String> {
        let scrape = || http_get(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9808), "/metrics", "");
        node.run(scrape)?.during(|| format!("scrape the agent of {}", node.name()))
    }

    /// The process number of the agent.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it by SIGTERM and waits. Returns the time it took.
    pub fn stop(mut self) -> Result<Duration> {
        let started = Instant::now();
        let pid = i32::try_from(self.child.id()).map_err(|_| Error::Invalid("an impossible process number".into()))?;
        kill(Pid::from_raw(pid), Signal::SIGTERM).during(|| "stop the agent")?;
        let status = self.child.wait().during(|| "wait for the agent")?;
        match status.success() {
            true => Ok(started.elapsed()),
            false => Err(Error::Invalid(format!("the agent ended by SIGTERM with {status}"))),
        }
    }
}
