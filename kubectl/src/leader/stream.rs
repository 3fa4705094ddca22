//! An answer of the leader that is read as it arrives, with a token.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::Portforwarder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::{CHANGING, DEADLINE, EXPLAINING, PORT, leader, text};
use crate::cluster::Cluster;

/// Until the next bytes: the leader waits for a node up to 40 s.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest text of a refusal, in bytes.
const REFUSAL_MAX: usize = 4096;

/// The leader's answer; its connection ends when this is dropped.
pub(crate) struct LeaderStream {
    body: Incoming,
    connection: AbortHandle,
    _forward: Option<Portforwarder>,
}

/// What the leader answered.
pub(crate) enum Opened {
    Stream(LeaderStream),
    /// It refused, with this status.
    Refused(StatusCode, String),
}

impl Drop for LeaderStream {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl LeaderStream {
    /// The next bytes; none after the end of a complete answer.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Bytes>> {
        loop {
            let frame = timeout(SILENCE, self.body.frame()).await;
            match frame.map_err(|_| anyhow!("the controller sent nothing for {} s", SILENCE.as_secs()))? {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(bytes) = frame.context("reading the leader's answer")?.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

/// Opens a stream of the leader; retries once if the leader has just changed.
pub(crate) async fn open(cluster: &Cluster, path: &str, token: &str) -> anyhow::Result<Opened> {
    let once = async || {
        let opened = timeout(DEADLINE, once(cluster, path, token)).await;
        opened.unwrap_or_else(|_| bail!("the controller does not answer within {} s", DEADLINE.as_secs()))
    };
    match once().await? {
        Opened::Refused(StatusCode::SERVICE_UNAVAILABLE, _) => {
            tokio::time::sleep(CHANGING).await;
            once().await
        }
        opened => Ok(opened),
    }
}

async fn once(cluster: &Cluster, path: &str, token: &str) -> anyhow::Result<Opened> {
    if let Some(url) = &cluster.target.view_url {
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
        let stream = TcpStream::connect((host, url.port_u16().unwrap_or(PORT))).await;
        return request(stream.with_context(|| format!("connecting to {url}"))?, None, path, token).await;
    }
    let (client, namespace) = (cluster.client().await?, &cluster.target.namespace);
    let pod = leader(&Api::namespaced(client.clone(), namespace), namespace).await?.pod;
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let forwarded = async {
        let mut forward = pods.portforward(&pod, &[PORT]).await?;
        let (stream, cause) = (forward.take_stream(PORT), forward.take_error(PORT));
        let opened = request(stream.context("no stream")?, Some(forward), path, token).await;
        match (opened, cause) {
            (Err(error), Some(cause)) => match timeout(EXPLAINING, cause).await {
                Ok(Some(cause)) => bail!("{}", cause.trim()),
                _ => Err(error),
            },
            (opened, _) => opened,
        }
    };
    forwarded.await.with_context(|| format!("port-forward to the leader's pod {namespace}/{pod}"))
}

async fn request<S>(stream: S, forward: Option<Portforwarder>, path: &str, token: &str) -> anyhow::Result<Opened>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.context("sending a request to the leader")?;
    let connection = tokio::spawn(connection).abort_handle();
    let mut bearer = HeaderValue::from_str(&format!("Bearer {token}")).context("sending the token")?;
    bearer.set_sensitive(true);
    let request = Request::get(path).header(HOST, format!("localhost:{PORT}")).header(AUTHORIZATION, bearer);
    let response =
        sender.send_request(request.body(Empty::<Bytes>::new())?).await.context("sending a request to the leader")?;
    let (head, body): (_, Incoming) = Response::into_parts(response);
    let stream = LeaderStream { body, connection, _forward: forward };
    if head.status == StatusCode::OK {
        return Ok(Opened::Stream(stream));
    }
    refusal(head.status, stream).await
}

async fn refusal(status: StatusCode, mut stream: LeaderStream) -> anyhow::Result<Opened> {
    let body = Limited::new(&mut stream.body, REFUSAL_MAX).collect().await;
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Ok(Opened::Refused(status, text(&body)))
}

#[cfg(test)]
impl LeaderStream {
    /// Of a leader that answers with these bytes and ends.
    pub(crate) async fn of(body: &'static [u8]) -> Self {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let (near, mut far) = tokio::io::duplex(1 << 20);
        tokio::spawn(async move {
            let _request = far.read(&mut [0; 4096]).await.unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            far.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        });
        match request(near, None, "/bundle", "token").await.unwrap() {
            Opened::Stream(stream) => stream,
            Opened::Refused(status, text) => panic!("{status}: {text}"),
        }
    }
}
