//! The agents of the fleet, reached on their channel, and probe Pods.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use channel::{Client, Request};
use nettest::probe::{PROBE_PATH, ProbeReport, ProbeRequest};
use resident::logging::chain;
use tokio::time::Instant;

use super::agents::{AgentCalls, AgentError, read_answer};
use super::probe_pods::ProbePods;
use crate::fleet::shared::SharedRoster;

/// How long a new controller's key may take to the agents, which read it from a mounted ConfigMap.
const KEY_MOUNTED: Duration = Duration::from_secs(100);

pub(crate) struct ChannelAgents {
    /// With the leader's key.
    pub client: Client,
    /// Where agents are, and their keys.
    pub roster: Arc<SharedRoster>,
    /// When this controller became the leader.
    pub began: Instant,
    /// For probes from the pod network.
    pub pods: Arc<ProbePods>,
}

impl AgentCalls for ChannelAgents {
    fn address(&self, node: &str) -> Option<IpAddr> {
        self.roster.lock().peer(node).ok().map(|peer| peer.address.ip())
    }

    async fn probe(&self, node: &str, request: &ProbeRequest, limit: Duration) -> Result<ProbeReport, AgentError> {
        let peer = self.roster.lock().peer(node).map_err(|error| AgentError::Missing(error.to_string()))?;
        let body = serde_json::to_vec(request).map_err(|error| AgentError::Refused(error.to_string()))?;
        let reply = self.client.send(peer, Request::post(PROBE_PATH, body), limit).await;
        let reply = reply.map_err(|error| match error.is_refused() && self.began.elapsed() < KEY_MOUNTED {
            true => AgentError::Untrusted(chain(&error)),
            false => AgentError::Unreachable(chain(&error)),
        })?;
        read_answer(reply.status, &reply.body)
    }

    async fn probe_from_pod(&self, node: &str, request: &ProbeRequest) -> Result<ProbeReport, AgentError> {
        self.pods.probe(node, request).await
    }
}
