//! The port of METRICS_PORT: /metrics for a Prometheus on another machine, and nothing else; open, or by mutual TLS with a CA of
//! clients.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::config::file::read;
use crate::server::{Answer, Caller, Connections, Handler, connection, refused};

/// The wait between two attempts to bind the port.
const REBIND: Duration = Duration::from_secs(10);

/// How long certificates are used until their files are read again, so that renewed ones need no restart.
const REREAD: Duration = Duration::from_mins(1);

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Where metrics are served to other machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsPort {
    /// The address and port to listen on.
    pub listen: SocketAddr,
    /// The directory with `tls.crt`, `tls.key` and `ca.crt`; without it the port is open.
    pub tls: Option<PathBuf>,
}

/// Why there is no TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file without a certificate or key.
    #[error("reading {path}", path = .path.display())]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The reason why it is unusable.
        #[source]
        source: pem::Error,
    },
    /// Certificates that cannot identify clients.
    #[error("verifying clients by ca.crt")]
    Clients(#[source] VerifierBuilderError),
    /// Certificate and key that do not fit.
    #[error("using tls.crt and tls.key")]
    Identity(#[source] rustls::Error),
}

/// Answers requests for metrics only.
struct MetricsOnly<B>(Arc<B>);

/// The acceptor of a directory, and when it was made.
struct Certificates {
    folder: PathBuf,
    made: Option<(Instant, TlsAcceptor)>,
}

impl<B: Handler> Handler for MetricsOnly<B> {
    async fn answer(&self, path: &str, _: Caller) -> Answer {
        match path {
            "/metrics" => self.0.answer(path, Caller::AnyUser).await,
            _ => Answer::text(404, "not found\n"),
        }
    }
}

/// Serves the port, if there is one; never returns. It retries while the port cannot be bound, because the program works without
/// it.
pub async fn run(port: Option<MetricsPort>, handler: Arc<impl Handler>) {
    let Some(MetricsPort { listen, tls }) = port else { return std::future::pending().await };
    let mut failed = false;
    let listener = loop {
        match TcpListener::bind(listen).await {
            Ok(listener) => break listener,
            Err(error) if !failed => {
                tracing::warn!(event = "metrics.unavailable", %listen, %error, "METRICS_PORT; retried")
            }
            Err(_) => {}
        }
        failed = true;
        tokio::time::sleep(REBIND).await;
    };
    tracing::info!(event = "metrics.listening", %listen, tls = tls.is_some());
    serve(listener, tls, handler).await;
}

/// Serves a listener; never returns.
pub async fn serve(listener: TcpListener, tls: Option<PathBuf>, handler: Arc<impl Handler>) {
    let handler = Arc::new(MetricsOnly(handler));
    let mut certificates = tls.map(|folder| Certificates { folder, made: None });
    let mut connections = Connections::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                refused(&error).await;
                continue;
            }
        };
        let handler = handler.clone();
        let Some(certificates) = &mut certificates else {
            connections.serve(connection(stream, handler, Caller::AnyUser)).await;
            continue;
        };
        // Without valid files no client is served, because an operator who configured TLS does not want an open port.
        if let Some(acceptor) = certificates.acceptor() {
            connections
                .serve(async move {
                    if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                        connection(stream, handler, Caller::AnyUser).await;
                    }
                })
                .await;
        }
    }
}

impl Certificates {
    fn acceptor(&mut self) -> Option<TlsAcceptor> {
        if let Some((made, acceptor)) = &self.made
            && made.elapsed() < REREAD
        {
            return Some(acceptor.clone());
        }
        match acceptor(&self.folder) {
            Ok(acceptor) => self.made = Some((Instant::now(), acceptor)),
            Err(error) => tracing::warn!(event = "metrics.tls_failed", error = crate::logging::chain(&error)),
        }
        self.made.as_ref().map(|(_, acceptor)| acceptor.clone())
    }
}

fn acceptor(folder: &Path) -> Result<TlsAcceptor, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(folder.join("ca.crt"))? {
        roots.add(certificate).map_err(TlsError::Identity)?;
    }
    let key = folder.join("tls.key");
    let key = read(&key)
        .map_err(pem::Error::Io)
        .and_then(|text| PrivateKeyDer::from_pem_slice(text.as_bytes()))
        .map_err(|source| TlsError::File { path: key, source })?;
    let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Identity)?
        .with_client_cert_verifier(clients.build().map_err(TlsError::Clients)?)
        .with_single_cert(certificates(folder.join("tls.crt"))?, key)
        .map_err(TlsError::Identity)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: PathBuf) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(&path).map_err(pem::Error::Io);
    let found = text.and_then(|text| CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>());
    let found = found.and_then(|found| if found.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(found) });
    found.map_err(|source| TlsError::File { path, source })
}

#[cfg(test)]
mod tests;
