//! What can go wrong, and whether asking again may help.

use std::time::Duration;

use api::FieldError;
use thiserror::Error;

/// Why the metadata service gave no answer that can be used.
#[derive(Debug, Error)]
pub enum Error {
    /// The base URL given is none.
    #[error("using {url:?} as the metadata service's base URL: not an http:// URL")]
    BaseUrl {
        /// As given.
        url: String,
    },
    /// The HTTP client could not be made.
    #[error("setting up the HTTP client for the metadata service")]
    Client {
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The last attempt failed.
    #[error("asking the metadata service for {url} (attempt {attempts})")]
    Request {
        /// What was asked for.
        url: String,
        /// How many attempts were made.
        attempts: u32,
        /// What happened to the last one.
        #[source]
        source: Failure,
    },
    /// The reply is not JSON.
    #[error("reading the metadata service's reply to {url} as JSON (it begins {beginning:?})")]
    NotJson {
        /// What was asked for.
        url: String,
        /// The beginning of the reply.
        beginning: String,
        /// The parser's complaint.
        #[source]
        source: serde_json::Error,
    },
    /// The reply lacks a field, or a field has an invalid value.
    #[error("reading the metadata service's reply to {url} (it begins {beginning:?})")]
    Field {
        /// What was asked for.
        url: String,
        /// The beginning of the reply.
        beginning: String,
        /// The field and its value.
        #[source]
        source: FieldError,
    },
}

/// What happened to one attempt.
#[derive(Debug, Error)]
pub enum Failure {
    /// No connection, or it broke.
    #[error("no reply")]
    Connection(#[source] reqwest::Error),
    /// No whole reply in time.
    #[error("no whole reply within {0:?}")]
    TimedOut(Duration),
    /// An HTTP status other than 200.
    #[error("status {status}, reply {beginning:?}")]
    Status {
        /// The status code.
        status: u16,
        /// The beginning of the reply.
        beginning: String,
    },
    /// More than any metadata reply can be.
    #[error("the reply is longer than {limit} bytes")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
}

impl Error {
    /// Whether the same question may well be answered a little later.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Request { source, .. } if source.is_transient())
    }
}

impl Failure {
    /// Whether another attempt makes sense. 404 too: the service answers it for short whiles about things that exist.
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Connection(_) | Self::TimedOut(_) => true,
            Self::Status { status, .. } => matches!(status, 404 | 408 | 429 | 500..=599),
            Self::TooLong { .. } => false,
        }
    }
}

/// The beginning of a reply for an error message; replies may hold user data, so it is short.
pub(crate) fn beginning(body: &[u8]) -> String {
    const SHOWN: usize = 80;
    let text = String::from_utf8_lossy(body);
    let mut characters = text.chars();
    let mut shown: String = characters.by_ref().take(SHOWN).collect();
    if characters.next().is_some() {
        shown.push('…');
    }
    shown
}
