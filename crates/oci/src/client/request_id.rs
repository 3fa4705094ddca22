//! The number of a request (`opc-request-id`), which Oracle's support asks for.

use std::fmt;

use patience::random;

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
