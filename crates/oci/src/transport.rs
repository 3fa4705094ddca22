//! Bytes there and back: HTTP/1.1 over TLS, with kept connections and a limit on the answer. Knows nothing of OCI.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Bytes;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::error::{Error, Failure};

/// The trusted certificate authorities.
#[derive(Clone, Debug, Default)]
pub enum Trust {
    /// Mozilla's list, built in: enough for the endpoints of public realms.
    #[default]
    Public,
    /// Those of this PEM bundle only: dedicated regions, a cluster's own authority.
    Only(Vec<u8>),
}

/// The longest accepted answer, in bytes. A page of a thousand attachments is about 700 KiB.
const MAX_ANSWER: usize = 8 << 20;
/// How long a connection is kept without use. Load balancers drop idle ones after a minute or so.
const IDLE: Duration = Duration::from_secs(30);
/// The time limit for connecting, so that a black hole leaves time for another attempt.
const CONNECTING: Duration = Duration::from_secs(5);

/// Carries one request to the service and its response back, in place of HTTPS: an emulator in the same process.
pub trait Carrier: Send + Sync {
    /// Returns the whole response, whatever its status.
    fn carry(
        &self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, Failure>> + Send + '_>>;
}

/// The way to the service.
#[derive(Clone)]
pub(crate) enum Transport {
    /// The client of one trust.
    Https(Client<HttpsConnector<HttpConnector>, Full<Bytes>>),
    Carrier(Arc<dyn Carrier>),
}

/// An answer of any status.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Transport {
    pub(crate) fn new(trust: &Trust) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        match trust {
            Trust::Public => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Trust::Only(pem) => {
                for certificate in CertificateDer::pem_slice_iter(pem) {
                    let certificate =
                        certificate.map_err(|error| Error::setup(format!("the bundle of certificates: {error}")))?;
                    roots
                        .add(certificate)
                        .map_err(|error| Error::setup_by("a certificate of the bundle of certificates", error))?;
                }
                if roots.is_empty() {
                    return Err(Error::setup("the bundle of certificates is empty"));
                }
            }
        }
        // Named here, so that no process-wide default is needed.
        let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::setup_by("TLS", error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECTING));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(connector);
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            // Retries are `retry`'s decision.
            .retry_canceled_requests(false)
            .build(connector);
        Ok(Self::Https(http))
    }

    /// Sends a request and reads the whole answer. The caller bounds the time.
    pub(crate) async fn send(&self, request: Request<Bytes>) -> Result<Answer, Failure> {
        let http = match self {
            Self::Https(http) => http,
            Self::Carrier(carrier) => {
                let (parts, body) = carrier.carry(request).await?.into_parts();
                return Ok(Answer { status: parts.status, headers: parts.headers, body });
            }
        };
        let response = http.request(request.map(Full::new)).await.map_err(|error| {
            if error.is_connect() { Failure::NoConnection(error.into()) } else { Failure::Broken(error.into()) }
        })?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(|error| {
            let is_long = error.is::<LengthLimitError>();
            if is_long {
                Failure::Unreadable { beginning: String::new(), source: error }
            } else {
                Failure::Broken(error)
            }
        })?;
        let body = body.to_bytes();
        Ok(Answer { status: parts.status, headers: parts.headers, body })
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Https(_) => "Https",
            Self::Carrier(_) => "Carrier",
        })
    }
}

impl Answer {
    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
