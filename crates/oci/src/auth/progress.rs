//! The progress of a login, for the error of a caller whose deadline passes before the login ends.

use std::sync::{Mutex, PoisonError};

/// One line: the address that is called now, and why its last attempt failed.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<String>);

impl Progress {
    /// Records the state of the login.
    pub(crate) fn set(&self, line: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = line;
    }

    /// The last recorded state.
    pub(crate) fn get(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
