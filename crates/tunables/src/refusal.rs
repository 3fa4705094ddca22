//! The refusal of a setting, for the author of the policy.

use std::fmt;

/// Why a policy does not set something, and what to do instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A clause: `the kubelet sets it`.
    pub reason: &'static str,
    /// The next step for the user, as a sentence.
    pub next_step: &'static str,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.reason, self.next_step)
    }
}
