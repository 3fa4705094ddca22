//! Requests to agents: send a document, or read the answer about it.

use std::time::Duration;

use channel::{Client, Peer, Reply, Request, SendError};
use resident::logging::chain;
use tunables::answer::ANSWER_MAX;
use tunables::document::{FILES_PATH, POLICY_PATH};
use tunables::{FileConfirmation, NodeAnswer, NodeDocument};
use vcn::{excerpt, printable};

use super::engine::SendProblem;

/// The deadline of one request. An agent replies at once, and reports the outcome of longer work later.
const LIMIT: Duration = Duration::from_secs(10);
/// Of an agent's own words, in characters.
const TEXT_MAX: usize = 200;

/// Sends a document to an agent.
pub(crate) async fn send(client: &Client, peer: Peer, document: &NodeDocument) -> Result<NodeAnswer, SendProblem> {
    let refused = |message: String| SendProblem { is_refused: true, message };
    let body = serde_json::to_vec(document).map_err(|error| refused(error.to_string()))?;
    let reply = client.send(peer, Request::post(POLICY_PATH, body), LIMIT).await;
    let reply = reply.map_err(|error| SendProblem {
        // Without a connection, nothing arrived.
        is_refused: matches!(error, SendError::Connect { .. } | SendError::Handshake { .. }),
        message: chain(&error),
    })?;
    let is_refused = (400..500).contains(&reply.status);
    read_reply(&reply).map_err(|message| SendProblem { is_refused, message })
}

/// Reads an agent's answer about its document.
pub(crate) async fn read(client: &Client, peer: Peer) -> Result<NodeAnswer, String> {
    let reply = client.send(peer, Request::get(POLICY_PATH), LIMIT).await.map_err(|error| chain(&error))?;
    read_reply(&reply)
}

/// Confirms a change of files.
pub(crate) async fn confirm(client: &Client, peer: Result<Peer, String>, order: &str) -> Result<NodeAnswer, String> {
    let body = serde_json::to_vec(&FileConfirmation { order: order.to_owned() }).map_err(|error| error.to_string())?;
    let reply = client.send(peer?, Request::post(FILES_PATH, body), LIMIT).await.map_err(|error| chain(&error))?;
    read_reply(&reply)
}

fn read_reply(reply: &Reply) -> Result<NodeAnswer, String> {
    let text = || excerpt(&printable(String::from_utf8_lossy(&reply.body).trim()), TEXT_MAX).into_owned();
    match reply.status {
        200 if reply.body.len() > ANSWER_MAX => Err(format!("the agent's answer is longer than {ANSWER_MAX} bytes")),
        200 => {
            let answer = serde_json::from_slice::<NodeAnswer>(&reply.body);
            answer.map(NodeAnswer::bounded).map_err(|error| format!("read the agent's answer: {error}"))
        }
        status => Err(format!("the agent answered with status {status}: {}", text())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_of_an_agent_is_bounded_and_printable() {
        let reply = |status, body: &str| Reply { status, ..Reply::ok(body.to_owned()) };
        assert_eq!(read_reply(&reply(200, r#"{"document": "d"}"#)).unwrap().document, "d");
        assert!(read_reply(&reply(200, "{")).is_err());
        assert!(read_reply(&reply(200, &" ".repeat(ANSWER_MAX + 1))).unwrap_err().contains("longer"));
        let refused = read_reply(&reply(409, &format!("\u{1b}another instance{}", "x".repeat(500)))).unwrap_err();
        assert!(refused.contains("status 409: \\u{1b}another instance") && refused.len() < 300, "{refused}");
    }
}
