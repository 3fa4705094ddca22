//! What can go wrong with a call, and the questions a caller asks about it.

use std::time::Duration;

use thiserror::Error;

use crate::client::request_id::RequestId;

/// Why a call, all of its attempts together, brought no answer that can be used.
#[derive(Debug, Error)]
pub enum Error {
    /// The last attempt failed.
    #[error("{operation} {subject} (attempt {attempts}, opc-request-id {request_id})")]
    Call {
        /// The operation as Oracle names it, for example `AttachVnic`.
        operation: &'static str,
        /// On what: an OCID, as a rule.
        subject: String,
        /// How many attempts were made.
        attempts: u32,
        /// What Oracle's support asks for: the service's number for the last attempt, else ours.
        request_id: RequestId,
        /// Whether an attempt that failed may have been carried out all the same.
        outcome_unknown: bool,
        /// What happened to the last attempt.
        #[source]
        source: Box<Failure>,
    },
    /// A setting, file or environment variable that makes no client.
    #[error("setting up the OCI client: {subject}")]
    Setup {
        /// What is wrong, and with what.
        subject: String,
        /// The cause, where there is one.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

/// What happened to one attempt.
#[derive(Debug, Error)]
pub enum Failure {
    /// The service refused.
    #[error(transparent)]
    Refused(Refusal),
    /// No connection was made: the request was not sent.
    #[error("no connection")]
    NoConnection(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection broke before the whole answer was there.
    #[error("the connection broke")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No whole answer in time.
    #[error("no whole answer within {0:?}")]
    TimedOut(Duration),
    /// The budget that all calls share has no room before the deadline: nothing was sent.
    #[error("the shared request budget has no room for another {0:?}")]
    Budget(Duration),
    /// The login failed: nothing was sent.
    #[error("logging in by {login}")]
    Login {
        /// Which way of logging in.
        login: &'static str,
        /// The cause.
        #[source]
        source: Box<LoginError>,
    },
    /// The answer is none that we understand.
    #[error("the answer cannot be read (it begins {beginning:?})")]
    Unreadable {
        /// Its beginning.
        beginning: String,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// An answer that says no.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("status {status} {code}: {message}")]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The service's code, for example `IncorrectState`; empty when the answer had none (a proxy's, for example).
    pub code: String,
    /// The service's words.
    pub message: String,
    /// How long the service asks to be left alone.
    pub retry_after: Option<Duration>,
}

/// Why nobody could log in.
#[derive(Debug, Error)]
pub enum LoginError {
    /// Something the login needs was not to be had.
    #[error("fetching {what} from {from}")]
    Fetch {
        /// What was wanted.
        what: &'static str,
        /// A URL or a path.
        from: String,
        /// What happened.
        #[source]
        source: Box<Failure>,
    },
    /// A file that cannot be read.
    #[error("reading {what} at {path}")]
    File {
        /// What it should hold.
        what: &'static str,
        /// Where.
        path: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A key, certificate or token that makes no sense. Its content is never shown.
    #[error("{what} cannot be used: {problem}")]
    Material {
        /// What.
        what: &'static str,
        /// Why not.
        problem: String,
    },
    /// The instance's certificate names another tenancy than before.
    #[error("the instance's certificate is of tenancy {now}, before of {before}: refused until a restart")]
    TenancyChanged {
        /// At the first login.
        before: String,
        /// Now.
        now: String,
    },
    /// No token in time. The text is the address asked and the cause of its last failure.
    #[error("no token within {0:?}: {1}; check that this host reaches that address (docs/iam.md, network)")]
    TimedOut(Duration, String),
    /// The login that all callers waited for failed; this is its story.
    #[error("{story}")]
    Shared {
        /// Its chain of causes, as one line.
        story: String,
        /// Whether it may pass by itself.
        transient: bool,
    },
}

/// An instance takes one of these at a time, and answers another one with 409 `Conflict`: "currently being modified, try again later".
/// Attempts made at once come to the same, so the client makes none.
const ONE_AT_A_TIME: [&str; 2] = ["AttachVnic", "DetachVnic"];
/// The words of such an answer to any other request. There is no code for it: a taken address is a `Conflict` as well.
const BEING_MODIFIED: &str = "being modified";

/// The code for a retry token of something that is gone since.
const SPENT: &str = "InvalidatedRetryToken";

/// What a failure means to the one who must act: one row of the table of status codes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// 429: too many requests; the budget has shrunk already. Or no room in the budget: the request was not sent.
    Throttled,
    /// A service limit or quota is reached: wait long, tell the user.
    Limit,
    /// 409 `IncorrectState`, `LockConflict`, or a `Conflict` that passes by itself: something else is going on with the resource, try again.
    Busy,
    /// Other 409: what we know is old; or (`InvalidatedRetryToken`) the retry token is spent, and another one is needed. Read again.
    Conflict,
    /// 412: the resource changed since it was read (`if-match`).
    Changed,
    /// 404: gone, or never ours to see. The service does not tell which.
    NotFoundOrForbidden,
    /// 400 `RelatedResourceNotAuthorizedOrNotFound`: a subnet, NSG or the like is not there *yet*, or not ours.
    RelatedNotFoundOrForbidden,
    /// 401, or nobody could log in.
    Login,
    /// 402, 403: the resource may be seen, and what is asked for may not be done.
    Forbidden,
    /// Other 400, 413, 422: the request itself is wrong and stays wrong.
    Invalid,
    /// An answer that the API does not give: no JSON, another form, too long, a status that is none of its own. It is
    /// somebody's between us and the service, or of a version that is newer, and says nothing about the request.
    Unusable,
    /// 5xx, a timeout, a broken connection.
    Unavailable,
}

impl Error {
    /// What it means.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Call { operation, source, .. } if source.is_busy(operation) => Kind::Busy,
            Self::Call { source, .. } => source.kind(),
            Self::Setup { .. } => Kind::Invalid,
        }
    }

    /// Whether the same call may succeed a little later, with nothing changed by anybody.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        use Kind::{Busy, Login, RelatedNotFoundOrForbidden, Throttled, Unavailable};
        matches!(self.kind(), Throttled | Busy | RelatedNotFoundOrForbidden | Unavailable | Login)
    }

    /// Whether the resource is gone, **or** is not ours to see. Whoever deletes proves with a list which it is.
    #[must_use]
    pub fn is_not_found_or_forbidden(&self) -> bool {
        self.kind() == Kind::NotFoundOrForbidden
    }

    /// Whether something else is going on with the resource, for example another attach on the same instance.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.kind() == Kind::Busy
    }

    /// Whether what we know is old, or the retry token is spent.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self.kind(), Kind::Conflict | Kind::Changed)
    }

    /// Whether we are not who we say, or could not log in.
    #[must_use]
    pub fn is_login(&self) -> bool {
        self.kind() == Kind::Login
    }

    /// Whether the call may have been carried out although it failed: read before doing anything else.
    #[must_use]
    pub const fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Call { outcome_unknown: true, .. })
    }

    /// The number that Oracle's support asks for.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Self::Call { request_id, .. } => Some(request_id.as_str()),
            Self::Setup { .. } => None,
        }
    }

    /// What was called, as Oracle names it: `AttachVnic`.
    #[must_use]
    pub const fn operation(&self) -> Option<&'static str> {
        match self {
            Self::Call { operation, .. } => Some(operation),
            Self::Setup { .. } => None,
        }
    }

    /// The service's code, where the service answered.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.refusal().map(|refusal| refusal.code.as_str())
    }

    /// The HTTP status, where the service answered.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.refusal().map(|refusal| refusal.status)
    }

    /// What the service said, where it answered.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Call { source, .. } => match source.as_ref() {
                Failure::Refused(refusal) => Some(refusal),
                _ => None,
            },
            Self::Setup { .. } => None,
        }
    }

    pub(crate) fn setup(subject: impl Into<String>) -> Self {
        Self::Setup { subject: subject.into(), source: None }
    }

    pub(crate) fn setup_by(
        subject: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Setup { subject: subject.into(), source: Some(source.into()) }
    }
}

impl Failure {
    /// What it means.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Refused(refusal) => refusal.kind(),
            Self::Budget(_) => Kind::Throttled,
            Self::NoConnection(_) | Self::Broken(_) | Self::TimedOut(_) => Kind::Unavailable,
            Self::Login { .. } => Kind::Login,
            Self::Unreadable { .. } => Kind::Unusable,
        }
    }

    /// Whether it is a 409 `Conflict` that passes by itself.
    fn is_busy(&self, operation: &str) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.status == 409 && refusal.code == "Conflict"
            && !refusal.is_of_retry_token() && (ONE_AT_A_TIME.contains(&operation) || refusal.message.contains(BEING_MODIFIED)))
    }

    /// Whether the service may have carried the request out: it was sent, and no answer says that it was not.
    #[must_use]
    pub fn may_have_been_done(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.status >= 500,
            Self::Broken(_) | Self::TimedOut(_) | Self::Unreadable { .. } => true,
            Self::NoConnection(_) | Self::Budget(_) | Self::Login { .. } => false,
        }
    }
}

impl Refusal {
    /// What it means.
    #[must_use]
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

    /// Whether the retry token is refused: what was made by it is gone, or it went with another body before. For the first there
    /// is a code; how the second is answered is written nowhere, but that it is refused, and only the words could tell.
    #[must_use]
    pub fn is_of_retry_token(&self) -> bool {
        let words = self.message.to_lowercase();
        matches!(self.kind(), Kind::Invalid | Kind::Conflict)
            && (self.code == SPENT || ["retry token", "retry-token"].iter().any(|word| words.contains(word)))
    }
}

impl LoginError {
    /// Whether it may pass by itself: the service or a file was not there for a moment.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            // IMDS answers 404 for short whiles about what exists.
            Self::Fetch { source, .. } => {
                matches!(source.kind(), Kind::Unavailable | Kind::Throttled | Kind::NotFoundOrForbidden)
            }
            Self::TimedOut(..) | Self::File { .. } => true,
            Self::Shared { transient, .. } => *transient,
            Self::Material { .. } | Self::TenancyChanged { .. } => false,
        }
    }

    pub(crate) fn material(what: &'static str, problem: impl std::fmt::Display) -> Self {
        Self::Material { what, problem: problem.to_string() }
    }
}

/// The beginning of a text for an error message.
pub(crate) fn beginning(body: &[u8]) -> String {
    const SHOWN: usize = 120;
    let text = String::from_utf8_lossy(body);
    let mut characters = text.chars();
    let mut shown: String = characters.by_ref().take(SHOWN).collect();
    if characters.next().is_some() {
        shown.push('…');
    }
    shown
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
