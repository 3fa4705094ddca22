//! The number of a request (`opc-request-id`), which Oracle's support asks for, and chance where a call needs some.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A request's number: ours as long as nobody answered, the service's (which begins with ours) afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// A number of our own: 32 hexadecimal digits, as the service's are.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self(format!("{:016X}{:016X}", random(), random()))
    }

    /// What the service called it; ours where that is no text.
    pub(crate) fn answered(self, header: Option<&str>) -> Self {
        match header {
            Some(theirs) if !theirs.is_empty() => Self(theirs.to_owned()),
            _ => self,
        }
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Good enough for jitter: 0.0–1.0.
pub(crate) fn chance() -> f64 {
    f64::from(u32::try_from(random() >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

/// No secret depends on it, and it costs no dependency: the standard library seeds each `RandomState` anew.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
