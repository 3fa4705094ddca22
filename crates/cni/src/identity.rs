//! Who is attached to what: the identifiers that the runtime gives us, checked once.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use vcn::{IfName, excerpt, text_type};

use crate::error::QUOTED;

/// A container's (sandbox's) identifier: `[A-Za-z0-9][A-Za-z0-9_.-]*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContainerId(String);

/// A network's name: `[A-Za-z0-9][A-Za-z0-9_.-]*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NetworkName(String);

/// One attachment of a container to a network: the key of allocations and of garbage collection. Written
/// `network/container/ifname`; none of the three can contain a slash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachmentKey {
    /// The name of the network configuration.
    pub network: NetworkName,
    /// The container's id, as the runtime gives it.
    pub container_id: ContainerId,
    /// The interface inside the container.
    pub ifname: IfName,
}

/// Why a text is not an identifier.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{given:?} is not a {what}: {reason}")]
pub struct IdentityError {
    what: &'static str,
    given: String,
    reason: &'static str,
}

impl ContainerId {
    /// Checks an identifier.
    ///
    /// # Errors
    /// When it is empty or has a character that the specification does not allow. Capitals are allowed.
    pub fn new(id: impl Into<String>) -> Result<Self, IdentityError> {
        checked("container id", id.into()).map(Self)
    }

    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl NetworkName {
    /// Checks a name.
    ///
    /// # Errors
    /// When it is empty or has a character that the specification does not allow.
    pub fn new(name: impl Into<String>) -> Result<Self, IdentityError> {
        checked("network name", name.into()).map(Self)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

text_type!(ContainerId, IdentityError);
text_type!(NetworkName, IdentityError);

impl fmt::Display for AttachmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.container_id, self.ifname)
    }
}

impl FromStr for AttachmentKey {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let bad = |reason| IdentityError { what: "attachment key", given: excerpt(text, QUOTED).into_owned(), reason };
        let mut parts = text.split('/');
        let (Some(network), Some(container), Some(ifname), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(bad("it is not network/container/ifname"));
        };
        Ok(Self {
            network: network.parse()?,
            container_id: container.parse()?,
            ifname: ifname.parse().map_err(|_| bad("the third part is not a link name"))?,
        })
    }
}

fn checked(what: &'static str, given: String) -> Result<String, IdentityError> {
    let mut bytes = given.bytes();
    let reason = match bytes.next() {
        None => "it is empty",
        Some(first) if !first.is_ascii_alphanumeric() => "it must start with a letter or digit",
        Some(_) if !bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-')) => {
            "only letters, digits, '_', '.' and '-' may be in it"
        }
        Some(_) => return Ok(given),
    };
    Err(IdentityError { what, given: excerpt(&given, QUOTED).into_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_follow_the_specification() {
        for good in ["a", "A", "0", "Abc_1.2-3", "cnitool-77383ca0a0715733ca6f"] {
            assert!(ContainerId::new(good).is_ok() && NetworkName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "_a", ".a", "-a", "a b", "a/b", "../x", "é", "a\n", "a\0"] {
            assert!(ContainerId::new(bad).is_err() && NetworkName::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_key_reads_as_it_is_written() {
        let key: AttachmentKey = "vcn-native/ABC/eth0".parse().unwrap();
        assert_eq!(key.to_string().parse(), Ok(key.clone()));
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(json, r#"{"network":"vcn-native","containerId":"ABC","ifname":"eth0"}"#);
        assert_eq!(serde_json::from_str::<AttachmentKey>(&json).unwrap(), key);
        for bad in ["", "a/b", "a/b/c/d", "a//c", "a/b/c:d"] {
            assert!(bad.parse::<AttachmentKey>().is_err(), "{bad:?}");
        }
    }
}
