//! The agents, as network tests need them.

use std::net::IpAddr;
use std::time::Duration;

use nettest::probe::{PROBE_PATH, PROBE_VERSION, ProbeReport, ProbeRequest};
use thiserror::Error;
use vcn::{excerpt, printable};

/// Of an agent's own words, in characters.
const TEXT_MAX: usize = 256;

/// Why an agent did not carry a request out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum AgentError {
    /// It carries others out at the moment.
    #[error("the agent is busy")]
    Busy,
    /// It does not know this controller's key yet.
    #[error("the agent does not know the controller's key yet: {0}")]
    Untrusted(String),
    /// The node has none.
    #[error("there is no agent to query: {0}")]
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
    fn probe(
        &self,
        node: &str,
        request: &ProbeRequest,
        limit: Duration,
    ) -> impl Future<Output = Result<ProbeReport, AgentError>> + Send;

    /// Sends a request from the pod network of a node.
    fn probe_from_pod(
        &self,
        node: &str,
        request: &ProbeRequest,
    ) -> impl Future<Output = Result<ProbeReport, AgentError>> + Send;
}

/// Reads a report of our version: a field of another one may mean something else.
pub(crate) fn read_report(body: &[u8]) -> Result<ProbeReport, AgentError> {
    let report: ProbeReport = serde_json::from_slice(body)
        .map_err(|error| AgentError::Refused(format!("an unreadable report: {}", printable(&error.to_string()))))?;
    match report.version {
        PROBE_VERSION => Ok(report),
        version => Err(AgentError::Refused(format!(
            "its report has version {version}, not {PROBE_VERSION}: update the agent or the controller"
        ))),
    }
}

/// What an agent's answer means, by its HTTP status.
pub(crate) fn read_answer(status: u16, body: &[u8]) -> Result<ProbeReport, AgentError> {
    let text = || excerpt(&printable(String::from_utf8_lossy(body).trim()), TEXT_MAX).into_owned();
    match status {
        200 => read_report(body),
        429 => Err(AgentError::Busy),
        404 => Err(AgentError::Refused(format!("it is older than network tests: no {PROBE_PATH}"))),
        _ => Err(AgentError::Refused(text())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn report_of_another_version_is_refused() {
        for version in [json!(0), json!(2), json!(255), json!(null)] {
            let body = json!({ "version": version, "tally": { "sent": 5, "received": 5 } }).to_string();
            assert!(matches!(read_answer(200, body.as_bytes()), Err(AgentError::Refused(_))), "{version}");
        }
        let body = json!({ "version": PROBE_VERSION, "later": true }).to_string();
        assert_eq!(read_answer(200, body.as_bytes()).map(|report| report.version), Ok(PROBE_VERSION));
    }

    #[test]
    fn agents_words_are_short_and_printable() {
        let body = format!("\u{1b}[2J\u{200b}ready{}", "x".repeat(60_000));
        let Err(AgentError::Refused(text)) = read_answer(400, body.as_bytes()) else { panic!() };
        assert!(text.starts_with("\\u{1b}[2J\\u{200b}ready") && text.chars().count() <= TEXT_MAX + 1, "{text}");
    }
}
