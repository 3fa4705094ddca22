//! HTTP, small and bounded: health and metrics on a TCP port, the same and more on root's socket.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use stream::{Chunks, STREAM_MAX, expired};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::{AbortHandle, yield_now};

/// Connections served at once, per listener. One more takes the place of the oldest: answers take milliseconds, so the
/// oldest is a client that dawdles, and the kubelet's probes must not wait behind it.
const CONNECTIONS: usize = 16;

/// How long a connection may last, whichever side is slow, unless its answer is a stream.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a client may take to send its request.
const QUESTION: Duration = Duration::from_secs(5);

/// The answer to a request that names another host.
const FOREIGN_HOST: &str = "the Host header names another host: use localhost\n";

/// Answers the requests of a program's server.
pub trait Handler: Send + Sync + 'static {
    /// Answers a GET of a path.
    fn answer(&self, path: &str, caller: Caller) -> impl Future<Output = Answer> + Send;

    /// Answers a GET at a port on loopback whose answer has no length in advance, or refuses it; none for all others.
    fn stream(&self, _: &StreamRequest<'_>) -> impl Future<Output = Option<Result<Chunks, Answer>>> + Send {
        std::future::ready(None)
    }
}

/// A request whose answer may be a stream.
#[derive(Clone, Copy)]
pub struct StreamRequest<'a> {
    /// The path without its query.
    pub path: &'a str,
    /// What follows the question mark.
    pub query: &'a str,
    /// The bearer token. Never logged.
    pub token: Option<&'a str>,
}

/// An answer that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status of HTTP, such as 200.
    pub status: u16,
    /// The value of the header Content-Type.
    pub content_type: &'static str,
    /// The text of the answer.
    pub body: String,
}

/// Which client sends a request: root by the socket, any client by the TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Any client of the port.
    AnyUser,
    /// A client of a port on loopback, which names this machine as the host.
    Local,
    /// The user with the uid 0.
    Root,
}

/// Those being served, the oldest first.
#[derive(Default)]
pub(crate) struct Connections(VecDeque<AbortHandle>);

impl Answer {
    /// An answer of plain text.
    pub fn text(status: u16, body: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: body.to_owned() }
    }

    /// An answer of JSON.
    pub fn json(status: u16, body: &impl Serialize) -> Self {
        match serde_json::to_string(body) {
            Ok(mut body) => {
                body.push('\n');
                Self { status, content_type: "application/json", body }
            }
            Err(error) => Self::text(500, &format!("{error}\n")),
        }
    }

    /// Metrics, in Prometheus' text format.
    pub const fn metrics(body: String) -> Self {
        Self { status: 200, content_type: "application/openmetrics-text; version=1.0.0; charset=utf-8", body }
    }
}

/// Makes root's socket. One that was left behind is replaced.
///
/// # Errors
/// When it cannot be made.
pub fn socket(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // Its directory admits root only, so the moment between the two calls does not matter.
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves a TCP port; never returns.
pub async fn serve_port(listener: TcpListener, handler: Arc<impl Handler>) {
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => connections.serve(connection(stream, handler.clone(), Caller::AnyUser)).await,
            Err(error) => refused(&error).await,
        }
    }
}

/// Serves a port on loopback, also by port-forward; never returns. A request must name loopback as its host. Otherwise a web page
/// could read the answers in a browser of this machine, by a name that resolves to loopback.
pub async fn serve_view(listener: TcpListener, handler: Arc<impl Handler>) {
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => connections.serve(connection(stream, handler.clone(), Caller::Local)).await,
            Err(error) => refused(&error).await,
        }
    }
}

/// Serves root's socket; never returns.
pub async fn serve_socket(listener: UnixListener, handler: Arc<impl Handler>) {
    let mut connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Its mode and its directory's say the same, but other programs may change both; the peer's user cannot be changed.
                let caller = match stream.peer_cred() {
                    Ok(peer) if peer.uid() == 0 => Caller::Root,
                    _ => Caller::AnyUser,
                };
                connections.serve(connection(stream, handler.clone(), caller)).await;
            }
            Err(error) => refused(&error).await,
        }
    }
}

impl Connections {
    pub(crate) async fn serve(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        self.0.retain(|other| !other.is_finished());
        if self.0.len() >= CONNECTIONS
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
        self.0.push_back(tokio::spawn(connection).abort_handle());
        // However many are waiting to be accepted, those that were get their turn in between.
        yield_now().await;
    }
}

/// Out of descriptors, most likely: trying at once again would only burn the processor.
pub(crate) async fn refused(error: &io::Error) {
    tracing::debug!(event = "server.accept_failed", %error);
    tokio::time::sleep(Duration::from_millis(200)).await;
}

pub(crate) async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    handler: Arc<impl Handler>,
    caller: Caller,
) {
    let (limit_in, limit) = watch::channel(PATIENCE);
    let service = service_fn(move |request| respond(request, handler.clone(), caller, limit_in.clone()));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(QUESTION).keep_alive(false).max_buf_size(16 * 1024);
    // Cancel-safe: whichever ends first ends the connection. A client that goes away or talks nonsense is its own problem.
    tokio::select! {
        _ = http.serve_connection(TokioIo::new(stream), service) => {}
        () = expired(limit) => {}
    }
}

async fn respond(
    request: Request<Incoming>,
    handler: Arc<impl Handler>,
    caller: Caller,
    limit: watch::Sender<Duration>,
) -> Result<Response<Either<Full<Bytes>, Chunks>>, Infallible> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut response = Response::new(Either::Left(Full::default()));
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(response);
    }
    let answer = match caller {
        Caller::Local if !names_loopback(&request) => Answer::text(403, FOREIGN_HOST),
        Caller::Local if let Some(stream) = handler.stream(&stream_request(&request)).await => match stream {
            Ok(chunks) => {
                limit.send_replace(STREAM_MAX);
                return Ok(Response::new(Either::Right(chunks)));
            }
            Err(refusal) => refusal,
        },
        _ => handler.answer(request.uri().path(), caller).await,
    };
    let Answer { status, content_type, body } = answer;
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(body))));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    Ok(response)
}

fn stream_request(request: &Request<Incoming>) -> StreamRequest<'_> {
    let authorization = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    StreamRequest {
        path: request.uri().path(),
        query: request.uri().query().unwrap_or_default(),
        token: authorization.and_then(|value| value.strip_prefix("Bearer ")),
    }
}

/// Whether all names that a request has for this host mean loopback.
fn names_loopback(request: &Request<Incoming>) -> bool {
    let is_local = |authority: &str| {
        let authority = authority.parse::<Authority>().ok().filter(|authority| !authority.as_str().contains('@'));
        authority.is_some_and(|authority| {
            let host = authority.host().trim_matches(['[', ']']);
            host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        })
    };
    let mut hosts = request.headers().get_all(HOST).iter();
    let named = hosts.next().and_then(|host| host.to_str().ok());
    let target = request.uri().authority().map(Authority::as_str);
    named.is_some_and(is_local) && hosts.next().is_none() && target.is_none_or(is_local)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use super::*;

    struct Secret;

    impl Handler for Secret {
        async fn answer(&self, path: &str, _: Caller) -> Answer {
            Answer::text(200, path)
        }
    }

    #[tokio::test]
    async fn view_refuses_a_foreign_host() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve_view(listener, Arc::new(Secret)));
        let status = async |head: &str| {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            text.split(' ').nth(1).unwrap_or_default().to_owned()
        };
        for host in ["localhost", "LocalHost:9811", "127.0.0.1:9811", "127.0.0.1", "127.1.2.3:1", "[::1]:9811", "[::1]"]
        {
            assert_eq!(status(&format!("GET /fleet HTTP/1.1\r\nHost: {host}")).await, "200", "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9811",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1:9811",
            "0.0.0.0:9811",
            "[::ffff:10.0.0.1]",
            "localhost@evil.example",
            "evil@localhost",
            "",
            "a b",
        ] {
            assert_ne!(status(&format!("GET /fleet HTTP/1.1\r\nHost: {host}")).await, "200", "{host}");
        }
        for head in [
            "GET /fleet HTTP/1.0",
            "GET /fleet HTTP/1.1",
            "GET /fleet HTTP/1.1\r\nHost: localhost\r\nHost: evil.example",
            "GET http://evil.example/fleet HTTP/1.1\r\nHost: localhost",
        ] {
            assert_ne!(status(head).await, "200", "{head}");
        }
    }
}
