//! The client against a strict service on loopback: retries, deadlines, limits.

mod server;

use std::error::Error as _;
use std::process::Command;

use server::{Reply, Server};

use super::*;

const INSTANCE: &str = include_str!("../../golden/instance.json");
const VNICS: &str = include_str!("../../golden/vnics_vm.json");

fn long_policy() -> Policy {
    Policy {
        timeout: Duration::from_secs(30),
        attempts: 5,
        backoff: Backoff { first: Duration::from_millis(1), cap: Duration::from_millis(4) },
        deadline: Duration::from_secs(60),
    }
}

fn short_policy() -> Policy {
    Policy { timeout: Duration::from_millis(60), attempts: 2, ..long_policy() }
}

fn good(text: &str) -> Reply {
    Reply::Text(text.to_owned())
}

async fn fetch(script: Vec<Reply>, policy: Policy) -> (Result<Instance, Error>, Server) {
    let server = Server::start(script);
    let imds = Imds::new(&server.base_url, policy).unwrap();
    (imds.instance().await, server)
}

/// The end of the error's text with that of its cause: `(attempt 1): no answer`.
fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    let error = result.unwrap_err();
    let text = format!("{error}: {}", error.source().unwrap());
    text[text.find("(attempt ").unwrap()..].to_owned()
}

#[tokio::test]
async fn the_header_is_sent_and_the_reply_read() {
    let (instance, server) = fetch(vec![good(INSTANCE)], long_policy()).await;
    assert_eq!(instance.unwrap().shape, "VM.Standard.E5.Flex");
    assert_eq!(server.paths(), ["/opc/v2/instance/"]);
}

#[tokio::test]
async fn a_404_is_believed_only_when_it_stays() {
    let (instance, server) = fetch(vec![Reply::Status(404), good(INSTANCE)], long_policy()).await;
    assert!(instance.is_ok());
    assert_eq!(server.paths().len(), 2);

    let (instance, _) = fetch(vec![Reply::Status(404)], long_policy()).await;
    assert!(failure(instance).starts_with("(attempt 5): status 404, "));
}

#[tokio::test]
async fn throttling_and_server_errors_are_waited_out() {
    let script = vec![Reply::Status(429), Reply::Status(503), Reply::Status(429), Reply::Status(500), good(INSTANCE)];
    let (instance, server) = fetch(script, long_policy()).await;
    assert!(instance.is_ok());
    assert_eq!(server.paths().len(), 5);
}

#[tokio::test]
async fn permanent_refusal_is_not_retried() {
    for status in [400, 401, 403, 302, 204] {
        let (instance, _) = fetch(vec![Reply::Status(status), good(INSTANCE)], long_policy()).await;
        assert!(failure(instance).starts_with(&format!("(attempt 1): status {status}, ")));
    }
}

#[tokio::test]
async fn malformed_document_is_not_requested_again() {
    let (instance, server) = fetch(vec![good("<html>sign in</html>")], long_policy()).await;
    let message = instance.unwrap_err().to_string();
    assert!(message.contains(&format!("{}/instance/", server.base_url)), "{message}");
    assert!(message.contains("<html>sign in"), "{message}");
    assert_eq!(server.paths().len(), 1);
}

#[tokio::test]
async fn silence_and_half_replies_time_out_and_are_tried_again() {
    for reply in [Reply::Silence, Reply::Stall] {
        let (instance, server) = fetch(vec![reply], short_policy()).await;
        assert!(failure(instance).starts_with("(attempt 2): no answer within "));
        assert!(server.paths().len() <= 2);
    }
    let (instance, _) = fetch(vec![Reply::Stall, good(INSTANCE)], Policy { attempts: 50, ..short_policy() }).await;
    assert!(instance.is_ok(), "{instance:?}");
}

#[tokio::test]
async fn deadline_ends_request_even_with_attempts_left() {
    let policy = Policy { attempts: u32::MAX, deadline: Duration::from_millis(80), ..long_policy() };
    let (instance, _) = fetch(vec![Reply::Status(503)], policy.clone()).await;
    // The last of them may have been under way.
    let text = failure(instance);
    assert!(text.contains("): status 503, ") || text.contains("): no answer within "), "{text}");
    let (instance, _) = fetch(vec![Reply::Silence], policy).await;
    let text = failure(instance);
    let allowed = text.strip_prefix("(attempt 1): no answer within ").and_then(|it| it.strip_suffix("ms"));
    assert!(allowed.is_some_and(|it| it.parse::<f64>().unwrap() <= 80.0), "{text}");
}

#[tokio::test]
async fn a_huge_reply_is_cut_off() {
    for reply in [Reply::Endless, good(&" ".repeat(MAX_REPLY + 1))] {
        let (instance, _) = fetch(vec![reply], long_policy()).await;
        assert_eq!(failure(instance), "(attempt 1): the reply is longer than 1048576 bytes");
    }
}

#[tokio::test]
async fn refused_connection_is_tried_again() {
    // Bound, so that no other program gets the port; but no program listens.
    let bound = tokio::net::TcpSocket::new_v4().unwrap();
    bound.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let base_url = format!("http://{}", bound.local_addr().unwrap());
    let vnics = Imds::new(&base_url, long_policy()).unwrap().vnics().await;
    assert_eq!(failure(vnics), "(attempt 5): no answer");
}

#[tokio::test]
async fn only_plain_http_is_taken() {
    for url in ["", "169.254.169.254", "https://169.254.169.254/opc/v2", "ftp://x/"] {
        let error = Imds::new(url, long_policy()).unwrap_err().to_string();
        assert!(error.ends_with(": not an http:// URL"), "{error}");
    }
}

/// Reads the environment when the client is made, so this takes a process of its own.
#[test]
fn proxies_in_the_environment_are_not_used() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "client::tests::the_header_is_sent_and_the_reply_read"])
        .envs(["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"].map(|name| (name, "http://127.0.0.1:1")))
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
}

#[tokio::test]
async fn instance_and_vnics_are_read_until_the_service_fails() {
    let server = Server::start(vec![good(INSTANCE), good(VNICS), Reply::Status(503)]);
    let imds = Imds::new(&server.base_url, long_policy()).unwrap();
    assert_eq!(imds.instance().await.unwrap().id.unique_id(), "anyhqljtvm");
    let ids: Vec<_> = imds.vnics().await.unwrap().vnics.iter().map(|vnic| vnic.id.unique_id().to_owned()).collect();
    assert_eq!(ids, ["primary", "second", "six", "unassigned"]);
    assert!(failure(imds.instance().await).starts_with("(attempt 5): status 503, "));
    assert!(failure(imds.vnics().await).starts_with("(attempt 5): status 503, "));
}
