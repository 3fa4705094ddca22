//! One thing that breaks a house rule, as a line that says where, what, and what to do.

use std::fmt;

/// A broken house rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The check that found it: the name of its module.
    pub check: &'static str,
    /// Where: a path relative to the root (with `:line` where known) or a package.
    pub place: String,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Finding {
    /// A finding of `check` about `place`.
    pub fn new(check: &'static str, place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { check, place: place.into(), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.place, self.message, self.check)
    }
}
