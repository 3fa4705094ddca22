//! The CNI versions that plugin binaries speak, by their answers to VERSION. A configuration may only promise what every
//! binary of the chain speaks, because a runtime uses the highest promised version without asking.

mod ask;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::files::Identity;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u32, u32, u32);

/// A binary's answer to VERSION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Missing,
    Speaks(BTreeSet<Version>),
    /// It did not answer, or not as the specification says.
    Failed(String),
}

/// The answers of binaries, by path, kept until the binary changes.
#[derive(Debug, Default)]
pub struct VersionCache(BTreeMap<PathBuf, (Option<Identity>, Answer)>);

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
        let parts: Result<Vec<u32>, _> = text.split('.').map(str::parse).collect();
        match parts.as_deref() {
            Ok([major, minor, patch]) => Ok(Self(*major, *minor, *patch)),
            _ => Err(()),
        }
    }
}

impl VersionCache {
    /// The binaries' answers, in their order. Binaries that are not in the list are forgotten.
    pub(crate) fn answers(&mut self, paths: &[PathBuf]) -> Vec<Answer> {
        self.answers_within(paths, ask::DEADLINE)
    }

    fn answers_within(&mut self, paths: &[PathBuf], deadline: Duration) -> Vec<Answer> {
        // A binary that failed is asked once more.
        let is_valid = |path: &PathBuf, (known, answer): &(Option<Identity>, Answer)| {
            paths.contains(path) && *known == Identity::of(path) && !matches!(answer, Answer::Failed(_))
        };
        self.0.retain(|path, entry| is_valid(path, entry));
        let answer = |path: &PathBuf| {
            let asked = || (Identity::of(path), ask::ask(path, deadline));
            self.0.entry(path.clone()).or_insert_with(asked).1.clone()
        };
        paths.iter().map(answer).collect()
    }
}
