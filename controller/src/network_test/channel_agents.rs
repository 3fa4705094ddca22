//! The agents of the fleet, asked on their channel.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::probe::{PROBE_PATH, ProbeReport, ProbeRequest};
use channel::{Client, Request};
use resident::logging::chain;

use super::agents::{AgentCalls, AskError, read_answer};
use crate::fleet::shared::SharedRoster;

/// The fleet's agents.
#[derive(Debug)]
pub struct ChannelAgents {
    /// With the leader's key.
    pub client: Client,
    /// Where agents are, and their keys.
    pub roster: Arc<SharedRoster>,
}

impl AgentCalls for ChannelAgents {
    fn address(&self, node: &str) -> Option<IpAddr> {
        self.roster.lock().peer(node).ok().map(|peer| peer.address.ip())
    }

    async fn ask(&self, node: &str, request: &ProbeRequest, limit: Duration) -> Result<ProbeReport, AskError> {
        let peer = self.roster.lock().peer(node).map_err(|error| AskError::Unreachable(error.to_string()))?;
        let body = serde_json::to_vec(request).map_err(|error| AskError::Refused(error.to_string()))?;
        let reply = self.client.send(peer, Request::post(PROBE_PATH, body), limit).await;
        let reply = reply.map_err(|error| AskError::Unreachable(chain(&error)))?;
        read_answer(reply.status, &reply.body)
    }
}
