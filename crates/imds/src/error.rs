//! What can go wrong.

use thiserror::Error;

/// Why the metadata service gave no answer that can be used.
#[derive(Debug, Error)]
#[error("{operation}")]
pub struct Error {
    /// What was done, with the beginning of the reply where there is one.
    operation: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What happened to one attempt.
#[derive(Debug, Error)]
#[error("{outcome}")]
pub(crate) struct Failure {
    pub(crate) outcome: String,
    /// Whether another attempt makes sense.
    pub(crate) is_transient: bool,
    pub(crate) source: Option<reqwest::Error>,
}

impl Error {
    pub(crate) fn new(operation: impl Into<String>, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { operation: operation.into(), source: Some(Box::new(source)) }
    }

    pub(crate) fn of_base_url(url: &str) -> Self {
        Self {
            operation: format!("using {url:?} as the metadata service's base URL: not an http:// URL"),
            source: None,
        }
    }
}

/// The beginning of a reply for an error message; replies may hold user data, so it is short.
pub(crate) fn beginning(body: &[u8]) -> String {
    const SHOWN: usize = 80;
    vcn::excerpt(&String::from_utf8_lossy(body), SHOWN).into_owned()
}
