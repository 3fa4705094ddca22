//! The client: how any call is made. The calls themselves are in `cloud.rs`.

mod budget;
pub(crate) mod call;
mod observer;
mod retry;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use backoff::{Backoff, Policy, chance};
use hyper::body::Bytes;
use hyper::header::HeaderValue;
use hyper::{Request, Uri};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use crate::address::WorkRequest;
use crate::auth::Login;
use crate::auth::sign::{Credentials, Signable, sign};
use crate::error::{Error, Failure, LoginError};
use crate::object::{Etag, VersionedObject};
use crate::refusal::{refusal, retry_after};
use crate::region::Endpoints;
use crate::region::endpoint::Endpoint;
use crate::request_id::RequestId;
use crate::transport::{Answer, Carrier, Transport, Trust};

pub use budget::{Budget, BudgetState, Rates};
pub use observer::{Attempt, Observer};
use retry::{Decision, Situation, decide};

use call::{CORE, Call, query, read};

/// The most pages of a list: an end where the service repeats itself.
const MAX_PAGES: usize = 10_000;
/// The most entries of a page that the service accepts.
const PAGE: &str = "1000";

/// The client; clones share connections, login and budget.
#[derive(Clone, Debug)]
pub struct Oci(CloudView);

/// A client that only reads, for code that must change nothing, such as a plan.
#[derive(Clone)]
pub struct CloudView {
    core: Endpoint,
    transport: Transport,
    login: Login,
    options: Options,
}

/// Limits of one call, as in Oracle's SDKs: eight attempts, doubling, 30 s at most. A minute in all, since a reconciler reports an
/// error and retries by itself. A list is one call per page; waits for the budget count.
pub const POLICY: Policy = Policy {
    timeout: Duration::from_secs(20),
    attempts: 8,
    backoff: Backoff { first: Duration::from_millis(500), cap: Duration::from_secs(30) },
    deadline: Duration::from_mins(1),
};

/// How a client behaves.
#[derive(Clone)]
pub struct Options {
    /// The deadline and the number of attempts of a call.
    pub policy: Policy,
    /// The budget, shared by its clones.
    pub budget: Budget,
    /// The trusted certificate authorities.
    pub trust: Trust,
    /// Gets a report of every attempt.
    pub observer: Option<Arc<dyn Observer>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { policy: POLICY, budget: Budget::default(), trust: Trust::default(), observer: None }
    }
}

impl Oci {
    /// A client of these endpoints under this login.
    ///
    /// # Errors
    /// When a certificate of the trust cannot be used.
    pub fn new(endpoints: &Endpoints, login: Login, options: Options) -> Result<Self, Error> {
        let transport = Transport::new(&options.trust)?;
        Ok(Self(CloudView { core: endpoints.core.clone(), transport, login, options }))
    }

    /// A client whose requests a carrier takes, instead of a connection.
    pub fn carried_by(carrier: Arc<dyn Carrier>, endpoints: &Endpoints, login: Login, options: Options) -> Self {
        Self(CloudView { core: endpoints.core.clone(), transport: Transport::Carrier(carrier), login, options })
    }
}

impl CloudView {
    /// The endpoint of the core services.
    pub const fn endpoint(&self) -> &Endpoint {
        &self.core
    }

    /// The budget, for metrics and for sharing.
    pub const fn budget(&self) -> &Budget {
        &self.options.budget
    }

    /// Makes a call that answers with an object.
    pub(crate) async fn object<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<VersionedObject<T>, Error> {
        let (answer, request_id) = self.call(&call).await?;
        let value = read(&answer).map_err(|source| call.failed(1, &request_id, source))?;
        let etag = answer.header("etag").map(|text| Etag(text.to_owned()));
        Ok(VersionedObject { value, etag })
    }

    /// Makes a call that answers with the OCID of work.
    pub(crate) async fn work(&self, call: &Call<'_>) -> Result<WorkRequest, Error> {
        let (answer, _) = self.call(call).await?;
        Ok(WorkRequest(answer.header("opc-work-request-id").unwrap_or_default().to_owned()))
    }

    /// Reads a list to its last page.
    pub(crate) async fn list<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<Vec<T>, Error> {
        self.pages(call, read::<Vec<T>>).await
    }

    /// The same where each page is an object with the items.
    pub(crate) async fn collection<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<Vec<T>, Error> {
        #[derive(serde::Deserialize)]
        struct Page<T> {
            items: Vec<T>,
        }
        self.pages(call, |answer| read::<Page<T>>(answer).map(|page| page.items)).await
    }

    async fn pages<T>(
        &self,
        mut call: Call<'_>,
        read: impl Fn(&Answer) -> Result<Vec<T>, Failure>,
    ) -> Result<Vec<T>, Error> {
        call.query.push(("limit", PAGE.to_owned()));
        let mut all = Vec::new();
        let mut pages = HashSet::new();
        let mut page: Option<String> = None;
        for _ in 0..MAX_PAGES {
            call.query.retain(|(name, _)| *name != "page");
            call.query.extend(page.clone().map(|page| ("page", page)));
            let (answer, request_id) = self.call(&call).await?;
            let items: Vec<T> = read(&answer).map_err(|source| call.failed(1, &request_id, source))?;
            all.extend(items);
            // An empty page may well have a next one.
            match answer.headers.get("opc-next-page").map(HeaderValue::to_str) {
                None | Some(Ok("")) => return Ok(all),
                Some(Ok(next)) if !pages.insert(next.to_owned()) => break,
                Some(Ok(next)) => page = Some(next.to_owned()),
                // It cannot be sent back, and a part must not pass for the whole list.
                Some(Err(_)) => {
                    let source = "its opc-next-page is not ASCII text".into();
                    return Err(call.failed(1, &request_id, Failure::Unreadable { beginning: String::new(), source }));
                }
            }
        }
        let problem = Failure::Unreadable { beginning: String::new(), source: "its pages repeat".into() };
        Err(call.failed(1, &RequestId::new(), problem))
    }

    /// Makes a call, and retries it where that makes sense, until an answer has a 2xx status.
    pub(crate) async fn call(&self, call: &Call<'_>) -> Result<(Answer, RequestId), Error> {
        let policy = &self.options.policy;
        let end = Instant::now() + policy.deadline;
        let (mut attempts, mut renewed) = (0, false);
        loop {
            attempts += 1;
            let own = RequestId::new();
            let (failure, request_id) = match self.attempt(call, &own, end, &mut renewed).await {
                Ok((answer, request_id)) if answer.status.is_success() => return Ok((answer, request_id)),
                Ok((answer, request_id)) => (Failure::Refused(refusal(&answer)), request_id),
                Err(failure) => (failure, own),
            };
            let situation = Situation {
                policy,
                repeat: call.repeat(),
                attempts,
                renewed,
                left: end.saturating_duration_since(Instant::now()),
                chance: chance(),
            };
            let decision = decide(&failure, situation);
            tracing::debug!(call.operation, call.subject, attempts, %request_id, %failure, ?decision, "OCI call failed");
            match decision {
                Decision::Stop => return Err(call.failed(attempts, &request_id, failure)),
                Decision::After(pause) => sleep(pause).await,
                Decision::RenewLogin => renewed = true,
            }
        }
    }

    /// One attempt. The budget and the login learn its outcome: `renewed` is set where the login has no other credentials.
    async fn attempt(
        &self,
        call: &Call<'_>,
        own: &RequestId,
        end: Instant,
        renewed: &mut bool,
    ) -> Result<(Answer, RequestId), Failure> {
        let unsent = |failure: Failure| {
            let failed = Some(failure.kind());
            self.observe(Attempt { operation: call.operation, status: None, failure: failed, took: Duration::ZERO });
            failure
        };
        let credentials = self.login.credentials(end).await.map_err(unsent)?;
        self.options.budget.take(end).await.map_err(Failure::Budget).map_err(unsent)?;
        // Signed after the wait: the signature holds the time.
        let request = self.request(call, own, &credentials)?;
        let started = Instant::now();
        let allowed = self.options.policy.timeout.min(end.saturating_duration_since(started));
        let outcome = timeout(allowed, self.transport.send(request)).await.unwrap_or(Err(Failure::TimedOut(allowed)));
        let (status, failure) = match &outcome {
            Ok(answer) if answer.status.is_success() => (Some(answer.status.as_u16()), None),
            Ok(answer) => (Some(answer.status.as_u16()), Some(refusal(answer).kind())),
            Err(failure) => (None, Some(failure.kind())),
        };
        self.observe(Attempt { operation: call.operation, status, failure, took: started.elapsed() });
        let answer = outcome?;
        match answer.status.as_u16() {
            // Other services have limits of their own, which say nothing about requests for VNICs.
            429 if call.version != CORE => {}
            429 => self.options.budget.throttled(retry_after(&answer)),
            401 => *renewed |= !self.login.reject(&credentials, end).await,
            _ => self.options.budget.answered(),
        }
        let request_id = own.clone().answered(answer.header("opc-request-id"));
        Ok((answer, request_id))
    }

    fn request(&self, call: &Call<'_>, own: &RequestId, credentials: &Credentials) -> Result<Request<Bytes>, Failure> {
        let target = format!("/{}{}{}", call.version, call.path, query(&call.query));
        let unsent = |error: Box<dyn std::error::Error + Send + Sync>| Failure::NoConnection(error);
        let uri: Uri = format!("{}{target}", self.core)
            .parse()
            .map_err(|error: hyper::http::uri::InvalidUri| unsent(error.into()))?;
        let host = uri.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default();
        let signable =
            Signable { method: call.method.as_str(), target: &target, host: Some(&host), body: call.body.as_deref() };
        let headers = sign(signable, SystemTime::now(), credentials)
            .map_err(|source: LoginError| Failure::Login { login: self.login.name(), source: Box::new(source) })?;
        let mut request = Request::builder().method(call.method.clone()).uri(uri);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request = request.header("opc-request-id", own.as_str()).header("accept", "application/json");
        request = request.header("user-agent", concat!("oke-node-manager/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = call.retry_token {
            request = request.header("opc-retry-token", token.as_str());
        }
        if let Some(etag) = call.if_match {
            request = request.header("if-match", etag.as_str());
        }
        let body = call.body.as_deref().map(Bytes::copy_from_slice).unwrap_or_default();
        request.body(body).map_err(|error| unsent(error.into()))
    }

    fn observe(&self, attempt: Attempt) {
        if let Some(observer) = &self.options.observer {
            observer.attempted(attempt);
        }
    }
}

impl Deref for Oci {
    type Target = CloudView;

    fn deref(&self) -> &CloudView {
        &self.0
    }
}

impl std::fmt::Debug for CloudView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Oci").field("core", &self.core).field("login", &self.login.name()).finish_non_exhaustive()
    }
}
