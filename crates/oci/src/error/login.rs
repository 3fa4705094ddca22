//! Failed logins.

use thiserror::Error;

use super::Failure;

/// Why a login failed.
#[derive(Debug, Error)]
pub enum LoginError {
    /// A resource that the login needs could not be fetched.
    #[error("fetching {what} from {from}, which this host must reach (docs/iam.md, network)")]
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
    /// The call's deadline passed during a login, of this call or another one.
    #[error("no token before the call's deadline: a login is still in progress")]
    TimedOut,
}

impl LoginError {
    pub(crate) fn material(what: &'static str, problem: impl std::fmt::Display) -> Self {
        Self::Material { what, problem: problem.to_string() }
    }
}
