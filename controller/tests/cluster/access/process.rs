//! The program as its pod runs it: the manifest's command and environment, no capabilities, and only the pod's token as
//! identity for the API server and OCI.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::{EnvVar, Pod};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::cluster::Cluster;
use crate::process::Controller;

/// Where workload identity requests tokens, at the API server's address.
const PROXYMUX: u16 = 12250;

/// Starts one that logs to `log`; and what leads to the emulated proxymux.
pub(crate) async fn start(cluster: &Cluster, oci: &sandbox::OciApi, log: &Path) -> (Controller, JoinSet<()>) {
    cluster.mount_account(&oci.authority_pem());
    oci.accept_service_account(cluster.token());
    let proxymux = forward(oci.proxymux()).await;
    let container = &cluster.pod().spec.as_ref().unwrap().containers[0];
    let (host, port) = cluster.server.service();
    let mut command = Command::new("setpriv");
    command.args(["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]);
    command.arg(env!("CARGO_BIN_EXE_oke-node-controller")).args(container.args.as_deref().unwrap()).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap());
    command.envs(container.env.iter().flatten().map(|variable| resolved(variable, cluster.pod())));
    command.env("KUBERNETES_SERVICE_HOST", host).env("KUBERNETES_SERVICE_PORT", port);
    // Differences from a cluster: the address of OCI, and shorter times.
    command.env("OCI_ENDPOINT", oci.url()).env("OCI_REQUESTS_PER_SECOND", "500");
    command.env("OKE_REPAIR_CONFIGS", "on");
    command.env("LEASE_SECONDS", "10").env("AGENT_POLL_SECONDS", "10");
    command.env("POLL_SECONDS", "0.1").env("RETRY_MOST_SECONDS", "1");
    (Controller::spawn(command, log.to_owned()), proxymux)
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

/// The emulated one listens on any free port. Ends when the result is dropped.
async fn forward(to: SocketAddr) -> JoinSet<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXYMUX)).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut to) = TcpStream::connect(to).await {
                    let _ = copy_bidirectional(&mut from, &mut to).await;
                }
            });
        }
    });
    tasks
}
