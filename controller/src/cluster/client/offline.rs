//! An API server without a network, for tests: a paused clock advances while the kernel carries bytes.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use hyper::http::request::Parts;
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::Value;
use tokio::time::sleep;
use tower::service_fn;

/// The delay of an answer.
pub(crate) const TAKES: Duration = Duration::from_millis(5);

/// A client whose server answers each request with a given status and body, or never.
pub(crate) fn client_with<F>(answer: F) -> Client
where
    F: FnMut(&Parts, Value) -> Option<Response<Body>> + Clone + Send + 'static,
{
    let service = service_fn(move |request: Request<Body>| {
        let mut answer = answer.clone();
        async move {
            sleep(TAKES).await;
            let (head, body) = request.into_parts();
            let body = serde_json::from_slice(&body.collect_bytes().await.unwrap()).unwrap_or_default();
            match answer(&head, body) {
                Some(response) => Ok::<_, Infallible>(response),
                None => pending().await,
            }
        }
    });
    Client::new(service, "default")
}

pub(crate) fn json(status: u16, body: impl Into<Vec<u8>>) -> Response<Body> {
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Body::from(body.into())).unwrap()
}
