//! The progress of a login, for the error of a caller whose deadline passes before the login ends.

use std::sync::{Mutex, PoisonError};

use crate::error::Kind;

/// The address that is called now, and why its last attempt failed, in one line; and the kind of that failure.
#[derive(Debug)]
pub(crate) struct Progress(Mutex<(String, Kind)>);

impl Default for Progress {
    fn default() -> Self {
        Self(Mutex::new((String::new(), Kind::Unavailable)))
    }
}

impl Progress {
    /// Records that an address is called, which has not answered yet.
    pub(crate) fn set(&self, line: String) {
        self.note(line, Kind::Unavailable);
    }

    pub(crate) fn note(&self, line: String, kind: Kind) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (line, kind);
    }

    /// The last recorded state.
    pub(crate) fn get(&self) -> (String, Kind) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
