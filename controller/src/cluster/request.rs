//! Requests that write to the API server: deadline, errors, and the parts of a patch.

use std::time::Duration;

use api::FIELD_MANAGER;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use kube::api::PatchParams;
use resident::logging::chain;
use serde_json::Value;
use thiserror::Error;
use tokio::time::timeout;

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Why a request failed.
#[derive(Debug, Error)]
pub enum RequestError {
    /// The API server refused, or was not reached.
    #[error("the API server refused the request")]
    Refused(#[from] Box<kube::Error>),
    /// It was carried out, and the object in the answer is one of a later version.
    #[error("the API server's answer is unreadable: {0}")]
    Unreadable(String),
    /// No answer in time.
    #[error("no answer from the API server within {DEADLINE:?}")]
    TimedOut,
}

impl RequestError {
    /// In words, for a status, which has room for a line. Of a refusal by missing rights, what is missing: `cannot patch resource "nodes" …`.
    pub(crate) fn brief(&self) -> String {
        let whole = chain(self);
        let is_forbidden = self.code() == Some(403);
        let missing = whole.split_once("\" cannot ").filter(|_| is_forbidden);
        missing.map_or_else(|| whole.clone(), |(_, missing)| format!("the controller cannot {missing}"))
    }

    /// The HTTP status of the API server's answer, if there was one.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused(error) => match &**error {
                kube::Error::Api(status) => Some(status.code),
                _ => None,
            },
            Self::Unreadable(_) | Self::TimedOut => None,
        }
    }

    /// Whether the object changed: it is reconciled again when the watch delivers it.
    pub fn is_conflict(&self) -> bool {
        let Self::Refused(error) = self else { return false };
        let kube::Error::Api(status) = &**error else { return false };
        // A failed condition of a patch: 422 like an invalid field, but without a field name.
        let fields = status.details.as_ref().map_or(0, |details| details.causes.len());
        status.code == 409 || status.code == 422 && fields == 0
    }
}

/// Sends a request, and waits for the answer until the deadline.
pub(crate) async fn send<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, RequestError> {
    match timeout(DEADLINE, request).await {
        Ok(answer) => answer.map_err(|error| RequestError::Refused(Box::new(error))),
        Err(_) => Err(RequestError::TimedOut),
    }
}

/// The object is gone, or already there, or another one by now: the next plan knows what to do.
pub(crate) fn settled<T>(outcome: Result<T, RequestError>) -> Result<(), RequestError> {
    match outcome.map(drop) {
        Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(()),
        outcome => outcome,
    }
}

/// Never by apply, which would make the API server record field owners.
pub(crate) fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() }
}

/// The patch is refused unless this holds.
pub(crate) fn is<const N: usize>(path: [&str; N], value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(path), value: value.into() })
}

/// Replaces the present value.
pub(crate) fn put<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path), value })
}
