//! What the runtime may ask for, in CNI_COMMAND.

use std::fmt;

/// A CNI operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Attach a container to the network.
    Add,
    /// Detach it.
    Del,
    /// Is the attachment still as ADD left it?
    Check,
    /// Could an ADD succeed now?
    Status,
    /// Free what belongs to no valid attachment.
    Gc,
    /// Which protocol versions do we speak?
    Version,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Add, Self::Del, Self::Check, Self::Status, Self::Gc, Self::Version];

    /// As it is written in CNI_COMMAND.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Status => "STATUS",
            Self::Gc => "GC",
            Self::Version => "VERSION",
        }
    }

    /// The verb of that name. Exact: runtimes write capitals, and a typing error must not become an operation.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == name)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
