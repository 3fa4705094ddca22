//! The CNI versions that plugin binaries speak, by their answers to VERSION. A configuration may only promise what every
//! binary of the chain speaks, because a runtime uses the highest promised version without asking.

mod ask;
#[cfg(test)]
mod tests;
mod version_cache;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

pub use version_cache::VersionCache;

/// A CNI version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32, u32, u32);

/// A binary's answer to VERSION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// There is no such binary.
    Missing,
    /// The versions that it speaks.
    Speaks(BTreeSet<Version>),
    /// It did not answer, or not as the specification says.
    Failed(String),
}

impl Version {
    /// The version that our configuration is written in: the newest that every runtime in the field knows.
    pub(crate) const CONFIGURATION: Self = Self(1, 0, 0);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

impl FromStr for Version {
    type Err = ();

    /// A pre-release is refused: it cannot be promised.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.split('.').map(|part| part.parse().map_err(|_| ()));
        let mut next = || parts.next().ok_or(())?;
        let version = Self(next()?, next()?, next()?);
        if parts.next().is_some() { Err(()) } else { Ok(version) }
    }
}
