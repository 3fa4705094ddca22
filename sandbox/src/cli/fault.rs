//! `oke-sandbox fault`: faults of the network and of the OCI API, injected into a running `oke-sandbox cluster`.
//!
//! ```text
//!   oke-sandbox fault DIR ... ── a line of JSON ──▶ DIR/faults.sock ── oke-sandbox cluster ─▶ Vcn, OciApi
//!                             ◀── empty, or an error
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use sandbox::{ApiFault, DeniedAt, DeniedTraffic, OciApi, PathMtu, Policy, Traffic, Vcn};
use vcn::Family;

use crate::cli::args::{Fault, FaultOptions};

/// The socket in the cluster's folder. Its path may be longer than a socket's address, so both sides use it from the folder.
const SOCKET: &str = "faults.sock";
/// The longest request, in bytes.
const MAX_REQUEST_BYTES: u64 = 4096;
const DEADLINE: Duration = Duration::from_secs(10);

pub(crate) fn run(options: &FaultOptions) -> Result<ExitCode> {
    let folder = &options.folder;
    std::env::set_current_dir(folder).with_context(|| format!("enter {}", folder.display()))?;
    let mut stream = UnixStream::connect(SOCKET)
        .with_context(|| format!("no cluster runs in {}: make cluster", folder.display()))?;
    stream.set_read_timeout(Some(DEADLINE))?;
    writeln!(stream, "{}", serde_json::to_string(&options.fault)?).context("send the fault")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).context("read the cluster's answer")?;
    match answer.trim_end() {
        "" => Ok(ExitCode::SUCCESS),
        error => bail!("{error}"),
    }
}

/// What can be broken, and what is.
pub(crate) struct Faults {
    vcn: Arc<Vcn>,
    oci: Arc<OciApi>,
    policy: Policy,
    /// Nodes and links without carrier.
    lowered: Vec<(String, String)>,
}

impl Faults {
    pub(crate) fn new(vcn: Arc<Vcn>, oci: Arc<OciApi>) -> Self {
        Self { vcn, oci, policy: Policy::default(), lowered: Vec::new() }
    }

    /// Serves the cluster's folder on a thread that ends with the process.
    pub(crate) fn serve(mut self, folder: &Path) -> Result<()> {
        std::env::set_current_dir(folder).with_context(|| format!("enter {}", folder.display()))?;
        let listener = UnixListener::bind(SOCKET).with_context(|| format!("listen on {SOCKET}"))?;
        let serve = move || {
            for stream in listener.incoming().flatten() {
                // A client may close the connection at any time.
                let _ = self.answer(&stream);
            }
        };
        std::thread::Builder::new().name("faults".to_owned()).spawn(serve).context("start the thread of faults")?;
        Ok(())
    }

    fn answer(&mut self, mut stream: &UnixStream) -> Result<()> {
        stream.set_read_timeout(Some(DEADLINE))?;
        let mut line = String::new();
        BufReader::new(stream.take(MAX_REQUEST_BYTES)).read_line(&mut line)?;
        let outcome = serde_json::from_str(&line).context("read the fault").and_then(|fault| self.inject(fault));
        // One line, whatever the error says.
        let error = outcome.err().map(|error| format!("{error:#}").replace('\n', " ")).unwrap_or_default();
        Ok(writeln!(stream, "{error}")?)
    }

    fn inject(&mut self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Deny { node, tcp, udp } => {
                let address =
                    self.vcn.node(&node)?.address(Family::Ipv4).with_context(|| format!("{node} has no address"))?;
                let traffic = match (tcp, udp) {
                    (Some(port), _) => Traffic::TcpPort(port),
                    (None, true) => Traffic::Udp,
                    (None, false) => Traffic::All,
                };
                self.policy.denied.push(DeniedTraffic {
                    at: DeniedAt::VnicIngress(address),
                    traffic,
                    except: [].into(),
                });
                self.vcn.set_policy(self.policy.clone())?;
            }
            Fault::PathMtu { bytes } => {
                self.policy.path_mtu = Some(PathMtu { bytes, reported: false });
                self.vcn.set_policy(self.policy.clone())?;
            }
            Fault::Resolver => self.vcn.limit_dns(Some(0))?,
            Fault::Carrier { node, link } => {
                self.vcn.set_carrier(&node, &link, false)?;
                self.lowered.push((node, link));
            }
            Fault::Oci { status, code, operation } => {
                let fault = ApiFault::refuse(status, &code);
                self.oci.inject(match operation {
                    Some(operation) => fault.of(operation.parse()?),
                    None => fault,
                });
            }
            Fault::Tokens => self.oci.revoke_tokens(),
            Fault::Detach { node, address } => {
                let vnics = self.vcn.node(&node)?.vnics();
                let vnic = vnics.iter().find(|vnic| vnic.addresses().any(|own| own == address));
                let vnic = vnic.with_context(|| format!("no VNIC of {node} has the address {address}"))?;
                self.vcn.detach_vnic(&node, &vnic.id)?;
            }
            Fault::Clear => self.clear()?,
        }
        Ok(())
    }

    /// Ends all faults, also after one of them could not be ended.
    fn clear(&mut self) -> Result<()> {
        self.oci.heal();
        self.policy = Policy::default();
        let mut ends = vec![self.vcn.set_policy(Policy::default()), self.vcn.limit_dns(None)];
        for (node, link) in self.lowered.drain(..) {
            // A link that was detached meanwhile has no carrier to give back.
            if self.vcn.node(&node).is_ok_and(|node| node.vnics().iter().any(|vnic| vnic.link.as_str() == link)) {
                ends.push(self.vcn.set_carrier(&node, &link, true));
            }
        }
        ends.into_iter().collect::<sandbox::Result<()>>().context("end all faults")
    }
}
