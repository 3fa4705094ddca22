//! Bundles of the leader: for a token of the account `oke-node-bundle` only, with what each agent sends, in little memory.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use api::bundle::{BUNDLE_ACCOUNT, BUNDLE_AUDIENCE, BundleIndex};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use kube_harness::wait_until;
use sandbox::OciSettings;
use serde_json::{Value, json};
use stream::{end, entry};

use crate::agents::{FakeAgent, FakeBundle, NAMESPACE, TrustedControllers};
use crate::process::Controller;
use crate::scene::Scene;

/// The deadline of one answer on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The kilobytes by which a bundle may raise the leader's memory, whatever its size.
pub(crate) const GROWTH_MAX: u64 = 4 << 10;

/// A token of an account in our namespace.
pub(crate) async fn token(client: &Client, account: &str, audience: &str) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let request: TokenRequest =
        serde_json::from_value(json!({ "spec": { "audiences": [audience], "expirationSeconds": 600 } })).unwrap();
    let created = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
    created.status.unwrap().token
}

/// Begins a request for a bundle.
fn begin(controller: &Controller, query: &str, token: Option<&str>) -> TcpStream {
    begin_at(controller, &format!("/bundle?{query}"), token)
}

/// Begins a request to the view. By HTTP/1.0 the body has no framing.
pub(crate) fn begin_at(controller: &Controller, path: &str, token: Option<&str>) -> TcpStream {
    let mut stream = TcpStream::connect_timeout(&controller.view_address(), PATIENCE).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let bearer = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n{bearer}\r\n").unwrap();
    stream
}

/// Status and body of an answer.
pub(crate) fn rest(stream: &mut TcpStream) -> (u16, Vec<u8>) {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let head_end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..head_end].to_vec()).unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), answer[head_end + 4..].to_vec())
}

fn request(controller: &Controller, query: &str, token: Option<&str>) -> (u16, Vec<u8>) {
    rest(&mut begin(controller, query, token))
}

/// Whether the leader sends a bundle for this token.
pub(crate) fn is_sent(controller: &Controller, token: &str) -> bool {
    request(controller, "", Some(token)).0 == 200
}

pub(crate) fn entries(tar: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let read = |mut entry: tar::Entry<'_, &[u8]>| {
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (entry.path().unwrap().display().to_string(), content)
    };
    tar::Archive::new(tar).entries().unwrap().map(|entry| read(entry.unwrap())).collect()
}

/// Nodes, the accounts, and the trusted keys.
async fn scene(nodes: u32) -> (Scene, TrustedControllers) {
    let mut scene = Scene::with(nodes, 2, OciSettings::default()).await;
    scene.environment.insert("AGENT_POLL_SECONDS".to_owned(), "10".to_owned());
    for account in [BUNDLE_ACCOUNT, "default"] {
        scene.kubernetes.create_account(&kube_harness::ServiceAccount::new(NAMESPACE, account)).await.unwrap();
    }
    let trusted = TrustedControllers::follow(scene.client.clone());
    (scene, trusted)
}

pub(crate) async fn wait_for_answers(agents: &[&FakeAgent], more: u64) {
    let before: Vec<u64> = agents.iter().map(|agent| agent.answers()).collect();
    wait_until("the agents answered", async || {
        agents.iter().zip(&before).all(|(agent, before)| agent.answers() >= before + more)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bundle_is_for_tokens_of_its_account_only() {
    let (scene, _) = scene(1).await;
    let mut one = scene.controller("one");
    wait_until("it leads", async || one.view("/fleet").is_some_and(|(status, _)| status == 200)).await;
    let ours = token(&scene.client, BUNDLE_ACCOUNT, BUNDLE_AUDIENCE).await;
    // What an attacker has: tokens of other accounts for the audience, and the account's tokens for other audiences.
    let other_account = token(&scene.client, "default", BUNDLE_AUDIENCE).await;
    let other_audience = token(&scene.client, BUNDLE_ACCOUNT, "https://kubernetes.default.svc").await;
    let (head, signature) = ours.rsplit_once('.').unwrap();
    let forged = format!("{head}.{}", signature.chars().rev().collect::<String>());
    let long = "x".repeat(12_000);
    for (token, status) in [
        (None, 401),
        (Some(""), 401),
        (Some("garbage"), 401),
        (Some(long.as_str()), 401),
        (Some(forged.as_str()), 401),
        (Some(other_audience.as_str()), 401),
        (Some(other_account.as_str()), 403),
    ] {
        let (found, body) = request(&one, "", token);
        let body = String::from_utf8(body).unwrap();
        assert_eq!(found, status, "{token:?}: {body}");
        assert!(body.contains("Role oke-node-bundle"), "{body}");
    }
    assert_eq!(request(&one, "node=../x", Some(&ours)).0, 400);
    let (status, tar) = request(&one, "", Some(&ours));
    let found = entries(&tar);
    assert_eq!((status, found.contains_key("bundle/index.json")), (200, true), "{:?}", found.keys());
    let log = one.log();
    assert!(log.contains("bundle.requested") && log.contains("bundle.refused"), "{log}");
    for secret in [&ours, &other_account, &other_audience] {
        assert!(!log.contains(secret.as_str()), "a token is in the log");
    }
    let json = |name: &str| -> Value { serde_json::from_slice(&found[&format!("bundle/controller/{name}")]).unwrap() };
    assert_eq!(json("status.json")["name"], "one");
    assert_eq!(json("fleet-1.json")[0]["name"], "node-0");
    assert!(json("config.json")["set"].to_string().contains("AGENT_POLL_SECONDS"));
    assert!(String::from_utf8_lossy(&found["bundle/controller/metrics.txt"]).contains("oke_node_controller_"));
    let two = scene.controller("two");
    wait_until("the second stands by", async || two.view("/fleet").is_some_and(|(status, _)| status == 503)).await;
    assert_eq!(request(&two, "", Some(&ours)).0, 503);
    one.terminate();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_fails_is_a_line_of_the_index() {
    let (scene, trusted) = scene(7).await;
    let mut agents = Vec::new();
    for number in 0..6 {
        agents.push(FakeAgent::on(&scene.client, &format!("node-{number}"), &trusted).await);
    }
    let mut whole = entry("bundle/state/pools.json", b"pools").unwrap();
    whole.extend(entry("bundle/README.txt", b"readme").unwrap());
    whole.extend(end());
    agents[0].has_bundle(FakeBundle::Whole(whole.clone()));
    agents[1].has_bundle(FakeBundle::Broken(whole[..512 + 2].to_vec()));
    agents[2].has_bundle(FakeBundle::Whole(b"not a tar, but long enough to be read as one".repeat(20)));
    // node-3 is older than bundles.
    agents[4].freeze();
    agents[5].has_bundle(FakeBundle::Megabytes(40));
    let one = scene.controller("one");
    let answering: Vec<&FakeAgent> = agents[..4].iter().collect();
    wait_for_answers(&answering, 1).await;
    let ours = token(&scene.client, BUNDLE_ACCOUNT, BUNDLE_AUDIENCE).await;
    let query: Vec<String> = (0..7).map(|number| format!("node=node-{number}")).collect();
    let (status, tar) = request(&one, &query.join("&"), Some(&ours));
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&tar));
    let found = entries(&tar);
    let index: BundleIndex = serde_json::from_slice(&found["bundle/index.json"]).unwrap();
    let problems: Vec<&str> = index.nodes.iter().map(|node| node.problem.as_deref().unwrap_or_default()).collect();
    for (problem, expected) in problems.iter().zip([
        "",
        // What was written may be lost with the connection, also the reply's head.
        if problems[1].contains("later entries") {
            "later entries are missing"
        } else {
            "broke before the reply was complete"
        },
        "a tar header is not valid; later entries are missing",
        "the version of its agent cannot send bundles to the controller",
        "",
        "entries from bundle/31.txt on exceed 33554432 bytes",
        "no agent runs on the node",
    ]) {
        assert!(problem.contains(expected), "{problem:?} instead of {expected:?}");
    }
    assert!(problems[0].is_empty() && !problems[4].is_empty(), "{problems:?}");
    assert_eq!(found["bundle/nodes/node-0/state/pools.json"], b"pools");
    if let Some(cut) = found.get("bundle/nodes/node-1/state/pools.json") {
        assert_eq!((cut.as_slice(), problems[1].contains("zeros replace 510 bytes")), (&b"po\0\0\0"[..], true));
    }
    assert!(found.keys().filter(|name| name.starts_with("bundle/nodes/node-5/")).count() == 31);
    assert!(!found.keys().any(|name| name.starts_with("bundle/nodes/node-2/")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_bundle_takes_little_memory_and_delays_no_poll() {
    let (scene, trusted) = scene(5).await;
    let mut agents = Vec::new();
    for number in 0..5 {
        agents.push(FakeAgent::on(&scene.client, &format!("node-{number}"), &trusted).await);
        agents[number].has_bundle(FakeBundle::Megabytes(25));
    }
    let one = scene.controller("one");
    let all: Vec<&FakeAgent> = agents.iter().collect();
    wait_for_answers(&all, 2).await;
    let ours = token(&scene.client, BUNDLE_ACCOUNT, BUNDLE_AUDIENCE).await;
    let before = one.peak();
    let query: Vec<String> = (0..5).map(|number| format!("node=node-{number}")).collect();
    let mut reader = begin(&one, &query.join("&"), Some(&ours));
    // The reader stalls: polls continue, and a second bundle is refused.
    wait_for_answers(&all, 2).await;
    let (status, body) = request(&one, "", Some(&ours));
    assert_eq!(status, 429, "{}", String::from_utf8_lossy(&body));
    let (status, tar) = rest(&mut reader);
    let found = entries(&tar);
    assert_eq!(status, 200);
    for number in 0..5 {
        assert_eq!(found[&format!("bundle/nodes/node-{number}/24.txt")].len(), 1 << 20);
    }
    let growth = one.peak() - before;
    println!("{} bytes were sent; the peak grew by {growth} kB", tar.len());
    assert!(growth < GROWTH_MAX, "the peak grew by {growth} kB");
    // A reader that goes away ends the bundle.
    drop(begin(&one, &query.join("&"), Some(&ours)));
    wait_until("the next bundle", async || request(&one, "", Some(&ours)).0 == 200).await;
}
