//! The controller as an agent knows it: a pinned key, and a request for the node's health.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use api::{AGENT_CHANNEL_ANNOTATION, CONTROLLER_KEYS};
use channel::{Announcement, Client, Identity, Peer, Request};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube_harness::ApiServer;
use sandbox::{Container, Node};
use serde_json::{Value, json};
use vcn::Family;

const NAMESPACE: &str = "oke-node-manager";
const KEYS: &str = "/run/bench-keys";
/// As the sandbox names the agent's pod.
pub(crate) const AGENT_POD: &str = "oke-node-agent-7k2xp";
const LIMIT: Duration = Duration::from_secs(30);
/// Rights apply some time after the API server accepts them, and the agent retries with a backoff.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(120);

/// A controller's key, and the agent that it queries.
#[derive(Debug)]
pub(crate) struct Controller {
    client: Client,
    peer: Peer,
}

/// The agent's Pod, whose annotation has the agent's key.
pub(crate) fn agent_pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": AGENT_POD, "namespace": NAMESPACE },
        "spec": { "nodeName": "node", "serviceAccountName": "oke-node-agent",
                  "containers": [{ "name": "agent", "image": "agent" }] },
    })
}

/// The agent's container with its channel open at the node's address, and a controller's key.
pub(crate) fn with_channel(container: Container, node: &Node) -> anyhow::Result<(Container, Identity)> {
    let identity = Identity::generate()?;
    let address = node.address(Family::Ipv4).context("the node has no IPv4 address")?;
    let key = identity.fingerprint().to_string();
    node.run(|| {
        fs::create_dir_all(KEYS)?;
        fs::write(Path::new(KEYS).join("oke-node-controller-0"), key)
    })??;
    Ok((container.with_node_ip(address).with_config_map(CONTROLLER_KEYS, Path::new(KEYS)), identity))
}

impl Controller {
    /// The one with this key, once the agent has announced its own.
    pub(crate) fn of(identity: Identity, node: &Node, server: &ApiServer) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let found = loop {
            if let Some(found) = on(node, async || announcement(server).await)? {
                break found;
            }
            ensure!(
                begun.elapsed() < ANNOUNCED_WITHIN,
                "the agent has not announced its key: {:?}",
                sandbox::Agent::log(node)
            );
            std::thread::sleep(Duration::from_millis(200));
        };
        let address = node.address(Family::Ipv4).context("the node has no IPv4 address")?;
        let peer = Peer { address: SocketAddr::new(address, found.port), key: found.key };
        Ok(Self { client: Client::new(identity), peer })
    }

    /// Requests the node's health, as the leader does every four minutes, and returns the answer.
    pub(crate) fn poll(&self, node: &Node) -> anyhow::Result<Value> {
        let request = || Request::get("/v1/summary");
        let reply = on(node, async || Ok(self.client.send(self.peer, request(), LIMIT).await?))?;
        ensure!(reply.status == 200 && !reply.body.is_empty(), "the agent answered {}", reply.status);
        Ok(serde_json::from_slice(&reply.body)?)
    }
}

async fn announcement(server: &ApiServer) -> anyhow::Result<Option<Announcement>> {
    let pods: Api<Pod> = Api::namespaced(server.client(server.admin())?, NAMESPACE);
    let annotations = pods.get(AGENT_POD).await?.metadata.annotations.unwrap_or_default();
    Ok(annotations.get(AGENT_CHANNEL_ANNOTATION).map(|text| serde_json::from_str(text)).transpose()?)
}

/// Runs on the node.
pub(crate) fn on<T: Send>(node: &Node, work: impl AsyncFnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    node.run(|| tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work()))?
}
