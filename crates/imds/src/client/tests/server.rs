//! A metadata service on loopback that answers from a script and is as strict as the real one about headers.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use http_body_util::Full;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// What to do with a request. The last one of a script is repeated.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Status(u16),
    Text(String),
    /// No reply at all.
    Silence,
    /// The head and half a word, then nothing more.
    Stall,
    /// A body without end.
    Endless,
}

pub(super) struct Server {
    pub(super) base_url: String,
    paths: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(super) async fn start(script: Vec<Reply>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base_url = format!("http://{}/opc/v2", listener.local_addr().unwrap());
        let paths: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = paths.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, script) = (seen.clone(), script.clone());
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(|request| answer(request, seen.clone(), script.clone()));
                    // A client that gives up ends the connection: not our failure.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { base_url, paths }
    }

    pub(super) fn paths(&self) -> Vec<String> {
        self.paths.lock().unwrap().clone()
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

async fn answer(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<String>>>,
    script: Vec<Reply>,
) -> Result<Answer, Infallible> {
    let headers = request.headers();
    if headers.get("authorization").is_none_or(|value| value != "Bearer Oracle") {
        return Ok(plain(401, "no authorization header"));
    }
    if ["forwarded", "x-forwarded-for", "x-forwarded-host"].iter().any(|name| headers.contains_key(*name)) {
        return Ok(plain(403, "forwarded"));
    }
    let turn = {
        let mut seen = seen.lock().unwrap();
        seen.push(request.uri().path().to_owned());
        seen.len() - 1
    };
    Ok(match script[turn.min(script.len() - 1)].clone() {
        Reply::Status(status) => plain(status, "scripted"),
        Reply::Text(text) => plain(200, &text),
        Reply::Silence => std::future::pending().await,
        Reply::Stall => Response::new(UnsyncBoxBody::new(Chunks { left: 1 })),
        Reply::Endless => Response::new(UnsyncBoxBody::new(Chunks { left: usize::MAX })),
    })
}

fn plain(status: u16, text: &str) -> Answer {
    let body = UnsyncBoxBody::new(Full::new(Bytes::copy_from_slice(text.as_bytes())));
    Response::builder().status(status).body(body).unwrap()
}

/// So many chunks, then silence.
struct Chunks {
    left: usize,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Pending;
        }
        self.left -= 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b' '; 4096])))))
    }
}
