//! Clients of the Kubernetes API. One reports at once what the API server refuses for lack of time (429, 503, 504): the Lease
//! has a deadline and retries by its own clock, as do Events. The other one retries itself: a list comes in pages, and a list
//! of ten thousand Nodes would never end if one refused page restarted it.

#[cfg(test)]
pub(crate) mod offline;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use backoff::chance;
use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response};
use kube::client::Body;
use kube::client::retry::RetryPolicy;
use kube::{Client, Config};
use resident::api_server;
use tokio::time::{Instant, Sleep, sleep_until};
use tower::retry::{Policy, Retry};
use tower::{BoxError, ServiceExt, service_fn};

use crate::cluster::store::WATCH_SECONDS;
use crate::report::metrics::Metrics;

/// To the API server.
const CONNECTING: Duration = Duration::from_secs(5);
/// The deadline of a request to the API server, except watches.
const SENDING: Duration = Duration::from_secs(30);
/// The most time until the next part of an answer. A watch also ends before this.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 30);

/// The first backoff after a refusal. It doubles, and chance makes it up to four and a half times as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest backoff, whatever the API server requests.
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// How long a page of a list, or a watch, is retried after its first refusal.
pub(crate) const READING: Duration = Duration::from_mins(2);
/// Likewise a write: less than its caller waits (10 to 30 s), so that the caller sees and counts the refusal.
const WRITING: Duration = Duration::from_secs(5);

/// A client that reports refusals at once.
pub(crate) async fn connect() -> anyhow::Result<Client> {
    of(Config::infer().await.context("finding the API server")?, SILENCE)
}

/// `silence`: the most time until the next part of an answer.
fn of(mut config: Config, silence: Duration) -> anyhow::Result<Client> {
    // kube's own retries: with backoff of up to a quarter of an hour, which no log shows.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECTING);
    config.read_timeout = Some(silence);
    config.write_timeout = Some(SENDING);
    let name = HeaderValue::from_static(concat!("oke-node-controller/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, name));
    api_server::connect(config).context("setting up the Kubernetes client")
}

/// The same client with retries of refused requests: reads for the given time, writes for five seconds. A reader must wait
/// longer than that to see the refusal. Each refusal is counted. A request answered 504 may have been carried out, and is
/// then repeated: a write must name the object that it creates, or the version that it changes.
pub(crate) fn patient(client: &Client, metrics: Arc<Metrics>, reading: Duration) -> Client {
    let (namespace, client) = (client.default_namespace().to_owned(), client.clone());
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    Client::new(Retry::new(RequestRetry::new(metrics, reading), service.map_err(BoxError::from)), namespace)
}

/// For how long, and when, one request is retried.
#[derive(Clone)]
struct RequestRetry {
    /// Recognizes a refusal, and the wait that the API server demands.
    pauses: RetryPolicy,
    refused: Option<Instant>,
    reading: Duration,
    metrics: Arc<Metrics>,
}

impl RequestRetry {
    fn new(metrics: Arc<Metrics>, reading: Duration) -> Self {
        let pauses = RetryPolicy::new(FIRST_PAUSE, MAX_BACKOFF, u32::MAX, true);
        // It rejects a first backoff of zero, and a longest one below the first.
        Self { pauses: pauses.unwrap_or_default(), refused: None, reading, metrics }
    }
}

impl Policy<Request<Body>, Response<Body>, BoxError> for RequestRetry {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<Body>, BoxError>,
    ) -> Option<Self::Future> {
        let pause = self.pauses.retry(request, result)?;
        self.metrics.refusals.inc();
        let now = Instant::now();
        // Its own chance is the same for all requests, because each has a copy of the one policy.
        let pause = pause.deadline().saturating_duration_since(now).mul_f64(1.0 + chance() / 2.0);
        let until = now + pause.min(MAX_BACKOFF);
        let patience = if request.method() == Method::GET { self.reading } else { WRITING };
        let end = *self.refused.get_or_insert(now) + patience;
        (until <= end).then(|| sleep_until(until))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Policy::<_, Response<Body>, _>::clone_request(&mut self.pauses, request)
    }
}
