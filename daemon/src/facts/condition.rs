//! Conditions: named states of a node that an operator may have to act on.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use health::Reason;

/// A state of the node, as logs, metrics, readiness, Events and the subcommands report it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The stable word of the condition.
    pub reason: Reason,
    /// Whether new pods can start.
    pub severity: Severity,
    /// The object (a VNIC, a file), if there can be several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// State and effect in this case; the reason has the next step.
    pub message: String,
    /// When this agent first reported it, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_unix_millis: Option<u64>,
}

/// The effect on new pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// New pods cannot start. The agent is not ready either, but for [`Reason::leaves_ready`].
    Blocking,
    /// Pods can start nevertheless.
    Degraded,
}

impl Condition {
    /// A condition that prevents new pods.
    pub fn blocking(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, severity: Severity::Blocking, subject: None, message: message.into(), since_unix_millis: None }
    }

    /// A condition with which pods start.
    pub fn degraded(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, severity: Severity::Degraded, subject: None, message: message.into(), since_unix_millis: None }
    }

    /// The same condition about a subject.
    #[must_use]
    pub fn about(mut self, subject: impl fmt::Display) -> Self {
        self.subject = Some(subject.to_string());
        self
    }

    /// Whether it prevents new pods.
    pub const fn blocks(&self) -> bool {
        matches!(self.severity, Severity::Blocking)
    }

    /// Whether both are the same condition. A changed message (a count, a time) does not make a new one.
    pub fn is_same(&self, other: &Self) -> bool {
        (self.reason, &self.subject, self.severity) == (other.reason, &other.subject, other.severity)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        if let Some(subject) = &self.subject {
            write!(f, " ({subject})")?;
        }
        write!(f, ": {}", self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node without an IPv4 route learns the key and its value nowhere else.
    #[test]
    fn metadata_advice_has_a_valid_ipv6_url() {
        let advice = Reason::MetadataUnavailable.next_step();
        let url = format!("http://[{}]/opc/v2", vcn::METADATA_ADDRESS_V6);
        assert!(advice.contains("OCI_METADATA_BASE_URL") && advice.contains(&url), "{advice}");
        assert!(imds::Imds::check(&url).is_ok());
    }
}
