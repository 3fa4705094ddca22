//! Errors: the operation and its subject, and as the cause the kernel's error with its extended-ack text.
//! Callers use `is_…()`; they never match text.

use std::fmt;
use std::io;

use nix::errno::Errno;
use thiserror::Error as ThisError;

/// A failed operation with its subject.
#[derive(Debug, ThisError)]
#[error("cannot {operation} {subject}")]
pub struct Error {
    operation: &'static str,
    subject: String,
    #[source]
    cause: Cause,
}

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum Cause {
    /// The kernel refused the request.
    #[error(transparent)]
    Refused(Refusal),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
    /// No answer within the deadline. The kernel may still carry the request out.
    #[error("the kernel did not answer in time")]
    TimedOut,
    /// The objects changed under every attempt to list them, so no list is known to be whole.
    #[error("the list changed while it was read, {0} times in a row")]
    Interrupted(u32),
    /// An answer that is not what the kernel's interface promises.
    #[error("the kernel's answer is malformed: {0}")]
    Malformed(&'static str),
    /// The path leads to something else than a network namespace.
    #[error("it is not a network namespace")]
    NotANamespace,
    /// An argument that can never work.
    #[error("{0}")]
    Invalid(&'static str),
    /// The closure run inside a namespace panicked.
    #[error("the work inside the namespace panicked")]
    Panicked,
}

/// The kernel's refusal: an error number and, where it gave one, its reason in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error number of the kernel.
    pub errno: Errno,
    /// The extended-ack text, for example `Nexthop has invalid gateway`.
    pub text: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.errno.desc())?;
        match &self.text {
            Some(text) => write!(f, " ({text})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<Errno> for Cause {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

impl Cause {
    /// Names what was being done, and to what.
    pub(crate) fn during(self, operation: &'static str, subject: impl fmt::Display) -> Error {
        Error { operation, subject: subject.to_string(), cause: self }
    }

    pub(crate) fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused(refusal) => Some(refusal.errno),
            Self::System(error) => error.raw_os_error().map(Errno::from_raw),
            _ => None,
        }
    }
}

impl Error {
    /// The reason for the failure.
    pub const fn cause(&self) -> &Cause {
        &self.cause
    }

    /// The error number, where there was one.
    pub fn errno(&self) -> Option<Errno> {
        self.cause.errno()
    }

    /// The object of the operation, or something it needs, is not there. Deleting what is absent fails this way.
    pub fn is_not_found(&self) -> bool {
        match self.errno() {
            Some(Errno::ENOENT | Errno::ENODEV | Errno::ESRCH | Errno::ENXIO) => true,
            // "No such address" when deleting one; when adding, it means that the address may not be used.
            Some(Errno::EADDRNOTAVAIL) => self.operation.starts_with("delete"),
            _ => false,
        }
    }

    /// The object exists already.
    pub fn is_already_exists(&self) -> bool {
        self.errno() == Some(Errno::EEXIST)
    }

    /// The same request may succeed a moment later.
    pub fn is_retryable(&self) -> bool {
        match &self.cause {
            Cause::TimedOut | Cause::Interrupted(_) => true,
            Cause::Refused(_) | Cause::System(_) => matches!(
                self.errno(),
                Some(Errno::EBUSY | Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS | Errno::ENOMEM)
            ),
            _ => false,
        }
    }

    /// The kernel lacks the feature (a link type, nf_tables, …).
    pub fn is_unsupported(&self) -> bool {
        matches!(self.errno(), Some(Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: Errno) -> Cause {
        Cause::Refused(Refusal { errno, text: None })
    }

    #[test]
    fn an_absent_address_is_not_found_only_when_deleting() {
        assert!(refused(Errno::EADDRNOTAVAIL).during("delete address", "10.0.0.1/32").is_not_found());
        assert!(!refused(Errno::EADDRNOTAVAIL).during("add address", "10.0.0.1/32").is_not_found());
    }

    #[test]
    fn unsupported_is_neither_not_found_nor_retryable() {
        let error = refused(Errno::EOPNOTSUPP).during("add link", "vnic.100");
        assert!(error.is_unsupported() && !error.is_not_found() && !error.is_retryable());
    }

    #[test]
    fn message_names_operation_and_subject_and_leaves_cause_to_source() {
        let cause =
            Cause::Refused(Refusal { errno: Errno::EINVAL, text: Some("Nexthop has invalid gateway".to_owned()) });
        let error = cause.during("add route", "default via 10.0.0.1 dev 3");
        assert_eq!(error.to_string(), "cannot add route default via 10.0.0.1 dev 3");
        let source = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("Invalid argument (Nexthop has invalid gateway)"));
    }
}
