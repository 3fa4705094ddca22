//! What can go wrong.

use std::time::Duration;

use thiserror::Error;

/// Why systemd did not do what was requested.
#[derive(Debug, Error)]
pub enum Error {
    /// Nothing listens at the bus's socket, or it refuses this process.
    #[error("connect to the system bus at {socket}")]
    Connect {
        /// The path of the socket.
        socket: String,
        /// The answer of the bus.
        source: Box<zbus::Error>,
    },
    /// systemd refused a call, or did not answer in time.
    #[error("{operation}")]
    Call {
        /// The operation that was requested.
        operation: String,
        /// The answer of the bus.
        source: Box<zbus::Error>,
    },
    /// A command did not end in time, and still runs.
    #[error("{unit} still runs after {limit:?}")]
    StillRunning {
        /// The unit that is still running.
        unit: String,
        /// How long the caller waited.
        limit: Duration,
    },
    /// An answer does not have the documented form.
    #[error("{operation}: systemd's answer lacks {property}")]
    Answer {
        /// The operation that was requested.
        operation: String,
        /// The property that the answer lacks.
        property: &'static str,
    },
}

impl Error {
    /// Whether a unit with the name of a command is there already.
    #[must_use]
    pub fn is_unit_exists(&self) -> bool {
        self.is_named("org.freedesktop.systemd1.UnitExists")
    }

    /// Whether systemd does not know the unit of a call.
    pub(crate) fn is_unknown_unit(&self) -> bool {
        self.is_named("org.freedesktop.systemd1.NoSuchUnit")
    }

    fn is_named(&self, expected: &str) -> bool {
        let Self::Call { source, .. } = self else { return false };
        matches!(&**source, zbus::Error::MethodError(name, ..) if name.as_str() == expected)
    }
}

/// The result of a call.
pub(crate) type Result<T> = std::result::Result<T, Error>;
