//! The answer of an agent to a poll.

use std::time::Duration;

use channel::{Client, Peer, Reply, Request, SendError};
use health::summary::SUMMARY_MAX;
use health::summary::poll::{PollQuery, RULES_PATH};
use serde_json::Value;
use thiserror::Error;

use crate::fleet::poll::{Answer, Poll};

const LIMIT: Duration = Duration::from_secs(10);

/// The longest kept `ETag`.
const ETAG_MAX: usize = 128;

/// Why an agent gave no answer that can be used.
#[derive(Debug, Error)]
pub(crate) enum AnswerError {
    /// There is no reply.
    #[error("poll the agent")]
    Send(#[from] SendError),
    #[error("the agent answered with status {0}")]
    Status(u16),
    /// It sent too much.
    #[error("the agent's answer is longer than {SUMMARY_MAX} bytes")]
    TooLong,
    /// It sent something else.
    #[error("read the agent's answer")]
    Unreadable(#[from] serde_json::Error),
}

impl AnswerError {
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Send(SendError::Connect { .. }) => "connect",
            Self::Send(SendError::Handshake { .. }) => "handshake",
            Self::Send(SendError::Slow { .. }) => "slow",
            Self::Send(SendError::TooLong(_)) | Self::TooLong => "too_long",
            Self::Send(SendError::Exchange { .. }) => "broken",
            Self::Status(_) => "status",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

/// Requests the summary of an agent's node.
pub(crate) async fn request_summary(client: &Client, poll: &Poll) -> Result<Answer, AnswerError> {
    let has_version = poll.etag.is_some();
    let query = PollQuery { may_repair: poll.may_repair, node: poll.report.clone() };
    let request = Request { if_none_match: poll.etag.clone(), ..Request::get(query.path()) };
    let Reply { status, etag, body } = client.send(poll.peer, request, LIMIT).await?;
    match status {
        304 if has_version => Ok(Answer::Unchanged),
        200 if body.len() > SUMMARY_MAX => Err(AnswerError::TooLong),
        200 => {
            Ok(Answer::Changed(Box::new(serde_json::from_slice(&body)?), etag.filter(|etag| etag.len() <= ETAG_MAX)))
        }
        _ => Err(AnswerError::Status(status)),
    }
}

/// Sends an agent the rules that it must have, if it has others. An agent of 0.2.0 names none and takes none.
pub(crate) async fn update_rules(client: &Client, poll: &Poll, answer: &Answer) -> Result<(), AnswerError> {
    let has = match answer {
        Answer::Changed(summary, _) => summary.controller_rules.as_ref(),
        Answer::Unchanged => poll.rules_version.as_ref(),
    };
    match has.zip(poll.rules.as_ref()) {
        Some((has, rules)) if *has != rules.version => {
            let request = Request::post(RULES_PATH, rules.text.clone());
            match client.send(poll.peer, request, LIMIT).await?.status {
                200 => Ok(()),
                status => Err(AnswerError::Status(status)),
            }
        }
        _ => Ok(()),
    }
}

/// Requests everything about its node from an agent.
pub(crate) async fn details(client: &Client, peer: Peer) -> Result<Value, AnswerError> {
    let Reply { status, body, .. } = client.send(peer, Request::get("/v1/node"), LIMIT).await?;
    match status {
        200 => Ok(serde_json::from_slice(&body)?),
        _ => Err(AnswerError::Status(status)),
    }
}
