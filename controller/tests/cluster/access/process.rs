//! The program as its pod runs it: the manifest's command and environment, no capabilities, and only the pod's token as
//! identity for the API server and OCI.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{EnvVar, Pod};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::cluster::Cluster;

/// Where workload identity requests tokens, at the API server's address.
const PROXYMUX: u16 = 12250;

/// A running controller. Dropping this ends it.
pub(crate) struct Controller {
    child: Child,
    proxymux: JoinHandle<()>,
}

impl Controller {
    /// Starts it; it logs to `log`.
    pub(crate) async fn start(cluster: &Cluster, oci: &sandbox::OciApi, log: &Path) -> Self {
        cluster.mount_account(&oci.authority_pem());
        oci.accept_service_account(cluster.token());
        let proxymux = forward(oci.proxymux()).await;
        let container = &cluster.pod().spec.as_ref().unwrap().containers[0];
        let arguments = container.args.as_deref().unwrap();
        let (host, port) = cluster.server.service();
        let log = std::fs::File::create(log).unwrap();
        let mut command = Command::new("setpriv");
        command.args(["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]);
        command.arg(env!("CARGO_BIN_EXE_oke-node-controller")).args(arguments).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.envs(container.env.iter().flatten().map(|variable| resolved(variable, cluster.pod())));
        command.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port);
        // Differences from a cluster: the address of OCI, and shorter times.
        command.env("OCI_ENDPOINT", oci.url()).env("OCI_REQUESTS_PER_SECOND", "500");
        command.env("LISTEN", "127.0.0.1:0").env("LEASE_SECONDS", "10");
        command.env("VIEW_LISTEN", "127.0.0.1:0").env("AGENT_POLL_SECONDS", "10");
        command.env("POLL_SECONDS", "0.1").env("RETRY_MOST_SECONDS", "1");
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self { child: command.spawn().unwrap(), proxymux }
    }

    /// Asks it to stop, and waits.
    pub(crate) async fn stop(&mut self, within: Duration) -> Option<ExitStatus> {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        None
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.proxymux.abort();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Expands variables like the kubelet.
fn resolved(variable: &EnvVar, pod: &Pod) -> (String, String) {
    let field = variable.value_from.as_ref().and_then(|source| source.field_ref.as_ref());
    let value = match field.map(|field| field.field_path.as_str()) {
        None => variable.value.clone(),
        Some("metadata.name") => pod.metadata.name.clone(),
        Some("metadata.namespace") => pod.metadata.namespace.clone(),
        Some("status.hostIP") => Some("127.0.0.1".to_owned()),
        Some(other) => panic!("no test knows {other}"),
    };
    (variable.name.clone(), value.unwrap_or_default())
}

/// The emulated one listens on any free port.
async fn forward(to: SocketAddr) -> JoinHandle<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXYMUX)).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut to) = TcpStream::connect(to).await {
                    let _ = copy_bidirectional(&mut from, &mut to).await;
                }
            });
        }
    })
}
