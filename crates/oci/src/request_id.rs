//! The number of a request (`opc-request-id`), which Oracle's support needs.

use std::fmt;

use backoff::random;

/// A request's number: the client's until the service answers, then the service's, which begins with the client's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// A number of the client's: 32 hexadecimal digits, like the service's.
    pub(crate) fn new() -> Self {
        Self(format!("{:016X}{:016X}", random(), random()))
    }

    /// The service's number; the client's number if the header is empty or not text.
    pub(crate) fn answered(self, header: Option<&str>) -> Self {
        match header {
            Some(number) if !number.is_empty() => Self(number.to_owned()),
            _ => self,
        }
    }

    /// The id as it is sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
