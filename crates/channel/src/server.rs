//! The server: a peer without a trusted key gets no byte of HTTP, and no peer holds a connection for long.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{Either, Full, LengthLimitError};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::version::TLS13;
use stream::{Chunks, STREAM_MAX, expired};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::HEAD_MAX;
use crate::admission::{Admission, ConnectionSlot, Limits};
use crate::delivery::{ReplyObserver, SentReply};
use crate::identity::Identity;
use crate::message::{Reply, Request, collect};
use crate::verify::{PinnedKeys, TrustedKeys};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How long a connection may last, unless its reply is a stream.
const CONNECTION: Duration = Duration::from_secs(60);

/// A reply as it is sent.
type ReplyBody = Either<Full<Bytes>, Chunks>;

/// Answers the requests of controllers whose keys are trusted.
pub trait Handler: Send + Sync + 'static {
    /// Answers a request of a trusted peer.
    fn handle(&self, request: Request) -> impl Future<Output = Reply> + Send;

    /// Answers a request whose reply has no length in advance, or refuses it; none for all others.
    fn stream(&self, _: &Request) -> Option<Result<Chunks, Reply>> {
        None
    }

    /// A trusted peer has the reply, or has not acknowledged it in time.
    fn replied(&self, _reply: SentReply) {}
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
    let acceptor = acceptor(identity, trusted)?;
    let admission = Admission::new(limits, Instant::now());
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Closed otherwise, before a byte is read.
                if let Some(slot) = admission.admit(peer.ip().to_canonical(), Instant::now()) {
                    let observer = ReplyObserver::of(&stream, peer);
                    let (acceptor, handler) = (acceptor.clone(), handler.clone());
                    tokio::spawn(async move {
                        let is_served = connection(stream, peer, slot, acceptor, handler.clone()).await;
                        if let Some(observer) = observer.filter(|_| is_served) {
                            handler.replied(observer.outcome().await);
                        }
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

fn acceptor(identity: &Identity, trusted: TrustedKeys) -> Result<TlsAcceptor, rustls::Error> {
    let verifier = PinnedKeys::new(trusted, identity.provider.clone());
    let mut config = ServerConfig::builder_with_provider(identity.provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(identity.key.clone())));
    // A resumed session would skip the comparison of keys.
    config.send_tls13_tickets = 0;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves one connection. Returns whether a trusted peer was answered.
async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    mut slot: ConnectionSlot,
    acceptor: TlsAcceptor,
    handler: Arc<impl Handler>,
) -> bool {
    let tls = match timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(tls)) => tls,
        Ok(Err(error)) => {
            tracing::debug!(event = "channel.refused", %peer, %error);
            return false;
        }
        Err(_) => {
            tracing::debug!(event = "channel.refused", %peer, error = "the handshake took too long");
            return false;
        }
    };
    slot.pass(Instant::now());
    let (limit_in, limit) = watch::channel(CONNECTION);
    let service = service_fn(move |request| respond(request, handler.clone(), limit_in.clone()));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HANDSHAKE).keep_alive(false).max_buf_size(HEAD_MAX);
    // Cancel-safe: whichever ends first ends the connection. A peer that closes early is not a failure of this side.
    tokio::select! {
        served = http.serve_connection(TokioIo::new(tls), service) => served.is_ok(),
        () = expired(limit) => false,
    }
}

async fn respond(
    request: hyper::Request<Incoming>,
    handler: Arc<impl Handler>,
    limit: watch::Sender<Duration>,
) -> Result<Response<ReplyBody>, Infallible> {
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
    let mut reply = match handler.stream(&request) {
        Some(Ok(chunks)) => {
            limit.send_replace(STREAM_MAX);
            return Ok(Response::new(Either::Right(chunks)));
        }
        Some(Err(reply)) => reply,
        None => handler.handle(request).await,
    };
    if reply.status == 200 && reply.etag.is_some() && reply.etag == if_none_match {
        reply = Reply { status: 304, etag: reply.etag, body: Bytes::new() };
    }
    Ok(response(reply))
}

fn response(Reply { status, etag, body }: Reply) -> Response<ReplyBody> {
    let mut response = Response::new(Either::Left(Full::new(body)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if status == 200 { "application/json" } else { "text/plain; charset=utf-8" };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Some(etag) = etag.and_then(|etag| HeaderValue::try_from(etag).ok()) {
        response.headers_mut().insert(ETAG, etag);
    }
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    use rustls::pki_types::ServerName;
    use tokio::io::AsyncWriteExt as _;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::Client;

    struct Silent;

    impl Handler for Silent {
        async fn handle(&self, _: Request) -> Reply {
            std::future::pending().await
        }
    }

    /// The seconds after which the server closes the connection of a peer that sends this after the handshake and then
    /// nothing; `None` sends no handshake.
    async fn closed_after(sent: Option<&str>) -> u64 {
        let (own, others) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let trusted = BTreeSet::from([others.fingerprint()]);
        let acceptor = acceptor(&own, Arc::new(move || trusted.clone())).unwrap();
        let (mut near, far) = tokio::io::duplex(64 << 10);
        let begun = tokio::time::Instant::now();
        let address = Ipv4Addr::LOCALHOST;
        let slot = Admission::new(Limits::default(), Instant::now()).admit(address.into(), Instant::now()).unwrap();
        let served = tokio::spawn(connection(far, (address, 1).into(), slot, acceptor, Arc::new(Silent)));
        if let Some(sent) = sent {
            let connector = TlsConnector::from(Arc::new(Client::new(others).config(own.fingerprint()).unwrap()));
            let mut tls = connector.connect(ServerName::IpAddress(address.into()), &mut near).await.unwrap();
            tls.write_all(sent.as_bytes()).await.unwrap();
            tls.flush().await.unwrap();
        }
        let _is_served = served.await.unwrap();
        begun.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn slow_peers_are_closed_within_the_bounds() {
        let (handshake, connection) = (HANDSHAKE.as_secs(), CONNECTION.as_secs());
        for (sent, bound) in [
            (None, handshake),
            (Some(""), handshake),
            (Some("GET /v1/summary HTTP/1.1\r\nHost: "), handshake),
            (Some("POST /v1/probe HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{"), connection),
            (Some("GET /v1/summary HTTP/1.1\r\nHost: a\r\n\r\n"), connection),
        ] {
            assert_eq!(closed_after(sent).await, bound, "{sent:?}");
        }
    }
}
