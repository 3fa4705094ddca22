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
        /// The resource that was fetched.
        what: &'static str,
        /// A URL or a path.
        from: String,
        /// The failure of the last attempt.
        #[source]
        source: Box<Failure>,
    },
    /// A file could not be read.
    #[error("reading {what} at {path}")]
    File {
        /// What the file contains.
        what: &'static str,
        /// The path of the file.
        path: String,
        /// The answer of the system.
        #[source]
        source: std::io::Error,
    },
    /// A key, certificate or token that cannot be used. Its content is never shown.
    #[error("{what} cannot be used: {problem}")]
    Material {
        /// The key, certificate or token.
        what: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The instance's certificate names another tenancy than at the first login.
    #[error("the instance's certificate names tenancy {now}, at the first login {before}: refused until a restart")]
    TenancyChanged {
        /// At the first login.
        before: String,
        /// The tenancy that the certificate names now.
        now: String,
    },
    /// No token in time.
    #[error("no token within {within:?}: {last}; {}", hint(*kind))]
    TimedOut {
        /// The time that the caller allowed.
        within: Duration,
        /// The address, and why its last attempt failed.
        last: String,
        /// The kind of that failure.
        kind: Kind,
    },
    /// The login that all callers waited for failed.
    #[error("{message}")]
    Shared {
        /// Its chain of causes, as one line.
        message: String,
        /// Whether it may pass by itself.
        transient: bool,
        /// The kind of the shared failure.
        kind: Kind,
    },
}

/// What to do about a login that takes too long.
const fn hint(kind: Kind) -> &'static str {
    match kind {
        Kind::Throttled => "OCI throttles the login: wait, and find what else in the tenancy logs in often",
        _ => "check that this host reaches that address (docs/iam.md, network)",
    }
}

impl LoginError {
    /// Whether it may pass by itself: the service or a file was missing for a moment.
    pub fn is_transient(&self) -> bool {
        match self {
            // IMDS answers 404 for short whiles about what exists.
            Self::Fetch { source, .. } => {
                matches!(source.kind(), Kind::Unavailable | Kind::Throttled | Kind::NotFoundOrForbidden)
            }
            Self::TimedOut { .. } | Self::File { .. } => true,
            Self::Shared { transient, .. } => *transient,
            Self::Material { .. } | Self::TenancyChanged { .. } => false,
        }
    }

    /// What kind of failure the login is for the call: a service that throttles or does not answer refuses no credentials.
    pub fn kind(&self) -> Kind {
        let kind = match self {
            Self::Fetch { source, .. } => source.kind(),
            Self::TimedOut { kind, .. } | Self::Shared { kind, .. } => *kind,
            Self::File { .. } | Self::Material { .. } | Self::TenancyChanged { .. } => Kind::Login,
        };
        if matches!(kind, Kind::Throttled | Kind::Unavailable) { kind } else { Kind::Login }
    }

    pub(crate) fn material(what: &'static str, problem: impl std::fmt::Display) -> Self {
        Self::Material { what, problem: problem.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refusal;

    #[test]
    fn service_that_throttles_or_is_down_refuses_no_credentials() {
        let fetch = |status| {
            let refusal = Refusal { status, code: String::new(), message: String::new(), retry_after: None };
            let source = Box::new(Failure::Refused(refusal));
            LoginError::Fetch { what: "the token", from: "https://auth".to_owned(), source }
        };
        let late =
            |kind| LoginError::TimedOut { within: Duration::from_secs(1), last: "https://auth: 429".to_owned(), kind };
        for (error, kind) in [
            (fetch(429), Kind::Throttled),
            (fetch(503), Kind::Unavailable),
            (fetch(401), Kind::Login),
            (fetch(404), Kind::Login),
            (late(Kind::Throttled), Kind::Throttled),
            (late(Kind::Unavailable), Kind::Unavailable),
            (LoginError::material("the private key", "it is not in PEM format"), Kind::Login),
        ] {
            let message = error.to_string();
            let failure = Failure::Login { login: "instance principal", source: Box::new(error) };
            assert_eq!(failure.kind(), kind, "{message}");
        }
        assert!(!late(Kind::Throttled).to_string().contains("reaches that address"));
    }
}
