//! The instance principal: the federation service issues a token for the certificate that the metadata service has, which
//! rotates several times a day. The policies of the instance's dynamic group decide what it may do.

mod certificate;

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use backoff::{Backoff, chance};
use hyper::Request;
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::progress::Progress;
use super::session::TokenSource;
use super::token::Token;
use crate::auth::key::RsaKey;
use crate::auth::sign::{Credentials, Signable, sign};
use crate::error::{Error, Failure, LoginError, chain};
use crate::refusal::refusal;
use crate::region::Region;
use crate::region::endpoint::{Endpoint, MetadataUrl};
use crate::transport::{Answer, Transport, Trust};
use certificate::Certificate;

/// The metadata service of an instance. By convention of Oracle's SDKs, `OCI_METADATA_BASE_URL` names another one.
pub const METADATA_URL: &str = "http://169.254.169.254/opc/v2";

/// The instance that the program runs on, as a principal.
#[derive(Debug)]
pub struct InstancePrincipal {
    transport: Transport,
    metadata: MetadataUrl,
    /// The federation service; derived from the region when not given.
    federation: Option<Endpoint>,
    /// The tenancy at the first login.
    tenancy: OnceLock<String>,
}

/// The metadata service answers in milliseconds or not at all.
const METADATA_TIMEOUT: Duration = Duration::from_secs(5);
/// The federation service checks a certificate and two signatures before it answers.
const FEDERATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts at each step.
const ATTEMPTS: u32 = 3;
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), cap: Duration::from_secs(4) };

impl InstancePrincipal {
    /// The instance whose metadata service is at `metadata` (as [`METADATA_URL`]).
    ///
    /// # Errors
    /// When a certificate of the trust cannot be used.
    pub fn new(metadata: &MetadataUrl, trust: &Trust) -> Result<Self, Error> {
        Ok(Self {
            transport: Transport::new(trust)?,
            metadata: metadata.clone(),
            federation: None,
            tenancy: OnceLock::new(),
        })
    }

    /// Uses this federation service (`https://auth.…`) instead of the region's.
    #[must_use]
    pub fn with_federation(mut self, service: Endpoint) -> Self {
        self.federation = Some(service);
        self
    }

    /// The region that the metadata service names, with its realm.
    ///
    /// # Errors
    /// When the metadata service does not answer, or names no region.
    pub async fn region(&self) -> Result<Region, Error> {
        let unknown = |error: LoginError| Error::setup_by("the region of this instance", error);
        let answer = self.metadata("the region", "instance/regionInfo", &Progress::default()).await.map_err(unknown)?;
        Region::from_region_info(&answer)
    }

    async fn metadata(&self, what: &'static str, path: &str, progress: &Progress) -> Result<Bytes, LoginError> {
        let url = format!("{}/{path}", self.metadata);
        let fetch = || async {
            let request = Request::get(&url).header("authorization", "Bearer Oracle").body(Bytes::new());
            let request = request.map_err(|error| Failure::NoConnection(error.into()))?;
            attempt(METADATA_TIMEOUT, self.transport.send(request)).await
        };
        retried(what, &url, progress, fetch).await.map(|answer| answer.body)
    }

    async fn federation(&self, progress: &Progress) -> Result<Endpoint, LoginError> {
        if let Some(service) = &self.federation {
            return Ok(service.clone());
        }
        let answer = self.metadata("the region", "instance/regionInfo", progress).await?;
        let region = Region::from_region_info(&answer).map_err(|error| LoginError::material("the region", error))?;
        Ok(region.endpoints().auth)
    }

    /// The tenancy may not change under a running program, which would then act on foreign resources.
    fn same_tenancy(&self, now: &str) -> Result<(), LoginError> {
        let before = self.tenancy.get_or_init(|| now.to_owned());
        if before == now {
            return Ok(());
        }
        Err(LoginError::TenancyChanged { before: before.clone(), now: now.to_owned() })
    }
}

impl TokenSource for InstancePrincipal {
    async fn token(&self, key: &RsaKey, progress: &Progress) -> Result<Token, LoginError> {
        // Fetched again each time: they rotate together.
        let leaf = self.metadata("the instance's certificate", "identity/cert.pem", progress).await?;
        let leaf_key = self.metadata("the instance's key", "identity/key.pem", progress).await?;
        let intermediate = self.metadata("the intermediate certificate", "identity/intermediate.pem", progress).await?;
        let leaf = Certificate::from_pem(&leaf)?;
        let intermediate = Certificate::from_pem(&intermediate)?;
        let tenancy = leaf.tenancy()?;
        self.same_tenancy(&tenancy)?;
        let signer = Credentials {
            key_id: format!("{tenancy}/fed-x509-sha256/{}", leaf.fingerprint()).into(),
            key: std::sync::Arc::new(RsaKey::from_pem(&leaf_key)?),
        };
        let body = json!({
            "certificate": leaf.base64(),
            "publicKey": key.public_key()?,
            "intermediateCertificates": [intermediate.base64()],
            "fingerprintAlgorithm": "SHA256",
            "purpose": "DEFAULT",
        })
        .to_string();
        let url = format!("{}/v1/x509", self.federation(progress).await?);
        let fetch = || async {
            let request = federation_request(&url, &body, &signer)?;
            attempt(FEDERATION_TIMEOUT, self.transport.send(request)).await
        };
        let answer = retried("a session token", &url, progress, fetch).await?;
        #[derive(Deserialize)]
        struct Reply {
            token: String,
        }
        let reply: Reply = serde_json::from_slice(&answer.body)
            .map_err(|_| LoginError::material("the federation service's answer", "it holds no token"))?;
        Token::parse(&reply.token, self.now())
    }
}

fn federation_request(url: &str, body: &str, signer: &Credentials) -> Result<Request<Bytes>, Failure> {
    let unsent = |error: Box<dyn std::error::Error + Send + Sync>| Failure::NoConnection(error);
    let uri: hyper::Uri = url.parse().map_err(|error: hyper::http::uri::InvalidUri| unsent(error.into()))?;
    let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let signable = Signable { method: "POST", target: &target, host: None, body: Some(body.as_bytes()) };
    let headers = sign(signable, SystemTime::now(), signer).map_err(|error| unsent(error.into()))?;
    let mut request = Request::post(uri);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.body(Bytes::copy_from_slice(body.as_bytes())).map_err(|error| unsent(error.into()))
}

/// One attempt: only a 2xx status in time counts.
pub(super) async fn attempt(
    most: Duration,
    sending: impl Future<Output = Result<Answer, Failure>>,
) -> Result<Answer, Failure> {
    let answer = timeout(most, sending).await.unwrap_or(Err(Failure::TimedOut(most)))?;
    if answer.status.is_success() {
        return Ok(answer);
    }
    Err(Failure::Refused(refusal(&answer)))
}

/// Fetches `what` from `url` in a few attempts, as long as another one can help.
pub(super) async fn retried<F: Future<Output = Result<Answer, Failure>>>(
    what: &'static str,
    url: &str,
    progress: &Progress,
    fetch: impl Fn() -> F,
) -> Result<Answer, LoginError> {
    progress.set(format!("{url} has not answered yet"));
    let failed = |source| LoginError::Fetch { what, from: url.to_owned(), source: Box::new(source) };
    for number in 1..ATTEMPTS {
        match fetch().await {
            Err(failure) if is_worth_retrying(&failure) => {
                progress.note(format!("{url}: {}", chain(&failure)), failure.kind());
                sleep(BACKOFF.delay(number, chance())).await;
            }
            outcome => return outcome.map_err(failed),
        }
    }
    fetch().await.map_err(failed)
}

/// IMDS answers 404 for short whiles about what exists.
fn is_worth_retrying(failure: &Failure) -> bool {
    use crate::error::Kind::{NotFoundOrForbidden, Throttled, Unavailable};
    matches!(failure.kind(), Unavailable | Throttled | NotFoundOrForbidden)
}
