//! The protocol versions we speak. A result is written in the configuration's version, whatever we know ourselves.

use std::str::FromStr;

use vcn::{excerpt, words};

use crate::error::QUOTED;
use crate::{Error, ErrorCode, Verb};

/// A version of the CNI protocol, oldest first. 0.3.0 and older are refused: no supported runtime writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 0.3.1: `ips[].version`, no CHECK.
    V0_3_1,
    /// 0.4.0, which added CHECK.
    V0_4_0,
    /// 1.0.0: `ips[].version` is gone.
    V1_0_0,
    /// 1.1.0: STATUS, GC, and more fields in results.
    V1_1_0,
}

words!(Version: V0_3_1 = "0.3.1", V0_4_0 = "0.4.0", V1_0_0 = "1.0.0", V1_1_0 = "1.1.0");

impl Version {
    /// The newest: the version of replies until a configuration was read.
    pub const NEWEST: Self = Self::V1_1_0;

    /// Whether `ips[]` carries `version: "4"` or `"6"`.
    pub fn has_ip_version(self) -> bool {
        self < Self::V1_0_0
    }

    /// Whether results know the MTU of interfaces.
    pub fn has_extended_results(self) -> bool {
        self >= Self::V1_1_0
    }

    /// The first version in which `verb` exists.
    pub const fn introduced(verb: Verb) -> Self {
        match verb {
            Verb::Add | Verb::Del | Verb::Version => Self::V0_3_1,
            Verb::Check => Self::V0_4_0,
            Verb::Status | Verb::Gc => Self::V1_1_0,
        }
    }

    /// All of them as text, for messages.
    pub fn list() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }
}

impl FromStr for Version {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::from_word(text).ok_or_else(|| {
            let given = match text {
                "" => "no cniVersion (that means 0.1.0)".to_owned(),
                other => format!("cniVersion {:?}", excerpt(other, QUOTED)),
            };
            Error::new(
                ErrorCode::INCOMPATIBLE_VERSION,
                format!(
                    "the configuration has {given}, this plugin speaks {}: set cniVersion to one of these",
                    Self::list()
                ),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_version_is_refused_with_the_supported_versions() {
        for unknown in ["", "0.1.0", "0.2.0", "0.3.0", "1.1", "1.1.1", "1.9.9", "2.0.0", " 1.0.0"] {
            let error = unknown.parse::<Version>().expect_err(unknown);
            assert_eq!(error.code, ErrorCode::INCOMPATIBLE_VERSION);
            assert!(error.msg.contains("0.3.1, 0.4.0, 1.0.0, 1.1.0"), "{error}");
        }
    }
}
