//! What the evidence proves, for people.

use std::fmt;

use api::PairVerdict;
use api::probe::{Evidence, Failure, HostState};

use crate::cause::Cause;
use crate::tap::Tap;

/// How sure a verdict is, from best to worst for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// Packets pass.
    Reachable,
    /// Several causes are left.
    OneOf,
    /// One cause fits, and others can hide behind it.
    Likely,
    /// The evidence excludes all other causes.
    Proven,
}

/// Network or host?
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Between the hosts.
    Network,
    /// The source's host.
    SourceHost,
    /// The target's host.
    TargetHost,
    /// The service that is the target.
    Service,
    /// Not known.
    Unknown,
}

/// A verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How sure it is.
    pub label: Label,
    /// Network or host.
    pub place: Place,
    /// The causes: all of them if proven, else those that are left.
    pub causes: Vec<Cause>,
    /// The last tap that saw the probe, if it is known.
    pub last_tap: Option<Tap>,
    /// What failed, in words.
    pub failure: String,
    /// The hosts before the probe.
    pub before: String,
    /// The hosts after it.
    pub after: String,
    /// What to change, or what would separate the causes that are left.
    pub fix: String,
}

impl Label {
    /// Its word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reachable => "Reachable",
            Self::OneOf => "OneOf",
            Self::Likely => "Likely",
            Self::Proven => "Proven",
        }
    }
}

impl Place {
    /// In words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Network => "the network",
            Self::SourceHost => "the source's host",
            Self::TargetHost => "the target's host",
            Self::Service => "the service",
            Self::Unknown => "not known",
        }
    }
}

impl Verdict {
    /// The causes in one line: with "or" if one of them holds, with "and" if all do.
    #[must_use]
    pub fn cause(&self) -> String {
        let words: Vec<&str> = self.causes.iter().map(|cause| cause.as_str()).collect();
        words.join(if self.label == Label::OneOf { " or " } else { " and " })
    }

    /// The label and the causes in one line.
    #[must_use]
    pub fn headline(&self) -> String {
        match (self.label, self.causes.is_empty()) {
            (Label::Reachable, _) => self.label.as_str().to_owned(),
            (Label::OneOf, true) => "OneOf: no cause fits".to_owned(),
            _ => format!("{}: {}", self.label.as_str(), self.cause()),
        }
    }

    /// As a status has it.
    #[must_use]
    pub fn for_status(&self, evidence: &Evidence) -> PairVerdict {
        let name = |party: &api::probe::Party| {
            let address = || party.address.map(|address| address.to_string());
            party.node.clone().or_else(address).unwrap_or_default()
        };
        let probe = match evidence.port {
            0 => evidence.kind.as_str().to_owned(),
            port => format!("{}/{port}", evidence.kind.as_str()),
        };
        PairVerdict {
            source: name(&evidence.source),
            target: name(&evidence.target),
            probe,
            label: self.label.as_str().to_owned(),
            cause: self.cause(),
            before: self.before.clone(),
            after: self.after.clone(),
            fix: self.fix.clone(),
        }
        .bounded()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.headline())?;
        if self.label == Label::Reachable {
            return Ok(());
        }
        writeln!(f, "where: {}", self.place.as_str())?;
        writeln!(f, "failure: {}", self.failure)?;
        writeln!(f, "last seen: {}", self.last_tap.map_or("not known", Tap::as_str))?;
        writeln!(f, "before: {}", self.before)?;
        writeln!(f, "after: {}", self.after)?;
        writeln!(f, "{}: {}", if self.label == Label::OneOf { "to separate" } else { "fix" }, self.fix)
    }
}

/// A failure in words.
pub(crate) fn failure(evidence: &Evidence) -> String {
    let tally = &evidence.attempt.tally;
    let why = match &tally.failure {
        None | Some(Failure::Silence) => "no answer".to_owned(),
        Some(Failure::Refused) => "refused by the target".to_owned(),
        Some(Failure::Prohibited(from)) => format!("ICMP \"prohibited\" from {from}"),
        Some(Failure::Unreachable(from)) => format!("ICMP \"unreachable\" from {from}"),
        Some(Failure::TooBig { mtu, from: None }) => format!("this host allows {mtu} bytes"),
        Some(Failure::TooBig { mtu, from: Some(from) }) => format!("{from} allows {mtu} bytes"),
        Some(Failure::Local(error)) => format!("not sent: {error}"),
        Some(Failure::Status(status)) => format!("HTTP status {status}"),
        Some(Failure::Invalid(meaning)) => meaning.clone(),
    };
    format!("{} of {} lost, {why}", tally.lost(), tally.sent)
}

/// What a host shows, in a few words: only what its kernel counts.
pub(crate) fn host(state: &HostState) -> String {
    let of = |name: &str, number: Option<u64>, limit: Option<u64>| match (number, limit) {
        (Some(number), Some(limit)) => Some(format!("{name} {number}/{limit}")),
        (Some(number), None) => Some(format!("{name} {number}")),
        _ => None,
    };
    let parts = [
        of("rp_filter drops", state.rp_filter_drops, None),
        of("neighbours", state.neighbours, state.neighbour_limit),
        of("overflows", state.neighbour_overflows.filter(|count| *count > 0), None),
        of("connections", state.connections, state.connection_limit),
        of("dropped", state.connection_drops.filter(|count| *count > 0), None),
        of("raced", state.insert_failures.filter(|count| *count > 0), None),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
