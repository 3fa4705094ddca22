//! The client: one connection per request, because a request to one agent comes every few minutes.

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{Full, LengthLimitError};
use hyper::client::conn::http1;
use hyper::header::{HOST, IF_NONE_MATCH};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::pki_types::ServerName;
use rustls::version::TLS13;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::HEAD_MAX;
use crate::fingerprint::Fingerprint;
use crate::identity::Identity;
use crate::message::{Reply, Request};
use crate::reply_stream::ReplyStream;
use crate::send_error::SendError;
use crate::verify::PinnedKeys;

/// How long a connection, with its handshake, may take.
const CONNECT: Duration = Duration::from_secs(5);

/// Sends requests to agents, and proves its identity to each.
#[derive(Clone, Debug)]
pub struct Client {
    identity: Identity,
}

/// An agent: its address and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address and port on which the agent listens.
    pub address: SocketAddr,
    /// The only key that it may have.
    pub key: Fingerprint,
}

impl Client {
    /// A client with a key pair.
    pub const fn new(identity: Identity) -> Self {
        Self { identity }
    }

    /// Sends a request.
    ///
    /// # Errors
    /// If no reply came within `limit`. A reply with an error status is a reply.
    pub async fn send(&self, peer: Peer, request: Request, limit: Duration) -> Result<Reply, SendError> {
        let address = peer.address;
        timeout(limit, self.exchange(peer, request)).await.unwrap_or(Err(SendError::Slow { address, limit }))
    }

    /// Sends a request whose reply may be a stream. Its status comes within `limit`, its body as it is read.
    ///
    /// # Errors
    /// If no reply began within `limit`.
    pub async fn open(&self, peer: Peer, request: Request, limit: Duration) -> Result<ReplyStream, SendError> {
        let address = peer.address;
        timeout(limit, self.begin(peer, request)).await.unwrap_or(Err(SendError::Slow { address, limit }))
    }

    async fn exchange(&self, peer: Peer, request: Request) -> Result<Reply, SendError> {
        let (address, reply) = (peer.address, self.begin(peer, request).await?);
        reply.collect().await.map_err(|error| classify(address, error))
    }

    async fn begin(&self, peer: Peer, request: Request) -> Result<ReplyStream, SendError> {
        let address = peer.address;
        let broken = |source: Box<dyn Error + Send + Sync>| SendError::Exchange { address, source };
        let late = || io::Error::from(io::ErrorKind::TimedOut);
        let stream = timeout(CONNECT, TcpStream::connect(address)).await.unwrap_or_else(|_| Err(late()));
        let stream = stream.map_err(|source| SendError::Connect { address, source })?;
        let tls = match self.config(peer.key) {
            Ok(config) => {
                let connector = TlsConnector::from(Arc::new(config));
                let handshake = connector.connect(ServerName::IpAddress(address.ip().into()), stream);
                timeout(CONNECT, handshake).await.unwrap_or_else(|_| Err(late()))
            }
            Err(error) => Err(io::Error::other(error)),
        };
        let tls = tls.map_err(|source| SendError::Handshake { address, source })?;
        let mut http = http1::Builder::new();
        http.max_buf_size(HEAD_MAX);
        let (mut sender, connection) = http.handshake(TokioIo::new(tls)).await.map_err(|error| broken(error.into()))?;
        let request = self::request(address, request).map_err(|error| broken(error.into()))?;
        // Polled next to the request: it carries the bytes.
        let response = sender.send_request(request);
        let mut connection = Box::pin(connection);
        tokio::pin!(response);
        // Cancel-safe: neither is polled again. A server that rejects the client's key says so only here.
        let (response, connection) = tokio::select! {
            biased;
            response = &mut response => (response, Some(connection)),
            ended = &mut connection => match ended {
                Ok(()) => (response.await, None),
                // The reply may have come with the end.
                Err(error) => (timeout(Duration::ZERO, response).await.unwrap_or(Err(error)), None),
            },
        };
        let response = response.map_err(|error| classify(address, error.into()))?;
        Ok(ReplyStream::new(address, response, connection))
    }

    pub(crate) fn config(&self, key: Fingerprint) -> Result<ClientConfig, rustls::Error> {
        let Identity { provider, key: own, .. } = &self.identity;
        let trusted = BTreeSet::from([key]);
        let verifier = PinnedKeys::new(Arc::new(move || trusted.clone()), provider.clone());
        let mut config = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own.clone())));
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        Ok(config)
    }
}

fn classify(address: SocketAddr, error: Box<dyn Error + Send + Sync>) -> SendError {
    if error.is::<LengthLimitError>() {
        return SendError::TooLong(address);
    }
    // In TLS 1.3 the client may send before the server compared its key: the alert arrives with the reply.
    let mut cause: Option<&(dyn Error + 'static)> = Some(error.as_ref());
    while let Some(at) = cause {
        if let Some(io) = at.downcast_ref::<io::Error>()
            && io.get_ref().is_some_and(|inner| inner.is::<rustls::Error>())
        {
            return SendError::Handshake { address, source: io::Error::other(error) };
        }
        cause = at.source();
    }
    SendError::Exchange { address, source: error }
}

fn request(
    address: SocketAddr,
    request: Request,
) -> Result<hyper::Request<Full<hyper::body::Bytes>>, hyper::http::Error> {
    let Request { path, if_none_match, body } = request;
    let mut head = hyper::Request::builder()
        .method(if body.is_some() { "POST" } else { "GET" })
        .uri(path)
        .header(HOST, address.to_string());
    if let Some(tag) = if_none_match {
        head = head.header(IF_NONE_MATCH, tag);
    }
    head.body(Full::new(body.unwrap_or_default()))
}
