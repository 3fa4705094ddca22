//! The real client: one GET per question, with a deadline, capped and jittered retries and a limit on the reply.

#[cfg(test)]
mod tests;

use std::time::Duration;

use backoff::{Backoff, Policy, chance};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use tokio::time::{Instant, sleep, timeout};
use vcn::Instance;

use crate::error::{Failure, beginning};
use crate::{Error, Metadata, VnicList, document};

/// Where every instance finds its metadata. `OCI_METADATA_BASE_URL` names another one by convention of Oracle's SDKs.
pub const DEFAULT_BASE_URL: &str = "http://169.254.169.254/opc/v2";

/// The longest reply taken, in bytes: user data alone may be 32 KiB, a bare metal machine lists up to 256 VNICs.
const MAX_REPLY: usize = 1 << 20;

/// Limits of one request. Oracle advises up to 3 retries, a 30 s timeout and exponential backoff. A node waits for this before
/// its first pod, so an attempt gets 5 s here: the service answers in milliseconds or not at all. Silence for the whole deadline is
/// reported, and the request is repeated.
pub const POLICY: Policy = Policy {
    timeout: Duration::from_secs(5),
    attempts: 6,
    backoff: Backoff { first: Duration::from_millis(250), cap: Duration::from_secs(8) },
    deadline: Duration::from_secs(15),
};

/// The client of the metadata service.
#[derive(Clone, Debug)]
pub struct Imds {
    base_url: String,
    policy: Policy,
    http: reqwest::Client,
}

impl Imds {
    /// A client of the service under `base_url`, which includes the version, as [`DEFAULT_BASE_URL`] does.
    ///
    /// # Errors
    /// When the URL is not an `http://` one.
    pub fn new(base_url: &str, policy: Policy) -> Result<Self, Error> {
        Self::check(base_url)?;
        let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer Oracle"))]);
        let http = reqwest::Client::builder()
            .no_proxy()
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            // Questions are minutes apart: a connection kept would only be found broken.
            .pool_max_idle_per_host(0)
            .build()
            .map_err(|error| Error::new("setting up the HTTP client for the metadata service", error))?;
        Ok(Self { base_url: base_url.trim_end_matches('/').to_owned(), policy, http })
    }

    /// Whether a base URL is one, without making a client.
    ///
    /// # Errors
    /// When it is not an `http://` one.
    pub fn check(base_url: &str) -> Result<(), Error> {
        match reqwest::Url::parse(base_url) {
            Ok(url) if url.scheme() == "http" => Ok(()),
            _ => Err(Error::of_base_url(base_url)),
        }
    }

    async fn get(&self, url: &str) -> Result<Vec<u8>, Error> {
        let Policy { timeout: per_attempt, attempts: most, ref backoff, deadline } = self.policy;
        let end = Instant::now() + deadline;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let allowed = per_attempt.min(end.saturating_duration_since(Instant::now()));
            let failure = match timeout(allowed, self.attempt(url)).await {
                Ok(Ok(body)) => return Ok(body),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    let outcome = format!("no answer within {allowed:?}");
                    Failure { outcome, is_transient: true, source: None }
                }
            };
            let pause = backoff.delay(attempts, chance());
            if !failure.is_transient || attempts >= most || Instant::now() + pause >= end {
                let operation = format!("requesting {url} from the metadata service (attempt {attempts})");
                return Err(Error::new(operation, failure));
            }
            tracing::debug!(url, attempts, %failure, ?pause, "metadata service: trying again");
            sleep(pause).await;
        }
    }

    async fn attempt(&self, url: &str) -> Result<Vec<u8>, Failure> {
        let broken = |error: reqwest::Error| {
            let source = Some(error.without_url());
            Failure { outcome: "no answer".to_owned(), is_transient: true, source }
        };
        let mut response = self.http.get(url).send().await.map_err(broken)?;
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if body.len() + chunk.len() > MAX_REPLY {
                let outcome = format!("the reply is longer than {MAX_REPLY} bytes");
                return Err(Failure { outcome, is_transient: false, source: None });
            }
            body.extend_from_slice(&chunk);
        }
        if status == 200 {
            return Ok(body);
        }
        // 404 too: the service answers it for short whiles about things that exist.
        let is_transient = matches!(status, 404 | 408 | 429 | 500..=599);
        let outcome = format!("status {status}, reply {:?}", beginning(&body));
        Err(Failure { outcome, is_transient, source: None })
    }
}

impl Metadata for Imds {
    async fn instance(&self) -> Result<Instance, Error> {
        let url = format!("{}/instance/", self.base_url);
        document::instance(&url, &self.get(&url).await?)
    }

    async fn vnics(&self) -> Result<VnicList, Error> {
        let url = format!("{}/vnics/", self.base_url);
        document::vnics(&url, &self.get(&url).await?)
    }
}
