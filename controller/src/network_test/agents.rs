//! The agents, as network tests need them.

use std::net::IpAddr;
use std::time::Duration;

use api::probe::{PROBE_PATH, ProbeReport, ProbeRequest};
use thiserror::Error;

/// Why an agent did not carry a request out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum AskError {
    /// It carries others out at the moment.
    #[error("the agent is busy")]
    Busy,
    /// It does not know this controller's key yet.
    #[error("the agent does not know the controller's key yet: {0}")]
    Untrusted(String),
    /// The node has none.
    #[error("there is no agent to ask: {0}")]
    Missing(String),
    /// It does not answer on its channel.
    #[error("the agent cannot be reached: {0}")]
    Unreachable(String),
    #[error("the agent refused: {0}")]
    Refused(String),
}

/// Sends requests to agents.
pub(crate) trait AgentCalls: Send + Sync + 'static {
    /// The address of a node with an agent.
    fn address(&self, node: &str) -> Option<IpAddr>;

    /// Sends a request to the agent of a node.
    fn ask(
        &self,
        node: &str,
        request: &ProbeRequest,
        limit: Duration,
    ) -> impl Future<Output = Result<ProbeReport, AskError>> + Send;

    /// Sends a request from the pod network of a node.
    fn ask_pod(&self, node: &str, request: &ProbeRequest)
    -> impl Future<Output = Result<ProbeReport, AskError>> + Send;
}

/// Reads a report.
pub(crate) fn read_report(body: &[u8]) -> Result<ProbeReport, AskError> {
    serde_json::from_slice(body).map_err(|error| AskError::Refused(format!("an unreadable report: {error}")))
}

/// What an agent's answer means, by its HTTP status.
pub(crate) fn read_answer(status: u16, body: &[u8]) -> Result<ProbeReport, AskError> {
    let text = || String::from_utf8_lossy(body).trim().to_owned();
    match status {
        200 => read_report(body),
        429 => Err(AskError::Busy),
        404 => Err(AskError::Refused(format!("it is older than network tests: no {PROBE_PATH}"))),
        _ => Err(AskError::Refused(text())),
    }
}
