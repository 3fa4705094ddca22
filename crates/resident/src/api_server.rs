//! The API server, as a pod on the host's network reaches it: whether there is one, and a client of it.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use tower::{BoxError, ServiceBuilder};

const CONNECT: Duration = Duration::from_secs(10);

/// Probes of an idle connection: the first after this time, the others at the interval. A node whose connection table was flushed
/// gets no packet of its open watches any more. The first probe is answered with a reset, or opens the connection again.
const KEEPALIVE: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// What the kubelet mounts, and `Config::incluster` reads.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Whether an API server can be reached.
pub fn in_cluster() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty()) && Path::new(TOKEN).exists()
}

/// The address of the API server that [`client`] uses; none outside a cluster, and where it has a name.
pub fn address() -> Option<IpAddr> {
    std::env::var("KUBERNETES_SERVICE_HOST").ok()?.trim_matches(['[', ']']).parse().ok()
}

/// A client, and where its server is. Create one for each use: the authority, the token and the address may have
/// changed.
///
/// # Errors
/// When what the kubelet mounts is of no use.
pub fn client() -> Result<(Client, String), String> {
    let mut config = Config::incluster().map_err(|error| error.to_string())?;
    config.connect_timeout = Some(CONNECT);
    // Each caller has its own retry policy.
    config.default_retry = false;
    let server = config.cluster_url.to_string();
    Ok((connect(config).map_err(|error| error.to_string())?, server))
}

/// A client that notices within a minute that a connection is dead. kube's own client waits until the next part of an answer is late.
/// This client has neither retries nor proxy support: with a proxy, this returns kube's.
///
/// # Errors
/// When the configuration is of no use.
pub fn connect(config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    if CryptoProvider::get_default().is_none() {
        // Another thread may have been faster.
        let _ = aws_lc_rs::default_provider().install_default();
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(HttpClient::builder(TokioExecutor::new()).build::<_, Body>(connector));
    Ok(Client::new(service, config.default_namespace))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;

    use super::*;

    /// The timer of the established connection to this port: 2 is a keepalive probe (proc_net_tcp.rst).
    fn timer(port: u16) -> Option<String> {
        let connections = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        let to_port = format!(":{port:04X}");
        let mut rows = connections.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        let row = rows.find(|row| row.get(2).is_some_and(|remote| remote.ends_with(&to_port)) && row[3] == "01")?;
        Some(row[5].split(':').next()?.to_owned())
    }

    #[tokio::test]
    async fn idle_connection_is_probed() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = server.local_addr().unwrap().port();
        let client = connect(Config::new(format!("http://127.0.0.1:{port}").parse().unwrap())).unwrap();
        let unanswered = tokio::spawn(async move { Api::<Node>::all(client).get("a").await });
        let (_connection, _) = server.accept().await.unwrap();
        // The request itself has a timer of another kind until it is acknowledged.
        let begun = std::time::Instant::now();
        while timer(port).as_deref() != Some("02") {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", timer(port));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        unanswered.abort();
    }
}
