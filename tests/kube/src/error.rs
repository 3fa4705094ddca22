//! What can go wrong with an API server for tests.

use std::io;

use thiserror::Error;

/// The result of this library's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation.
#[derive(Debug, Error)]
pub enum Error {
    /// The servers are not on this machine.
    #[error("there is no Kubernetes API server to test with: {0}")]
    NoAssets(String),
    /// A server ended, or was not ready in time.
    #[error("{server} {what}; the end of its log:\n{log}")]
    Server {
        /// Which program.
        server: &'static str,
        /// What it did.
        what: String,
        /// Its last lines.
        log: String,
    },
    /// The system refused something.
    #[error("cannot {operation}")]
    System {
        /// What was being done, and to what.
        operation: String,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// A certificate or key could not be made.
    #[error("cannot make a certificate of {subject}")]
    Certificate {
        /// Whose.
        subject: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// The API server refused.
    #[error("cannot {operation}: {message}")]
    Refused {
        /// What was being done, and to what.
        operation: String,
        /// The HTTP status.
        code: u16,
        /// The API server's words.
        message: String,
    },
    /// The API server did not answer as one does.
    #[error("cannot {operation}")]
    Api {
        /// What was being done, and to what.
        operation: String,
        /// What it said.
        #[source]
        source: Box<kube::Error>,
    },
    /// etcd refused, or did not answer.
    #[error("cannot {operation}")]
    Etcd {
        /// What was being done.
        operation: String,
        /// What it said.
        #[source]
        source: reqwest::Error,
    },
    /// What was given or answered makes no sense.
    #[error("{0}")]
    Invalid(String),
}

/// Names what was being done when something failed.
pub(crate) trait During<T> {
    /// The operation is named only when it failed.
    fn during(self, operation: impl FnOnce() -> String) -> Result<T>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::System { operation: operation(), source })
    }
}

impl<T> During<T> for kube::Result<T> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| match source {
            kube::Error::Api(status) => {
                Error::Refused { operation: operation(), code: status.code, message: status.message }
            }
            source => Error::Api { operation: operation(), source: Box::new(source) },
        })
    }
}

impl<T> During<T> for reqwest::Result<T> {
    fn during(self, operation: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Etcd { operation: operation(), source })
    }
}
