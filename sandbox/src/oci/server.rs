//! The API's sockets and connections, on a thread of their own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::answer::Asked;
use super::api::{Api, Handled};
use crate::error::{During, Error, Result};
use crate::fabric::SERVICES_V4;
use crate::services::accept;

/// The most that a request's body may have.
const LONGEST_BODY: usize = 1 << 20;

/// The running server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) loopback: SocketAddr,
    pub(super) in_nodes: SocketAddr,
    pub(super) proxymux: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    /// Opens the ports and starts serving.
    pub(super) fn start(api: &Arc<Api>) -> Result<Self> {
        let listen = |port: u16| -> io::Result<StdListener> {
            let listener = StdListener::bind((Ipv4Addr::LOCALHOST, port))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let opening = || "open the OCI API's ports".to_owned();
        let (core, muxed) = (listen(0).during(opening)?, listen(api.settings().proxymux_port).during(opening)?);
        let in_nodes = api.vcn().services().listen().during(opening)?;
        let loopback = core.local_addr().during(opening)?;
        let proxymux = muxed.local_addr().during(opening)?;
        let port = in_nodes.local_addr().during(opening)?.port();
        let tls = acceptor(api)?;
        let (stop, stopped) = oneshot::channel();
        let api = Arc::clone(api);
        let serve = move || -> io::Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let (core, in_nodes) = (TcpListener::from_std(core)?, TcpListener::from_std(in_nodes)?);
                let muxed = TcpListener::from_std(muxed)?;
                tokio::select! {
                    () = serve_plain(&core, &api) => {}
                    () = serve_plain(&in_nodes, &api) => {}
                    () = serve_tls(&muxed, &tls, &api) => {}
                    _ = stopped => {}
                }
                Ok(())
            })
        };
        let thread = std::thread::Builder::new().name("sandbox-oci".to_owned()).spawn(move || {
            if let Err(error) = serve() {
                tracing::error!(%error, "the sandbox's OCI API ended");
            }
        });
        let thread = thread.during(|| "start the OCI API's thread".to_owned())?;
        let in_nodes = SocketAddr::from((SERVICES_V4, port));
        Ok(Self { loopback, in_nodes, proxymux, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn acceptor(api: &Api) -> Result<TlsAcceptor> {
    let failed = |error: rustls::Error| Error::Invalid(format!("proxymux's TLS: {error}"));
    let (certificate, key) = api.authority().server()?;
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(certificate)], PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key)))
        .map_err(failed)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve_plain(listener: &TcpListener, api: &Arc<Api>) {
    loop {
        let (stream, _) = accept(listener).await;
        let api = Arc::clone(api);
        tokio::spawn(async move {
            let service = service_fn(|request| respond(&api, request, Api::handle));
            // A client that goes away is the client's business.
            let _ =
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn serve_tls(listener: &TcpListener, tls: &TlsAcceptor, api: &Arc<Api>) {
    loop {
        let (stream, _) = accept(listener).await;
        let (tls, api) = (tls.clone(), Arc::clone(api));
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(|request| respond(&api, request, Api::handle_workload));
            // As above.
            let _ =
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Reads the request, has it handled, starts what follows. An error breaks the connection.
async fn respond(
    api: &Arc<Api>,
    request: Request<Incoming>,
    handle: fn(&Api, &Asked) -> Handled,
) -> io::Result<Response<Full<Bytes>>> {
    let asked = read(request).await?;
    let Handled { answer, delay, later } = handle(api, &asked);
    for (wait, task) in later {
        let api = Arc::clone(api);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            api.finish(task);
        });
    }
    tokio::time::sleep(delay).await;
    let answer = answer.ok_or_else(|| io::Error::other("the answer is lost"))?;
    let body = answer.body.map(|body| body.to_string()).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    // The real one's number begins with the client's, too.
    let request_id = format!("{}/SANDBOX", asked.header("opc-request-id").unwrap_or("NONE"));
    let headers = answer
        .headers
        .into_iter()
        .chain([("opc-request-id", request_id), ("content-type", "application/json".to_owned())]);
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    Ok(response)
}

async fn read(request: Request<Incoming>) -> io::Result<Asked> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, LONGEST_BODY).collect().await.map_err(io::Error::other)?.to_bytes().to_vec();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let pairs = parts.uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let query = pairs.map(|(name, value)| (unescape(name), unescape(value))).collect();
    Ok(Asked { method: parts.method, path: parts.uri.path().to_owned(), query, target, headers: parts.headers, body })
}

/// `%20` and `+` are spaces, and so on.
fn unescape(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut plain = Vec::new();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => plain.push(b' '),
            b'%' => {
                let digits: Vec<u8> = bytes.by_ref().take(2).collect();
                let number = std::str::from_utf8(&digits).ok().and_then(|digits| u8::from_str_radix(digits, 16).ok());
                plain.extend(number);
            }
            other => plain.push(other),
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_unescaped() {
        assert_eq!(unescape("Pjwf%3A%20PHX+AD-1"), "Pjwf: PHX AD-1");
        assert_eq!(unescape("%"), "");
        assert_eq!(unescape("%zz1"), "1");
    }
}
