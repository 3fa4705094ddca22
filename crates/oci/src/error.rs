//! Failed calls, and what a caller must know about them.

mod failure;
mod login;

use thiserror::Error;

use crate::request_id::RequestId;

pub use failure::{Failure, Kind, Refusal};
pub(crate) use failure::{beginning, chain};
pub use login::LoginError;

/// A call that brought no usable answer in any of its attempts.
#[derive(Debug, Error)]
pub enum Error {
    /// The last attempt failed.
    #[error("{operation} {subject} (attempt {attempts}, opc-request-id {request_id})")]
    Call {
        /// Oracle's name of the operation, for example `AttachVnic`.
        operation: &'static str,
        /// Its subject: an OCID, as a rule.
        subject: String,
        /// The number of attempts.
        attempts: u32,
        /// The number for Oracle's support: the service's for the last attempt, else the client's.
        request_id: RequestId,
        /// The failure of the last attempt.
        #[source]
        source: Box<Failure>,
    },
    /// A setting, file or environment variable that makes no client.
    #[error("setting up the OCI client: {subject}")]
    Setup {
        /// The setting and its problem.
        subject: String,
        /// The cause, where there is one.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

impl Error {
    /// The kind of the failure.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Call { operation, source, .. } if source.is_busy(operation) => Kind::Busy,
            Self::Call { source, .. } => source.kind(),
            Self::Setup { .. } => Kind::Invalid,
        }
    }

    /// Whether the resource is gone, **or** the caller may not read it. A caller that deletes must find out by a list.
    pub fn is_not_found_or_forbidden(&self) -> bool {
        self.kind() == Kind::NotFoundOrForbidden
    }

    /// Whether another operation is under way on the resource, for example another attach on the same instance.
    pub fn is_busy(&self) -> bool {
        self.kind() == Kind::Busy
    }

    /// Whether the caller's knowledge is outdated, or the retry token is spent.
    pub fn is_conflict(&self) -> bool {
        matches!(self.kind(), Kind::Conflict | Kind::Changed)
    }

    /// Whether the service may have carried the call out. Of several attempts only the last one's failure is known.
    pub fn may_have_been_done(&self) -> bool {
        match self {
            Self::Call { attempts, source, .. } => *attempts > 1 || source.may_have_been_done(),
            Self::Setup { .. } => false,
        }
    }

    /// The number for Oracle's support.
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Self::Call { request_id, .. } => Some(request_id.as_str()),
            Self::Setup { .. } => None,
        }
    }

    /// Oracle's name of the operation: `AttachVnic`.
    pub const fn operation(&self) -> Option<&'static str> {
        match self {
            Self::Call { operation, .. } => Some(operation),
            Self::Setup { .. } => None,
        }
    }

    /// The service's code, where it answered.
    pub fn code(&self) -> Option<&str> {
        self.refusal().map(|refusal| refusal.code.as_str())
    }

    /// The HTTP status, where the service answered.
    pub fn status(&self) -> Option<u16> {
        self.refusal().map(|refusal| refusal.status)
    }

    /// The service's refusal, where it answered.
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
