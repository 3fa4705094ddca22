//! Failures of observing and applying.

use std::fmt;

use thiserror::Error;

use crate::Step;

/// A failure to look at, or to change, the network.
#[derive(Debug, Error)]
pub enum Error {
    /// The network could not be looked at.
    #[error("cannot observe {what}")]
    Observe {
        /// What was looked at.
        what: String,
        /// What the kernel answered.
        #[source]
        source: netlink::Error,
    },
    /// A step failed; those before it were undone.
    #[error("step failed: {step}")]
    Apply {
        /// The step that failed.
        step: Box<Step>,
        /// The kernel's answer to that step.
        #[source]
        source: netlink::Error,
        /// Steps that could not be taken back either.
        left_over: Vec<Failure>,
    },
    /// The link name that our hash gives belongs to another program.
    #[error("link {name} exists and is not this attachment's (its alias is {}, not {expected:?})", found.as_deref().unwrap_or("missing"))]
    Collision {
        /// The name that our hash gives.
        name: vcn::IfName,
        /// The alias of the link that exists.
        found: Option<String>,
        /// The alias of our link.
        expected: String,
    },
}

/// The failure to observe something.
pub(crate) fn during(what: impl fmt::Display) -> impl Fn(netlink::Error) -> Error {
    move |source| Error::Observe { what: what.to_string(), source }
}

/// One step that failed.
#[derive(Debug, Error)]
#[error("{step}")]
pub struct Failure {
    /// The step that failed.
    pub step: Step,
    /// The kernel's answer to that step.
    #[source]
    pub source: netlink::Error,
}

impl Error {
    /// Whether the first thing that failed found its object there already.
    pub fn is_already_exists(&self) -> bool {
        matches!(self, Self::Apply { source, .. } if source.is_already_exists())
    }

    /// Whether the first thing that failed lacked its object, or something that this needs: a link, say.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Apply { source, .. } if source.is_not_found())
    }

    /// Whether trying again may help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Observe { source, .. } | Self::Apply { source, .. } => source.is_retryable(),
            Self::Collision { .. } => false,
        }
    }
}
