//! What a VNIC is called on its instance: by pods that request it and by the agent.

use serde::{Deserialize, Serialize};
use thiserror::Error;
use vcn::text_type;

/// A DNS label: small letters, digits and inner hyphens, at most 63. Unique on an instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VnicName(String);

/// Why a text is not a VNIC's name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a name: small letters, digits and inner hyphens, 1 to 63 of them")]
pub struct VnicNameError(String);

impl VnicName {
    /// Checks a name.
    ///
    /// # Errors
    /// When it is not a DNS label.
    pub fn new(text: impl Into<String>) -> Result<Self, VnicNameError> {
        let text = text.into();
        if is_dns_label(&text) { Ok(Self(text)) } else { Err(VnicNameError(text.chars().take(80).collect())) }
    }

    /// The name as text: a DNS label of 1 to 63 characters.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a text is a DNS label (RFC 1123).
pub(crate) fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

text_type!(VnicName, VnicNameError);
