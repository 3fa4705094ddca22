//! Failed attempts, and their kinds.

use std::time::Duration;

use thiserror::Error;

use super::LoginError;

/// The failure of one attempt.
#[derive(Debug, Error)]
pub enum Failure {
    /// The service answered with a refusal.
    #[error(transparent)]
    Refused(Refusal),
    /// No connection: the request was not sent.
    #[error("no connection")]
    NoConnection(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection broke before the whole answer arrived.
    #[error("the connection broke")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No whole answer in time.
    #[error("no whole answer within {0:?}")]
    TimedOut(Duration),
    /// The budget that all calls share has no room before the deadline: the request was not sent.
    #[error("not sent: the controller's own request limit (OCI_REQUESTS_PER_SECOND) is used up for the next {0:?}")]
    Budget(Duration),
    /// The login failed: the request was not sent.
    #[error("logging in by {login}")]
    Login {
        /// The way of logging in.
        login: &'static str,
        /// The reason for the failed login.
        #[source]
        source: Box<LoginError>,
    },
    /// The answer is none that the client understands.
    #[error("the answer cannot be read (it begins {beginning:?})")]
    Unreadable {
        /// The beginning of the answer.
        beginning: String,
        /// The reason why it is unreadable.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A refusal by the service.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("status {status} {code}: {message}")]
pub struct Refusal {
    /// The status of HTTP, such as 404.
    pub status: u16,
    /// The service's code, for example `IncorrectState`; empty when the answer had none (a proxy's, for example).
    pub code: String,
    /// The message of the service, cut to a bound.
    pub message: String,
    /// How long the service wants no further request.
    pub retry_after: Option<Duration>,
}

/// The kind of a failure: one row each of the table of status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// 429: too many requests; the budget has shrunk already. Or no room in the budget: the request was not sent.
    Throttled,
    /// A service limit or quota is reached: wait long, report to the user.
    Limit,
    /// 409 `IncorrectState`, `LockConflict`, or a `Conflict` that passes by itself: another operation is under way.
    Busy,
    /// Other 409: the caller's knowledge is outdated; or (`InvalidatedRetryToken`) another retry token is needed. Read again.
    Conflict,
    /// 412: the resource changed since it was read (`if-match`).
    Changed,
    /// 404: gone, or not readable for the caller. The service does not distinguish the two.
    NotFoundOrForbidden,
    /// 400 `RelatedResourceNotAuthorizedOrNotFound`: a subnet, NSG or the like does not exist *yet*, or is not readable.
    RelatedNotFoundOrForbidden,
    /// 401, or the login failed for another reason than a service that throttles or does not answer.
    Login,
    /// 402, 403: the resource is readable, but the operation is not allowed.
    Forbidden,
    /// Other 400, 413, 422: the request itself is wrong and stays wrong.
    Invalid,
    /// An answer that the API does not give: no JSON, another form, too long, an unknown status. It is a proxy's, or of a
    /// newer version, and proves nothing about the request.
    Unusable,
    /// 5xx, a timeout, a broken connection.
    Unavailable,
}

/// An instance accepts one of these at a time, and answers another one with 409 `Conflict`: "currently being modified, try
/// again later". Attempts made at once would get the same, so the client makes none.
const ONE_AT_A_TIME: [&str; 2] = ["AttachVnic", "DetachVnic"];
/// Part of that message for any other request. There is no code for it: an address in use is a `Conflict` as well.
const BEING_MODIFIED: &str = "being modified";
/// The code for a retry token whose object is gone.
const SPENT: &str = "InvalidatedRetryToken";

impl Failure {
    /// The kind of the failure.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Refused(refusal) => refusal.kind(),
            Self::Budget(_) => Kind::Throttled,
            Self::NoConnection(_) | Self::Broken(_) | Self::TimedOut(_) => Kind::Unavailable,
            Self::Login { source, .. } => source.kind(),
            Self::Unreadable { .. } => Kind::Unusable,
        }
    }

    /// Whether it is a 409 `Conflict` that passes by itself.
    pub(super) fn is_busy(&self, operation: &str) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.status == 409 && refusal.code == "Conflict"
            && !refusal.is_of_retry_token() && (ONE_AT_A_TIME.contains(&operation) || refusal.message.contains(BEING_MODIFIED)))
    }

    /// Whether the service may have carried the request out: it was sent, and no answer excludes it.
    pub(crate) fn may_have_been_done(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.status >= 500,
            Self::Broken(_) | Self::TimedOut(_) | Self::Unreadable { .. } => true,
            Self::NoConnection(_) | Self::Budget(_) | Self::Login { .. } => false,
        }
    }
}

impl Refusal {
    /// The kind of the failure.
    pub fn kind(&self) -> Kind {
        match (self.status, self.code.as_str()) {
            (400, "LimitExceeded" | "QuotaExceeded") => Kind::Limit,
            (400, "RelatedResourceNotAuthorizedOrNotFound") => Kind::RelatedNotFoundOrForbidden,
            (400 | 413 | 422, _) => Kind::Invalid,
            (401, _) => Kind::Login,
            (402 | 403, _) => Kind::Forbidden,
            (404, _) => Kind::NotFoundOrForbidden,
            (409, "IncorrectState" | "LockConflict") => Kind::Busy,
            (409, _) => Kind::Conflict,
            (412, _) => Kind::Changed,
            (429, _) => Kind::Throttled,
            (408 | 500 | 502..=599, _) => Kind::Unavailable,
            _ => Kind::Unusable,
        }
    }

    /// Whether the retry token is refused: its object is gone, or it came with another body before. The first has a code.
    /// Oracle does not document the answer to the second, so the message has to do.
    pub fn is_of_retry_token(&self) -> bool {
        let message = self.message.to_lowercase();
        matches!(self.kind(), Kind::Invalid | Kind::Conflict)
            && (self.code == SPENT || ["retry token", "retry-token"].iter().any(|name| message.contains(name)))
    }
}

/// The beginning of a text, for an error message.
pub(crate) fn beginning(body: &[u8]) -> String {
    const SHOWN: usize = 120;
    vcn::excerpt(&String::from_utf8_lossy(body), SHOWN).into_owned()
}

/// An error and its causes, as one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    line
}
