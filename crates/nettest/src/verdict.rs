//! What the evidence proves, for people.

use std::fmt;
use std::net::IpAddr;

use api::PairVerdict;
use vcn::words;

use crate::cause::{Cause, Place};
use crate::probe::{Evidence, Failure, ProbeReport};
use crate::tap::Tap;

/// What hosts show that have nothing to do with it.
const NOTHING: &str = "no counter rose, no table is full";

/// The longest fix, as a status has room for.
pub(crate) const FIX_MAX: usize = 160;

/// How sure a verdict is, from best to worst for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// Packets pass in both directions.
    Reachable,
    /// Several causes are left.
    OneOf,
    /// One cause fits, and others can hide behind it.
    Likely,
    /// The evidence excludes all other causes.
    Proven,
}

/// What the evidence proves about a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How sure it is.
    pub label: Label,
    /// Where the causes are.
    pub place: Place,
    /// The causes: all of them if proven, else those that are left.
    pub causes: Vec<Cause>,
    /// The last tap that saw the probe, if it is known.
    pub last_tap: Option<Tap>,
    /// What failed, in words.
    pub failure: String,
    /// The hosts before the probe: counters that rose, and tables that are full.
    pub before: String,
    /// The hosts after it.
    pub after: String,
    /// What to change, or what would separate the causes that are left.
    pub fix: String,
}

words!(Label: Reachable, OneOf, Likely, Proven);

impl Verdict {
    /// The causes in one line: with "or" if one of them holds, with "and" if all do.
    pub fn cause(&self) -> String {
        let words: Vec<&str> = self.causes.iter().map(|cause| cause.as_str()).collect();
        words.join(if self.label == Label::OneOf { " or " } else { " and " })
    }

    /// The label and the causes in one line.
    pub fn headline(&self) -> String {
        match (self.label, self.causes.is_empty()) {
            (Label::Reachable, _) => self.label.as_str().to_owned(),
            (Label::OneOf, true) => "OneOf: no cause fits".to_owned(),
            _ => format!("{}: {}", self.label.as_str(), self.cause()),
        }
    }

    /// As a status has it.
    pub fn for_status(&self, evidence: &Evidence) -> PairVerdict {
        let name = |party: &crate::probe::Party| {
            let address = || party.address.map(|address| address.to_string());
            party.node.clone().or_else(address).unwrap_or_default()
        };
        PairVerdict {
            source: name(&evidence.source),
            target: name(&evidence.target),
            probe: evidence.kind.with_port(evidence.port),
            label: self.label.as_str().to_owned(),
            cause: self.cause(),
            failure: self.failure.clone(),
            last_seen: self.last_tap.map_or("Unknown".to_owned(), |tap| format!("{tap:?}")),
            before: self.before.clone(),
            after: self.after.clone(),
            fix: fix(self.label, &self.causes, FIX_MAX),
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
        let shown = |text: &str| if text.is_empty() { NOTHING } else { text }.to_owned();
        writeln!(f, "before: {}", shown(&self.before))?;
        writeln!(f, "after: {}", shown(&self.after))?;
        writeln!(f, "{}: {}", if self.label == Label::OneOf { "to separate" } else { "fix" }, self.fix)?;
        if self.label != Label::OneOf && self.last_tap != Some(Tap::SourceIn) {
            writeln!(f, "then run it again: faults behind this place cannot be seen yet")?;
        }
        Ok(())
    }
}

/// The next steps: what to change or, if several causes are left, what separates them. Each step once.
pub fn steps(label: Label, causes: &[Cause]) -> Vec<&'static str> {
    let mut steps = Vec::new();
    let of = |cause: &Cause| match label {
        Label::Reachable => None,
        Label::OneOf => Some(cause.separator()),
        Label::Likely | Label::Proven => Some(cause.fix()),
    };
    for step in causes.iter().filter_map(of) {
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    steps
}

/// Those that fit into so many bytes, in one line; none is cut.
pub(crate) fn fix(label: Label, causes: &[Cause], most: usize) -> String {
    let separator = if label == Label::OneOf { "; " } else { " " };
    let mut fix = String::new();
    for step in steps(label, causes) {
        let longer = if fix.is_empty() { step.to_owned() } else { format!("{fix}{separator}{step}") };
        if longer.len() > most {
            break;
        }
        fix = longer;
    }
    fix
}

/// The path of the probe as the hosts report it: addresses with their links, and the next hop.
pub fn path(evidence: &Evidence) -> String {
    let (attempt, arrival) = (&evidence.attempt, evidence.arrival.as_ref());
    let end = |address: Option<IpAddr>, link: &str| {
        address.map(|address| if link.is_empty() { address.to_string() } else { format!("{address} ({link})") })
    };
    let target = attempt.target.or(evidence.target.address);
    let route = attempt.route.clone().unwrap_or_default();
    let gateway = route.gateway.filter(|gateway| Some(*gateway) != target);
    let inward = arrival.map_or("", |report| report.taps.inward.device.as_str());
    let hops = [end(attempt.source, &route.device), end(gateway, ""), end(target, inward)];
    hops.into_iter().flatten().collect::<Vec<_>>().join(" → ")
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
        Some(Failure::Unresolved(why)) => return format!("cannot resolve {why}"),
        Some(Failure::Status(status)) => format!("HTTP status {status}"),
        Some(Failure::Invalid(meaning)) => meaning.clone(),
        Some(Failure::Slow { mbits, of }) => return format!("{mbits} of {of} Mbit/s carried"),
    };
    format!("{} of {} lost, {why}", tally.lost(), tally.sent)
}

/// What a host shows before and after, in a few words: counters that changed, and tables that are full.
pub(crate) fn host(report: &ProbeReport) -> HostTexts {
    let (before, after) = (&report.before, &report.after);
    let counters = [
        ("rp_filter drops", before.rp_filter_drops, after.rp_filter_drops),
        ("neighbour overflows", before.neighbour_overflows, after.neighbour_overflows),
        ("dropped connections", before.connection_drops, after.connection_drops),
        ("raced connections", before.insert_failures, after.insert_failures),
    ];
    let tables = [
        ("neighbours", before.neighbours, after.neighbours, after.neighbour_limit),
        ("connections", before.connections, after.connections, after.connection_limit),
    ];
    let mut shown = HostTexts::default();
    for (name, before, after) in counters {
        if let (Some(before), Some(after)) = (before, after)
            && before != after
        {
            shown.add(format!("{name} {before}"), format!("{name} {after}"));
        }
    }
    for (name, before, after, limit) in tables {
        if let (Some(before), Some(after), Some(limit)) = (before, after, limit)
            && is_full(after, limit)
        {
            shown.add(format!("{name} {before}/{limit}"), format!("{name} {after}/{limit}"));
        }
    }
    shown
}

/// Texts of a host before and after.
#[derive(Debug, Default)]
pub(crate) struct HostTexts {
    pub(crate) before: Vec<String>,
    pub(crate) after: Vec<String>,
}

impl HostTexts {
    fn add(&mut self, before: String, after: String) {
        self.before.push(before);
        self.after.push(after);
    }
}

/// Whether a table is full: entries come and go while it is read, so 95 % count as all.
pub(crate) const fn is_full(entries: u64, limit: u64) -> bool {
    limit > 0 && entries.saturating_mul(100) >= limit.saturating_mul(95)
}
