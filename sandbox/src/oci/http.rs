//! The network transport: HTTP/1.1 for the core and federation services, TLS for proxymux, on a thread of their own.

mod access;
mod authority;
mod federation;
mod proxymux;
mod signature;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response as HttpResponse, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;
use vcn::Family;

use super::emulator::{HandledRequest, Operation, OperationResult, Request, refuse};
use crate::background::Background;
use crate::error::{Error, ErrorContext, Result};
use crate::fabric::SERVICES_V4;
use crate::services::accept;

pub(super) use access::Access;
pub(crate) use authority::Authority;

/// An RSA key in PEM form (PKCS#8).
pub(super) fn new_key() -> Result<String> {
    Ok(authority::user_key()?.pem)
}

/// The longest request body, in bytes.
const MAX_BODY: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Server {
    pub(super) loopback: SocketAddr,
    pub(super) in_nodes: SocketAddr,
    pub(super) proxymux: SocketAddr,
    _thread: Background,
}

impl Server {
    /// Opens the ports and starts serving.
    pub(super) fn start(access: &Arc<Access>) -> Result<Self> {
        let listen = |port: u16| -> io::Result<StdListener> {
            let listener = StdListener::bind((Ipv4Addr::LOCALHOST, port))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let opening = || "open the OCI API's ports";
        let core = listen(0).during(opening)?;
        let muxed = listen(access.emulator.settings().proxymux_port).during(opening)?;
        let in_nodes = access.emulator.vcn().services()?.listen().during(opening)?;
        let loopback = core.local_addr().during(opening)?;
        let proxymux = muxed.local_addr().during(opening)?;
        let port = in_nodes.local_addr().during(opening)?.port();
        let tls = acceptor(&access.authority)?;
        let access = Arc::clone(access);
        let serve = move |stopped: oneshot::Receiver<()>| -> io::Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let (core, in_nodes) = (TcpListener::from_std(core)?, TcpListener::from_std(in_nodes)?);
                let muxed = TcpListener::from_std(muxed)?;
                // Every branch runs until the server ends, so none is cancelled half-way but by that.
                tokio::select! {
                    () = serve_plain(&core, &access) => {}
                    () = serve_plain(&in_nodes, &access) => {}
                    () = serve_tls(&muxed, &tls, &access) => {}
                    _ = stopped => {}
                }
                Ok(())
            })
        };
        let thread = Background::start("OCI API", move |stopped| {
            if let Err(error) = serve(stopped) {
                tracing::error!(%error, "the sandbox's OCI API ended");
            }
        })?;
        let in_nodes = SocketAddr::from((SERVICES_V4, port));
        Ok(Self { loopback, in_nodes, proxymux, _thread: thread })
    }
}

impl Access {
    /// Handles a request to the core and federation services.
    fn handle(&self, request: &Request) -> HandledRequest {
        if request.path == "/v1/x509" {
            let federate = || self.federate(request).map(OperationResult::from);
            return self.emulator.guard(Operation::Federate, Family::Ipv4, federate);
        }
        self.emulator.handle(request, || self.authenticate(request))
    }

    /// Handles a request to proxymux.
    fn handle_workload(&self, request: &Request) -> HandledRequest {
        if request.path != "/resourcePrincipalSessionTokens" {
            return HandledRequest::of(refuse(404, "NotFound", "not found").into());
        }
        let token = || self.workload_token(request).map(OperationResult::from);
        self.emulator.guard(Operation::WorkloadToken, Family::Ipv4, token)
    }
}

fn acceptor(authority: &Authority) -> Result<TlsAcceptor> {
    let failed = |error: rustls::Error| Error::Invalid(format!("proxymux's TLS: {error}"));
    let (certificate, key) = authority.server()?;
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(certificate)], PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key)))
        .map_err(failed)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn serve_plain(listener: &TcpListener, access: &Arc<Access>) {
    loop {
        let (stream, _) = accept(listener).await;
        tokio::spawn(serve(stream, Arc::clone(access), Access::handle));
    }
}

async fn serve_tls(listener: &TcpListener, tls: &TlsAcceptor, access: &Arc<Access>) {
    loop {
        let (stream, _) = accept(listener).await;
        let (tls, access) = (tls.clone(), Arc::clone(access));
        tokio::spawn(async move {
            if let Ok(stream) = tls.accept(stream).await {
                serve(stream, access, Access::handle_workload).await;
            }
        });
    }
}

type Handle = fn(&Access, &Request) -> HandledRequest;

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, access: Arc<Access>, handle: Handle) {
    let service = service_fn(|request| respond(&access, request, handle));
    // A client may close the connection at any time.
    let _ = http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
}

/// Reads the request, handles it, schedules the work that follows. An error breaks the connection.
async fn respond(
    access: &Arc<Access>,
    request: hyper::Request<Incoming>,
    handle: Handle,
) -> io::Result<HttpResponse<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await.map_err(io::Error::other)?.to_bytes().to_vec();
    let request = Request::new(parts, body);
    let HandledRequest { response, delay, later } = handle(access, &request);
    if let Some((wait, task)) = later {
        let access = Arc::clone(access);
        tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            access.emulator.finish(task);
        });
    }
    tokio::time::sleep(delay).await;
    let response = response.ok_or_else(|| io::Error::other("injected fault: the response is lost"))?;
    Ok(response.into_http(&request).map(Full::new))
}

impl super::emulator::Response {
    /// The same with the headers that every response has.
    pub(super) fn into_http(self, request: &Request) -> HttpResponse<Bytes> {
        let body = self.body.map(|body| body.to_string()).unwrap_or_default();
        let mut response = HttpResponse::new(Bytes::from(body));
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // The real one's number begins with the client's, too.
        let request_id = format!("{}/SANDBOX", request.header("opc-request-id").unwrap_or("NONE"));
        let common = [("opc-request-id", request_id), ("content-type", "application/json".to_owned())];
        for (name, value) in self.headers.into_iter().chain(common) {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        response
    }
}
