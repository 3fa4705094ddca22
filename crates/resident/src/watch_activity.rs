//! When the API server last sent a byte of a watch. A watch without changes still brings bookmarks, about one a minute, and the
//! API server closes it after minutes. One that is silent for longer is dead, although its connection is open.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use thiserror::Error;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tower::{BoxError, service_fn};

/// How long an answer may be silent. API servers that send no bookmarks close a watch within this time, unless it requests longer.
pub const SILENCE: Duration = Duration::from_mins(5);

/// When the API server last sent a byte of one watch. Clones share it.
#[derive(Clone, Debug)]
pub struct WatchActivity(Arc<Mutex<Instant>>);

/// The connection is open, and nothing arrives.
#[derive(Clone, Copy, Debug, Error)]
#[error("the API server has sent nothing for {} s", SILENCE.as_secs())]
pub struct Silent;

/// The body of an answer.
struct ActiveBody {
    body: Body,
    /// Set if the answer is not a refusal.
    activity: Option<WatchActivity>,
    silence: Pin<Box<Sleep>>,
}

impl WatchActivity {
    /// Of a watch that is about to begin.
    pub fn begin() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    /// When the last byte arrived.
    pub fn last_byte(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same client, for the requests of this watch: it notes what arrives, and an answer that is silent ends with an error.
    pub fn client(&self, client: &Client) -> Client {
        let (namespace, client, activity) = (client.default_namespace().to_owned(), client.clone(), self.clone());
        let service = service_fn(move |request: Request<Body>| {
            let (client, activity) = (client.clone(), activity.clone());
            async move {
                let response = timeout(SILENCE, client.send(request)).await.map_err(|_| Silent)??;
                Ok::<_, BoxError>(activity.follow(response))
            }
        });
        Client::new(service, namespace)
    }

    fn follow(self, response: Response<Body>) -> Response<ActiveBody> {
        // A refusal proves nothing about the objects.
        let activity = response.status().is_success().then_some(self);
        activity.iter().for_each(Self::note);
        response.map(|body| ActiveBody { body, activity, silence: Box::pin(sleep(SILENCE)) })
    }

    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

impl HttpBody for ActiveBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { body, activity, silence } = self.get_mut();
        match Pin::new(body).poll_frame(context) {
            Poll::Ready(frame) => {
                if matches!(frame, Some(Ok(_))) {
                    activity.iter().for_each(WatchActivity::note);
                    silence.as_mut().reset(Instant::now() + SILENCE);
                }
                Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)))
            }
            Poll::Pending => silence.as_mut().poll(context).map(|()| Some(Err(Silent.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Channel};

    use super::*;
    use crate::logging::chain;

    /// A client whose answers have this status, and what is sent in the body of the next one.
    fn answering(
        status: u16,
    ) -> (Client, tokio::sync::mpsc::UnboundedReceiver<http_body_util::channel::Sender<Bytes>>) {
        let (bodies, opened) = tokio::sync::mpsc::unbounded_channel();
        let service = service_fn(move |_: Request<Body>| {
            let (sender, body) = Channel::<Bytes>::new(1);
            bodies.send(sender).unwrap();
            std::future::ready(Response::builder().status(status).body(body).map_err(BoxError::from))
        });
        (Client::new(service, "default"), opened)
    }

    #[tokio::test(start_paused = true)]
    async fn silent_answer_ends_and_each_byte_counts() {
        let (client, mut opened) = answering(200);
        let (begun, activity) = (Instant::now(), WatchActivity::begin());
        let minutes = |activity: &WatchActivity| (activity.last_byte() - begun).as_secs() / 60;
        let client = activity.client(&client);
        sleep(Duration::from_mins(1)).await;
        let mut body = client.send(Request::new(Body::empty())).await.unwrap().into_body();
        assert_eq!(minutes(&activity), 1, "the head of the answer");
        let mut sender = opened.recv().await.unwrap();
        for minute in [5, 9] {
            sleep(Duration::from_mins(4)).await;
            sender.send_data(Bytes::from_static(b"a bookmark\n")).await.unwrap();
            body.frame().await.unwrap().unwrap();
            assert_eq!(minutes(&activity), minute);
        }
        let error = body.frame().await.unwrap().unwrap_err();
        assert!(chain(&error).contains("the API server has sent nothing for 300 s"), "{error}");
        assert_eq!((minutes(&activity), (Instant::now() - begun).as_secs()), (9, 14 * 60));
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_and_missing_answer_are_no_activity() {
        let (client, _opened) = answering(403);
        let (begun, activity) = (Instant::now(), WatchActivity::begin());
        sleep(Duration::from_mins(1)).await;
        activity.client(&client).send(Request::new(Body::empty())).await.unwrap();
        assert_eq!(activity.last_byte(), begun);
        let never = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, BoxError>>());
        let client = activity.client(&Client::new(never, "default"));
        let error = client.send(Request::new(Body::empty())).await.unwrap_err();
        assert!(chain(&error).contains("has sent nothing"), "{error}");
    }
}
