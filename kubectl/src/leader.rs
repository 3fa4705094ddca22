//! The leader's view of the fleet. It listens on its pod's loopback only; the API server and the kubelet carry the request
//! there (port-forward), so it needs the right to `pods/portforward` and nothing else is open.

pub(crate) mod stream;

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use command::page::age;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::cluster::Cluster;
use crate::nodes;

/// Where the leader listens in its pod.
const PORT: u16 = 9811;
/// The Lease that names the leader's pod.
const LEASE: &str = "oke-node-controller";
/// For one attempt; 10,000 nodes with problems are some 20 MB.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long the pod's node may take to say why a stream ended.
const EXPLAINING: Duration = Duration::from_secs(2);
/// Before the second attempt, when the leader changes.
const CHANGING: Duration = Duration::from_secs(2);
/// The longest answer: 10,000 nodes with the longest summary are 45 MB.
const MAX_ANSWER_BYTES: usize = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Source {
    /// The controller's leader, with what agents measure.
    Leader,
    /// The API server, with conditions alone.
    ApiServer,
}

pub(crate) async fn get<T: DeserializeOwned>(cluster: &Cluster, path: &str) -> anyhow::Result<T> {
    let mut answer = once(cluster, path).await?;
    if answer.0 == StatusCode::SERVICE_UNAVAILABLE {
        // The leader has just changed: the next one is in the Lease.
        sleep(CHANGING).await;
        answer = once(cluster, path).await?;
    }
    let (status, body) = answer;
    if status == StatusCode::SERVICE_UNAVAILABLE {
        bail!("{}", no_leader(cluster, path, &text(&body)).await);
    }
    if status != StatusCode::OK {
        bail!("the controller answered {} to {path}: {}", status.as_u16(), text(&body));
    }
    serde_json::from_slice(&body).with_context(|| format!("reading the controller's answer to {path}"))
}

async fn once(cluster: &Cluster, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    let answer = async {
        match &cluster.target.view_url {
            Some(url) => direct(url, path).await,
            None => forwarded(cluster, path).await,
        }
    };
    timeout(DEADLINE, answer).await.unwrap_or_else(|_| bail!("no complete answer within {} s", DEADLINE.as_secs()))
}

async fn direct(url: &Uri, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let stream = TcpStream::connect((host, url.port_u16().unwrap_or(PORT))).await;
    request(stream.with_context(|| format!("connecting to {url}"))?, path).await
}

async fn forwarded(cluster: &Cluster, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    let namespace = &cluster.target.namespace;
    let client = cluster.client().await?;
    let pod = leader(&Api::namespaced(client.clone(), namespace), namespace).await?.pod;
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let answer =
        through(&pods, &pod, path).await.with_context(|| format!("port-forward to the leader's pod {namespace}/{pod}"));
    match answer {
        Ok(answer) => Ok(answer),
        Err(error) => match unreachable_node(cluster, &pods, &pod).await {
            Some(why) => Err(error.context(why)),
            None => Err(error),
        },
    }
}

async fn through(pods: &Api<Pod>, pod: &str, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    let mut forward = pods.portforward(pod, &[PORT]).await?;
    let (stream, cause) = (forward.take_stream(PORT), forward.take_error(PORT));
    let result = request(stream.ok_or_else(|| anyhow!("no stream"))?, path).await;
    let result = match (result, cause) {
        (Err(error), Some(cause)) => match timeout(EXPLAINING, cause).await {
            Ok(Some(cause)) => Err(anyhow!("{}", cause.trim())),
            _ => Err(error),
        },
        (result, _) => result,
    };
    forward.abort();
    result
}

/// The port goes through the kubelet and the runtime of the leader's node: whether they are the cause.
async fn unreachable_node(cluster: &Cluster, pods: &Api<Pod>, pod: &str) -> Option<String> {
    let read = async {
        let name = pods.get(pod).await.ok()?.spec?.node_name?;
        let node = cluster.node(&name).await.ok()??;
        let kubelet = nodes::kubelet_problem(&node)?;
        Some(format!("the leader's node {name} is not ready ({}: {})", kubelet.reason, kubelet.message.trim()))
    };
    timeout(EXPLAINING, read).await.ok().flatten()
}

/// Why the replica that the Lease names does not lead; `answer` is the body of its 503.
async fn no_leader(cluster: &Cluster, path: &str, answer: &str) -> String {
    let namespace = &cluster.target.namespace;
    let read = async {
        // A URL needs no cluster.
        let client = cluster.client().await.ok().filter(|_| cluster.target.view_url.is_none())?;
        leader(&Api::namespaced(client, namespace), namespace).await.ok()
    };
    let found = timeout(EXPLAINING, read).await.ok().flatten();
    match found.and_then(|leader| leader.expired_seconds(Timestamp::now())) {
        Some(seconds) => format!(
            "no replica of the controller leads: Lease {namespace}/{LEASE} expired {} ago. The replicas cannot reach the API \
             server, or could not reach the OCI API when they started. Find their nodes with `kubectl -n {namespace} get pods -o \
             wide`, check the network between these nodes and the API server (port 6443: security lists, network security groups, \
             routes), and read `kubectl -n {namespace} logs POD`",
            age(seconds)
        ),
        None => format!("the controller answered 503 to {path}: {answer}"),
    }
}

/// The holder of the Lease.
struct LeaseHolder {
    pod: String,
    renewed: Option<Timestamp>,
    valid_seconds: i64,
}

impl LeaseHolder {
    /// For how long it has not been the leader, if it did not renew the Lease in time.
    fn expired_seconds(&self, now: Timestamp) -> Option<u64> {
        let valid_until = self.renewed?.as_second() + self.valid_seconds;
        u64::try_from(now.as_second() - valid_until).ok().filter(|seconds| *seconds > 0)
    }
}

async fn leader(leases: &Api<Lease>, namespace: &str) -> anyhow::Result<LeaseHolder> {
    let lease = leases.get_opt(LEASE).await.with_context(|| format!("reading Lease {namespace}/{LEASE}"))?;
    let Some(lease) = lease else {
        bail!("there is no Lease {namespace}/{LEASE}: no controller has run in this namespace");
    };
    let spec = lease.spec.unwrap_or_default();
    let Some(pod) = spec.holder_identity.filter(|holder| !holder.is_empty()) else {
        bail!("Lease {namespace}/{LEASE} has no holder: no controller is the leader");
    };
    let valid_seconds = spec.lease_duration_seconds.unwrap_or_default().into();
    Ok(LeaseHolder { pod, renewed: spec.renew_time.map(|time| time.0), valid_seconds })
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).trim().chars().take(300).collect()
}

async fn request<S>(stream: S, path: &str) -> anyhow::Result<(StatusCode, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.context("sending a request to the leader")?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path).header(HOST, format!("localhost:{PORT}")).body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await.context("sending a request to the leader")?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await;
    let body = body.map_err(|error| anyhow!(error)).context("reading the leader's answer")?;
    connection.abort();
    Ok((status, body.to_bytes()))
}
