//! Failed logins.

use std::time::Duration;

use thiserror::Error;

use super::{Failure, Kind};

/// Why a login failed.
#[derive(Debug, Error)]
pub enum LoginError {
    /// A resource that the login needs could not be fetched.
    #[error("fetching {what} from {from}")]
    Fetch {
        /// The resource.
        what: &'static str,
        /// A URL or a path.
        from: String,
        /// The failure.
        #[source]
        source: Box<Failure>,
    },
    /// A file could not be read.
    #[error("reading {what} at {path}")]
    File {
        /// The file's content.
        what: &'static str,
        /// Its path.
        path: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// A key, certificate or token that cannot be used. Its content is never shown.
    #[error("{what} cannot be used: {problem}")]
    Material {
        /// The key, certificate or token.
        what: &'static str,
        /// Its problem.
        problem: String,
    },
    /// The instance's certificate names another tenancy than at the first login.
    #[error("the instance's certificate names tenancy {now}, at the first login {before}: refused until a restart")]
    TenancyChanged {
        /// At the first login.
        before: String,
        /// Now.
        now: String,
    },
    /// No token in time. The text is the address and the cause of its last failure.
    #[error("no token within {0:?}: {1}; check that this host reaches that address (docs/iam.md, network)")]
    TimedOut(Duration, String),
    /// The login that all callers waited for failed.
    #[error("{message}")]
    Shared {
        /// Its chain of causes, as one line.
        message: String,
        /// Whether it may pass by itself.
        transient: bool,
    },
}

impl LoginError {
    /// Whether it may pass by itself: the service or a file was missing for a moment.
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
