//! How etcd and kube-apiserver are called: everything that makes a test's server differ from a cluster's is here.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, anyhow};

/// The files of a server's folder.
pub(crate) mod file {
    pub(crate) const CA: &str = "ca.crt";
    pub(crate) const SERVER_CERTIFICATE: &str = "server.crt";
    pub(crate) const SERVER_KEY: &str = "server.key";
    pub(crate) const ACCOUNTS_PRIVATE: &str = "service-accounts.key";
    pub(crate) const ACCOUNTS_PUBLIC: &str = "service-accounts.pub";
}

/// Who signs service accounts' tokens, and whom they are for unless they say otherwise.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";

/// Where the servers listen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listen {
    pub(crate) api: SocketAddr,
    pub(crate) etcd: SocketAddr,
    peer: SocketAddr,
}

impl Listen {
    /// Free ports: the API server's on `address`, etcd's on loopback. Another process may take one before the servers do;
    /// then they end, and others are tried.
    pub(crate) fn free(address: IpAddr) -> Result<Self> {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        Ok(Self { api: free(address)?, etcd: free(loopback)?, peer: free(loopback)? })
    }
}

/// Below those that the kernel gives to connections (32768 and more). So a server that is stopped and started again finds its
/// port free, and no other process gets the port between choice and start.
const PORTS: Range<u16> = 10_000..30_000;

/// A free port that this process has not given out yet. Others begin elsewhere.
fn free(address: IpAddr) -> Result<SocketAddr> {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(PORTS.end - PORTS.start);
    let mut last = Err(anyhow!("there are no ports"));
    for _ in PORTS {
        let next = std::process::id().wrapping_mul(32).wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed)) % count;
        let port = u16::try_from(next).map_or(PORTS.start, |next| PORTS.start + next);
        match TcpListener::bind((address, port)) {
            Ok(_) => return Ok(SocketAddr::new(address, port)),
            Err(error) => last = Err(error).with_context(|| format!("listen on {address}, port {port}")),
        }
    }
    last
}

pub(crate) fn etcd(folder: &Path, listen: &Listen) -> Vec<String> {
    let (client, peer) = (format!("http://{}", listen.etcd), format!("http://{}", listen.peer));
    vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        "--name=test".into(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=test={peer}"),
        // Alone it elects itself; the default makes every start wait a second for that.
        "--heartbeat-interval=10".into(),
        "--election-timeout=100".into(),
        // A test's data need not outlive the machine.
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ]
}

pub(crate) fn kube_apiserver(folder: &Path, listen: &Listen) -> Vec<String> {
    let path = |name: &str| folder.join(name).display().to_string();
    vec![
        format!("--etcd-servers=http://{}", listen.etcd),
        format!("--bind-address={}", listen.api.ip()),
        format!("--secure-port={}", listen.api.port()),
        // Without it, the address of the default route is looked for, and there may be none.
        format!("--advertise-address={}", listen.api.ip()),
        // The endpoints of `kubernetes.default` may not be on loopback.
        "--endpoint-reconciler-type=none".into(),
        format!("--cert-dir={}", path("certificates")),
        format!("--tls-cert-file={}", path(file::SERVER_CERTIFICATE)),
        format!("--tls-private-key-file={}", path(file::SERVER_KEY)),
        format!("--client-ca-file={}", path(file::CA)),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        format!("--service-account-issuer={ISSUER}"),
        format!("--service-account-signing-key-file={}", path(file::ACCOUNTS_PRIVATE)),
        format!("--service-account-key-file={}", path(file::ACCOUNTS_PUBLIC)),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
        "--allow-privileged=true".into(),
        // A minute by default; a busy machine may take it for what takes milliseconds, and then requests are refused.
        "--request-timeout=10m".into(),
        "--profiling=false".into(),
    ]
}
