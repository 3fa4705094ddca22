//! How far a login has come: what a caller can say whose deadline passes before the login ends.

use std::sync::{Mutex, PoisonError};

/// One line: the address that is asked now, and why its last attempt failed.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<String>);

impl Progress {
    /// Notes the state of the login from here on.
    pub(crate) fn is(&self, line: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = line;
    }

    /// What is known now.
    pub(crate) fn now(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
