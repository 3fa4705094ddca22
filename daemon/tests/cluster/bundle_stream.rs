//! The support bundle on the controller's channel: the same entries as of the command, no secret, one at a time, and little memory
//! while it is not read.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::time::Duration;

use ::channel::{Client, Peer, Request};
use api::bundle::AGENT_BUNDLE_PATH;

use crate::channel::Channel;
use crate::node::wait_for;

const LIMIT: Duration = Duration::from_secs(60);
/// The longest entry of a bundle.
const ENTRY: usize = 4 << 20;
/// The bytes by which a bundle may raise the agent's memory: an entry, and buffers.
const GROWTH_MAX: u64 = 8 << 20;

/// The agent's resident memory, in bytes.
pub(crate) fn resident(channel: &Channel) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", channel.agent.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// As the controller, in the network namespace of the agent.
pub(crate) fn with_client<T: Send>(channel: &Channel, work: impl AsyncFnOnce(Client, Peer) -> T + Send) -> T {
    let (client, peer) = (Client::new(channel.controller.clone()), channel.peer());
    channel.scene.cluster.do_(async |_| work(client, peer).await)
}

#[test]
fn bundle_on_the_channel_is_whole_and_without_secrets() {
    let channel = Channel::new(None);
    let node = &channel.scene.cluster.node;
    let secret = r#"{"cniVersion":"0.3.1","name":"x","plugins":[{"type":"calico","k8s_auth_token":"s3cr3t-t0ken"}]}"#;
    fs::write(node.path("net.d/99-calico.conflist"), secret).unwrap();
    fs::write(node.path("net.d/calico-kubeconfig"), "token: s3cr3t-t0ken\n").unwrap();
    // 16 MB of files, which no buffer holds.
    for file in ["run/verbs.log", "run/verbs.log.1", "lib/reported-conditions.json", "lib/controller-rules.json"] {
        fs::write(node.path(file), vec![b'x'; ENTRY]).unwrap();
    }
    assert_eq!(channel.request(&Request::get("/v1/summary")).status, 200);
    let before = resident(&channel);
    let (busy, tar, during) = with_client(&channel, async |client, peer| {
        let mut reply = client.open(peer, Request::get(AGENT_BUNDLE_PATH), LIMIT).await.unwrap();
        assert_eq!(reply.status(), 200);
        // Nothing is read: the agent answers other requests meanwhile, and refuses a second bundle.
        let busy = client.open(peer, Request::get(AGENT_BUNDLE_PATH), LIMIT).await.unwrap().status();
        let (mut tar, mut during) = (Vec::new(), 0);
        while let Some(bytes) = reply.next(LIMIT).await.unwrap() {
            if tar.len() / (1 << 20) < (tar.len() + bytes.len()) / (1 << 20) {
                assert_eq!(client.send(peer, Request::get("/v1/summary"), LIMIT).await.unwrap().status, 200);
                during = during.max(resident(&channel));
            }
            tar.extend_from_slice(&bytes);
        }
        (busy, tar, during)
    });
    assert_eq!(busy, 429);
    assert!(during < before + GROWTH_MAX, "{before} bytes before, {during} while it was sent");
    let mut archive = tar::Archive::new(tar.as_slice());
    let mut entries = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        entries.insert(entry.path().unwrap().display().to_string(), text);
    }
    for (name, holds) in [
        ("bundle/README.txt", "The agent was running: agent/ has its answers."),
        ("bundle/agent/status.json", "\"running\":true"),
        ("bundle/agent/config.json", "CHANNEL_PORT"),
        ("bundle/net/rules.txt", "IPv4 pref 512"),
        ("bundle/cni/configurations.json", "k8s_auth_token"),
        ("bundle/state/verbs.log.1", "xxx"),
    ] {
        assert!(
            entries.get(name).is_some_and(|text| text.contains(holds)),
            "{name} lacks {holds}: {:?}",
            entries.keys()
        );
    }
    assert!(entries.values().all(|text| !text.contains("s3cr3t-t0ken")));
    // The next one is sent.
    wait_for("the end of the first", || channel.agent.events("bundle.sent").len() == 1, || channel.agent.log());
    let status = with_client(&channel, async |client, peer| {
        client.open(peer, Request::get(AGENT_BUNDLE_PATH), LIMIT).await.unwrap().status()
    });
    assert_eq!(status, 200);
}
