//! Which requests reach the API server, and how often.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use api::VnicAttachment;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, PostParams};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::offline::{client_with, json};
use super::*;
use crate::cluster::store::{Store, follow_nodes};

const LIST: &str = r#"{"apiVersion":"v1","kind":"NodeList","metadata":{},"items":[]}"#;
const REFUSAL: &str = r#"{"apiVersion":"v1","kind":"Status","status":"Failure","message":"no time","code":429}"#;

/// Gives these answers to the first requests, on one connection, and none to others.
async fn answer(port: TcpListener, answers: &[(&str, &str)]) -> std::io::Result<()> {
    let (mut stream, _) = port.accept().await?;
    for (status, body) in answers {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await?);
        }
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await?;
    }
    std::future::pending().await
}

/// The client of a server that gives these answers.
async fn client_of(answers: &'static [(&str, &str)], silence: Duration) -> (Client, JoinHandle<std::io::Result<()>>) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = Config::new(format!("http://{}", port.local_addr().unwrap()).parse().unwrap());
    (of(config, silence).unwrap(), tokio::spawn(answer(port, answers)))
}

/// The status of an answer, 200 if it was not an error.
fn code<T>(answer: kube::Result<T>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_429_is_reported_or_retried() {
    let answers: &[(&str, &str)] = &[("429 Too Many Requests", REFUSAL), ("200 OK", LIST)];
    for (is_patient, expected) in [(false, 429), (true, 200)] {
        let (client, _server) = client_of(answers, SILENCE).await;
        let client = if is_patient { patient(&client, Arc::default(), READING) } else { client };
        let nodes: Api<Node> = Api::all(client);
        assert_eq!(code(nodes.list(&ListParams::default()).await), expected, "patient: {is_patient}");
    }
}

#[tokio::test]
async fn an_unanswered_list_ends() {
    // Real time: a paused clock would advance while the kernel carries bytes.
    let silence = Duration::from_millis(300);
    let (client, server) = client_of(&[], silence).await;
    let nodes: Api<Node> = Api::all(patient(&client, Arc::default(), READING));
    let began = Instant::now();
    let answer = timeout(READING, nodes.list(&ListParams::default())).await;
    assert!(matches!(answer, Ok(Err(_))), "{answer:?}");
    assert!(began.elapsed() >= silence, "{:?}", began.elapsed());
    assert!(!server.is_finished());
}

#[test]
fn watches_may_be_silent_to_their_end() {
    assert!(SILENCE > Duration::from_secs(WATCH_SECONDS.into()));
}

#[tokio::test(start_paused = true)]
async fn nodes_are_read_although_requests_are_refused() {
    let requests = Arc::new(AtomicU32::new(0));
    let count = requests.clone();
    let client = client_with(move |head, _| {
        let query = head.uri.query().unwrap_or_default();
        if query.contains("watch=true") {
            return None;
        }
        if (count.fetch_add(1, Ordering::SeqCst) + 1).is_multiple_of(20) {
            return Some(json(429, REFUSAL));
        }
        let page = query.split('&').find_map(|part| part.strip_prefix("continue=")?.parse::<u32>().ok()).unwrap_or(0);
        let node = |number| format!(r#"{{"metadata":{{"name":"n{}"}},"spec":{{}}}}"#, page * 100 + number);
        let nodes: Vec<String> = (0..100).map(node).collect();
        let next = if page < 99 { format!(r#","continue":"{}""#, page + 1) } else { String::new() };
        let metadata = format!(r#"{{"resourceVersion":"7"{next}}}"#);
        let head = format!(r#""apiVersion":"v1","kind":"NodeList","metadata":{metadata}"#);
        Some(json(200, format!(r#"{{{head},"items":[{}]}}"#, nodes.join(","))))
    });
    let (metrics, store) = (Arc::new(Metrics::default()), Arc::new(Store::default()));
    let (read, mut known) = watch::channel(false);
    let began = Instant::now();
    tokio::select! {
        () = follow_nodes(patient(&client, metrics.clone(), READING), store.clone(), read, drop) => panic!("the watch ended"),
        known = timeout(Duration::from_mins(10), known.wait_for(|known| *known)) => assert!(known.is_ok(), "never"),
    }
    let (requests, refused) = (requests.load(Ordering::SeqCst), metrics.refusals.get());
    println!("{requests} requests, {refused} refused, in {:?}", began.elapsed());
    assert_eq!((store.nodes().iter().count(), requests, refused), (10_000, 105, 5));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lasting_refusal_is_reported_and_counted() {
    for (after, reads, writes) in [(None, 6..20, 3..8), (Some("1"), 6..20, 3..8), (Some("86400"), 4..6, 1..2)] {
        let metrics = Arc::new(Metrics::default());
        let client = client_with(move |_, _| {
            let mut response = json(429, REFUSAL);
            if let Some(after) = after {
                response.headers_mut().insert("retry-after", HeaderValue::from_static(after));
            }
            Some(response)
        });
        let objects: Api<VnicAttachment> = Api::all(patient(&client, metrics.clone(), READING));
        let began = Instant::now();
        assert_eq!(code(objects.list(&ListParams::default()).await), 429);
        let (took, requests) = (began.elapsed(), metrics.refusals.get());
        assert!(took >= READING - MAX_BACKOFF && took < READING + Duration::from_secs(1), "{after:?}: {took:?}");
        assert!(reads.contains(&requests), "{after:?}: {requests} requests");
        let spec = serde_json::json!({ "instanceId": "ocid1.instance.oc1.iad.i", "subnetId": "ocid1.subnet.oc1.iad.s",
            "name": "one", "purpose": "Host" });
        let object = VnicAttachment::new("one", serde_json::from_value(spec).unwrap());
        let began = Instant::now();
        assert_eq!(code(objects.create(&PostParams::default(), &object).await), 429);
        let (took, requests) = (began.elapsed(), metrics.refusals.get() - requests);
        assert!(took < WRITING + Duration::from_secs(1), "{after:?}: {took:?}");
        assert!(writes.contains(&requests), "{after:?}: {requests} requests");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shorter_retry_time_reports_the_refusal_earlier() {
    let nodes: Api<Node> =
        Api::all(patient(&client_with(|_, _| Some(json(429, REFUSAL))), Arc::default(), Duration::from_secs(20)));
    let answer = timeout(Duration::from_secs(21), nodes.list(&ListParams::default())).await;
    assert_eq!(answer.map(code), Ok(429));
}

#[tokio::test(start_paused = true)]
async fn refused_requests_are_retried_apart_and_not_too_early() {
    let (began, requests) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let log = requests.clone();
    let client = client_with(move |_, _| {
        let mut log = log.lock().unwrap();
        log.push(began.elapsed());
        if log.len() > 50 {
            return Some(json(200, LIST));
        }
        let mut response = json(429, REFUSAL);
        response.headers_mut().insert("retry-after", HeaderValue::from_static("10"));
        Some(response)
    });
    let nodes: Api<Node> = Api::all(patient(&client, Arc::default(), READING));
    let params = ListParams::default();
    for answer in futures::future::join_all((0..50).map(|_| nodes.list(&params))).await {
        assert_eq!(code(answer), 200);
    }
    let again: Vec<Duration> = requests.lock().unwrap().split_off(50);
    let (first, last) = (again[0].as_secs_f64(), again[49].as_secs_f64());
    assert!(first >= 10.0 && last < 15.2, "{again:?}");
    // A fifth of the possible difference.
    assert!(last - first > 1.0, "{again:?}");
}
