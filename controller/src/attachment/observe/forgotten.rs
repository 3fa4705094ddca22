//! Recognizes an instance that ended while no controller ran: OCI answers 404 forever. It does the same for an instance that
//! was moved to a compartment that we may not see, so more evidence is collected, for a day. Pure.
//!
//! The VNIC decides: it is in its *subnet's* compartment, wherever its instance is. If we can see the subnet and another VNIC
//! there, we would see this one too.

use std::fmt;
use std::time::Duration;

use api::AttachmentReason as Reason;
use api::condition::Condition;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use vcn::Ocid;

/// How long all evidence must hold, by the condition's time in the object, across processes.
const A_DAY: SignedDuration = SignedDuration::from_hours(24);
/// For how many regular reconciles one process must have seen it, by its own clock, because wall clocks can be set.
const LOOKS: u32 = 12;
/// How each message about it begins.
const WORD: &str = "forgotten: ";

/// The evidence besides the instance, for one object. Missing evidence is a doubt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Whether no Node names the instance.
    pub no_node: bool,
    /// Whether the reported VNIC is answered 404; also true if none was reported.
    pub no_vnic: bool,
    /// Whether its subnet is visible.
    pub subnet: bool,
    /// How many compartments were listed completely: the subnet's, and those of visible instances.
    pub compartments: Option<usize>,
    /// Whether none of these lists has an attachment of the instance, for the object, or of its VNIC.
    pub unlisted: bool,
    /// Another VNIC in the subnet's compartment that was read after that.
    pub witness: Option<Ocid>,
}

/// Why an instance may still exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvidenceGap {
    /// No evidence yet, or no answer: no reason to report anything new.
    NotLooked,
    /// A Node names it.
    Node,
    /// The VNIC is visible.
    Vnic,
    /// The subnet is not visible.
    Subnet,
    /// A compartment cannot be listed.
    NotListed,
    /// It is in a list.
    Listed,
    /// No other VNIC can be read in its compartment.
    NoWitness,
}

/// What one process knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvidenceSummary {
    /// For how long there has been no doubt.
    pub since: Duration,
    /// How many compartments were listed.
    pub compartments: usize,
}

/// The current time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Wall-clock time.
    pub now: Timestamp,
    /// The interval of regular reconciles.
    pub resync: Duration,
}

impl Evidence {
    /// The number of listed compartments, if all evidence holds.
    ///
    /// # Errors
    /// The first doubt.
    pub fn judge(&self) -> Result<usize, EvidenceGap> {
        let all = [
            (self.no_node, EvidenceGap::Node),
            (self.no_vnic, EvidenceGap::Vnic),
            (self.subnet, EvidenceGap::Subnet),
            (self.compartments.is_some(), EvidenceGap::NotListed),
            (self.unlisted, EvidenceGap::Listed),
            (self.witness.is_some(), EvidenceGap::NoWitness),
        ];
        let doubt = all.iter().find(|(holds, _)| !holds).map(|(_, doubt)| *doubt);
        doubt.map_or(Ok(self.compartments.unwrap_or_default()), Err)
    }
}

impl EvidenceGap {
    /// Whether it shows that the instance exists; the other doubts mean that too little is visible.
    #[must_use]
    pub const fn is_sight(self) -> bool {
        matches!(self, Self::Node | Self::Vnic | Self::Listed)
    }
}

/// The reason and message of an object whose instance is answered 404; the message does not change.
#[must_use]
pub fn said(told: Option<&Condition>, known: Result<EvidenceSummary, EvidenceGap>, clock: Clock) -> (Reason, String) {
    let known = match known {
        Ok(known) => known,
        Err(doubt) => {
            let message = format!("GetInstance is answered 404; the instance may still exist: {doubt}");
            return (Reason::NotAuthorizedOrNotFound, message);
        }
    };
    let reason = told.and_then(|told| Reason::from_word(&told.reason));
    match (told, reason) {
        (Some(told), Some(Reason::InstanceForgotten)) if is_over(told, known, clock) => {
            (Reason::NodeGone, format!("{WORD}for a day {}", words(known)))
        }
        // The transition time is that of the first reconcile without doubt only if another status was reported before.
        (_, Some(Reason::InstanceForgotten | Reason::NotAuthorizedOrNotFound)) => {
            (Reason::InstanceForgotten, format!("{WORD}{}", words(known)))
        }
        _ => {
            let message = "GetInstance is answered 404: the instance is gone, or the controller lacks permission";
            (Reason::NotAuthorizedOrNotFound, message.to_owned())
        }
    }
}

/// Whether a message is about an instance that counts as terminated.
#[must_use]
pub fn is_about(message: &str) -> bool {
    message.starts_with(WORD)
}

fn is_over(told: &Condition, known: EvidenceSummary, clock: Clock) -> bool {
    // A clock that was set back only makes it longer.
    clock.now.duration_since(told.last_transition_time.0) >= A_DAY && known.since >= clock.resync * LOOKS
}

fn words(known: EvidenceSummary) -> String {
    let EvidenceSummary { compartments, .. } = known;
    format!(
        "404 for instance and VNIC, not listed in {compartments} compartments, no Node; other VNICs there are visible"
    )
}

impl fmt::Display for EvidenceGap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotLooked => "no other evidence yet",
            Self::Node => "a Node names it",
            Self::Vnic => "its VNIC is visible",
            Self::Subnet => "its subnet is not visible either",
            Self::NotListed => "a compartment cannot be listed",
            Self::Listed => "OCI lists an attachment of it",
            Self::NoWitness => "no other VNIC of the subnet's compartment is visible",
        })
    }
}

#[cfg(test)]
mod tests;
