//! The server: a peer without a trusted key gets no byte of HTTP, and no peer holds a connection for long.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{Full, LengthLimitError};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::version::TLS13;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::HEAD_MAX;
use crate::admission::{Admission, Limits};
use crate::identity::Identity;
use crate::message::{Reply, Request, collect};
use crate::verify::{PinnedKeys, TrustedKeys};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long a connection may last.
const CONNECTION: Duration = Duration::from_secs(60);

/// What answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers a request of a trusted peer.
    fn handle(&self, request: Request) -> impl Future<Output = Reply> + Send;
}

/// Serves a listener; never returns.
///
/// # Errors
/// If TLS cannot be set up.
pub async fn serve(
    listener: TcpListener,
    identity: &Identity,
    trusted: TrustedKeys,
    handler: Arc<impl Handler>,
    limits: Limits,
) -> Result<Infallible, rustls::Error> {
    let verifier = PinnedKeys::new(trusted, identity.provider.clone());
    let mut config = ServerConfig::builder_with_provider(identity.provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(identity.key.clone())));
    // A resumed session would skip the comparison of keys.
    config.send_tls13_tickets = 0;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let mut admission = Admission::new(limits);
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Closed otherwise, before a byte is read.
                if let Some(place) = admission.admit(peer.ip(), Instant::now()) {
                    let task = connection(stream, acceptor.clone(), handler.clone());
                    tokio::spawn(async move {
                        task.await;
                        drop(place);
                    });
                }
                // Many connections must not keep other tasks waiting.
                yield_now().await;
            }
            Err(error) => {
                // Most likely there is no free descriptor.
                tracing::debug!(event = "channel.accept_failed", %error);
                sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, handler: Arc<impl Handler>) {
    let peer = stream.peer_addr().map(|address| address.to_string()).unwrap_or_default();
    let tls = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(tls)) => tls,
        Ok(Err(error)) => return tracing::debug!(event = "channel.refused", peer, %error),
        Err(_) => return tracing::debug!(event = "channel.refused", peer, error = "the handshake took too long"),
    };
    let service = service_fn(move |request| respond(request, handler.clone()));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HANDSHAKE).keep_alive(false).max_buf_size(HEAD_MAX);
    // A peer that closes early is no failure of this side.
    let _ = timeout(CONNECTION, http.serve_connection(TokioIo::new(tls), service)).await;
}

async fn respond(
    request: hyper::Request<Incoming>,
    handler: Arc<impl Handler>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let has_body = match head.method {
        Method::GET => false,
        Method::POST => true,
        _ => return Ok(response(Reply::text(405, "only GET and POST are allowed\n"))),
    };
    let body = match collect(body).await {
        Ok(body) => body,
        Err(error) if error.is::<LengthLimitError>() => {
            return Ok(response(Reply::text(413, "the body is too long\n")));
        }
        Err(_) => return Ok(response(Reply::text(400, "the body is incomplete\n"))),
    };
    let if_none_match = head.headers.get(IF_NONE_MATCH).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
    let path = head.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    let request = Request { path, if_none_match: if_none_match.clone(), body: has_body.then_some(body) };
    let mut reply = handler.handle(request).await;
    if reply.status == 200 && reply.etag.is_some() && reply.etag == if_none_match {
        reply = Reply { status: 304, etag: reply.etag, body: Bytes::new() };
    }
    Ok(response(reply))
}

fn response(Reply { status, etag, body }: Reply) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if status == 200 { "application/json" } else { "text/plain; charset=utf-8" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(etag) = etag.and_then(|etag| HeaderValue::try_from(etag).ok()) {
        response.headers_mut().insert(ETAG, etag);
    }
    response
}
