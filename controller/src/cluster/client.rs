//! Clients of the Kubernetes API. One tells at once what the API server refuses for want of time (429, 503, 504): whoever holds a
//! lease has a deadline, and asks again by its own clock, as does whoever writes events. The other one asks again itself: a list
//! comes in pages, and whoever begins it anew for one that was refused never has ten thousand Nodes.

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
use tokio::time::{Instant, Sleep, sleep_until};
use tower::retry::{Policy, Retry};
use tower::{BoxError, ServiceExt, service_fn};

use crate::cluster::store::WATCH_SECONDS;
use crate::report::metrics::Metrics;

/// To the API server.
const CONNECTING: Duration = Duration::from_secs(5);
/// For one request to the API server, but for watches.
const SENDING: Duration = Duration::from_secs(30);
/// For the API server to send the next piece of an answer, watches included, which it ends itself before.
const SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 30);

/// The first pause after a refusal. They double, and chance makes each up to four and a half times as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest, whatever the API server asks for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// From the first refusal on, a page of a list or a watch is asked for so long.
pub(crate) const READING: Duration = Duration::from_mins(2);
/// Likewise a write: less than whoever writes waits (10 to 30 s), so that the refusal is what it is told, and what it counts.
const WRITING: Duration = Duration::from_secs(5);

/// One that tells at once what is refused.
///
/// # Errors
/// When there is no API server to be found.
pub(crate) async fn connect() -> anyhow::Result<Client> {
    of(Config::infer().await.context("finding the API server")?)
}

fn of(mut config: Config) -> anyhow::Result<Client> {
    // kube's own: after pauses of up to a quarter of an hour, which nobody sees.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECTING);
    config.read_timeout = Some(SILENCE);
    config.write_timeout = Some(SENDING);
    let name = HeaderValue::from_static(concat!("oke-node-controller/", env!("CARGO_PKG_VERSION")));
    config.headers.push((USER_AGENT, name));
    Client::try_from(config).context("setting up the Kubernetes client")
}

/// The same client, which asks again for what is refused, for a while: for reads as long as is said, for writes five seconds. Whoever
/// reads must wait longer, to be told the refusal. Each is counted. What was answered 504 may have been done, and is done twice then:
/// whoever writes must say the name of what is made, and the version of what is changed.
#[must_use]
pub(crate) fn patient(client: &Client, metrics: Arc<Metrics>, reading: Duration) -> Client {
    let (namespace, client) = (client.default_namespace().to_owned(), client.clone());
    let asked = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move { client.send(request).await }
    });
    Client::new(Retry::new(Patience::new(metrics, reading), asked.map_err(BoxError::from)), namespace)
}

/// For how long, and when, one request is made again.
#[derive(Clone)]
struct Patience {
    /// Knows what is a refusal, and for how long the API server asks to be left alone.
    pauses: RetryPolicy,
    refused: Option<Instant>,
    reading: Duration,
    metrics: Arc<Metrics>,
}

impl Patience {
    fn new(metrics: Arc<Metrics>, reading: Duration) -> Self {
        let pauses = RetryPolicy::new(FIRST_PAUSE, LONGEST_PAUSE, u32::MAX, true);
        // It refuses a first pause of nothing, and a longest one that is shorter.
        Self { pauses: pauses.unwrap_or_default(), refused: None, reading, metrics }
    }
}

impl Policy<Request<Body>, Response<Body>, BoxError> for Patience {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<Body>, BoxError>,
    ) -> Option<Self::Future> {
        let pause = self.pauses.retry(request, result)?;
        self.metrics.refused();
        let now = Instant::now();
        // Its own chance is the same for all requests: each has a copy of the one policy. And what the API server says is for all.
        let pause = pause.deadline().saturating_duration_since(now).mul_f64(1.0 + chance() / 2.0);
        let until = now + pause.min(LONGEST_PAUSE);
        let patience = if request.method() == Method::GET { self.reading } else { WRITING };
        let end = *self.refused.get_or_insert(now) + patience;
        (until <= end).then(|| sleep_until(until))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Policy::<_, Response<Body>, _>::clone_request(&mut self.pauses, request)
    }
}
