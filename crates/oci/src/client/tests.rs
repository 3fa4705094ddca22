//! Calls against a server that answers unlike the API.

use std::sync::atomic::{AtomicU32, Ordering};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::RsaKeyPair;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use vcn::Ocid;

use super::*;
use crate::auth::{ApiKey, KeyOwner};
use crate::error::Kind;

/// An answer: status and additional headers, and the body.
type Responder = fn(request: &str) -> (String, String);

const OK: &str = "200 OK\r\n";

/// A client of a server, and the number of its requests.
struct Stage {
    oci: Oci,
    requests: tokio::task::JoinHandle<u32>,
    end: tokio::sync::oneshot::Sender<()>,
}

impl Stage {
    async fn new(play: Responder) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (end, mut ended) = tokio::sync::oneshot::channel();
        let server = tokio::spawn(async move {
            let mut requests = 0;
            loop {
                let (mut stream, _) = tokio::select! {
                    accepted = listener.accept() => accepted.unwrap(),
                    _ = &mut ended => return requests,
                };
                requests += 1;
                let mut request = [0; 8192];
                let length = stream.read(&mut request).await.unwrap();
                let (more, body) = play(&String::from_utf8_lossy(&request[..length]));
                let head = format!("HTTP/1.1 {more}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
                // A client that finds it too long does not read to its end.
                let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
            }
        });
        let endpoints = Endpoints { core: url.parse().unwrap(), auth: url.parse().unwrap() };
        let policy = Policy { backoff: Backoff { first: Duration::ZERO, cap: Duration::ZERO }, ..POLICY };
        let options = Options { policy, ..Options::default() };
        Self { oci: Oci::new(&endpoints, Login::api_key(key()), options).unwrap(), requests: server, end }
    }

    /// The error of a list, and the number of requests.
    async fn listed(self) -> (Kind, String, u32) {
        let error = self.oci.vnic_attachments(&compartment(), None).await.unwrap_err();
        self.end.send(()).unwrap();
        let Error::Call { source, .. } = &error else { panic!("{error}") };
        (error.kind(), std::error::Error::source(source).unwrap().to_string(), self.requests.await.unwrap())
    }
}

fn compartment() -> Ocid {
    "ocid1.compartment.oc1..c".parse().unwrap()
}

fn key() -> ApiKey {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der.as_ref()));
    ApiKey::new(KeyOwner { tenancy: "tenancy", user: "user", fingerprint: "fingerprint" }, pem.as_bytes()).unwrap()
}

#[tokio::test]
async fn an_answer_that_is_no_json_is_not_retried() {
    let html = |_: &str| (OK.to_owned(), "<html>Sign in to the guests' network</html>".to_owned());
    let (kind, _, requests) = Stage::new(html).await.listed().await;
    assert_eq!((kind, requests), (Kind::Unusable, 1));
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_retried() {
    let long = |_: &str| (OK.to_owned(), format!("[{}]", " ".repeat(9 << 20)));
    assert_eq!(Stage::new(long).await.listed().await, (Kind::Unusable, "length limit exceeded".to_owned(), 1));
}

#[tokio::test]
async fn long_message_of_a_refusal_is_cut() {
    let long = |_: &str| {
        ("400 Bad Request\r\n".to_owned(), format!(r#"{{"code":"InvalidParameter","message":"{}"}}"#, "x".repeat(5000)))
    };
    let error = Stage::new(long).await.oci.vnic_attachments(&compartment(), None).await.unwrap_err();
    assert_eq!(error.refusal().unwrap().message, format!("{}…", "x".repeat(1000)));
}

#[tokio::test]
async fn pages_that_repeat_end_the_list() {
    let circle = |request: &str| {
        let next = if request.contains("page=a") { "b" } else { "a" };
        (format!("{OK}opc-next-page: {next}\r\n"), "[]".to_owned())
    };
    let outcome = Stage::new(circle).await.listed().await;
    assert_eq!(outcome, (Kind::Unusable, "its pages repeat".to_owned(), 3));
}

#[tokio::test]
async fn nothing_is_sent_until_retry_after_is_over() {
    static REQUESTS: AtomicU32 = AtomicU32::new(0);
    let throttled = |_: &str| match REQUESTS.fetch_add(1, Ordering::Relaxed) {
        0 => ("429 Too Many Requests\r\nretry-after: 2\r\n".to_owned(), String::new()),
        _ => (OK.to_owned(), "[]".to_owned()),
    };
    let (stage, begun) = (Stage::new(throttled).await, std::time::Instant::now());
    stage.oci.vnic_attachments(&compartment(), None).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(stage.oci.budget().state().rate < Rates::default().most, "a 429 halves it, and one answer adds little");
    stage.end.send(()).unwrap();
    assert_eq!(stage.requests.await.unwrap(), 2);
}

#[test]
fn a_query_is_escaped() {
    let parameters = [("availabilityDomain", "Pjwf: PHX-AD-1".to_owned()), ("page", "a/b+c=&d".to_owned())];
    assert_eq!(query(&parameters), "?availabilityDomain=Pjwf%3A%20PHX-AD-1&page=a%2Fb%2Bc%3D%26d");
    assert_eq!(query(&[]), "");
}

#[tokio::test]
async fn a_next_page_that_is_not_ascii_is_an_error() {
    let foreign = |_: &str| (format!("{OK}opc-next-page: p\u{e9}\r\n"), "[]".to_owned());
    let listed = Stage::new(foreign).await.listed().await;
    assert_eq!(listed, (Kind::Unusable, "its opc-next-page is not ASCII text".to_owned(), 1));
}
