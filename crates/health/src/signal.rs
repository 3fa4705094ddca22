//! What a signal is: its area, its unit, and why it may have no value.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a signal is about. Each area is one condition of the Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Area {
    /// The network of pods and host.
    Network,
    /// The rest of the machine.
    Host,
    /// GPUs and the RDMA network. Controllers of 0.2 refuse a summary with a third area: a newer one recognizes its checks by
    /// name.
    #[serde(rename(serialize = "host", deserialize = "accelerators"))]
    Accelerators,
}

impl Area {
    /// All areas, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Network, Self::Host, Self::Accelerators];

    /// The type of its condition of the Node, which is True while no problem is critical.
    pub const fn condition(self) -> &'static str {
        match self {
            Self::Network => "oke.oraclecloud.com/NetworkReady",
            Self::Host => "oke.oraclecloud.com/HostHealthy",
            Self::Accelerators => "oke.oraclecloud.com/AcceleratorsHealthy",
        }
    }
}

/// Something that is measured.
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    /// Its stable name: rules and metrics refer to it.
    pub name: &'static str,
    /// The unit of its value.
    pub unit: Unit,
    /// Where the value comes from.
    pub source: &'static str,
    /// The reason for measuring it.
    pub why: &'static str,
    /// What to do when it is a problem.
    pub remedy: &'static str,
}

/// The unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Unit {
    /// A share, from 0 to 100.
    Percent,
    /// A number of things.
    Count,
    /// Events per minute since the last sample.
    PerMinute,
    /// 1 for yes, 0 for no.
    Yes,
    /// A time in milliseconds.
    Milliseconds,
    /// An amount of memory in MiB.
    Mebibytes,
    /// A version, as [`version_number`] encodes it.
    Version,
    /// No value, words only.
    Text,
}

/// Why a signal has no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gap {
    /// It should have one.
    Unknown(String),
    /// A rate that needs a second sample.
    Waiting,
    /// It has none on this node.
    NotApplicable(String),
}

impl Gap {
    /// A [`Gap::Unknown`] with its reason.
    pub fn unknown(reason: impl Into<String>) -> Self {
        Self::Unknown(reason.into())
    }

    /// A [`Gap::NotApplicable`] with its reason.
    pub fn absent(reason: impl Into<String>) -> Self {
        Self::NotApplicable(reason.into())
    }
}

impl Unit {
    /// A value in words.
    pub fn show(self, value: f64) -> String {
        let plain = if value.fract().abs() < 0.05 || value.abs() >= 100.0 {
            format!("{value:.0}")
        } else {
            format!("{value:.1}")
        };
        match self {
            Self::Percent => format!("{plain} %"),
            Self::Count | Self::Text => plain,
            Self::PerMinute => format!("{plain}/min"),
            Self::Yes => if value > 0.0 { "yes" } else { "no" }.to_owned(),
            Self::Milliseconds => format!("{plain} ms"),
            Self::Mebibytes => format!("{plain} MiB"),
            Self::Version => {
                let part = |unit: f64| (value / unit).floor() % 1000.0;
                format!("{}.{}.{}", part(1e6), part(1e3), part(1.0))
            }
        }
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(reason) | Self::NotApplicable(reason) => f.write_str(reason),
            Self::Waiting => f.write_str("a rate needs two samples"),
        }
    }
}

/// `1.39.0` as 1,039,000, so that versions compare as numbers: 1.100 is newer than 1.39. What follows the third number is
/// left out.
pub fn version_number(text: &str) -> Option<f64> {
    let mut parts = text.trim().trim_start_matches('v').split(['.', '-', '+', '_', '~']);
    let major: u16 = parts.next()?.parse().ok()?;
    let mut next = || parts.next().and_then(|part| part.parse::<u16>().ok()).unwrap_or(0).min(999);
    let (minor, patch) = (next(), next());
    Some(f64::from(major) * 1e6 + f64::from(minor) * 1e3 + f64::from(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers_and_show_as_versions() {
        let number = |text| version_number(text).unwrap();
        assert!(number("1.100.0") > number("1.39.0") && number("1.39.0") > number("1.38.12-4.el8"));
        assert_eq!(Unit::Version.show(number("v1.39.2-10459.el8")), "1.39.2");
        assert_eq!(version_number("Unknown"), None);
    }
}
