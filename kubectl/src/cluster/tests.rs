//! Answers of an API server that do not end, or are too long.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};

use command::chain;
use hyper::body::{Bytes, Frame};
use tokio::time::{Sleep, sleep};

use super::*;

/// A byte every ten seconds: it is never silent for long.
struct Drip(Pin<Box<Sleep>>);

impl hyper::body::Body for Drip {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        ready!(self.0.as_mut().poll(context));
        self.0 = Box::pin(sleep(Duration::from_secs(10)));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b" ")))))
    }
}

/// What comes of listing Nodes, from a server that answers with this body.
async fn listed<B>(body: B) -> String
where
    B: hyper::body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let body = Mutex::new(Some(body));
    let answer = move |_: Request<Body>| {
        let body = body.lock().unwrap().take().unwrap();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    };
    let nodes: Api<Node> = Api::all(bounded(Client::new(service_fn(answer), "default"), 1000));
    let found = nodes.list(&ListParams::default()).await.map(|nodes| nodes.items.len());
    found.map_or_else(|error| chain(&error), |count| count.to_string())
}

#[tokio::test(start_paused = true)]
async fn answer_without_end_is_an_error() {
    let list = r#"{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[]}"#;
    assert_eq!(listed(Body::from(list.as_bytes().to_vec())).await, "0");
    let long = format!("{list}{}", " ".repeat(1000));
    let error = listed(Body::from(long.into_bytes())).await;
    assert!(error.contains("length limit exceeded"), "{error}");
    let error = listed(Drip(Box::pin(sleep(Duration::ZERO)))).await;
    assert!(error.contains("no complete answer of the API server within 60 s"), "{error}");
}
