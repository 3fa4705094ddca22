//! What is wrong with the configuration, for the person who wrote it.

use std::fmt;
use std::path::PathBuf;

use serde::{Serialize, Serializer};

/// Where a value is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the command line.
    Flag,
    /// A variable of the environment.
    Environment,
    /// A line of a file.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The line, from 1; 0 is the file as a whole.
        line: usize,
    },
    /// Nowhere in particular: several values do not go together.
    Together,
}

/// A wrong key or value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The place that has it.
    pub place: Place,
    /// Which key; empty when it is about no key.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
    /// What may have been meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
}

impl Problem {
    /// A problem for which nothing better is known.
    pub fn new(place: Place, key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { place, key: key.into(), problem: problem.into(), nearest: None }
    }

    /// Says what may have been meant.
    #[must_use]
    pub fn instead(self, nearest: Option<String>) -> Self {
        Self { nearest, ..self }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("command line"),
            Self::Environment => f.write_str("environment"),
            Self::File { path, line: 0 } => path.display().fmt(f),
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Together => f.write_str("configuration"),
        }
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if !self.key.is_empty() {
            write!(f, "{} ", self.key)?;
        }
        f.write_str(&self.problem)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean {nearest}?"),
            None => Ok(()),
        }
    }
}
